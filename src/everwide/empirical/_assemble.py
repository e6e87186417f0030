"""From records and cotangents to the two sides of the outer products, for one example."""

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from ._ledger import Record, Site
from ._sites import Embedding
from ._views import Level


def rights(sites: Sequence[Site], records: Sequence[Record], taps: Sequence[Array]) -> Array:
    """The cotangents at all sites of a share, `(k, groups, tokens, outputs)`."""
    one = lambda site: jax.vmap(lambda tap: _right(site, records[site.record].scale, tap))(taps[site.tap])
    return _joined([one(site) for site in sites], axis=2)


def lefts(sites: Sequence[Site], records: Sequence[Record], taps: Sequence[Array]) -> Array:
    """What came in at all sites of a share, `(groups, tokens, inputs)`, or the indices `(tokens,)`."""
    if isinstance(sites[0].rule, Embedding):
        return _joined([_indices(site, records[site.record].data) for site in sites], axis=0)
    return _joined([_left(site, records[site.record], taps[site.tap][0]) for site in sites], axis=1)


def _right(site: Site, scale: Array | None, tap: Array) -> Array:
    nest, rule = site.arranged.nest, site.rule
    if site.pooled is not None:
        everywhere = jnp.broadcast_to(jnp.expand_dims(tap, site.pooled.axes), site.pooled.shape)
        return rule.right(everywhere)[:, 0].reshape(-1, 1, 1)
    if isinstance(rule, Embedding) and scale is not None:  # indices cannot be scaled
        return _folded(lambda tap, scale: rule.right(tap) * scale.astype(tap.dtype), nest, tap, scale)
    return _folded(rule.right, nest, tap)


def _left(site: Site, record: Record, tap: Array) -> Array:
    rule = site.rule

    def one(data: Array | None, scale: Array | None, derivative: Array | None, tap: Array) -> Array:
        if data is None:  # a bias: one input that is always 1
            result = tap if derivative is None else derivative
            left = jnp.ones((*rule.right(result).shape[:2], 1), tap.dtype)
        else:
            left = rule.left(data)
        left = left if scale is None else left * scale.astype(left.dtype)
        if derivative is None:
            return left
        summed = jnp.einsum("gti,gto->goi", left, rule.right(derivative).astype(left.dtype), precision="highest")
        return summed.reshape(-1, 1, left.shape[-1])

    return _folded(one, site.arranged.nest, *record, tap)


def _indices(site: Site, data: Array) -> Array:
    fn = site.rule.left
    for _ in site.arranged.nest:
        fn = jax.vmap(fn)
    return fn(data).reshape(-1)


def _folded(fn: Callable[..., Array], nest: tuple[Level, ...], *arrays: Array | None) -> Array:
    """Apply `fn` in every step of the loops; steps with weights of their own are groups, the others are tokens."""
    for _ in nest:
        fn = jax.vmap(fn)
    found, depth = fn(*arrays), len(nest)
    groups = [i for i, level in enumerate(nest) if level.stride]
    tokens = [i for i, level in enumerate(nest) if not level.stride]
    found = found.transpose(*groups, depth, *tokens, depth + 1, depth + 2)
    sizes = found.shape[: len(groups) + 1], found.shape[len(groups) + 1 : -1]
    return found.reshape(*map(math.prod, sizes), found.shape[-1])


def _joined(parts: list[Array], axis: int) -> Array:
    """One after the other; a single part is not copied."""
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis)
