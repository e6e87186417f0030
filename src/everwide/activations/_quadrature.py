"""Integrals over one Gaussian, accurate at every scale of the integrand.

An activation lives on the scale of 1 around a few points (zero and its kinks), a Gaussian on the scale of its standard
deviation. A rule with fixed nodes misses one of the two when they are far apart: `tanh(100 z)` is a step to it.
Here the line is cut at every such point, and each piece has Gauss-Legendre nodes that crowd towards its point
(`z = point + grain sinh(x)`) within a distance of 1, and are spread evenly beyond.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

Function = Callable[[Array], Array]
FAR = 50.0  # a point that is further from the mean than this, in standard deviations, does not exist
REACH = 12.0  # where the density is zero for all purposes, and Hermite polynomials are still finite in float32
GRAIN = 0.25  # activations change on the scale of 1; leave room for somewhat faster ones


class Order(NamedTuple):
    """Nodes a piece: `near` its point and `far` from it; `reach` is where the Gaussian ends."""

    near: int
    far: int
    reach: float


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
