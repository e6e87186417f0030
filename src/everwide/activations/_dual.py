# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false
"""Gaussian moments of a function over two Gaussians: the cheapest way that is accurate enough, entry by entry."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from . import _mehler
from ._base import GaussianPair
from ._quadrature import Function
from ._rows import Rows, complement, join, split

Found = tuple[Array, Array]


class LastResort(NamedTuple):
    """Moments for vectors `(std1, std2, correlation, complement)`, exact but slow; so many at a time."""

    moments: Callable[[Array, Array, Array, Array], Found]
    chunk: int


class _Entries(NamedTuple):
    std1: Array
    std2: Array
    correlation: Array
    complement: Array


def numeric_dual(
    fn: Function, points: tuple[float, ...], rows: tuple[Rows, Rows], pair: GaussianPair, goal: float, last: LastResort
) -> Found:
    """`E[f(u) f(v)]` and `E[f'(u) f'(v)]`, to a relative error of `goal`. Reverse mode keeps the arguments only.

    By the shortest Hermite expansion that is good enough for all entries; entries for which even the longest one is
    not take the last resort.
    """

    def attempt(level: int, rows: tuple[Rows, Rows], c: Array, rest: Array, cov: Array) -> Found:
        one, two = rows
        stds, slopes = join(one.std, two.std), join(one.slope, two.slope)
        sides = _mehler.expand(fn, points, stds, slopes, _mehler.LENGTHS[level])
        sides = split(sides, one.std.shape, two.std.shape)
        error = _mehler.error(*sides, jax.lax.stop_gradient(c))
        good = jnp.max(error, initial=0.0) <= goal

        def expanded() -> Found:
            sums = _mehler.add_up(*sides, c, rest)
            return one.mean * two.mean + cov * sums.integral, sums.slope

        if level + 1 < len(_mehler.LENGTHS):
            return jax.lax.cond(good, expanded, lambda: attempt(level + 1, rows, c, rest, cov))
        known = expanded()
        again = lambda: _refine(last, _Entries(one.std, two.std, c, rest), error > goal, known)
        return jax.lax.cond(good, lambda: known, again)

    return jax.checkpoint(attempt, static_argnums=0)(0, rows, pair.correlation, complement(pair), pair.cov)


def _refine(last: LastResort, entries: _Entries, needed: Array, known: Found) -> Found:
    """The last resort where `needed`: those entries are gathered and worked on in chunks, the others cost nothing."""
    shape, total = needed.shape, needed.size
    flat = needed.reshape(-1)
    place = jnp.argsort(~flat, stable=True)
    place = jnp.concatenate([place, jnp.broadcast_to(place[-1], (-total % last.chunk,))])
    harmless = _Entries(1, 1, 1, 0)

    def choose(entry: Array, other: int) -> Array:
        every = jnp.where(flat, jnp.broadcast_to(entry, shape).reshape(-1), other)
        return every[place].reshape(-1, last.chunk)

    chosen = _Entries(*(choose(e, h) for e, h in zip(entries, harmless, strict=True)))
    busy = jnp.arange(len(chosen.std1)) * last.chunk < jnp.sum(flat)

    @jax.checkpoint
    def chunk(work: tuple[Array, _Entries]) -> Found:
        nothing = lambda e: (jnp.zeros_like(e.std1), jnp.zeros_like(e.std1))
        return jax.lax.cond(work[0], lambda e: last.moments(*e), nothing, work[1])

    found = jax.lax.map(chunk, (busy, chosen))
    back = lambda a: jnp.zeros(total, a.dtype).at[place].set(a.reshape(-1)).reshape(shape)
    moment, slope = (jnp.where(needed, back(a), b) for a, b in zip(found, known, strict=True))
    return moment, slope
