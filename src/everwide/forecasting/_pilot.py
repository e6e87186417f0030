"""A pilot: labels as targets, learned in random orders."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._checks import InputError, is_missing
from .._engine import checked_kernel, precision
from ..spectral import Factor, KernelError, Spectrum, solve

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
    if y.ndim == 1 and (lost := [row for row, value in enumerate(y.tolist()) if is_missing(value)]):
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

    - `row_errors`, `row_wrong`: of each row, learned from all others. `row_curves`: of each row, a mean over the orders
      in which it comes later; NaN where there is none.
    - `eigenvalues` of the kernel, rising, and `powers`: squares of the targets along its eigenvectors.
    - `leverage`: the largest kernel of a row with itself, over the median.
    """

    sizes: np.ndarray
    errors: Float[np.ndarray, "orders sizes"]
    wrong: Float[np.ndarray, "orders sizes"]
    row_curves: Float[np.ndarray, "rows sizes"]
    row_errors: Float[np.ndarray, " rows"]
    row_wrong: Float[np.ndarray, " rows"]
    eigenvalues: Float[np.ndarray, " rows"]
    powers: Float[np.ndarray, " rows"]
    leverage: float
    variance: float  # of the targets
    chance: float  # the share of wrong classes without learning
    ridge: float

    @property
    def rows(self) -> int:
        """Of the pilot."""
        return len(self.row_errors)


class Learned(NamedTuple):
    """A kernel, made definite; `solved` with the ridge, and what it says of each row, learned from all others."""

    kernel: Float[np.ndarray, "rows rows"]
    solved: Any
    ridge: float
    left_out: Float[np.ndarray, "rows outputs"]


def learn(given: np.ndarray, y: Targets, ridge: float | None = None) -> Learned:
    """With the ridge, or that of the smallest leave-one-out error.

    No ridge is so small that the matrix with its rounding is not safely definite.
    """
    kernel = checked_kernel(given)
    if np.ptp(kernel) <= 1e-12 * np.abs(kernel).max():
        raise InputError("The kernel is the same for all pairs of rows: they cannot be told apart. Is x constant?")
    if len(y.values) != len(kernel):
        raise InputError(f"y has {len(y.values)} rows and x {len(kernel)}: they must agree.")
    scale, shift = float(np.mean(np.diagonal(kernel))), _parting(given, kernel)
    kernel[np.diag_indices_from(kernel)] += shift
    ridges = _RIDGES * scale if ridge is None else np.array([max(ridge - shift, 0.0)])
    solved = solve(kernel if shift else given, y.values, solver="eigen")
    smallest, largest = float(solved.spectrum.values[0]), float(solved.spectrum.values[-1])
    least = 4 * len(kernel) * float(np.finfo(np.float64).eps) * largest + 2 * max(-smallest, 0.0)
    guesses = {one: solved.at(one).left_out() for one in np.maximum(ridges, least).tolist()}
    best = min(guesses, key=lambda one: float(np.mean((y.values - guesses[one]) ** 2)))
    return Learned(kernel, solved.at(best), best + shift, guesses[best])


def measure(given: np.ndarray, y: Targets, ridge: float | None, seed: int) -> Measured:
    """Learn the pilot in random orders; the ridge, if not given, has the smallest leave-one-out error."""
    kernel, solved, total, left_out = learn(given, y, ridge)
    rows, own = len(kernel), np.diagonal(kernel)
    sizes = np.unique(np.geomspace(max(_SMALLEST_SIZE, rows / 16), 0.85 * rows, _SIZES).astype(int))
    rng = np.random.default_rng(seed)
    several = min(_ORDERS, max(_FEWEST_ORDERS, _ORDERS * _LARGE**2 // rows**2))
    curves = [_one_order(kernel, y, solved.ridge, sizes, rng.permutation(rows)) for _ in range(several)]
    later = np.stack([each for each, _ in curves])
    return Measured(
        sizes=sizes,
        errors=np.nanmean(later, axis=1),
        wrong=np.stack([wrong for _, wrong in curves]),
        row_curves=_row_means(later),
        row_errors=np.mean((y.values - left_out) ** 2, axis=1),
        row_wrong=y.wrong(left_out),
        eigenvalues=solved.spectrum.values,
        powers=np.mean(solved.seen**2, axis=1),
        leverage=float(own.max() / max(np.median(own), 1e-12 * own.max())),
        variance=y.variance,
        chance=y.chance,
        ridge=total,
    )


def _row_means(later: Float[np.ndarray, "orders rows sizes"]) -> Float[np.ndarray, "rows sizes"]:
    counted = np.isfinite(later).sum(0)
    return np.where(counted > 0, np.nansum(later, axis=0) / np.maximum(counted, 1), np.nan)


def _parting(given: np.ndarray, kernel: np.ndarray) -> float:
    """What the diagonal needs where rows are parallel: the angle between them is the root of rounding, and not 0."""
    try:
        Spectrum.check(given)
    except KernelError:
        smallest = float(Spectrum.unchecked(kernel, np.ones(1), 0.0).values[0])
        if -smallest > precision(given) ** 0.5 * np.trace(kernel):
            raise
        return -2 * smallest
    return 0.0


def _one_order(
    kernel: np.ndarray, y: Targets, ridge: float, sizes: np.ndarray, order: np.ndarray
) -> tuple[Float[np.ndarray, "rows sizes"], Float[np.ndarray, " sizes"]]:
    """Errors of the rows that come after the first `size` of an order, NaN for those before; shares of wrong classes.

    The leading block of a Cholesky factor is the factor of the leading block, so that the prediction of later rows from
    the first `s` is `L[later, :s] z[:s]`, with `z = L^-1 y`: a running sum, for every size from one factorization.
    """
    ordered, targets = kernel[np.ix_(order, order)], y.values[order]
    ordered[np.diag_indices_from(ordered)] += ridge
    factor = Factor.with_jitter(ordered)
    solved, lower = factor.whiten(targets), factor.lower
    predicted, before = np.zeros_like(targets), 0
    errors, wrong = np.full((len(order), len(sizes)), np.nan), np.empty(len(sizes))
    for at, size in enumerate(sizes):
        predicted = predicted + lower[:, before:size] @ solved[before:size]
        later = order[size:]
        errors[later, at] = np.mean((targets[size:] - predicted[size:]) ** 2, axis=1)
        wrong[at] = np.mean(y.wrong(predicted[size:], later))
        before = size
    return errors, wrong
