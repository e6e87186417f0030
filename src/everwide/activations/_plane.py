"""Gaussian moments of a function over two Gaussians, by quadrature in the plane.

The way out where the Hermite expansion is too long: sharp functions of nearly parallel inputs. Exact for every
variance, correlation and kink, but ten thousand evaluations an entry.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..angle import safe_sqrt
from ._quadrature import FAR, GRAIN, Function, Order, Rule, gaussian_rule, line_rule, with_slope


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
