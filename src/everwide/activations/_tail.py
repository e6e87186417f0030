"""The Hermite coefficients of a function with a kink at zero, beyond the ones that are computed.

If the derivatives of `f` jump by `J_1, J_2, ...` at zero, integration by parts gives for large `k`

    b_k(s) ~ x_k (J_1 - J_3 s^2 / (k - 2) + J_5 s^4 / ((k - 2)(k - 4)) - ...)      k odd,
    b_k(s) ~ x_k s (J_2 - J_4 s^2 / (k - 3) + J_6 s^4 / ((k - 3)(k - 5)) - ...)    k even,

where `x_k` are the coefficients of a step and of a ramp. So the terms beyond `K` vary slowly with `k`, and their sum is
an integral over `k`: a few nodes stand for all of them. For a smooth function the jumps are zero.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..angle import safe_sqrt
from ._quadrature import Function, legendre, with_slope

_NODES = 12
_CROWD = 2  # nodes crowd towards infinitely high terms, which matter for nearly parallel inputs
_JUMPS = 8
_WINDOW = 0.5  # one-sided derivatives at zero are those of a polynomial through points this near
_NEARBY = 0.3  # complement above which c^K counts as zero
_STEP = (2 * math.pi) ** -1.5  # x_k^2 for a step is _STEP * 2 k^(-3/2) for large odd k


class Tail(NamedTuple):
    """Coefficients at the nodes `k` of the integral, odd terms first, with the square roots of the weights."""

    coefficients: Array
    jump: Array  # of the first derivative

    def power(self) -> Array:
        """Sum of the squares of all terms of the tail."""
        return jnp.sum(self.coefficients**2, 0)

    def where(self, keep: Array) -> "Tail":
        """Zero where the tail is not to be trusted."""

        def zero(a):
            return jnp.where(keep, a, 0)

        return Tail(zero(self.coefficients), zero(self.jump))

    def times(self, other: "Tail", start: int, correlation: Array, complement: Array) -> tuple[Array, Array]:
        """The terms from `start` on of the two sums of Mehler's formula, as in `_mehler.Sums`."""
        rate = -jnp.log1p(-jnp.minimum(complement, _NEARBY))
        sign = jnp.where(correlation < 0, -1, 1).astype(rate.dtype)
        k, _, plain = (jnp.asarray(a, rate.dtype) for a in _nodes(start))
        flips = jnp.asarray(np.repeat([True, False], _NODES))

        @jax.checkpoint
        def body(sums: tuple[Array, ...], term: tuple[Array, ...]) -> tuple[tuple[Array, ...], None]:
            left, right, power, odd, leading = term
            decay = jnp.exp(-power * rate)
            value = left * right * decay * jnp.where(odd, sign, jnp.ones_like(sign))
            return (sums[0] + value / (power + 1), sums[1] + value, sums[2] + leading * decay), None

        rows = self.coefficients, other.coefficients
        zero = jnp.zeros(jnp.broadcast_shapes(rate.shape, *(r.shape[1:] for r in rows)), rate.dtype)
        terms = *rows, k, flips, plain
        integral, slope, leading = jax.lax.scan(body, (zero, zero, jnp.zeros_like(rate)), terms)[0]
        # the leading part falls so slowly that a correlation near 1 cuts it off between two nodes: it has a closed form
        slope = slope + self.jump * other.jump * sign * (_leading(start, rate) - leading)
        gone = complement >= _NEARBY
        return jnp.where(gone, 0, integral), jnp.where(gone, 0, slope)


def no_tail(std: Array) -> Tail:
    """Nothing is known about the terms that are left out."""
    return Tail(jnp.zeros((2 * _NODES, *std.shape), std.dtype), jnp.zeros_like(std))


def kink_at_zero(fn: Function, start: int, std: Array) -> Tail:
    """The terms from `start` on of a function that is smooth but for zero."""
    k, weights, _ = _nodes(start)
    jumps = _jumps(fn, std.dtype)

    def shaped(a):
        return jnp.asarray(a.reshape(-1, *(1,) * std.ndim), std.dtype)

    sums = []
    for first, nodes in ((1, k[:_NODES]), (2, k[_NODES:])):
        factor, total = np.ones(_NODES), jnp.zeros((_NODES, *std.shape), std.dtype)
        for p in range(first, _JUMPS + 1, 2):
            total = total + jumps[p - 1] * std ** (p - 1) * shaped(factor)
            factor = factor / -(nodes - p - 1)
        sums.append(total)
    return Tail(jnp.concatenate(sums) * shaped(weights), jnp.broadcast_to(jumps[0], std.shape))


def _jumps(fn: Function, dtype: jnp.dtype) -> Array:
    """Jumps of the first derivatives at zero; none where they are not finite or drown in rounding errors."""
    x, matrix = _derivatives()
    both = np.concatenate([matrix, -matrix * (-1.0) ** np.arange(_JUMPS)[:, None]], 1)
    slopes = with_slope(fn, jnp.asarray(np.concatenate([x, -x]), dtype))[1]
    jumps = jnp.sum(jnp.asarray(both, dtype) * slopes, 1)
    rounding = 4 * jnp.finfo(dtype).eps * jnp.sum(jnp.asarray(np.abs(both), dtype) * jnp.abs(slopes), 1)
    return jnp.where(jnp.isfinite(jumps) & (jnp.abs(jumps) > rounding), jumps, 0)


@functools.cache
def _derivatives() -> tuple[np.ndarray, np.ndarray]:
    """Nodes above zero, and the matrix from values there to the derivatives at zero."""
    x, _ = legendre(_JUMPS + 4, 0.0, _WINDOW)
    powers = np.linalg.inv(np.vander(x / _WINDOW, increasing=True))[:_JUMPS]
    scale = [math.factorial(p) / _WINDOW**p for p in range(_JUMPS)]
    return x, powers * np.array(scale)[:, None]


def _begins(start: int) -> tuple[float, float]:
    """Where the integrals over odd and even terms begin, for an even `start`.

    Every second term, so half of an integral that begins one before the first, and a little later (Euler-Maclaurin)
    because the terms fall like `k^-3/2` and `k^-5/2`.
    """
    return start + 1.5 / (6 * start), start - 1 + 2.5 / (6 * (start - 1))


@functools.cache
def _nodes(start: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes `k` for the odd and the even terms; square roots of weights, times `x_k`; weights of the leading part."""
    x, w = legendre(_NODES, 0.0, 1.0)
    begins = _begins(start)
    odd, even = (begin / x ** (2 * _CROWD) for begin in begins)
    half = [w * _CROWD * begin / x ** (2 * _CROWD + 1) for begin in begins]
    step = half[0] * _hermite_at_zero(odd - 1) / odd
    ramp = half[1] * _hermite_at_zero(even - 2) / (even * (even - 1))
    leading = np.concatenate([2 * _STEP * half[0] * odd**-1.5, np.zeros(_NODES)])
    return np.concatenate([odd, even]), np.sqrt(np.concatenate([step, ramp]) / (2 * np.pi)), leading


def _leading(start: int, rate: Array) -> Array:
    """What the nodes give for the leading part `x_k^2 -> 2 _STEP k^-3/2` of a step, exactly."""
    begin = _begins(start)[0]
    x = begin * rate
    root = safe_sqrt(x)
    integral = 2 * begin**-0.5 * (jnp.exp(-x) - math.pi**0.5 * root * jax.lax.erfc(root))
    edge = rate * jnp.exp(-x) * (begin**-1.5 / 6)  # Euler-Maclaurin again, for the decay of c^k
    return _STEP * (integral - edge)


def _hermite_at_zero(n: np.ndarray) -> np.ndarray:
    """`he_n(0)^2 = Gamma(n/2 + 1/2) / Gamma(n/2 + 1) / sqrt(pi)`, continued from even `n` to all numbers."""
    near = np.array([math.lgamma((v + 1) / 2) - math.lgamma(v / 2 + 1) for v in np.minimum(n, 1e3)])
    x = n / 2 + 0.25
    far = (1 - 1 / (64 * x**2)) / np.sqrt(x)  # the logarithms would cancel
    return np.where(n < 1e3, np.exp(near), far) / math.sqrt(math.pi)
