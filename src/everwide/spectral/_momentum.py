"""Gradient descent with momentum on the squared loss, step by step and in continuous time."""

import numpy as np
from jaxtyping import Float

from ._filters import AbstractFilter

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
