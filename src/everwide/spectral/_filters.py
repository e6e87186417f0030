"""What training does to one eigenvalue of the kernel, on the squared loss.

With a residual `r = y - f0`, training moves the outputs by `K g(K) r`. A filter is `g`: at the eigenvalue `lam` the
share `lam g(lam)` of the residual has been learned. `g` is finite where `lam` vanishes.
"""

import abc
import enum
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
    """`1 / (lam + ridge)`: kernel ridge regression, the mean of a Gaussian process; with 0, training to the end."""

    ridge: float

    def __call__(self, values: Float[np.ndarray, " n"], rows: int | None = None) -> Float[np.ndarray, " n"]:
        denominator = values + self.ridge
        return np.divide(1.0, denominator, out=np.zeros_like(denominator), where=denominator > 0)


class GradientFlow(AbstractFilter):
    """Gradient flow `df/dt = -K (f - y)` (sum), or that over the number of rows (mean), at one time or several."""

    time: Float[np.ndarray, "*times"]
    normalization: Normalization = eqx.field(static=True)

    def __call__(self, values: Float[np.ndarray, " n"], rows: int | None = None) -> Float[np.ndarray, "*times n"]:
        time = self.time[..., None] / self.normalization.divisor(rows or len(values))
        return learned(values, lambda lam: -_product(time, lam), time)


class GradientDescent(AbstractFilter):
    """`steps` steps `f <- f - rate K (f - y)` (sum), or that over the number of rows (mean)."""

    rate: float
    steps: Float[np.ndarray, "*times"]
    normalization: Normalization = eqx.field(static=True)

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
