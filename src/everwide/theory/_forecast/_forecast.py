"""How much data a network needs: its learning curve beyond the rows that are labelled."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ...engine import InputError
from .._kernel_of import kernel_matrix
from ._labels import targets_of
from ._pilot import Measured, check_pilot, measure
from ._plot import plot_forecast
from ._shapes import Shapes, weigh

_FEWEST = 64
_DRAWS = 4000
_BEND = 0.05  # by how much real curves leave the family beyond the pilot, for each e-fold of rows
_LARGEST_RATIO = 2.0  # between the ends of the interval, up to which a forecast is trusted
_LARGEST_FACTOR = 20  # rows, over those of the pilot
_WIDEST = 1e12  # rows at which `samples_needed` stops to look
_USUAL_POWER, _SPREAD_OF_POWERS = 1.0, 0.25  # of the law that leads from errors to wrong classes


class ForecastWarning(UserWarning):
    """A forecast for more rows than the pilot can speak for.

    >>> import everwide.theory as th
    >>> issubclass(th.ForecastWarning, UserWarning)
    True
    """


@dataclass(frozen=True, eq=False)
class Forecast:
    """The test error that a network will have, by the number of rows it learns from. Made by `forecast`.

    - `n`; `error`: median of the mean squared error on new rows (over rows and outputs), at each `n`; `low`, `high`:
      the interval that should hold it with probability `level`.
    - `accuracy`, `accuracy_low`, `accuracy_high`: for classes; `None` for numbers.
    - `rows`: of the pilot. `ridge`: what is added to the kernel's diagonal, at every `n`.
    - `noise`: the part of the error that more rows will not remove. `tail`: the part that is not learned yet, with all
      rows of the pilot. Noise and a very long tail look alike in a small pilot: both are means over what is probable.
    - `exponent`: of the power law in which the tail falls. `trusted_to`: the most rows for which the interval is narrow
      enough (its ends differ by less than a factor of two), and no more than 20 times the pilot.
    """

    n: np.ndarray
    error: Float[np.ndarray, " n"]
    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]
    accuracy: Float[np.ndarray, " n"] | None
    accuracy_low: Float[np.ndarray, " n"] | None
    accuracy_high: Float[np.ndarray, " n"] | None
    rows: int
    ridge: float
    level: float
    noise: float
    tail: float
    exponent: float
    trusted_to: int
    measured: Measured
    beliefs: "Beliefs"

    def samples_needed(self, target: float, *, quantile: float = 0.5) -> float:
        """The fewest rows with which the target is reached: an accuracy for classes, a mean squared error for numbers.

        `quantile=0.9`: with which it is reached with that probability. Infinite where it is not.

        >>> import everwide as ew, everwide.theory as th, numpy as np
        >>> x = np.random.default_rng(0).normal(size=(200, 3))
        >>> net = ew.Serial(ew.Dense(), ew.Erf(), ew.Dense(1))
        >>> found = th.forecast(net, x, np.abs(x[:, 0]), n=[300])
        >>> found.samples_needed(found.error[0])
        300.0
        """
        wanted = self._wanted(target)
        if not 0 < quantile < 1:
            raise InputError(f"samples_needed(quantile={quantile!r}): expected a number above 0 and below 1.")
        reached = lambda n: self.beliefs.log_errors([n], (quantile,))[0, 0] <= math.log(wanted) + 1e-12
        low, high = 1.0, float(self.rows)
        while not reached(high):
            low, high = high, 4 * high
            if high > _WIDEST:
                return math.inf
        while high - low > max(1.0, 1e-9 * high):
            middle = math.floor((low + high) / 2)
            low, high = (low, float(middle)) if reached(middle) else (float(middle), high)
        return high

    def _wanted(self, target: float) -> float:
        """As an error."""
        if self.accuracy is None:
            if not 0 < target < math.inf:
                raise InputError(f"samples_needed(target={target!r}): expected a mean squared error above 0.")
            return float(target)
        if not 0 < target < 1:
            raise InputError(f"samples_needed(target={target!r}): expected an accuracy above 0 and below 1.")
        return self.beliefs.error_at(1 - target)

    def table(self) -> list[dict[str, float]]:
        """One row for each `n`."""
        names = [name for name in ("n", "error", "low", "high", "accuracy") if getattr(self, name) is not None]
        columns = [getattr(self, name) for name in names]
        return [{name: float(c[at]) for name, c in zip(names, columns, strict=True)} for at in range(len(self.n))]

    def plot(self, ax: Any = None) -> Any:
        """The measured beginning, the forecast, its interval, and how far it is trusted; on matplotlib axes."""
        return plot_forecast(ax, self)

    def __str__(self) -> str:
        classes = "" if self.accuracy is None else "  accuracy"
        lines = [f"{'rows':>10}  {'error':>9}  {self.level:.0%} interval{classes}"]
        for at, n in enumerate(self.n):
            accuracy = "" if self.accuracy is None else f"  {self.accuracy[at]:8.1%}"
            lines.append(f"{n:10d}  {self.error[at]:9.4g}  {self.low[at]:.4g} .. {self.high[at]:.4g}{accuracy}")
        parts = f"Noise {self.noise:.3g}, tail {self.tail:.3g}."
        lines.append(f"From {self.rows} rows; trusted to {self.trusted_to}. {parts}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Beliefs:
    """What the pilot says about any `n`: draws of a shape and of a level, `(draws,)`; and how classes follow errors."""

    shapes: Shapes
    shape_of_draw: np.ndarray
    bend: Float[np.ndarray, " draws"]
    log_level: Float[np.ndarray, " draws"]
    left_out: float
    wrong: float
    power: float

    def log_errors(self, n: Any, quantiles: tuple[float, ...]) -> Float[np.ndarray, "quantiles n"]:
        """Quantiles of the logarithm of the error."""
        return np.quantile(self.draws(n), quantiles, axis=-1)

    def draws(self, n: Any) -> Float[np.ndarray, "n draws"]:
        """Of the logarithm of the error."""
        beyond = np.log(np.maximum(np.asarray(n, np.float64) / self.shapes.rows, 1.0))
        ratios = self.shapes.log_ratios(n)[:, self.shape_of_draw]
        return ratios + self.log_level + beyond[:, None] * self.bend

    def accuracies(self, errors: np.ndarray) -> np.ndarray:
        """Shares of right classes: wrong ones fall as a power of the error."""
        return 1 - np.minimum(self.wrong * (errors / self.left_out) ** self.power, 1.0)

    def error_at(self, wrong: float) -> float:
        """The error with which that share of classes is wrong."""
        return self.left_out * (wrong / self.wrong) ** (1 / self.power)


def forecast(
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
    """Predict the test error of a network for more rows than are labelled, from a labelled pilot.

    - `kernel`: a network, a kernel function of the library, a function of two batches, or the kernel matrix of `x`.
    - `x`, `y`: the pilot, 64 rows or more, drawn at random from what the network will see. Text, truth values, whole
      numbers with few values and rows of indicators are classes (`task="classification"`), learned as indicators by the
      squared loss; everything else is numbers (`"regression"`).
    - `n`: for how many rows; by default from an eighth of the pilot to 20 times as many.
    - `ridge`: on the kernel's diagonal, the same for all `n`; by default that with the smallest leave-one-out error.
    - `which`: "ntk", the network trained; or "nngp", the Gaussian process. `level`: of the interval.

    Targets are centred. The pilot is learned in random orders, which measures the learning curve up to its size; shapes
    of curves (a power law, from some row on, down to a floor of noise) are weighed by how well they agree with it. The
    interval holds the uncertainty of the shape, and, by resampling rows, that of the level. Beyond `trusted_to` a
    `ForecastWarning` is given. The share of wrong classes is a power of the mean squared error, fitted to the pilot.

    >>> import everwide as ew, everwide.theory as th, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 3))
    >>> net = ew.Serial(ew.Dense(), ew.Erf(), ew.Dense(1))
    >>> found = th.forecast(net, x, np.abs(x[:, 0]), n=[200, 800])
    >>> bool(found.error[1] < found.error[0])
    True

    Hestness et al., "Deep learning scaling is predictable, empirically" (2017), and Simon et al. (2021), for the laws.
    """
    if ridge is not None and not 0 <= ridge < math.inf:
        raise InputError(f"forecast(ridge={ridge!r}): expected a finite number, at least 0.")
    if not 0 < level < 1:
        raise InputError(f"forecast(level={level!r}): expected a number above 0 and below 1.")
    targets = targets_of(y, task)
    check_pilot(len(targets.values), _FEWEST)
    matrix = kernel_matrix(kernel, x, which)
    measured = measure(matrix, targets, ridge, seed)
    return _from_beliefs(_rows_asked_for(n, measured.rows), measured, _beliefs(measured, seed), level, targets.labels)


def _rows_asked_for(n: Any, rows: int) -> np.ndarray:
    if n is None:
        return np.unique(np.geomspace(max(8, rows / 8), _LARGEST_FACTOR * rows, 16).astype(int))
    found = np.atleast_1d(np.asarray(n))
    if found.ndim > 1 or not found.size or found.dtype.kind not in "iuf" or not (found >= 1).all():
        raise InputError(f"forecast(n={n!r}): expected one number of rows, or several, 1 or more.")
    if not np.isfinite(found).all() or (found != np.floor(found)).any():
        raise InputError(f"forecast(n={n!r}): expected whole numbers of rows.")
    return found.astype(np.int64)


def _beliefs(measured: Measured, seed: int) -> Beliefs:
    left_out = float(measured.row_errors.mean())
    if not left_out > 1e-24 or not (measured.errors > 0).all():
        raise InputError("The pilot is learned without any error from a few of its rows: there is nothing to forecast.")
    shapes = weigh(measured.rows, measured.sizes, measured.errors, left_out, measured.variance)
    rng = np.random.default_rng(seed + 1)
    drawn = rng.choice(len(shapes.weights), size=_DRAWS, p=shapes.weights)
    counts = rng.multinomial(measured.rows, np.full(measured.rows, 1 / measured.rows), size=_DRAWS)
    levels = counts @ measured.row_errors / measured.rows
    bend = _BEND * rng.normal(size=_DRAWS)
    return Beliefs(shapes, drawn, bend, np.log(levels), left_out, *_power_of_wrong(measured))


def _power_of_wrong(measured: Measured) -> tuple[float, float]:
    """The share of wrong classes at the size of the pilot, and the power of the error with which it falls."""
    least = 0.5 / measured.rows  # none wrong in so many rows
    wrong = np.log(np.maximum(measured.wrong.mean(0), least))
    errors = np.log(measured.errors.mean(0))
    errors, wrong = errors - errors.mean(), wrong - wrong.mean()
    noise = 0.05**2  # of the logarithms
    precision = errors @ errors / noise + 1 / _SPREAD_OF_POWERS**2
    power = (errors @ wrong / noise + _USUAL_POWER / _SPREAD_OF_POWERS**2) / precision
    return max(float(measured.row_wrong.mean()), least), max(float(power), 0.1)


def _from_beliefs(n: np.ndarray, measured: Measured, beliefs: Beliefs, level: float, labels: Any) -> Forecast:
    ends = ((1 - level) / 2, 0.5, (1 + level) / 2)
    low, error, high = np.exp(beliefs.log_errors(n, ends))
    trusted = _trusted_to(measured.rows, beliefs, ends)
    if n.max() > trusted:
        warnings.warn(
            f"n={n.max()}: a pilot of {measured.rows} rows is trusted to {trusted}. Beyond, look at the interval "
            f"({low[n.argmax()]:.3g} to {high[n.argmax()]:.3g}) more than at the forecast, or label more rows.",
            ForecastWarning,
            stacklevel=3,
        )
    accuracies = (None, None, None) if labels is None else tuple(map(beliefs.accuracies, (error, high, low)))
    shapes = beliefs.shapes
    noise = beliefs.left_out * shapes.mean(shapes.floors)
    return Forecast(
        n=n,
        error=error,
        low=low,
        high=high,
        accuracy=accuracies[0],
        accuracy_low=accuracies[1],
        accuracy_high=accuracies[2],
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


def _trusted_to(rows: int, beliefs: Beliefs, ends: tuple[float, float, float]) -> int:
    looked_at = np.geomspace(rows, _LARGEST_FACTOR * rows, 60)
    low, _, high = beliefs.log_errors(looked_at, ends)
    narrow = high - low <= math.log(_LARGEST_RATIO)
    return rows if not narrow.any() else int(looked_at[narrow].max())
