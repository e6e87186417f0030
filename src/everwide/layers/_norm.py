"""Normalization: layers that divide a signal by its size."""

from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._trees import Hyper, like, name, positive
from ..kernel import Covariance, Example, Kernel, outer
from ..signal import ArchitectureError, Demand, Signal
from ._base import AbstractFixed, Params
from ._sites import needs_sites

Sites = bool | tuple[int, ...]


class AbstractNorm(AbstractFixed):
    """Division by the size of the signal, over the channels or over channels and sites.

    At infinite width the size is a number that depends on the example alone, so a Gaussian signal stays Gaussian.
    """

    centre: eqx.AbstractClassVar[bool]
    sites: Sites = eqx.field(static=True, default=False)
    eps: Hyper = 1e-6

    def describe(self, signal: Signal) -> Signal:
        positive(self, "eps", self.eps)
        if self.sites:
            needs_sites(self, signal)
        rank = len(signal.sites)
        if not isinstance(self.sites, bool) and not all(-rank <= a < rank for a in self.sites):
            raise ArchitectureError(f"{name(self)}(sites={self.sites}): the input of shape {signal.shape} has {rank}.")
        return signal

    def demand(self, wanted: Demand) -> Demand:
        return wanted.with_variances()

    def forward(self, params: Params, example: Example) -> Example:
        def average(a):
            return self._average(jnp.mean(a, -1), example.mask, a.ndim - 1)[..., None]

        x = example.x
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


class LayerNorm(AbstractNorm):
    """Subtract the mean and divide by the standard deviation, over the channels of each site.

    With `sites=True` the statistics are over channels and all sites together; a tuple names some of the site axes.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.LayerNorm(), ew.Relu(), ew.Dense(1))
    """

    centre: ClassVar[bool] = True


class RmsNorm(AbstractNorm):
    """Divide by the root mean square over the channels of each site (`sites`: as in `LayerNorm`).

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.layers.RmsNorm(), ew.Relu(), ew.Dense(1))
    """

    centre: ClassVar[bool] = False
