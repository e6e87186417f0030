"""Branches side by side, in the channels or along a site axis."""

from dataclasses import replace
from functools import reduce

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ..kernel import Covariance, Example, Kernel, outer
from ..signal import ArchitectureError, Demand, Pairs, Signal
from ._base import AbstractLayer, Params, Parts
from ._combine import AbstractBranches, add_kernels, added_means, joint_law


class Concat(AbstractBranches):
    """Branches side by side: in the channels, or along the site axis `axis`.

    In the channels each branch counts with its share of them. Along a site axis the branches must not share randomness:
    their sites are independent.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Concat(ew.Dense(32), ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(96))), ew.Dense(1))
    >>> longer = ew.Concat(ew.Dense(), ew.Dense(), axis=0)
    """

    branches: tuple[AbstractLayer, ...]
    axis: int | None = eqx.field(static=True)

    def __init__(self, *branches: AbstractLayer, axis: int | None = None):
        self.branches = branches
        self.axis = axis

    def parts(self) -> Parts:
        return Parts(self.branches, "concat", axis=self.axis)

    def describe(self, signal: Signal) -> Signal:
        if self.axis is None:  # every channel is averaged over by itself, so branches may share what they like
            return _beside(self.describe_branches(signal))
        return _behind(self.describe_independent(signal), self.axis)

    def forward(self, params: Params, example: Example) -> Example:
        outs = self.run(params, example)
        if self.axis is None:
            return outs[0].with_values(jnp.concatenate([o.x for o in outs], -1))
        axis = self.axis % (outs[0].x.ndim - 1)
        masks = [jnp.ones(o.x.shape[:-1], bool) if o.mask is None else o.mask for o in outs]
        mask = None if all(o.mask is None for o in outs) else jnp.concatenate(masks, axis)
        return replace(outs[0], x=jnp.concatenate([o.x for o in outs], axis), mask=mask)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        parts = self.limits(k, wanted)
        return _channels(parts) if self.axis is None else _along_sites(parts, self.axis % k.rank)


def _beside(outs: list[Signal]) -> Signal:
    shapes = ", ".join(str(o.shape) for o in outs)
    if any(o.channels is None for o in outs):
        raise ArchitectureError(
            f"Concat weighs its branches by their channels, but some leave them open: {shapes}. "
            "Give the last layer of every branch a width."
        )
    if len({o.sites for o in outs}) > 1:
        raise ArchitectureError(f"The branches of Concat differ in their sites: {shapes}. Use the same strides.")
    law = joint_law(outs, gaussian=len(outs) == 1 and outs[0].gaussian)
    law = law if len(outs) == 1 else replace(law, one_law=False)
    return law.reshaped(law.sites, sum(o.channels or 0 for o in outs))


def _behind(outs: list[Signal], axis: int) -> Signal:
    rank = len(outs[0].sites)
    if not -rank <= axis < rank:
        raise ArchitectureError(f"Concat(axis={axis}): the branches have {rank} site axes. Channels are axis=None.")
    others = {tuple(n for i, n in enumerate(o.sites) if i != axis % rank) for o in outs}
    channels = {o.channels for o in outs if o.channels is not None}
    if len({len(o.sites) for o in outs}) > 1 or len(others) > 1 or len(channels) > 1:
        shapes = ", ".join(str(o.shape) for o in outs)
        raise ArchitectureError(f"The branches of Concat(axis={axis}) must agree in all other axes, got {shapes}.")
    law = joint_law(outs, gaussian=all(o.gaussian for o in outs))
    total = sum(o.sites[axis] for o in outs)
    sites = tuple(total if i == axis % rank else n for i, n in enumerate(law.sites))
    return law.reshaped(sites, law.channels)


def _channels(parts: list[Kernel]) -> Kernel:
    """Second moments over the union of the channels: no cross terms."""
    total = sum(p.channels or 0 for p in parts)

    def weighted(k: Kernel) -> Kernel:
        share = (k.channels or 0) / total
        return k.each(lambda c: c.scaled(share)).means(lambda m: m * share)

    def mix(a: Kernel, b: Kernel) -> Kernel:
        added = add_kernels(a.centred(), b.centred())
        return replace(added, mean1=added_means(a.mean1, b.mean1), mean2=added_means(a.mean2, b.mean2))

    return replace(reduce(mix, (weighted(p) for p in parts)), channels=total)


def _along_sites(parts: list[Kernel], axis: int) -> Kernel:
    first = parts[0]
    mean = {1: [p.mean1 for p in parts], 2: [p.mean2 for p in parts]}

    def join(covs: list[Covariance], i: int, j: int) -> Covariance:
        if covs[0].pairs is Pairs.ALL_SITES:
            return _block_matrix(covs, mean[i], mean[j], first.rank, axis)
        ntk = [c.ntk for c in covs if c.ntk is not None]
        joined = jnp.concatenate([c.nngp for c in covs], axis)
        return replace(covs[0], nngp=joined, ntk=jnp.concatenate(ntk, axis) if ntk else None, minus=None, plus=None)

    own1 = [p.own1 for p in parts if p.own1 is not None]
    own2 = [p.own2 for p in parts if p.own2 is not None]
    sites = sum(p.sites[axis] for p in parts)
    return replace(
        first,
        cross=join([p.cross for p in parts], 1, 2),
        own1=join(own1, 1, 1) if own1 else None,
        own2=join(own2, 2, 2) if own2 else None,
        mean1=_joined_means(mean[1], [p.var1 for p in parts] if own1 else mean[1], axis),
        mean2=_joined_means(mean[2], [p.var2 for p in parts] if own2 else mean[2], axis),
        mask1=_joined_masks([p.mask1 for p in parts], axis),
        mask2=_joined_masks([p.mask2 for p in parts], axis),
        sites=tuple(sites if i == axis else n for i, n in enumerate(first.sites)),
        channels=first.channels or parts[-1].channels,
        estimated=any(p.estimated for p in parts),
    )


def _block_matrix(
    covs: list[Covariance], left: list[Array | None], right: list[Array | None], rank: int, axis: int
) -> Covariance:
    """Sites of different branches are independent: only their means meet."""

    def between(a: int, b: int) -> Array:
        sites = (*covs[a].nngp.shape[:rank], *covs[b].nngp.shape[rank:])
        one, two = left[a], right[b]
        if one is None or two is None:
            return jnp.zeros(sites, covs[a].nngp.dtype)
        return jnp.broadcast_to(outer(one, two, rank, Pairs.ALL_SITES, jnp.multiply), sites)

    def assemble(diagonal: list[Array], off) -> Array:
        rows = [
            jnp.concatenate([c if a == b else off(a, b) for b in range(len(diagonal))], rank + axis)
            for a, c in enumerate(diagonal)
        ]
        return jnp.concatenate(rows, axis)

    tangents = [c.ntk for c in covs if c.ntk is not None]
    ntk = assemble(tangents, lambda a, b: jnp.zeros_like(between(a, b))) if tangents else None
    return replace(covs[0], nngp=assemble([c.nngp for c in covs], between), ntk=ntk, minus=None, plus=None)


def _joined_means(means: list[Array | None], like: list[Array | None], axis: int) -> Array | None:
    if all(m is None for m in means):
        return None
    filled = [jnp.zeros_like(v) if m is None and v is not None else m for m, v in zip(means, like, strict=True)]
    known = [m for m in filled if m is not None]
    return jnp.concatenate(known, axis) if len(known) == len(means) else None


def _joined_masks(masks: list[Array | None], axis: int) -> Array | None:
    known = [m for m in masks if m is not None]
    return jnp.concatenate(known, axis) if known else None
