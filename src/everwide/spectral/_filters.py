"""What training does to the eigenvalues of a kernel."""

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .._checks import InputError, not_negative, positive, share


class Stability(NamedTuple):
    """The rate of a filter, the largest at which its steps are stable, and these; nothing else ever diverges."""

    rate: float = 0.0
    largest_rate: float = math.inf
    steps: Float[np.ndarray, "*times"] = np.zeros(())


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

    @abc.abstractmethod
    def stability(self, largest: float, n: int) -> Stability:
        """For the largest eigenvalue of `n` rows; flows and ridges have no largest rate: it is infinite."""


class Ridge(AbstractFilter):
    """`1 / (lam + ridge)`: kernel ridge regression, the mean of a Gaussian process; with 0, training to the end."""

    ridge: float

    def __call__(self, values: Float[np.ndarray, " n"], n: int | None = None) -> Float[np.ndarray, " n"]:
        denominator = values + self.ridge
        return np.divide(1.0, denominator, out=np.zeros_like(denominator), where=denominator > 0)

    def stability(self, largest: float, n: int) -> Stability:
        return Stability()


class GradientFlow(AbstractFilter):
    """Gradient flow `df/dt = -K (f - y) / n`, at one time or several."""

    time: Float[np.ndarray, "*times"]

    def __call__(self, values: Float[np.ndarray, " n"], n: int | None = None) -> Float[np.ndarray, "*times n"]:
        time = self.time[..., None] / (n or len(values))
        return learned(values, lambda lam: -_product(time, lam), time)

    def stability(self, largest: float, n: int) -> Stability:
        return Stability()


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

    def stability(self, largest: float, n: int) -> Stability:
        return Stability(self.rate, 2 * n / largest, self.steps)


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


_SERIES = 18  # terms of a power series with arguments below 1


class Momentum(AbstractFilter):
    """Heavy ball: `f(t+1) = f(t) - rate K (f - y) / n + momentum (f(t) - f(t-1))`, from rest, after `steps` steps."""

    rate: float
    momentum: float
    steps: Float[np.ndarray, "*times"]

    def __call__(self, values: Float[np.ndarray, " n"], n: int | None = None) -> Float[np.ndarray, "*times n"]:
        # With f - f0 = lam g r, the step is affine in g: g(t+1) = (1 + m - rate lam) g(t) - m g(t-1) + rate.
        rate = self.rate / (n or len(values))
        step = np.zeros((len(values), 3, 3))
        step[:, 0, 0], step[:, 0, 1], step[:, 0, 2] = 1 + self.momentum - rate * values, -self.momentum, rate
        step[:, 1, 0] = step[:, 2, 2] = 1
        reached = [powers[..., 0, 2] for powers in _powers(step, self.steps.ravel())]
        return np.reshape(reached, (*self.steps.shape, len(values)))

    def stability(self, largest: float, n: int) -> Stability:
        return Stability(self.rate, 2 * (1 + self.momentum) * n / largest, self.steps)


class MomentumFlow(AbstractFilter):
    """For small rates: `f'' + (1 - momentum) / sqrt(rate) f' = -K (f - y) / n` from rest, at `sqrt(rate) time`."""

    rate: float
    momentum: float
    time: Float[np.ndarray, "*times"]

    def __call__(self, values: Float[np.ndarray, " n"], n: int | None = None) -> Float[np.ndarray, "*times n"]:
        lam = values / (n or len(values))
        friction = (1 - self.momentum) / np.sqrt(self.rate)
        time = np.sqrt(self.rate) * self.time[..., None]
        at_end = np.divide(1.0, lam, out=np.full_like(lam, np.inf), where=lam > 0)
        finite = _oscillated(lam, friction, np.where(np.isinf(time), 0, time))
        return np.where(np.isinf(time), at_end, finite) / (n or len(values))

    def stability(self, largest: float, n: int) -> Stability:
        return Stability()


def _powers(matrix: np.ndarray, exponents: np.ndarray) -> list[np.ndarray]:
    """The matrices to each power, by squaring."""
    powers = [np.broadcast_to(np.eye(matrix.shape[-1]), matrix.shape) for _ in exponents]
    remaining = exponents.astype(np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        while (remaining > 0).any():
            powers = [p @ matrix if odd else p for p, odd in zip(powers, remaining % 2, strict=True)]
            matrix, remaining = matrix @ matrix, remaining // 2
    return powers


def _oscillated(lam: np.ndarray, friction: float, time: np.ndarray) -> np.ndarray:
    """`u` at `time` from `u'' + friction u' + lam u = 1` at rest in 0: `(1 - e) / lam`, without that subtraction."""
    c = np.broadcast_to(friction * time / 2, np.broadcast_shapes(time.shape, lam.shape))
    square = lam * time**2
    d = np.sqrt(c.astype(complex) ** 2 - square)  # roots are c - d and c + d, over the time
    far, small = np.abs(d) > 0.5, (np.abs(d) <= 0.5) & (c <= 0.5)
    apart = (_decayed(_first_root(c, d, square)) - _decayed(c + d)) / np.where(far, 2 * d, 1)
    sinhc = np.where(np.abs(d) < 1e-4, 1 + d**2 / 6, np.sinh(np.where(far, 0, d)) / np.where(np.abs(d) < 1e-4, 1, d))
    close = (1 - np.exp(-c) * (np.cosh(np.where(far, 0, d)) + c * sinhc)) / np.where(small | far, 1, square)
    return time**2 * np.where(far, np.real(apart), np.where(small, _series(c, square), np.real(close)))


def _first_root(c: np.ndarray, d: np.ndarray, square: np.ndarray) -> np.ndarray:
    """`c - d`, as the quotient of the product of both roots and the other one."""
    other = c + d
    return np.where(np.real(d) > 0, square / np.where(other == 0, 1, other), c - d)


def _decayed(x: np.ndarray) -> np.ndarray:
    """`(1 - e^-x) / x`."""
    zero = np.abs(x) < np.finfo(np.float64).tiny
    return np.where(zero, 1, -np.expm1(-x) / np.where(zero, 1, x))


def _series(c: np.ndarray, square: np.ndarray) -> np.ndarray:
    """`sum_k (-1)^(k+1) h_k / (k + 1)!`, where `h_k` is the divided difference of `x^k` at both roots."""
    before, h, factor = np.zeros_like(c), np.ones_like(c), 0.5
    total = np.zeros_like(c)
    for k in range(1, _SERIES):
        total = total + factor * h
        before, h = h, 2 * c * h - square * before
        factor = -factor / (k + 2)
    return total


def ridge(ridge: float = 0.0) -> Ridge:
    """Kernel ridge regression, the mean of a Gaussian process; without a ridge, training to the end.

    Args:
        ridge: added to the diagonal of the kernel.

    Returns:
        The filter `1 / (lam + ridge)` of the eigenvalues `lam`.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.ridge(1.0)(np.array([1.0, 3.0]))
    array([0.5 , 0.25])
    """
    return Ridge(not_negative(ridge, "ridge"))


def gradient_flow(time: Any) -> GradientFlow:
    """Gradient flow on the mean squared loss of `n` rows, `df/dt = -K (f - y) / n`.

    Args:
        time: one time, or several in ascending order; `inf` is the end of training.

    Returns:
        The filter `(1 - exp(-time lam / n)) / lam` of the eigenvalues `lam`; `n` is their number unless it is given.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.gradient_flow([0.0, 1.0, np.inf])(np.array([0.5]))
    array([[0.    ],
           [0.7869],
           [2.    ]])
    """
    return GradientFlow(_times("time", time))


def gradient_descent(rate: float, steps: Any) -> GradientDescent:
    """Gradient descent on the mean squared loss of `n` rows: `f <- f - rate K (f - y) / n`.

    A rate above `2 n / lam` makes that mode diverge: see `everwide.training.max_learning_rate`.

    Args:
        rate: the learning rate.
        steps: how many, or several numbers in ascending order.

    Returns:
        The filter `(1 - (1 - rate lam / n)^steps) / lam` of the eigenvalues `lam`.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.gradient_descent(0.5, [1, 2])(np.array([1.0]))
    array([[0.5 ],
           [0.75]])
    """
    return GradientDescent(positive(rate, "rate"), _whole(_times("steps", steps)))


def momentum(rate: float, momentum: float, steps: Any = None, *, time: Any = None) -> Momentum | MomentumFlow:
    """Gradient descent with momentum (heavy ball), or its limit of small rates.

    The steps are those of `optax.sgd(rate, momentum)` and of PyTorch, the limit that of `neural_tangents.predict`.

    Args:
        rate: the learning rate, on the mean over the rows.
        momentum: from 0 to below 1.
        steps: how many, or several numbers in ascending order.
        time: instead of them, times of the limit, which count steps.

    Returns:
        The filter of the eigenvalues.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.momentum(0.5, 0.9, [1, 2])(np.array([1.0]))
    array([[0.5],
           [1.2]])
    >>> sp.momentum(0.01, 0.9, time=[0.0, 5.0, np.inf])(np.array([2.0]))
    array([[0.        ],
           [0.10231499],
           [0.5       ]])
    """
    if (steps is None) == (time is None):
        raise InputError(f"momentum(steps={steps!r}, time={time!r}): expected one of them.")
    rate, kept = positive(rate, "rate"), share(momentum, "momentum")
    if time is None:
        return Momentum(rate, kept, _whole(_times("steps", steps)))
    return MomentumFlow(rate, kept, _times("time", time))


def _times(label: str, value: Any) -> np.ndarray:
    """One time or several, in order."""
    times = np.asarray(value, np.float64)
    if not times.size or np.isnan(times).any() or (times < 0).any():
        raise InputError(f"{label}={value!r}: expected a time, or several, from 0 on.")
    if times.ndim > 1 or (times.ndim == 1 and (np.diff(times) < 0).any()):
        raise InputError(f"{label}={value!r}: expected one time, or a list in ascending order. Sort it.")
    return times


def _whole(steps: np.ndarray) -> np.ndarray:
    """Finite whole numbers."""
    if not np.isfinite(steps).all() or (steps != np.floor(steps)).any():
        raise InputError(f"steps={steps}: expected whole numbers. A flow has times between them, ridge() the end.")
    return steps
