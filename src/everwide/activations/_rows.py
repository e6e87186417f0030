"""Gaussian moments of a function over one Gaussian, with an account of their error."""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..angle import clamp, safe_reciprocal, safe_sqrt
from ..gaussian import GaussianPair
from ._quadrature import Function, Order, line_rule, with_slope

_FINE, _COARSE = Order(64, 40, 9.5), Order(48, 36, 8.5)
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
