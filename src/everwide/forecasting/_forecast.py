"""How much data a network needs, from a labelled pilot."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .._checks import InputError, not_negative, probability, warn, whole
from .._engine import KernelOperator
from .._gram import kernel_matrix
from .._words import axes
from ._pilot import Measured, measure, targets_of
from ._shapes import Beliefs, beliefs_of

FEWEST = 64
_LARGEST_RATIO = 2.0  # between the ends of the 90 % interval, up to which a forecast is trusted
_LARGEST_FACTOR = 20  # rows, over those of the pilot
_MOST = 10**12  # rows
_OF_AN_OPERATOR = 4096  # rows
_FAR = 30.0  # times the median of the kernel's diagonal: a row that is as large rules the error
_SMALL, _FEW, _MUCH = 1e-4, 2, 0.2  # an eigenvalue that does not count; a rank; a share of the variance

Curve = Float[np.ndarray, " n"]


class ForecastWarning(UserWarning):
    """A forecast for more rows than the pilot can speak for.

    >>> import everwide.forecasting as fc
    >>> issubclass(fc.ForecastWarning, UserWarning)
    True
    """


@dataclass(frozen=True, eq=False)
class Forecast:
    """The test error that a network will have, by the number of rows it learns from. Made by `forecast`."""

    n: np.ndarray
    error: Curve
    low: Curve
    high: Curve
    accuracy: Curve | None
    accuracy_low: Curve | None
    accuracy_high: Curve | None
    task: str
    rows: int
    ridge: float
    level: float
    noise: float
    tail: float
    exponent: float
    trusted_to: int
    measured: Measured
    beliefs: Beliefs

    def samples_needed(self, target: float, *, quantile: float = 0.5) -> float:
        """The fewest rows with which the target is reached: an accuracy for classes, a mean squared error for numbers.

        `quantile=0.9`: with which it is reached with that probability. Infinite where it is not. Beyond `trusted_to`
        a `ForecastWarning` is given.
        """
        classes = self.accuracy is not None
        if not 0 < target < (1 if classes else math.inf):
            expected = "an accuracy above 0 and below 1" if classes else "a mean squared error above 0"
            raise InputError(f"samples_needed(target={target!r}): expected {expected}.")
        probability(quantile, "samples_needed: quantile")
        value = self.beliefs.wrong if classes else self.beliefs.log_errors
        limit = 1 - target if classes else math.log(target)
        needed = first_below(lambda n: np.quantile(value(n), quantile, axis=-1), limit + 1e-12)
        if needed > self.trusted_to:
            _warn(self.rows, self.trusted_to, f"samples_needed({target!r}) = {needed:g}")
        return needed

    def table(self) -> list[dict[str, float]]:
        """One row for each `n`."""
        names = [name for name in ("n", "error", "low", "high", "accuracy") if getattr(self, name) is not None]
        columns = [getattr(self, name) for name in names]
        return [{name: float(c[at]) for name, c in zip(names, columns, strict=True)} for at in range(len(self.n))]

    def plot(self, ax: Any = None) -> Any:
        """The measured beginning, the forecast, its interval, and how far it is trusted; on matplotlib axes."""
        ax, interval, inside = axes(ax, "table()"), f"{self.level:.0%} interval", f"measured inside {self.rows} rows"
        ax.axvline(self.trusted_to, color="0.6", linestyle=":", label="trusted to here")
        sizes, errors = self.measured.sizes, self.measured.errors.mean(0)
        return draw(ax, self, interval, sizes, errors, inside, "mean squared error on new rows")

    def __str__(self) -> str:
        classes = "" if self.accuracy is None else "  accuracy"
        lines = [f"{'rows':>10}  {'error':>9}  {self.level:.0%} interval{classes}"]
        for at, n in enumerate(self.n):
            accuracy = "" if self.accuracy is None else f"  {self.accuracy[at]:8.1%}"
            lines.append(f"{n:10d}  {self.error[at]:9.4g}  {self.low[at]:.4g} .. {self.high[at]:.4g}{accuracy}")
        parts = f"Noise {self.noise:.3g}, tail {self.tail:.3g}."
        lines.append(f"{self.task.capitalize()} from {self.rows} rows; trusted to {self.trusted_to}. {parts}")
        return "\n".join(lines)


def draw(ax: Any, curve: Any, interval: str, sizes: np.ndarray, errors: np.ndarray, measured: str, label: str) -> Any:
    """A curve with its interval, and what was measured, on matplotlib axes."""
    ax, order = axes(ax, "table()"), curve.n.argsort()
    n, low, high, error = (values[order] for values in (curve.n, curve.low, curve.high, curve.error))
    ax.fill_between(n, low, high, alpha=0.2, color="C0", label=interval)
    ax.plot(n, error, color="C0", label="forecast")
    ax.plot(sizes, errors, "o", color="C1", label=measured)
    ax.set(xscale="log", yscale="log", xlabel="rows", ylabel=label)
    ax.legend(frameon=False)
    return ax


def forecast_kernel(
    kernel: Any,
    x: Any,
    y: Any,
    n: Any = None,
    *,
    ridge: float | None = None,
    task: str = "auto",
    which: str = "ntk",
    level: float = 0.9,
    seed: int = 0,
) -> Forecast:
    """What `forecast(of="kernel")` does: see there."""
    if ridge is not None:
        not_negative(ridge, "forecast: ridge")
    probability(level, "forecast: level")
    whole(seed, "forecast: seed", least=0)
    kernel, y = _part(kernel, y, seed) if isinstance(kernel, KernelOperator) else (kernel, y)
    targets, matrix = targets_of(y, task), kernel_matrix(kernel, x, which)
    if len(targets.values) == len(matrix) < FEWEST:
        raise InputError(
            f"The pilot has {len(targets.values)} labelled rows; a forecast needs at least {FEWEST}, to see how the "
            "error falls from a sixteenth of them to all. Label more rows."
        )
    measured = measure(matrix, targets, ridge, seed)
    _warn_of_the_kernel(measured)
    asked = rows_asked_for(n, measured.rows, "forecast")
    return _made(asked, measured, beliefs_of(measured, seed), level, targets.task)


def _part(kernel: KernelOperator, y: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """As many random rows as can be decomposed in seconds: a pilot."""
    labels = np.asarray(y)
    if labels.shape[:1] != (len(kernel),):
        raise InputError(f"y has shape {labels.shape} and the kernel {len(kernel)} rows: they must agree.")
    rows = np.sort(np.random.default_rng(seed).permutation(len(kernel))[:_OF_AN_OPERATOR])
    return kernel.among(rows).astype(np.float32), labels[rows]


def rows_asked_for(n: Any, rows: int, label: str) -> np.ndarray:
    """Whole numbers, one or several; by default from an eighth of the pilot to 20 times as many."""
    if n is None:
        return np.unique(np.geomspace(max(8, rows / 8), _LARGEST_FACTOR * rows, 16).astype(int))
    asked = np.atleast_1d(np.asarray(n))
    numbers = asked.ndim == 1 and asked.size and asked.dtype.kind in "iuf"
    if not numbers or not ((asked >= 1) & (asked <= _MOST) & (asked == np.floor(asked))).all():
        raise InputError(f"{label}(n={n!r}): expected rows, one number or several: whole numbers from 1 to {_MOST:g}.")
    return asked.astype(np.int64)


def _made(n: np.ndarray, measured: Measured, beliefs: Beliefs, level: float, task: str) -> Forecast:
    ends = ((1 - level) / 2, 0.5, (1 + level) / 2)
    low, error, high = np.exp(np.quantile(beliefs.log_errors(n), ends, axis=-1))
    trusted, most = _trusted_to(measured.rows, beliefs), int(n.argmax())
    if n[most] > trusted:
        _warn(measured.rows, trusted, f"n={n[most]}, with an interval from {low[most]:.3g} to {high[most]:.3g}")
    accuracies = (None, None, None)
    if task == "classification":
        accuracies = tuple(1 - np.quantile(beliefs.wrong(n), ends, axis=-1)[::-1])
    shapes = beliefs.shapes
    noise = beliefs.left_out * shapes.mean(shapes.floors)
    return Forecast(
        n=n,
        error=error,
        low=low,
        high=high,
        accuracy=accuracies[1],
        accuracy_low=accuracies[0],
        accuracy_high=accuracies[2],
        task=task,
        rows=measured.rows,
        ridge=measured.ridge,
        level=level,
        noise=noise,
        tail=beliefs.left_out - noise,
        exponent=shapes.mean(shapes.exponents),
        trusted_to=trusted,
        measured=measured,
        beliefs=beliefs,
    )


def _trusted_to(rows: int, beliefs: Beliefs) -> int:
    looked_at = np.geomspace(rows, _LARGEST_FACTOR * rows, 60)
    low, high = np.quantile(beliefs.log_errors(looked_at), (0.05, 0.95), axis=-1)
    narrow = high - low <= math.log(_LARGEST_RATIO)
    return int(looked_at[narrow].max()) if narrow.any() else rows


def first_below(curve: Any, limit: float) -> float:
    """The smallest whole number at which a falling curve is at most `limit`: on a grid, then by bisection."""
    grid = np.unique(np.geomspace(1, _MOST, 400).astype(np.int64))
    below = np.flatnonzero(curve(grid) <= limit)
    if not len(below):
        return math.inf
    high = int(grid[below[0]])
    low = int(grid[below[0] - 1]) if below[0] else 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if curve(np.array([middle]))[0] <= limit else (middle, high)
    return float(high)


def _warn(rows: int, trusted: int, what: str) -> None:
    beyond = "Beyond, look at the interval more than at the forecast, or label more rows."
    warn(f"{what}: a pilot of {rows} rows is trusted to {trusted}. {beyond}", ForecastWarning)


def _warn_of_the_kernel(measured: Measured) -> None:
    if measured.leverage > _FAR:
        warn(
            f"A row lies far from the others: its kernel with itself is {measured.leverage:.0f} times the median. Such "
            "rows rule the error, which may rise when more of them come, and the interval is wide. Clip the columns, "
            "take logarithms, or pass ranks.",
            ForecastWarning,
        )
    rank = int(np.sum(measured.eigenvalues > _SMALL * measured.eigenvalues[-1]))
    left = float(measured.row_errors.mean()) / measured.variance
    if rank <= _FEW and left > _MUCH:
        warn(
            f"The kernel of these rows has rank {rank}: whatever the targets are, the network learns a combination of "
            f"so many functions, which leaves {left:.0%} of their variance. Give it biases, Dense(b_std=0.1), or more "
            "columns.",
            ForecastWarning,
        )


class Ranked(NamedTuple):
    """One architecture at the largest `n`: its forecast, and how probable it is that it is the best of all."""

    name: str
    forecast: Forecast
    best: float


def compare_forecasts(
    kernels: Mapping[str, Any],
    x: Any,
    y: Any,
    n: Any = None,
    *,
    task: str = "auto",
    which: str = "ntk",
    level: float = 0.9,
    seed: int = 0,
) -> tuple[Ranked, ...]:
    """Forecast each architecture from the same pilot, and rank them by the error at the largest `n`.

    The rows of the pilot are resampled alike for all, so that an easy pilot favours none.

    Args:
        kernels: networks (or what `forecast` takes) by name.
        x: as in `forecast`, as all others.
        y: as in `forecast`.
        n: as in `forecast`.
        task: as in `forecast`.
        which: as in `forecast`.
        level: as in `forecast`.
        seed: as in `forecast`.

    Returns:
        From the best down: `name`, `forecast`, and `best`, the probability that it is the best of all.

    >>> import everwide as ew, everwide.forecasting as fc, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 3))
    >>> nets = {"flat": ew.Dense(1), "deep": ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))}
    >>> [one.name for one in fc.compare_forecasts(nets, x, np.abs(x[:, 0]), n=[200])]
    ['deep', 'flat']
    """
    if not isinstance(kernels, Mapping) or not kernels:
        raise InputError("compare_forecasts: expected at least one architecture, by name: {'deep': net, ...}.")
    options = {"task": task, "which": which, "level": level, "seed": seed}
    curves = {name: forecast_kernel(kernel, x, y, n, **options) for name, kernel in kernels.items()}
    largest = int(max(next(iter(curves.values())).n))
    draws = np.stack([each.beliefs.log_errors([largest])[0] for each in curves.values()])
    best = np.bincount(np.argmin(draws, axis=0), minlength=len(curves)) / draws.shape[1]
    ranked = [Ranked(name, each, float(share)) for (name, each), share in zip(curves.items(), best, strict=True)]
    return tuple(sorted(ranked, key=lambda one: float(one.forecast.error[one.forecast.n.argmax()])))
