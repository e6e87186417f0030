"""Gaussian moments of a function by its Hermite expansion.

With `b_k(s) = E[f'(s z) he_k(z)]`, `he_k` the orthonormal Hermite polynomials, and a correlation `c`,

    E[f'(u) f'(v)] = sum_k b_k(s1) b_k(s2) c^k
    E[f(u) f(v)]   = E[f(u)] E[f(v)] + cov(u, v) sum_k b_k(s1) b_k(s2) c^k / (k + 1)

(Mehler's formula). Coefficients belong to rows, an entry costs two polynomials, and what is left out after `K` terms
is at most `sqrt(tail1 tail2) |c|^K`, where `tail = E[f'^2] - sum_k b_k^2` is known for each row.

A kink at zero makes the coefficients decay slowly, but in a known way: see `_tail`.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..gaussian import safe_reciprocal, safe_sqrt
from ._quadrature import REACH, SHARED, Function, Order, Rule, in_blocks, legendre, line_rules, with_slope

_NODES = 12
_CROWD = 2  # nodes crowd towards infinitely high terms, which matter for nearly parallel inputs
_JUMPS = 8
_FIRST, _SMOOTH = 3, 1e-6  # jumps of so many derivatives, up to rounding and interpolation, decide about smoothness
_ROUNDING = 4  # errors of a derivative, in units of the precision
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
    return Tail(jnp.zeros((0, *std.shape), std.dtype), jnp.zeros_like(std))


@functools.lru_cache(256)
def is_smooth_at_zero(fn: Function) -> bool:
    """Whether the first derivatives do not jump there: what is left out then falls fast, and a tail tells nothing."""
    x, both = _one_sided()
    points = np.concatenate([x, np.linspace(-1.0, 1.0, 9)])
    with jax.enable_x64(True):  # one short program, run at once even while another is traced; the rest is numpy's
        slopes = np.asarray(jax.jit(lambda x: with_slope(fn, x)[1]).lower(points).compile()(points))
    jumps, size = both @ slopes[: len(x)], np.abs(both) @ np.abs(slopes[: len(x)])
    jumps = np.where(np.isfinite(jumps) & (np.abs(jumps) > _ROUNDING * np.finfo(float).eps * size), jumps, 0)
    return bool(np.all(np.abs(jumps)[:_FIRST] <= _SMOOTH * max(1.0, float(np.abs(slopes[len(x) :]).max()))))


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
    x, both = _one_sided()
    slopes = with_slope(fn, jnp.asarray(x, dtype))[1]
    jumps = jnp.sum(jnp.asarray(both, dtype) * slopes, 1)
    rounding = _ROUNDING * jnp.finfo(dtype).eps * jnp.sum(jnp.asarray(np.abs(both), dtype) * jnp.abs(slopes), 1)
    return jnp.where(jnp.isfinite(jumps) & (jnp.abs(jumps) > rounding), jumps, 0)


@functools.cache
def _one_sided() -> tuple[np.ndarray, np.ndarray]:
    """Nodes on both sides of zero, and the matrix from values there to the jumps of derivatives at zero."""
    x, matrix = _derivatives()
    return np.concatenate([x, -x]), np.concatenate([matrix, -matrix * (-1.0) ** np.arange(_JUMPS)[:, None]], 1)


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


_BLOCK, _SHORT = 32, 4  # terms that XLA fuses into one pass over a tile; for derivatives, short of long compilations
_ORDERS = {128: SHARED, 512: (Order(64, 128, 9.5),)}
LENGTHS = tuple(_ORDERS)  # numbers of terms to try: enough for most networks, and more
_NOISE = 16  # rounding errors of a row, in units of the precision


class Side(NamedTuple):
    """One side of the expansion: all that belongs to one Gaussian."""

    coefficients: Array  # a leading axis of terms
    tail: Tail
    missing: Array  # share of E[f'^2] beyond the coefficients
    unknown: Array  # share of `missing` that the tail does not explain


class Sums(NamedTuple):
    """`sum_k l_k r_k c^k / (k + 1)` and `sum_k l_k r_k c^k`."""

    integral: Array
    slope: Array


def expand(coefficients: Array, tail: Tail, slope: Array) -> Side:
    """Coefficients of `f'(std z)` for a vector of rows, and what is beyond them; `slope` is `E[f'^2]`."""
    power, guess, slope = jax.lax.stop_gradient((jnp.sum(coefficients**2, 0), tail.power(), slope))
    missing = jnp.abs(slope - power)
    helps = jnp.abs(missing - guess) < missing
    left = jnp.where(helps, jnp.abs(missing - guess), missing) - _NOISE * jnp.finfo(slope.dtype).eps * slope
    unknown = jnp.maximum(left, 0) * safe_reciprocal(missing)
    return Side(coefficients, tail.where(helps), missing * safe_reciprocal(slope), unknown)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def coefficients(fn: Function, points: tuple[float, ...], terms: int, std: Array) -> Array:
    """Of `f'(std z)` for a vector of rows, by quadrature."""
    return in_blocks(lambda s: _coefficients(fn, points, terms, s), std)


def error(one: Side, two: Side, correlation: Array) -> Array:
    """What the expansion leaves out, relative to `sqrt(E[f'(u)^2] E[f'(v)^2])`; entry by entry."""
    shares = jnp.sqrt(one.missing) * jnp.sqrt(two.missing)
    return jnp.maximum(one.unknown, two.unknown) * shares * jnp.abs(correlation) ** len(one.coefficients)


def add_up(one: Side, two: Side, correlation: Array, complement: Array) -> Sums:
    """Both sums for every entry."""
    near = _series(correlation, one.coefficients, two.coefficients)
    if not len(one.tail.coefficients):
        return Sums(*near)
    far = one.tail.times(two.tail, len(one.coefficients), correlation, complement)
    return Sums(near[0] + far[0], near[1] + far[1])


@jax.custom_jvp
def _series(c: Array, left: Array, right: Array) -> Array:
    k = np.arange(len(left))
    return _polynomials(_BLOCK, c, left, right, 1 / (k + 1), np.ones(len(k)))


@_series.defjvp
def _(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    """Written out so that reverse mode keeps no tile a term: all tangents are polynomials in `c` again."""
    (c, left, right), (dc, dleft, dright) = primals, tangents
    k = np.arange(len(left))
    weights = 1 / (k + 1), np.ones(len(k))

    def up(a):
        return jnp.concatenate([a[1:], jnp.zeros_like(a[:1])])

    by_c = _polynomials(_SHORT, c, up(left), up(right), (k + 1) / (k + 2), k + 1.0)
    by_left = _polynomials(_SHORT, c, dleft, right, *weights)
    by_right = _polynomials(_SHORT, c, left, dright, *weights)
    return _series(c, left, right), by_c * dc + by_left + by_right


def _polynomials(block: int, c: Array, left: Array, right: Array, *weights: np.ndarray) -> Array:
    """`sum_k w_k left_k right_k c^k` for each of the weights, by Horner's rule, a block of terms a pass."""

    def fold(a):
        return jnp.flip(a, 0).reshape(-1, block, *a.shape[1:])

    shape = jnp.broadcast_shapes(c.shape, left.shape[1:], right.shape[1:])
    scale = jnp.asarray(np.stack(weights, 1).reshape(-1, len(weights), *(1,) * len(shape)), c.dtype)
    left = left.reshape(len(left), 1, *(1,) * (len(shape) + 1 - left.ndim), *left.shape[1:])

    def body(sums: Array, terms: tuple[Array, Array]) -> tuple[Array, None]:
        for one, other in zip(*map(jnp.unstack, terms), strict=True):
            sums = sums * c + one * other
        return sums, None

    zero = jnp.zeros((len(weights), *shape), c.dtype)
    return jax.lax.scan(body, zero, (fold(scale * left), fold(right)))[0]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _coefficients(fn: Function, points: tuple[float, ...], terms: int, std: Array) -> Array:
    rule = line_rules(points, std, *_ORDERS[terms])
    slope = with_slope(fn, std * rule.nodes)[1]
    cut = _ORDERS[terms][0].nodes(points)
    return project(Rule(rule.nodes[:cut], rule.weights[:cut]), slope[:cut], terms)


@_coefficients.defjvp
def _(
    fn: Function, points: tuple[float, ...], terms: int, primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    """`d/ds E[f'(s z) he_k] = E[z f''(s z) he_k]`, a kink of `f` at `p` adds what its jump sweeps over.

    Written out so that reverse mode keeps coefficients, not the Hermite polynomials at all nodes.
    """
    (std,), (moved,) = primals, tangents
    rule = line_rules(points, std, _ORDERS[terms][0])
    slope, curvature = with_slope(lambda x: with_slope(fn, x)[1], std * rule.nodes)
    change = project(rule, rule.nodes * curvature, terms)
    for p in (p for p in points if p != 0):
        place = jnp.clip(p / std, -REACH, REACH)
        density = jnp.exp(-0.5 * place**2) * (2 * math.pi) ** -0.5
        swept = _jump(fn, p, std.dtype) * density * place / std
        change = change + project(Rule(place[None], jnp.ones_like(place)[None]), swept[None], terms)
    return project(rule, slope, terms), change * moved


def _jump(fn: Function, point: float, dtype: jnp.dtype) -> Array:
    """Of the derivative, at a kink."""
    step = jnp.finfo(dtype).eps ** 0.5 * max(1.0, abs(point))
    below, above = with_slope(fn, jnp.asarray([point - step, point + step], dtype))[1]
    return above - below


def project(rule: Rule, values: Array, terms: int) -> Array:
    """`E[values he_k]` for all `k < terms`, along a new leading axis."""
    weighted = rule.weights * values
    root = np.sqrt(np.arange(terms + 1))

    def body(state: tuple[Array, Array], roots: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        before, now = state
        after = (rule.nodes * now - roots[0] * before) / roots[1]
        return (now, after), jnp.sum(weighted * now, 0)

    start = jnp.zeros_like(rule.nodes), jnp.ones_like(rule.nodes)
    roots = jnp.asarray(root[:-1], values.dtype), jnp.asarray(root[1:], values.dtype)
    return jax.lax.scan(body, start, roots)[1]
