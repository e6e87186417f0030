"""A pilot: labels as targets, learned in random orders."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from .._checks import InputError
from .._engine import checked_kernel
from ..spectral import Factor, Spectrum, solve

TASKS = ("auto", "regression", "classification")
_MOST_VALUES = 0.1  # of the rows: integers with more values than that are numbers, not classes
_MOST_CLASSES = 0.5  # of the rows: beyond, they are names of rows


@dataclass(frozen=True)
class Targets:
    """Centred, `(rows, outputs)`; `labels`: the class of each row, `None` for numbers. `mean`: what was subtracted."""

    values: Float[np.ndarray, "rows outputs"]
    mean: Float[np.ndarray, " outputs"]
    labels: np.ndarray | None

    @property
    def task(self) -> str:
        """What they are."""
        return "regression" if self.labels is None else "classification"

    @property
    def variance(self) -> float:
        """The error of a network that has learned nothing but the mean."""
        return float(np.mean(self.values**2))

    @property
    def chance(self) -> float:
        """The share of wrong classes if the most frequent one is always said; 1 for numbers."""
        return 1.0 if self.labels is None else 1.0 - float(self.mean.max())

    def wrong(self, predicted: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        """Whether the largest output is another than that of the class; 0 for numbers."""
        if self.labels is None:
            return np.zeros(len(predicted))
        return (np.argmax(predicted + self.mean, axis=1) != self.labels[rows]).astype(np.float64)


def targets_of(y: Any, task: str) -> Targets:
    """Classes are text, truth values, whole numbers with few values, or rows of indicators; the rest are numbers."""
    if task not in TASKS:
        raise InputError(f"task={task!r}: expected one of {', '.join(map(repr, TASKS))}.")
    labels = _as_numbers_if_they_are(np.asarray(y))
    if labels.ndim not in (1, 2) or not labels.size:
        raise InputError(f"y has shape {labels.shape}, expected (rows,) or (rows, outputs).")
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if task == "classification" or (task == "auto" and _looks_like_classes(labels)):
        return _classes(labels)
    return _numbers(labels)


def _as_numbers_if_they_are(y: np.ndarray) -> np.ndarray:
    """Numbers in an array of objects, as tables have them."""
    if y.dtype.kind != "O" or all(isinstance(value, bool | str) for value in y.ravel()):
        return y
    try:
        return y.astype(np.float64)
    except (TypeError, ValueError):
        return y


def _missing(value: Any) -> bool:
    """None, NaN, and what pandas has in their place: none but the first equals itself, or says so."""
    equal = value == value
    return value is None or not isinstance(equal, bool) or not equal


def _looks_like_classes(y: np.ndarray) -> bool:
    if y.ndim == 2:
        return _is_indicator(y)
    if y.dtype.kind in "bUSO":
        return True
    return y.dtype.kind in "iu" and len(np.unique(y)) <= max(2, _MOST_VALUES * len(y))


def _is_indicator(y: np.ndarray) -> bool:
    return bool(y.dtype.kind in "biuf" and np.isin(y, (0, 1)).all() and (y.sum(1) == 1).all())


def _classes(y: np.ndarray) -> Targets:
    if y.ndim == 2 and not _is_indicator(y):
        raise InputError(f"y has shape {y.shape}, expected one class for each row, or rows with a single 1.")
    if y.ndim == 1 and (lost := [row for row, value in enumerate(y.tolist()) if _missing(value)]):
        raise InputError(f"Row {lost[0]} of y has no class: it holds {y[lost[0]]!r}. Drop such rows.")
    names, labels = np.unique(np.argmax(y, axis=1) if y.ndim == 2 else y.astype(str), return_inverse=True)
    if len(names) < 2:
        raise InputError(f"All rows have the class {names[0]}: there is nothing to learn. Expected two or more.")
    if len(names) > _MOST_CLASSES * len(y):
        raise InputError(
            f"y has {len(names)} classes in {len(y)} rows: too many to learn. For numbers pass task='regression'."
        )
    indicators = np.eye(len(names))[labels]
    mean = indicators.mean(0)
    return Targets(indicators - mean, mean, labels)


def _numbers(y: np.ndarray) -> Targets:
    try:
        values = np.asarray(y, np.float64).reshape(len(y), -1)
    except (TypeError, ValueError):
        raise InputError(f"y holds {y.dtype}, expected numbers. For classes pass task='classification'.") from None
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise InputError(f"Row {row} of y is not finite. Drop such rows.")
    mean = values.mean(0)
    if not np.ptp(values, axis=0).max() > 0:
        raise InputError("All targets are equal: there is nothing to learn.")
    return Targets(values - mean, mean, None)


_RIDGES = 10.0 ** np.arange(-9, 2.01, 0.5)  # times the mean of the kernel's diagonal
_ORDERS, _FEWEST_ORDERS = 200, 8  # random orders in which the pilot is learned
_LARGE = 600  # rows from which there are fewer, as each takes longer
_SMALLEST_SIZE = 16
_SIZES = 9


@dataclass(frozen=True)
class Measured:
    """The learning curve inside the pilot, at `sizes`; `(orders, sizes)`. `wrong`: shares of wrong classes.

    `row_errors`, `row_wrong`: of each row, learned from all others.
    """

    sizes: np.ndarray
    errors: Float[np.ndarray, "orders sizes"]
    wrong: Float[np.ndarray, "orders sizes"]
    row_errors: Float[np.ndarray, " rows"]
    row_wrong: Float[np.ndarray, " rows"]
    variance: float  # of the targets
    chance: float  # the share of wrong classes without learning
    ridge: float

    @property
    def rows(self) -> int:
        """Of the pilot."""
        return len(self.row_errors)


def measure(given: np.ndarray, y: Targets, ridge: float | None, seed: int) -> Measured:
    """Learn the pilot in random orders; the ridge, if not given, has the smallest leave-one-out error."""
    kernel = checked_kernel(given)
    if np.ptp(kernel) <= 1e-12 * np.abs(kernel).max():
        raise InputError("The kernel is the same for all pairs of rows: they cannot be told apart. Is x constant?")
    rows = len(kernel)
    if len(y.values) != rows:
        raise InputError(f"y has {len(y.values)} rows and x {rows}: they must agree.")
    scale = float(np.mean(np.diagonal(kernel)))
    ridges = _RIDGES * scale if ridge is None else np.array([ridge])
    chosen, left_out = _leave_one_out(given, ridges, y.values)
    sizes = np.unique(np.geomspace(max(_SMALLEST_SIZE, rows / 16), 0.85 * rows, _SIZES).astype(int))
    rng = np.random.default_rng(seed)
    orders = min(_ORDERS, max(_FEWEST_ORDERS, _ORDERS * _LARGE**2 // rows**2))
    curves = [_one_order(kernel, y, chosen, sizes, rng.permutation(rows)) for _ in range(orders)]
    errors, wrong = (np.stack(part) for part in zip(*curves, strict=True))
    residuals = y.values - left_out
    return Measured(
        sizes, errors, wrong, np.mean(residuals**2, axis=1), y.wrong(left_out), y.variance, y.chance, chosen
    )


def _leave_one_out(given: np.ndarray, ridges: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """The ridge with the smallest error, and the predictions of each row from all others.

    No ridge is so small that the matrix with its rounding is not safely definite.
    """
    Spectrum.check(given)
    solved = solve(given, y, solver="eigen")
    smallest, largest = float(solved.spectrum.values[0]), float(solved.spectrum.values[-1])
    least = 4 * len(y) * float(np.finfo(np.float64).eps) * largest + 2 * max(-smallest, 0.0)
    guesses = {ridge: solved.at(ridge).left_out() for ridge in np.maximum(ridges, least).tolist()}
    best = min(guesses, key=lambda ridge: float(np.mean((y - guesses[ridge]) ** 2)))
    return best, guesses[best]


def _one_order(
    kernel: np.ndarray, y: Targets, ridge: float, sizes: np.ndarray, order: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Errors on the rows that come after the first `size` of an order, for every size, from one factorization.

    The leading block of a Cholesky factor is the factor of the leading block, so that the prediction of later rows from
    the first `s` is `L[later, :s] z[:s]`, with `z = L^-1 y`: a running sum.
    """
    ordered, targets = kernel[np.ix_(order, order)], y.values[order]
    ordered[np.diag_indices_from(ordered)] += ridge
    factor = Factor.with_jitter(ordered)
    solved, lower = factor.whiten(targets), factor.lower
    predicted, before = np.zeros_like(targets), 0
    errors, wrong = np.empty(len(sizes)), np.empty(len(sizes))
    for at, size in enumerate(sizes):
        predicted = predicted + lower[:, before:size] @ solved[before:size]
        errors[at] = np.mean((predicted[size:] - targets[size:]) ** 2)
        wrong[at] = np.mean(y.wrong(predicted[size:], order[size:]))
        before = size
    return errors, wrong


_FLOORS = np.array([0.0, 0.01, 0.02, 0.04, 0.08, 0.15, 0.25, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.995])
_STARTS = np.array([0.0, 0.03, 0.1, 0.2, 0.4, 0.8, 1.6])  # times the rows of the pilot
_EXPONENTS = np.geomspace(0.05, 5.0, 80)  # flatter curves have a floor
_NO_NOISE = 0.5  # how probable that is before anything is measured
_USUAL_EXPONENT, _SPREAD_OF_EXPONENTS = 0.4, 1.0  # median, and standard deviation of the logarithm
_MISFIT = 0.01  # relative: real curves are not exactly of this family
_INDEPENDENT_ORDERS = 6  # orders share their rows: many are worth about as much as these


@dataclass(frozen=True)
class Shapes:
    """All shapes of the family, and how probable each is, `(shapes,)`."""

    rows: int
    floors: Float[np.ndarray, " shapes"]
    starts: Float[np.ndarray, " shapes"]
    exponents: Float[np.ndarray, " shapes"]
    weights: Float[np.ndarray, " shapes"]

    def log_ratios(self, n: Any) -> Float[np.ndarray, "n shapes"]:
        """The logarithm of the error at each `n` over that of the pilot."""
        return _log_ratios(np.asarray(n, np.float64) / self.rows, self.floors, self.starts, self.exponents)

    def mean(self, values: np.ndarray) -> float:
        """Over all shapes."""
        return float(self.weights @ values)


def weigh(
    rows: int, sizes: np.ndarray, errors: Float[np.ndarray, "orders sizes"], left_out: float, variance: float
) -> Shapes:
    """Bayes' rule: the measured curve, and the error with all rows but one, under an unknown level.

    `variance`: of the targets, the error of a network that has learned nothing.
    """
    grid = np.meshgrid(_FLOORS, _STARTS, _EXPONENTS, indexing="ij")
    floors, starts, exponents = (part.ravel() for part in grid)
    mean = errors.mean(0)
    spread = errors.std(0) / mean / min(len(errors), _INDEPENDENT_ORDERS) ** 0.5
    measured = np.log(np.append(mean, left_out))
    precision = 1 / np.append(np.hypot(spread, _MISFIT), _MISFIT) ** 2
    rest = measured[:, None] - _log_ratios(np.append(sizes, rows - 1) / rows, floors, starts, exponents)
    rest = rest - precision @ rest / precision.sum()  # the level is free
    log_weights = -0.5 * precision @ rest**2 + _log_prior(floors, starts, exponents, min(left_out / variance, 1.0))
    weights = np.exp(log_weights - log_weights.max())
    return Shapes(rows, floors, starts, exponents, weights / weights.sum())


def _log_ratios(share: np.ndarray, floors: np.ndarray, starts: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    falling = ((share[..., None] + starts) / (1 + starts)) ** -exponents
    return np.log(floors + (1 - floors) * falling)


def _log_prior(floors: np.ndarray, starts: np.ndarray, exponents: np.ndarray, unexplained: float) -> np.ndarray:
    # Jeffreys' prior of a share, near 0: the probability of less noise than `v` goes as its root.
    noise = np.diff(np.sqrt(_FLOORS), prepend=0.0) * (1 - _NO_NOISE) * unexplained**0.5
    density = np.where(_FLOORS > 0, noise, _NO_NOISE)
    unusual = np.log(exponents / _USUAL_EXPONENT) / _SPREAD_OF_EXPONENTS
    return np.log(density)[np.searchsorted(_FLOORS, floors)] - np.log1p(10 * starts) - unusual**2 / 2


_DRAWS = 4000
_BEND = 0.05  # by how much real curves leave the family beyond the pilot, for each e-fold of rows
_USUAL_POWER, _SPREAD_OF_POWERS = 1.0, 0.25  # of the law that leads from errors to wrong classes
_NOISE_OF_WRONG = 0.1  # of the logarithm of a measured share of wrong classes

Draws = Float[np.ndarray, " draws"]


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Draws: the index of a shape, how it bends beyond the pilot, and the error and the wrong classes at its size.

    `power`: wrong classes are this power of the error. `chance`: the share that is wrong without learning.
    """

    shapes: Shapes
    shape: np.ndarray
    bend: Draws
    log_level: Draws
    log_wrong: Draws
    power: Draws
    smallest: float  # size inside the pilot at which anything was measured
    log_variance: float
    chance: float
    left_out: float

    def log_errors(self, n: Any) -> Float[np.ndarray, "n draws"]:
        """Before anything was measured, an error is at most the variance of the targets."""
        rows = np.asarray(n, np.float64)
        logs = self._log_ratios(rows) + self.log_level
        return np.where(rows[:, None] < self.smallest, np.minimum(logs, self.log_variance), logs)

    def wrong(self, n: Any) -> Float[np.ndarray, "n draws"]:
        """Shares of wrong classes."""
        shares = np.exp(self.log_wrong + self.power * self._log_ratios(np.asarray(n, np.float64)))
        return np.minimum(shares, self.chance)

    def _log_ratios(self, rows: np.ndarray) -> np.ndarray:
        beyond = np.log(np.maximum(rows / self.shapes.rows, 1.0))
        return self.shapes.log_ratios(rows)[:, self.shape] + beyond[:, None] * self.bend


def beliefs_of(measured: Measured, seed: int) -> Beliefs:
    """The level, and the share of wrong classes, are those of resampled rows, each learned from all others."""
    left_out = float(measured.row_errors.mean())
    if not left_out > 1e-20 * measured.variance or not (measured.errors > 0).all():
        raise InputError("The pilot is learned without any error from a few of its rows: there is nothing to forecast.")
    rng, rows = np.random.default_rng(seed + 1), measured.rows
    shapes = weigh(rows, measured.sizes, measured.errors, left_out, measured.variance)
    counts = rng.multinomial(rows, np.full(rows, 1 / rows), size=_DRAWS)
    wrong = (counts @ measured.row_wrong + 0.5) / (rows + 1)  # none wrong in so many rows is not none at all
    power, spread = _power_of_wrong(measured)
    return Beliefs(
        shapes=shapes,
        shape=rng.choice(len(shapes.weights), size=_DRAWS, p=shapes.weights),
        bend=_BEND * rng.normal(size=_DRAWS),
        log_level=np.log(counts @ measured.row_errors / rows),
        log_wrong=np.log(wrong),
        power=np.maximum(power + spread * rng.normal(size=_DRAWS), 0.1),
        smallest=float(measured.sizes[0]),
        log_variance=float(np.log(measured.variance)),
        chance=measured.chance,
        left_out=left_out,
    )


def _power_of_wrong(measured: Measured) -> tuple[float, float]:
    """The power of the error with which wrong classes fall inside the pilot, and its standard deviation."""
    wrong = np.log(np.maximum(measured.wrong.mean(0), 0.5 / measured.rows))
    errors = np.log(measured.errors.mean(0))
    errors, wrong = errors - errors.mean(), wrong - wrong.mean()
    precision = errors @ errors / _NOISE_OF_WRONG**2 + 1 / _SPREAD_OF_POWERS**2
    power = (errors @ wrong / _NOISE_OF_WRONG**2 + _USUAL_POWER / _SPREAD_OF_POWERS**2) / precision
    return float(power), float(precision**-0.5)
