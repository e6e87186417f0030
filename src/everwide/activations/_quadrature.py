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

    def nodes(self, points: tuple[float, ...]) -> int:
        """Of a whole rule: there is a piece on both sides of each point."""
        return 2 * len(points) * (self.near + self.far)


SHARED = Order(64, 64, 9.5), Order(48, 36, 8.5)  # of moments, and their error, and of short expansions: compiled once


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
    places = jnp.stack([jnp.broadcast_to(jnp.clip((p - mean) / std, -FAR, FAR), std.shape) for p in points])
    return gaussian_rule(places, GRAIN / jnp.maximum(std, GRAIN), order)


def line_rules(points: tuple[float, ...], std: Array, *orders: Order) -> Rule:
    """Rules for functions of `std z`, one after the other: what is evaluated for all of them is compiled once."""
    if points == (0.0,):
        return _around_zero(GRAIN / jnp.maximum(std, GRAIN), orders)
    rules = [line_rule(points, 0.0, std, order) for order in orders]
    return Rule(*(jnp.concatenate(parts) for parts in zip(*rules, strict=True)))


def _around_zero(grain: Array, orders: tuple[Order, ...]) -> Rule:
    """`gaussian_rule` for one point at zero, where far nodes are the same for all rows: two passes over the nodes."""

    def column(a: np.ndarray) -> Array:
        return jnp.asarray(a.reshape(-1, *(1,) * grain.ndim), grain.dtype)

    near, place, share = map(column, _tables(orders))
    ratio = 1 / grain
    length = jnp.log(ratio + jnp.sqrt(1 + ratio * ratio))  # arcsinh
    up = jnp.exp(length * jnp.where(near > 0, place, 0))
    down = 1 / up  # one exponential for both, sinh and cosh
    nodes = jnp.where(near > 0, grain * ((up - down) / 2), place)
    weights = share * jnp.where(near > 0, grain * length * ((up + down) / 2), 1)
    weights = weights * (jnp.exp(-0.5 * nodes**2) * (2 * np.pi) ** -0.5)
    both = jnp.stack([-nodes, nodes], 1), jnp.stack([weights, weights], 1)
    return Rule(*(a.reshape(-1, *grain.shape) for a in both))


@functools.cache
def _tables(orders: tuple[Order, ...]) -> tuple[np.ndarray, ...]:
    """Which nodes are near zero; the places of these between 0 and 1, of others as they are; and weights."""
    parts = []
    for order in orders:
        parts.append((np.ones(order.near), *legendre(order.near, 0.0, 1.0)))
        parts.append((np.zeros(order.far), *legendre(order.far, 1.0, order.reach)))
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


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


@functools.partial(jax.jit, static_argnums=(0, 1))  # traced once for all layers
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
    rule = line_rules(points, std, *SHARED)
    f, slope = with_slope(fn, std * rule.nodes)
    values = rule.weights * jnp.stack([f, f * f, slope * slope, slope, rule.nodes * f])
    cut = SHARED[0].nodes(points)
    fine, coarse = jnp.sum(values[:, :cut], 1), jnp.sum(values[:, cut:], 1)
    mean, moment, square, mean_slope, by_parts = fine
    size = jnp.stack([jnp.sqrt(moment), moment, square, jnp.sqrt(square)])
    apart = jnp.max(jnp.abs(fine - coarse)[:4] * safe_reciprocal(size), 0)
    jump = jnp.abs(by_parts - std * mean_slope) * safe_reciprocal(size[0])  # a jump of f is no part of f'
    return mean, moment, square, mean_slope, jax.lax.stop_gradient(jnp.maximum(apart, jump))


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
