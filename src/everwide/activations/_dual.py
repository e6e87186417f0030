# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false
"""Gaussian moments of a function over two Gaussians: the cheapest way that is accurate enough, entry by entry."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ._base import GaussianPair
from ._mehler import LENGTHS, add_up, error, expand
from ._rows import Rows, complement, join, split
from ._tail import Tail

Found = tuple[Array, Array]


class Entries(NamedTuple):
    """Pairs of Gaussians and what is known of each of the two."""

    std1: Array
    std2: Array
    correlation: Array
    complement: Array
    mean1: Array
    mean2: Array
    mean_slope1: Array
    mean_slope2: Array


class Method(NamedTuple):
    """How the moments of one function are computed.

    - `coefficients(terms, stds)` and `tail(terms, stds)` are its Hermite expansion.
    - `exact(entries)` are moments for vectors of entries, accurate but slow; `chunk` of them at a time.
    - `goal` is the relative error to reach.
    """

    coefficients: Callable[[int, Array], Array]
    tail: Callable[[int, Array], Tail]
    exact: Callable[[Entries], Found]
    chunk: int
    goal: float


def numeric_dual(method: Method, rows: tuple[Rows, Rows], pair: GaussianPair) -> Found:
    """`E[f(u) f(v)]` and `E[f'(u) f'(v)]`. Reverse mode keeps the arguments only.

    By the shortest Hermite expansion that is good enough for all entries; entries for which even the longest one is
    not are computed by the exact rule.
    """

    def attempt(level: int, rows: tuple[Rows, Rows], c: Array, rest: Array, cov: Array) -> Found:
        one, two = rows
        terms, stds, slopes = LENGTHS[level], join(one.std, two.std), join(one.slope, two.slope)
        side = expand(method.coefficients(terms, stds), method.tail(terms, stds), slopes)
        sides = split(side, one.std.shape, two.std.shape)
        missed = error(*sides, jax.lax.stop_gradient(c))
        good = jnp.max(missed, initial=0.0) <= method.goal

        def expanded() -> Found:
            sums = add_up(*sides, c, rest)
            return one.mean * two.mean + cov * sums.integral, sums.slope

        if level + 1 < len(LENGTHS):
            return jax.lax.cond(good, expanded, lambda: attempt(level + 1, rows, c, rest, cov))
        known = expanded()
        entries = Entries(one.std, two.std, c, rest, one.mean, two.mean, one.mean_slope, two.mean_slope)

        def again():
            return _refine(method, entries, missed > method.goal, known)

        return jax.lax.cond(good, lambda: known, again)

    return jax.checkpoint(attempt, static_argnums=0)(0, rows, pair.correlation, complement(pair), pair.cov)


def _refine(method: Method, entries: Entries, needed: Array, known: Found) -> Found:
    """The exact rule where `needed`: those entries are gathered and worked on in chunks, the others cost nothing."""
    shape, total = needed.shape, needed.size
    flat = needed.reshape(-1)
    place = jnp.argsort(~flat, stable=True)
    place = jnp.concatenate([place, jnp.broadcast_to(place[-1], (-total % method.chunk,))])
    harmless = 1, 1, 1, 0, 0, 0, 0, 0

    def choose(entry: Array, other: int) -> Array:
        every = jnp.where(flat, jnp.broadcast_to(entry, shape).reshape(-1), other)
        return every[place].reshape(-1, method.chunk)

    chosen = Entries(*(choose(e, h) for e, h in zip(entries, harmless, strict=True)))
    busy = jnp.arange(len(chosen.std1)) * method.chunk < jnp.sum(flat)

    @jax.checkpoint
    def chunk(work: tuple[Array, Entries]) -> Found:
        def nothing(e):
            return (jnp.zeros_like(e.std1), jnp.zeros_like(e.std1))

        return jax.lax.cond(work[0], method.exact, nothing, work[1])

    refined = jax.lax.map(chunk, (busy, chosen))

    def back(a):
        return jnp.zeros(total, a.dtype).at[place].set(a.reshape(-1)).reshape(shape)

    moment, slope = (jnp.where(needed, back(a), b) for a, b in zip(refined, known, strict=True))
    return moment, slope
