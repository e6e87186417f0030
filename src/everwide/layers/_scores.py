"""Attention weights, and what becomes of random scores under them."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import lax
from jaxtyping import Array

from ..gaussian import GaussianPair, two_slope


def softmax_over(scores: Array, allowed: Array, axis: int) -> Array:
    """Softmax over what is allowed; zero where nothing is."""
    top = jnp.max(jnp.where(allowed, scores, -jnp.inf), axis, keepdims=True)
    top = lax.stop_gradient(jnp.where(jnp.isfinite(top), top, 0))
    raised = jnp.where(allowed, jnp.exp(jnp.where(allowed, scores - top, 0)), 0)
    return raised / jnp.maximum(jnp.sum(raised, axis, keepdims=True), jnp.finfo(scores.dtype).tiny)


def steps_between(size: int, dtype: Any) -> Array:
    """`(P, P)`: how far key `q` is behind query `p`."""
    places = jnp.arange(size, dtype=dtype)
    return places[None, :] - places[:, None]


def rotary_mean(size: int, base: float, dtype: Any) -> Array:
    """`(P, P)`: the mean over all frequencies `base^-t`, `0 <= t <= 1`, of the cosine of what two places are apart."""
    steps = np.maximum(np.arange(size), 1)
    integral = (scipy.special.sici(steps)[1] - scipy.special.sici(steps / base)[1]) / math.log(base)
    means = np.where(np.arange(size) > 0, integral, 1.0)
    return jnp.asarray(means[np.abs(np.arange(size)[:, None] - np.arange(size))], dtype)


def rotated(heads: Array, base: float) -> Array:
    """`(heads, P, channels)`: channel `i` with `i + channels / 2`, turned by `place * base^(-2 i / channels)`."""
    _, size, channels = heads.shape
    one, two = jnp.split(heads, 2, -1)
    speeds = base ** -(np.arange(channels // 2) / (channels // 2))
    angles = jnp.asarray(np.arange(size)[:, None] * speeds, heads.dtype)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([one * cos - two * sin, two * cos + one * sin], -1)


class Scores(NamedTuple):
    """Random scores `s[p, q]` with covariance `score2 seen[p, p'] seen[q, q']`, and the values they weigh.

    All arrays are `(P, P, *examples)`; tangent kernels may be missing.
    """

    seen: Array
    seen_tangent: Array | None
    value: Array
    tangent: Array | None
    allowed1: Array
    allowed2: Array
    score2: Array | float
    frozen: bool

    def identity(self) -> tuple[Array, Array | None]:
        """`E[sum_{q q'} s[p, q] s'[p', q'] v[q] v'[q']]`, and its tangent kernel before the value weights' own part."""

        def reach(a):
            return self.score2 * _over_keys(a, self.allowed1, self.allowed2)

        total = reach(self.seen * self.value)
        if self.tangent is None or self.seen_tangent is None:
            return self.seen * total, None
        trained = 0.0 if self.frozen else 2 * self.seen
        along = reach(self.seen * self.tangent) + reach(self.seen_tangent * self.value)
        return self.seen * total, self.seen * along + (self.seen_tangent + trained) * total


def _over_keys(a: Array, allowed1: Array, allowed2: Array) -> Array:
    """`out[p, p'] = sum_{q, q'} allowed1[p, q] a[q, q'] allowed2[p', q']`."""
    one, two = (like_rank(m.astype(a.dtype), a) for m in (allowed1, allowed2))
    return jnp.einsum("pq...,qr...,sr...->ps...", one, a, two)


def like_rank(mask: Array, a: Array) -> Array:
    """Trailing axes of size one, up to the rank of `a`."""
    return mask.reshape(*mask.shape, *(1,) * (a.ndim - mask.ndim))


def nonlinear_scores(s: Scores, var1: Array, var2: Array, *, even: bool) -> tuple[Array, Array | None]:
    """As `Scores.identity` for ReLU (`even=False`) or absolute value (`even=True`) of each score.

    Walks over the pairs of keys `(q, q')`, so memory stays a constant times the tile. `var1`, `var2` are the variances
    `seen[p, p]` of both sides, `(P, *examples)`.
    """
    size = s.seen.shape[0]
    slopes = (-1.0, 1.0) if even else (0.0, 1.0)
    allowed1, allowed2 = (like_rank(m, s.seen) for m in (s.allowed1, s.allowed2))

    def add(total: tuple[Array, Array], at: Array) -> tuple[tuple[Array, Array], None]:
        q, r = at // size, at % size

        def pick(a):
            return a[q, r]

        pair = GaussianPair(
            s.score2 * (var1 * var1[q])[:, None], s.score2 * s.seen * pick(s.seen), s.score2 * (var2 * var2[r])[None, :]
        )
        dual = two_slope(pair, *slopes)
        seen = allowed1[:, q][:, None] & allowed2[:, r][None, :]

        def keep(a):
            return jnp.where(seen, a, 0)

        nngp = total[0] + keep(dual.moment * pick(s.value))
        if s.tangent is None or s.seen_tangent is None:
            return (nngp, total[1]), None
        trained = 0.0 if s.frozen else 2 * s.seen * pick(s.seen)
        scores = s.score2 * (s.seen * pick(s.seen_tangent) + s.seen_tangent * pick(s.seen) + trained)
        ntk = total[1] + keep(dual.moment * pick(s.tangent) + dual.slope * scores * pick(s.value))
        return (nngp, ntk), None

    start = (jnp.zeros_like(s.seen), jnp.zeros_like(s.seen))
    nngp, ntk = lax.scan(jax.checkpoint(add), start, jnp.arange(size * size))[0]
    return nngp, None if s.tangent is None else ntk
