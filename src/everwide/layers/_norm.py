"""Normalization: layers that divide a signal by its size."""

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._checks import whole
from .._trees import Hyper, like, name, positive
from ..kernel import Covariance, Example, Kernel, outer
from ..signal import ArchitectureError, Demand, Signal
from ._base import AbstractFixed, AbstractLayer, Params
from ._sites import needs_sites

Sites = bool | tuple[int, ...]


class AbstractNorm(AbstractFixed):
    """Division by the size of the signal, over the channels or over channels and sites.

    At infinite width the size is a number that depends on the example alone, so a Gaussian signal stays Gaussian.
    """

    centre: eqx.AbstractClassVar[bool]
    sites: Sites = eqx.field(static=True, default=False)
    eps: Hyper = 1e-6
    groups: int = eqx.field(static=True, kw_only=True, default=1)

    def describe(self, signal: Signal) -> Signal:
        positive(self, "eps", self.eps)
        known_groups(self, self.groups, signal)
        if self.sites:
            needs_sites(self, signal)
        rank = len(signal.sites)
        if not isinstance(self.sites, bool) and not all(-rank <= a < rank for a in self.sites):
            raise ArchitectureError(f"{name(self)}(sites={self.sites}): the input of shape {signal.shape} has {rank}.")
        return signal

    def demand(self, wanted: Demand) -> Demand:
        return wanted.with_variances()

    def forward(self, params: Params, example: Example) -> Example:
        x, mask = example.x, None if example.mask is None else example.mask[..., None]

        def average(a):
            means = jnp.mean(a.reshape(*a.shape[:-1], self.groups, -1), -1)
            return jnp.repeat(self._average(means, mask, a.ndim - 1), a.shape[-1] // self.groups, -1)

        x = example.with_values(x - average(x)).x if self.centre else x
        return example.with_values(x / jnp.sqrt(average(x * x) + like(self.eps, x)))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        k = self._centred(k) if self.centre and k.mean1 is not None else k
        rank = k.rank
        var = {1: k.var1, 2: k.var2}
        mask = {1: k.mask1, 2: k.mask2}
        size = {i: jnp.sqrt(self._average(v, mask[i], rank) + like(self.eps, v)) for i, v in var.items()}

        def rule(c: Covariance, i: int, j: int) -> Covariance:
            scale = 1 / outer(size[i], size[j], rank, c.pairs, jnp.multiply)
            scaled = c.scaled(scale)
            if c.minus is None:
                return scaled
            # E[(u/a -+ v/b)^2] = (E[(u -+ v)^2] - (|u| - |v|)^2) / ab + (|u|/a - |v|/b)^2
            std1, std2 = jnp.sqrt(var[i]), jnp.sqrt(var[j])
            before, after = (std1 - std2) ** 2, (std1 / size[i] - std2 / size[j]) ** 2

            def moved(apart):
                return None if apart is None else (apart - before) * scale + after

            return replace(scaled, minus=moved(c.minus), plus=moved(c.plus))

        return k.each_with(rule).means_with(lambda m, i: m / size[i])

    def _centred(self, k: Kernel) -> Kernel:
        """Subtract the mean over the channels (and sites) of each example."""
        assert k.mean1 is not None and k.mean2 is not None
        mean = {1: k.mean1, 2: k.mean2}
        mask = {1: k.mask1, 2: k.mask2}
        shift = {i: jnp.broadcast_to(self._average(m, mask[i], k.rank), m.shape) for i, m in mean.items()}

        def rule(c: Covariance, i: int, j: int) -> Covariance:
            def times(a, b):
                return outer(a, b, k.rank, c.pairs, jnp.multiply)

            nngp = c.nngp - times(shift[i], mean[j]) - times(mean[i], shift[j]) + times(shift[i], shift[j])
            minus, plus = (None, None) if k.rank else c.distances(k.var1 + k.var2)
            minus = None if minus is None else minus - (mean[i] - mean[j]) ** 2
            plus = None if plus is None else plus - (mean[i] + mean[j]) ** 2
            return replace(c, nngp=nngp, minus=minus, plus=plus)

        moved = replace(k.each_with(rule), mean1=mean[1] - shift[1], mean2=mean[2] - shift[2])
        return moved.masked() if self.sites else moved.centred().masked()

    def _average(self, a: Array, mask: Array | None, rank: int) -> Array:
        """Mean over the sites that exist, where this layer normalizes over sites."""
        if not self.sites:
            return a
        axes = tuple(range(rank)) if self.sites is True else tuple(a % rank for a in self.sites)
        if mask is None:
            return jnp.mean(a, axes, keepdims=True)
        count = jnp.sum(mask, axes, keepdims=True).astype(a.dtype)
        return jnp.sum(jnp.where(mask, a, 0), axes, keepdims=True) / jnp.maximum(count, 1)


def known_groups(layer: AbstractLayer, groups: int, signal: Signal) -> None:
    """Raise unless channels come in so many groups, and are alike in all of them."""
    whole(groups, f"{name(layer)}: groups")
    if signal.channels is not None and signal.channels % groups:
        raise ArchitectureError(f"{name(layer)}(groups={groups}) cannot part {signal.channels} channels equally.")
    if signal.infinite and groups > 1 and not signal.one_law:
        raise ArchitectureError(
            f"{name(layer)}(groups={groups}) needs channels of one law, and its input is data, or channels that differ "
            "(flattened sites, branches side by side): its groups would have statistics of their own. Put a Dense or "
            "Conv layer before it."
        )


class LayerNorm(AbstractNorm):
    """Subtract the mean and divide by the standard deviation, over the channels of each site.

    - `sites`: `True` for statistics over channels and all sites together; a tuple names some of the site axes.
    - `groups`: of channels, each normalized by itself: see `GroupNorm`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.LayerNorm(), ew.Relu(), ew.Dense(1))
    """

    centre: ClassVar[bool] = True


class RmsNorm(AbstractNorm):
    """Divide by the root mean square over the channels of each site (`sites`, `groups`: as in `LayerNorm`).

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.layers.RmsNorm(), ew.Relu(), ew.Dense(1))
    """

    centre: ClassVar[bool] = False


def GroupNorm(groups: int, *, eps: Hyper = 1e-6) -> LayerNorm:  # noqa: N802 - reads as a layer, like the others
    """Normalization over all sites and each of `groups` groups of channels.

    As the network widens, every group has infinitely many channels of one law, so that its mean and variance are those
    over all channels: the limit is that of `LayerNorm(sites=True)`, for any fixed number of groups. With groups of
    one channel (instance normalization) statistics stay random: see `Sampled`.

    Args:
        groups: Their number, which does not grow with the width.
        eps: Added to the variance.

    Returns:
        A layer.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Conv((3, 3)), ew.layers.GroupNorm(8), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(1))

    Wu, He, "Group normalization" (2018).
    """
    return LayerNorm(sites=True, eps=eps, groups=groups)
