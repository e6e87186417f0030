"""What training does to one eigenvalue of the kernel, on the squared loss.

With a residual `r = y - f0`, training moves the outputs by `K g(K) r`. A filter is `g`: at the eigenvalue `lam` the
share `lam g(lam)` of the residual has been learned. `g` is finite where `lam` vanishes. The loss
is the mean over `n` rows.
"""

import abc
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float


class AbstractFilter(eqx.Module):
    """`g`, as a function of the eigenvalues; a leading axis for each time, if there are several.

    >>> import numpy as np
    >>> from everwide.spectral import ridge
    >>> ridge(1.0)(np.array([1.0, 3.0])).tolist()
    [0.5, 0.25]
    """

    @abc.abstractmethod
    def __call__(self, values: Float[np.ndarray, " n"], n: int | None = None) -> Float[np.ndarray, "*times n"]:
        """`g(lam)`, `lam` at least 0; `n` rows have their own rates, as many as there are eigenvalues if not given."""


class Ridge(AbstractFilter):
    """`1 / (lam + ridge)`: kernel ridge regression, the mean of a Gaussian process; with 0, training to the end."""

    ridge: float

    def __call__(self, values: Float[np.ndarray, " n"], n: int | None = None) -> Float[np.ndarray, " n"]:
        denominator = values + self.ridge
        return np.divide(1.0, denominator, out=np.zeros_like(denominator), where=denominator > 0)


class GradientFlow(AbstractFilter):
    """Gradient flow `df/dt = -K (f - y) / n`, at one time or several."""

    time: Float[np.ndarray, "*times"]

    def __call__(self, values: Float[np.ndarray, " n"], n: int | None = None) -> Float[np.ndarray, "*times n"]:
        time = self.time[..., None] / (n or len(values))
        return learned(values, lambda lam: -_product(time, lam), time)


class GradientDescent(AbstractFilter):
    """`steps` steps `f <- f - rate K (f - y) / n`."""

    rate: float
    steps: Float[np.ndarray, "*times"]

    def __call__(self, values: Float[np.ndarray, " n"], n: int | None = None) -> Float[np.ndarray, "*times n"]:
        rate, steps = self.rate / (n or len(values)), self.steps[..., None]
        slow = rate * values < 0.5  # there 1 - (1 - rate lam)^steps would cancel
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            gentle = learned(
                values, lambda lam: _product(steps, np.log1p(-rate * np.where(slow, lam, 0))), rate * steps
            )
            fast = (1 - (1 - rate * np.where(slow, 1, values)) ** steps) / np.where(slow, 1, values)
        return np.where(slow, gentle, fast)


def learned(values: Float[np.ndarray, " n"], exponent: Any, at_zero: Any) -> Float[np.ndarray, "*times n"]:
    """`(1 - e^exponent(lam)) / lam`, and its limit where `lam` vanishes."""
    zero = values < np.finfo(np.float64).tiny
    lam = np.where(zero, 1.0, values)
    share = -np.expm1(exponent(lam)) / lam
    return np.where(zero, np.broadcast_to(at_zero, share.shape), share)


def _product(time: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """`time * rate`; infinite times of nothing are nothing."""
    with np.errstate(invalid="ignore"):
        return np.where(rate == 0, 0.0, time * rate)
