"""Channels that are taken apart and mixed: layers that only modules of other frameworks have."""

import math
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ..kernel import Covariance, Example, Kernel
from ..layers import AbstractLayer
from ..signal import ArchitectureError, Demand, Pairs, Signal


class Part(AbstractLayer):
    """Channels from `start` to `stop`: where all have one law, second moments over a part are those over all.

    Single channels are independent of each other, so two parts that begin elsewhere share no draws.
    """

    start: int = eqx.field(static=True)
    stop: int = eqx.field(static=True)

    def describe(self, signal: Signal) -> Signal:
        if not (signal.one_law or signal.concrete):
            raise ArchitectureError(
                f"channels {self.start} to {self.stop - 1} are taken of {signal.channels} without one law (they "
                "are the input, or branches side by side): do that to the data, or take the branches themselves"
            )
        if signal.channels is not None and self.stop > signal.channels:
            raise ArchitectureError(f"channels up to {self.stop - 1} are taken of {signal.channels}")
        shown = frozenset(_part_of(source, self.start) for source in signal.sources)
        return replace(signal.reshaped(signal.sites, self.stop - self.start), sources=shown)

    def demand(self, wanted: Demand) -> Demand:
        return wanted

    def sample(self, key: Array, signal: Signal) -> tuple[()]:
        return ()

    def forward(self, params: tuple[()], example: Example) -> Example:
        return example.with_values(example.x[..., self.start : self.stop])

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        return k.with_channels(self.stop - self.start)


def _part_of(source: tuple[int, ...], start: int) -> tuple[int, ...]:
    """Draws of a layer from a channel on; of such draws, from a later channel on."""
    is_part = bool(source) and source[-1] < -1
    return (*source[:-1], source[-1] - start) if is_part else (*source, -2 - start)


def shared_draws(a: Signal, b: Signal) -> set[tuple[int, ...]]:
    """The layers whose draws single channels of both show: all channels of one are also in its parts."""

    def meet(one: tuple[int, ...], two: tuple[int, ...]) -> bool:
        return one == two or (one[:-1] == two and one[-1] < -1) or (two[:-1] == one and two[-1] < -1)

    return {min(one, two, key=len) for one in a.sources for two in b.sources if meet(one, two)}


class Shuffle(AbstractLayer):
    """Channels `(slow, fast)` in the order `(fast, slow)`; `mixes`: any stretch then sees all branches side by side."""

    slow: int = eqx.field(static=True)
    mixes: bool = eqx.field(static=True)

    def describe(self, signal: Signal) -> Signal:
        return replace(signal, one_law=signal.one_law or self.mixes)

    def demand(self, wanted: Demand) -> Demand:
        return wanted

    def sample(self, key: Array, signal: Signal) -> tuple[()]:
        return ()

    def forward(self, params: tuple[()], example: Example) -> Example:
        apart = example.x.reshape(*example.x.shape[:-1], self.slow, -1)
        return example.with_values(jnp.swapaxes(apart, -1, -2).reshape(example.x.shape))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        return k


class Line(AbstractLayer):
    """All site axes as one, the last of them fastest."""

    def describe(self, signal: Signal) -> Signal:
        return signal.reshaped((math.prod(signal.sites),), signal.channels)

    def demand(self, wanted: Demand) -> Demand:
        return wanted

    def sample(self, key: Array, signal: Signal) -> tuple[()]:
        return ()

    def forward(self, params: tuple[()], example: Example) -> Example:
        x, mask = example.x, example.mask
        return replace(example, x=x.reshape(-1, x.shape[-1]), mask=None if mask is None else mask.reshape(-1))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        rank, size = k.rank, math.prod(k.sites)

        def row(a: Array) -> Array:
            return a.reshape(size, *a.shape[rank:])

        def flat(a: Array, pairs: Pairs) -> Array:
            return row(a) if pairs is Pairs.SAME_SITE else a.reshape(size, size, *a.shape[2 * rank :])

        return replace(k.each(lambda c: c.map(flat)).means(row).masks(row), sites=(size,))


class Everywhere(AbstractLayer):
    """A signal without sites at every one of these."""

    sites: tuple[int, ...] = eqx.field(static=True)

    def describe(self, signal: Signal) -> Signal:
        if signal.sites:
            raise ArchitectureError(f"a signal with sites of the shape {signal.sites} is not repeated over others")
        return signal.reshaped(self.sites, signal.channels)

    def demand(self, wanted: Demand) -> Demand:
        return wanted.same_site()

    def sample(self, key: Array, signal: Signal) -> tuple[()]:
        return ()

    def forward(self, params: tuple[()], example: Example) -> Example:
        x = jnp.broadcast_to(example.x, (*self.sites, *example.x.shape))
        return replace(example, x=x, mask=None)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        def every(a: Array, sites: tuple[int, ...]) -> Array:
            return jnp.broadcast_to(a, (*sites, *a.shape))

        def rule(c: Covariance) -> Covariance:
            pairs = max(wanted.cross, wanted.own if c.same else wanted.cross, Pairs.SAME_SITE)
            sites = self.sites * 2 if pairs is Pairs.ALL_SITES else self.sites
            return replace(c.map(lambda a, _: every(a, sites)), pairs=pairs)

        return replace(k.each(rule).means(lambda m: every(m, self.sites)), sites=self.sites, mask1=None, mask2=None)
