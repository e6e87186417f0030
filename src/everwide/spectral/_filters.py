"""What training does to one eigenvalue of the kernel, on the squared loss.

With a residual `r = y - f0`, training moves the outputs by `K g(K) r`. A filter is `g`: at the eigenvalue `lam` the
share `lam g(lam)` of the residual has been learned. `g` is finite where `lam` vanishes.
"""

import abc
import enum
import math
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float


class Normalization(enum.StrEnum):
    """Is a loss the `sum` or the `mean` over the rows of `1/2 |f - y|^2`? Rates and times depend on it.

    >>> import everwide.spectral as sp
    >>> sp.Normalization("mean").divisor(50)
    50
    """

    SUM = "sum"
    MEAN = "mean"

    def divisor(self, rows: int) -> int:
        """What the sum over that many rows is divided by."""
        return rows if self is Normalization.MEAN else 1


class AbstractFilter(eqx.Module):
    """`g`, as a function of the eigenvalues; a leading axis for each time, if there are several."""

    @abc.abstractmethod
    def __call__(self, values: Float[np.ndarray, " n"], rows: int | None = None) -> Float[np.ndarray, "*times n"]:
        """`g(lam)`, `lam` at least 0; a mean loss is over `rows`, as many as eigenvalues if not given."""


class Ridge(AbstractFilter):
    """`1 / (lam + ridge)`: kernel ridge regression, the mean of a Gaussian process; with 0, training to the end.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.Ridge(1.0)(np.array([1.0, 3.0]))
    array([0.5 , 0.25])
    """

    ridge: float

    def __init__(self, ridge: float = 0.0):
        self.ridge = not_negative("Ridge", "ridge", ridge)

    def __call__(self, values: Float[np.ndarray, " n"], rows: int | None = None) -> Float[np.ndarray, " n"]:
        denominator = values + self.ridge
        return np.divide(1.0, denominator, out=np.zeros_like(denominator), where=denominator > 0)


class GradientFlow(AbstractFilter):
    """Gradient flow `df/dt = -K (f - y)` (sum), or that over the number of rows (mean), at one time or several.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.GradientFlow([0.0, 1.0, np.inf], normalization="sum")(np.array([0.5]))
    array([[0.    ],
           [0.7869],
           [2.    ]])
    """

    time: Float[np.ndarray, "*times"]
    normalization: Normalization = eqx.field(static=True)

    def __init__(self, time: Any, *, normalization: Normalization | str = Normalization.MEAN):
        self.time = times("GradientFlow", "time", time)
        self.normalization = Normalization(normalization)

    def __call__(self, values: Float[np.ndarray, " n"], rows: int | None = None) -> Float[np.ndarray, "*times n"]:
        time = self.time[..., None] / self.normalization.divisor(rows or len(values))
        return learned(values, lambda lam: -_product(time, lam), time)


class GradientDescent(AbstractFilter):
    """`steps` steps `f <- f - rate K (f - y)` (sum), or that over the number of rows (mean).

    A rate above `2 / lam` makes that mode diverge: see `everwide.training.max_learning_rate`.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.GradientDescent(0.5, [1, 2], normalization="sum")(np.array([1.0]))
    array([[0.5 ],
           [0.75]])
    """

    rate: float
    steps: Float[np.ndarray, "*times"]
    normalization: Normalization = eqx.field(static=True)

    def __init__(self, rate: float, steps: Any, *, normalization: Normalization | str = Normalization.MEAN):
        self.rate = positive("GradientDescent", "rate", rate)
        self.steps = whole(times("GradientDescent", "steps", steps))
        self.normalization = Normalization(normalization)

    def __call__(self, values: Float[np.ndarray, " n"], rows: int | None = None) -> Float[np.ndarray, "*times n"]:
        rate, steps = self.rate / self.normalization.divisor(rows or len(values)), self.steps[..., None]
        slow = rate * values < 0.5  # there 1 - (1 - rate lam)^steps would cancel
        exponent = lambda lam: _product(steps, np.log1p(-rate * np.where(slow, lam, 0)))
        gentle = learned(values, exponent, rate * steps)
        with np.errstate(over="ignore", invalid="ignore"):
            fast = (1 - (1 - rate * np.where(slow, 1, values)) ** steps) / np.where(slow, 1, values)
        return np.where(slow, gentle, fast)


def learned(values: Float[np.ndarray, " n"], exponent: Any, at_zero: Any) -> Float[np.ndarray, "*times n"]:
    """`(1 - e^exponent(lam)) / lam`, and its limit where `lam` vanishes."""
    zero = values < np.finfo(np.float64).tiny
    lam = np.where(zero, 1.0, values)
    found = -np.expm1(exponent(lam)) / lam
    return np.where(zero, np.broadcast_to(at_zero, found.shape), found)


def _product(time: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """`time * rate`; infinite times of nothing are nothing."""
    with np.errstate(invalid="ignore"):
        return np.where(rate == 0, 0.0, time * rate)


def positive(name: str, argument: str, value: float) -> float:
    """A finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name}({argument}={value!r}): expected a finite number above 0.")
    return float(value)


def not_negative(name: str, argument: str, value: float) -> float:
    """A finite number, at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name}({argument}={value!r}): expected a finite number, at least 0.")
    return float(value)


def times(name: str, argument: str, value: Any) -> np.ndarray:
    """One time or several, in order."""
    found = np.asarray(value, np.float64)
    if np.isnan(found).any() or (found < 0).any():
        raise ValueError(f"{name}({argument}={value!r}): times begin at 0, got {found.min():g}.")
    if found.ndim > 1 or (found.ndim == 1 and (np.diff(found) < 0).any()):
        raise ValueError(f"{name}({argument}={value!r}): expected one time, or a list in ascending order. Sort it.")
    return found


def whole(steps: np.ndarray) -> np.ndarray:
    """Whole numbers of steps."""
    if (steps != np.floor(steps)).any():
        raise ValueError(f"steps={steps}: expected whole numbers. For times between two steps use a flow.")
    return steps
