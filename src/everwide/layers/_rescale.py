"""Scaling by a constant, and by noise."""

from dataclasses import replace

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

from .._trees import Hyper, like, squared
from ..kernel import Covariance, Example, Kernel, on_diagonal, same_site
from ..signal import ArchitectureError, Demand, Pairs, Signal
from ._base import AbstractFixed, Params


class Scale(AbstractFixed):
    """Multiply by a constant.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.layers.Scale(0.5), ew.Relu(), ew.Dense(1))
    """

    factor: Hyper

    def describe(self, signal: Signal) -> Signal:
        return signal

    def demand(self, wanted: Demand) -> Demand:
        return wanted

    def forward(self, params: Params, example: Example) -> Example:
        return example.with_values(example.x * like(self.factor, example.x))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        factor2 = squared(self.factor, k.cross.nngp)
        return k.each(lambda c: c.scaled(factor2)).means(lambda m: m * like(self.factor, m))


class Dropout(AbstractFixed):
    """Set each number to zero with probability `rate`, and divide the others by `1 - rate`.

    The limit is that of training: an example is noisy, so its own second moments grow by `1 / (1 - rate)`, and those
    of two different examples do not change. A finite network drops only when `apply` gets a `key`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dropout(0.2), ew.Dense(1))
    """

    rate: Hyper

    def describe(self, signal: Signal) -> Signal:
        if isinstance(self.rate, int | float) and not 0 <= self.rate < 1:
            raise ArchitectureError(
                f"Dropout(rate={self.rate!r}): expected the probability of dropping, at least 0 and below 1."
            )
        return replace(signal, gaussian=False)

    def demand(self, wanted: Demand) -> Demand:
        return wanted.with_variances()

    def forward(self, params: Params, example: Example) -> Example:
        if example.key is None:
            return example
        keep = 1 - like(self.rate, example.x)
        kept = jr.bernoulli(example.key, keep, example.x.shape)
        return example.with_values(jnp.where(kept, example.x / keep, 0))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        grown = 1 / (1 - like(self.rate, k.cross.nngp)) - 1
        noise = grown * (k.var1 + k.var2) if k.rank == 0 else None

        def rule(c: Covariance, i: int, j: int) -> Covariance:
            if not c.same:

                def keep(a):
                    return None if a is None or noise is None else a + noise

                return replace(c, minus=keep(c.minus), plus=keep(c.plus))
            return c.map(lambda a, pairs: a + grown * _same_site_only(a, pairs, k.rank))

        return k.each_with(rule)


def _same_site_only(a: Array, pairs: Pairs, rank: int) -> Array:
    return a if pairs is Pairs.SAME_SITE or rank == 0 else on_diagonal(same_site(a, rank), rank)
