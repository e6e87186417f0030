"""Gaussian moments of a function over two Gaussians: the cheapest way that is accurate enough, entry by entry."""

import abc
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._trees import name
from ..gaussian import HASTY
from ..gaussian import Dual as Dual
from ..gaussian import GaussianPair as GaussianPair
from ..gaussian import Moments as Moments
from ..gaussian import safe_reciprocal as safe_reciprocal
from ..gaussian import safe_sqrt as safe_sqrt
from ..kernel import Covariance, Example, Kernel, col, row
from ..layers import AbstractLayer
from ..signal import ArchitectureError, Demand, Pairs, Signal
from ._mehler import LENGTHS, Side, Tail, add_up, error, expand
from ._quadrature import Rows, complement, join, split


class AbstractActivation(AbstractLayer):
    """An elementwise nonlinearity, defined by its function and its Gaussian moments.

    `everwide.testing.check_activation` proves that the three methods agree.

    >>> import everwide as ew, jax.numpy as jnp
    >>> isinstance(ew.Erf(), ew.activations.AbstractActivation)
    True
    >>> float(ew.Erf()(jnp.array(0.0)))
    0.0
    """

    @abc.abstractmethod
    def __call__(self, x: Array) -> Array:
        """The function itself, element by element."""

    @abc.abstractmethod
    def dual(self, pair: GaussianPair) -> Dual:
        """Moments over two correlated Gaussians."""

    @abc.abstractmethod
    def moments(self, var: Array) -> Moments:
        """Moments over one Gaussian: `dual` at `u = v`, without its cancellation."""

    def describe(self, signal: Signal) -> Signal:
        if not signal.gaussian and not signal.concrete:
            raise ArchitectureError(
                f"{name(self)} needs a Gaussian signal, but its input is not: it is the raw input, the output of a "
                "nonlinearity, or mixes channels of different laws. Put a Dense or Conv layer before it."
            )
        return replace(signal, gaussian=False, centred=False)

    def demand(self, wanted: Demand) -> Demand:
        return wanted.with_variances()

    def sample(self, key: Array, signal: Signal) -> Any:
        return ()

    def forward(self, params: Any, example: Example) -> Example:
        return example.with_values(self(example.x))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        var = {1: k.var1, 2: k.var2}
        rank = k.rank
        moments = self._both_moments(var[1], var[2])

        def rule(c: Covariance, i: int, j: int) -> Covariance:
            dual = self._over_sites(c, var[i], var[j], moments[i], rank)
            ntk = None if c.ntk is None else c.ntk * dual.slope
            return replace(c, nngp=dual.moment, ntk=ntk, minus=dual.minus, plus=dual.plus)

        k = k.each_with(rule)
        return replace(k, mean1=moments[1].mean, mean2=moments[2].mean).masked()

    def _both_moments(self, var1: Array, var2: Array) -> dict[int, Moments]:
        """`moments` of both batches in one go, as `dual` has them: numeric ones take long to compile."""
        if var1 is var2:
            one = self.moments(var1)
            return {1: one, 2: one}
        one, two = split(self.moments(join(var1, var2)), var1.shape, var2.shape)
        return {1: one, 2: two}

    def _over_sites(self, c: Covariance, var1: Array, var2: Array, exact: Moments, rank: int) -> Dual:
        """`dual` over all tracked pairs of sites; `moments` where both sides are the same number."""
        if c.pairs is Pairs.SAME_SITE and c.same:
            return Dual(exact.moment, exact.slope)
        if c.pairs is Pairs.SAME_SITE:
            return self.dual(GaussianPair(var1, c.nngp, var2, c.minus, c.plus))
        cross = self.dual(GaussianPair(row(var1, rank), c.nngp, col(var2, rank)))
        if not c.same:
            return Dual(cross.moment, cross.slope)
        size = var1.size // max(1, var1[(0,) * rank].size)
        eye = jnp.eye(size, dtype=bool).reshape(*c.nngp.shape[: 2 * rank], *(1,) * (c.nngp.ndim - 2 * rank))
        moment = jnp.where(eye, row(exact.moment, rank), cross.moment)
        return Dual(moment, jnp.where(eye, row(exact.slope, rank), cross.slope))


# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false


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
    if HASTY.get():
        return _first(method, rows, pair)

    def attempt(level: int, rows: tuple[Rows, Rows], c: Array, rest: Array, cov: Array) -> Found:
        one, two = rows
        sides = _sides(method, LENGTHS[level], rows)
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


def _sides(method: Method, terms: int, rows: tuple[Rows, Rows]) -> tuple[Side, Side]:
    """The expansions of both rows."""
    one, two = rows
    stds, slopes = join(one.std, two.std), join(one.slope, two.slope)
    side = expand(method.coefficients(terms, stds), method.tail(terms, stds), slopes)
    return split(side, one.std.shape, two.std.shape)


def _first(method: Method, rows: tuple[Rows, Rows], pair: GaussianPair) -> Found:
    """By the shortest expansion alone; not a number where it is not good enough."""
    (one, two), sides = rows, _sides(method, LENGTHS[0], rows)
    sums = add_up(*sides, pair.correlation, complement(pair))
    unknown = error(*sides, pair.correlation) > method.goal
    moment = one.mean * two.mean + pair.cov * sums.integral
    return jnp.where(unknown, jnp.nan, moment), jnp.where(unknown, jnp.nan, sums.slope)


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
