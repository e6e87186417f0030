"""Moments by quadrature, in the plane and along rows."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..gaussian import GaussianPair, clamp, safe_reciprocal, safe_sqrt

Function = Callable[[Array], Array]
FAR = 50.0  # a point that is further from the mean than this, in standard deviations, does not exist
REACH = 12.0  # where the density is zero for all purposes, and Hermite polynomials are still finite in float32
GRAIN = 0.25  # activations change on the scale of 1; leave room for somewhat faster ones


class Order(NamedTuple):
    """Nodes a piece: `near` its point and `far` from it; `reach` is where the Gaussian ends."""

    near: int
    far: int
    reach: float


SHARED = Order(64, 64, 9.5)  # of moments and of short expansions: one rule for both is compiled once


class Rule(NamedTuple):
    """Nodes, and weights that contain the Gaussian density; the nodes are a leading axis."""

    nodes: Array
    weights: Array

    def mean(self, values: Array) -> Array:
        """Expectation of a function, given at the nodes."""
        return jnp.sum(self.weights * values, 0)


def with_slope(fn: Function, x: Array) -> tuple[Array, Array]:
    """An elementwise function and its derivative."""
    return jax.jvp(fn, (x,), (jnp.ones_like(x),))


def line_rule(points: tuple[float, ...], mean: Array | float, std: Array, order: Order) -> Rule:
    """A rule for functions of `mean + std z` that are smooth between the sorted `points`; `std` is positive."""
    if points == (0.0,) and isinstance(mean, float) and mean == 0:
        return _around_zero(GRAIN / jnp.maximum(std, GRAIN), order)
    places = jnp.stack([jnp.broadcast_to(jnp.clip((p - mean) / std, -FAR, FAR), std.shape) for p in points])
    return gaussian_rule(places, GRAIN / jnp.maximum(std, GRAIN), order)


def _around_zero(grain: Array, order: Order) -> Rule:
    """`gaussian_rule` for one point at zero: a shorter program, since far nodes are the same for all rows."""
    ratio = 1 / grain
    x, weights = _even(jnp.zeros_like(grain), jnp.log(ratio + jnp.sqrt(1 + ratio * ratio)), order.near)
    up = jnp.exp(x)
    down = 1 / up
    crowded = grain * ((up - down) / 2), grain * ((up + down) / 2) * weights

    def column(a: np.ndarray) -> Array:
        return jnp.broadcast_to(jnp.asarray(a, x.dtype).reshape(-1, *(1,) * grain.ndim), (order.far, *grain.shape))

    even = map(column, legendre(order.far, 1.0, order.reach))
    nodes, weights = (jnp.concatenate([near, far]) for near, far in zip(crowded, even, strict=True))
    weights = weights * (jnp.exp(-0.5 * nodes**2) * (2 * np.pi) ** -0.5)
    return Rule(jnp.concatenate([-nodes, nodes]), jnp.concatenate([weights, weights]))


def gaussian_rule(points: Array, grain: Array, order: Order) -> Rule:
    """A rule for a standard Gaussian: `points` (sorted, stacked along the first axis) bound the smooth pieces.

    `grain` is the distance from a point on which the integrand may change.
    """
    end = jnp.full_like(points[:1], order.reach)
    edges = jnp.concatenate([-end, (points[:-1] + points[1:]) / 2, end])
    sign = jnp.asarray(np.repeat([-1.0, 1.0], len(points)).reshape(-1, *(1,) * grain.ndim), points.dtype)
    centre = jnp.concatenate([points, points])
    length = jnp.maximum(jnp.concatenate([points - edges[:-1], edges[1:] - points]), 0)

    def inside(d):
        return jnp.maximum(sign * (jnp.clip(centre + sign * d, -order.reach, order.reach) - centre), 0)

    distance, weights = _one_side(inside(0), inside(jnp.minimum(length, 1)), inside(length), grain, order)
    nodes = jnp.clip(centre + sign * distance, -order.reach, order.reach)  # pieces out of reach have no weight
    nodes, weights = (a.reshape(-1, *points.shape[1:]) for a in (nodes, weights))
    return Rule(nodes, weights * (jnp.exp(-0.5 * nodes**2) * (2 * np.pi) ** -0.5))


def _one_side(start: Array, middle: Array, end: Array, grain: Array, order: Order) -> tuple[Array, Array]:
    """Distances from a point: crowded between `start` and `middle`, even up to `end`; a new leading axis."""
    low, high = (jnp.log(d + jnp.sqrt(1 + d * d)) for d in (start / grain, middle / grain))  # arcsinh
    x, crowded = _even(low, high, order.near)
    up = jnp.exp(x)
    down = 1 / up  # one exponential for both, sinh and cosh
    far = _even(middle, end, order.far)
    weights = grain * ((up + down) / 2) * crowded
    return jnp.concatenate([grain * ((up - down) / 2), far[0]]), jnp.concatenate([weights, far[1]])


def legendre(count: int, low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights on an interval."""
    x, w = _legendre_table(count)
    return (low + high) / 2 + (high - low) / 2 * x, (high - low) / 2 * w


def _even(low: Array, high: Array, count: int) -> tuple[Array, Array]:
    shape = (count, *(1,) * low.ndim)
    x, w = (jnp.asarray(a, low.dtype).reshape(shape) for a in _legendre_table(count))
    half = (high - low) / 2
    return (low + high) / 2 + half * x, half * w


@functools.cache
def _legendre_table(count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(count)


class Precision(NamedTuple):
    """Rules for the first Gaussian and, given it, for the second, which is not narrower than `width`."""

    outer: Order
    inner: Order
    width: float


FINE = Precision(Order(64, 32, 7.0), Order(24, 24, 7.0), 1e-6)  # errors of 1e-9
ROUGH = Precision(Order(48, 24, 7.0), Order(16, 20, 6.5), 3e-7)  # 1e-7


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def plane_moments(
    fn: Function, points: tuple[float, ...], precision: Precision, std1: Array, std2: Array, c: Array, rest: Array
) -> tuple[Array, Array]:
    integrals = _integrate(fn, points, precision, std1, std2, c, rest)
    return integrals[0], integrals[1]


@plane_moments.defjvp
def _(fn: Function, points: tuple[float, ...], precision: Precision, primals: tuple, tangents: tuple) -> tuple:
    """Price's theorem for the moment: through the width of the second rule the derivative is lost where it is 0."""
    run = functools.partial(_integrate, fn, points, precision)
    moment, slope, by1, by2 = run(*primals)
    turned = jax.jvp(lambda *entry: run(*entry)[1], primals, tangents)[1]
    d1, d2, dc, _ = tangents
    return (moment, slope), (by1 * d1 + by2 * d2 + primals[0] * primals[1] * slope * dc, turned)


def _integrate(
    fn: Function, points: tuple[float, ...], precision: Precision, std1: Array, std2: Array, c: Array, rest: Array
) -> tuple[Array, ...]:
    """`E_u[f(u) E[f(v) | u]]`, the same for `f'`, and how fast the first one changes with `std1` and with `std2`.

    The second expectation changes where the line of `v` given `u` crosses a point.
    """
    width = jnp.maximum(safe_sqrt(rest * (2 - rest)), precision.width)
    rule = _outer_rule(points, precision, std1, std2, c, width)
    value, slope = with_slope(fn, std1 * rule.nodes)

    @jax.checkpoint
    def body(sums: tuple[Array, ...], node: tuple[Array, ...]) -> tuple[tuple[Array, ...], None]:
        z, value, slope = node
        given = line_rule(points, c * std2 * z, std2 * width, precision.inner)
        z2 = c * z + width * given.nodes
        f, df = with_slope(fn, std2 * z2)
        mean, mean_slope, by2 = (given.mean(a) / jnp.sum(given.weights, 0) for a in (f, df, z2 * df))
        terms = value * mean, slope * mean_slope, z * slope * mean, value * by2
        return tuple(a + b for a, b in zip(sums, terms, strict=True)), None

    nodes = rule.nodes, rule.weights * value, rule.weights * slope
    return jax.lax.scan(body, (jnp.zeros_like(std1),) * 4, nodes)[0]


def _outer_rule(
    points: tuple[float, ...], precision: Precision, std1: Array, std2: Array, c: Array, width: Array
) -> Rule:
    """Cut where `u` meets a point, and where the mean of `v` given `u` does."""
    first = [jnp.clip(p / std1, -FAR, FAR) for p in points]
    crossings = [jnp.clip(p / (c * std2), -FAR, FAR) for p in points if p != 0]
    grain = jnp.minimum(width, GRAIN / jnp.maximum(jnp.maximum(std1, std2), GRAIN))
    return gaussian_rule(jnp.sort(jnp.stack(first + crossings), 0), grain, precision.outer)


_FINE, _COARSE = SHARED, Order(48, 36, 8.5)
_DECADES = 9
_BLOCK = 2048
T = TypeVar("T")


class Rows(NamedTuple):
    """`E[f]`, `E[f^2]`, `E[f'^2]` and `E[f']` over single Gaussians; `error` is relative to their natural size."""

    std: Array
    mean: Array
    moment: Array
    slope: Array
    mean_slope: Array
    error: Array


def row_moments(fn: Function, points: tuple[float, ...], var: Array) -> Rows:
    """By a rule that is cut at `points`; a second rule and Stein's identity tell the error."""
    # a constant is the limit of a narrow Gaussian
    std = jnp.maximum(safe_sqrt(var), jnp.finfo(var.dtype).tiny ** 0.5)
    moments = in_blocks(lambda s: _with_error(fn, points, s), std.reshape(-1))
    return Rows(std, *(a.reshape(var.shape) for a in moments))


def both_rows(fn: Function, points: tuple[float, ...], var1: Array, var2: Array) -> tuple[Rows, Rows]:
    """The same for two arrays of variances, in one go."""
    return split(row_moments(fn, points, join(var1, var2)), var1.shape, var2.shape)


def join(one: Array, two: Array) -> Array:
    """Two arrays of row quantities as one vector."""
    return jnp.concatenate([one.reshape(-1), two.reshape(-1)])


def split(joined: T, shape1: tuple[int, ...], shape2: tuple[int, ...]) -> tuple[T, T]:
    """Undo `join`, for all arrays of a tree; axes in front of the rows stay."""
    size = math.prod(shape1)
    first = jax.tree.map(lambda a: a[..., :size].reshape(*a.shape[:-1], *shape1), joined)
    return first, jax.tree.map(lambda a: a[..., size:].reshape(*a.shape[:-1], *shape2), joined)


def in_blocks(rule: Callable[[Array], T], rows: Array) -> T:
    """Apply `rule` to a vector of rows (the last axis of its results), so many at a time that memory is bounded."""
    blocks = -(-rows.size // _BLOCK)
    if blocks <= 1:
        return rule(rows)
    padded = jnp.concatenate([rows, jnp.broadcast_to(rows[-1], (blocks * _BLOCK - rows.size,))])
    mapped = jax.lax.map(jax.checkpoint(rule), padded.reshape(blocks, _BLOCK))

    def flat(a):
        return jnp.moveaxis(a, 0, -2).reshape(*a.shape[1:-1], -1)[..., : rows.size]

    return jax.tree.map(flat, mapped)


def _with_error(fn: Function, points: tuple[float, ...], std: Array) -> tuple[Array, ...]:
    fine, coarse = (_moments(fn, points, std, order) for order in (_FINE, _COARSE))
    size = jnp.sqrt(fine[1]), fine[1], fine[2], jnp.sqrt(fine[2])
    apart = [jnp.abs(a - b) * safe_reciprocal(s) for a, b, s in zip(fine, coarse, size, strict=False)]
    by_parts = jnp.abs(fine[4] - std * fine[3]) * safe_reciprocal(size[0])  # a jump of f is no part of f'
    return *fine[:4], jax.lax.stop_gradient(jnp.max(jnp.stack([*apart, by_parts]), 0))


def _moments(fn: Function, points: tuple[float, ...], std: Array, order: Order) -> tuple[Array, ...]:
    rule = line_rule(points, 0.0, std, order)
    f, slope = with_slope(fn, std * rule.nodes)
    return tuple(rule.mean(a) for a in (f, f * f, slope * slope, slope, rule.nodes * f))


def complement(pair: GaussianPair) -> Array:
    """`1 - |correlation|`, from squared distances only where they are not mostly a difference of lengths."""
    plain = clamp(1 - jnp.abs(pair.correlation), 0.0, 1.0)
    return plain if pair.minus is None else jnp.where(pair.radial > pair.scale, plain, pair.complement)


def trusted(value: Array, error: Array, tolerance: float, name: str) -> Array:
    """`value`, or an error at run time if the error of a row exceeds the tolerance (or is not a number)."""
    worst = jnp.max(error, initial=0.0)
    bad = ~(worst <= tolerance)
    known = jnp.where(jnp.isfinite(worst), worst, 1.0)
    decade = jnp.clip(jnp.floor(-jnp.log10(jnp.maximum(known, 1e-30))), 0, _DECADES - 1).astype(jnp.int32)
    messages = [_message(name, tolerance, 10.0**-d) for d in range(_DECADES)]
    return eqx.branched_error_if(value, bad, decade, messages)


def _message(name: str, tolerance: float, reached: float) -> str:
    return (
        f"The Gaussian moments of {name} have a relative error of {reached:.0e}, expected at most {tolerance:.0e}. "
        "A function that is not smooth must name its kinks, as in Elementwise(fn, kinks=(0.0,)); name also points away "
        "from 0 around which it changes quickly. Functions that jump, oscillate quickly or grow faster than a "
        "polynomial at this variance have no reliable moments: use a closed form, or smaller w_std and b_std."
    )
