"""Numbers of a module that are neither drawn nor trained, such as sines of positions, added to a signal."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..kernel import Covariance, Example, Kernel
from ..layers import AbstractLayer
from ..signal import ArchitectureError, Demand, Pairs, Signal
from ._layout import BATCH, CHANNELS, Value

_DATA = frozenset({(-1,)})  # known numbers, as the input: a product with it, or with others like them, does not vanish


class FixedVectors(AbstractLayer):
    """A vector for every place, whatever stands there, that is neither drawn nor trained: a branch to be added.

    `table` is `(*sites, channels)`. Its second moments, and its means, are those over its own channels. Channels
    differ, so that what it is added to is not Gaussian any more: fresh weights, or a normalization and then weights,
    read no more of it than that.
    """

    table: Float[Array | np.ndarray, "..."]

    def describe(self, signal: Signal) -> Signal:
        channels = self.table.shape[-1] if signal.channels is None else signal.channels
        if (*signal.sites, channels) != self.table.shape:
            raise ArchitectureError(f"vectors of the shape {self.table.shape} are added to {signal.shape}")
        return replace(signal.mixed(signal.sites, channels), centred=False, sources=_DATA)

    def demand(self, wanted: Demand) -> Demand:
        return Demand(wanted.cross, wanted.own).with_variances()  # shapes alone

    def sample(self, key: Array, signal: Signal) -> tuple[()]:
        return ()

    def forward(self, params: tuple[()], example: Example) -> Example:
        return example.with_values(jnp.asarray(self.table, example.x.dtype))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        table = jnp.asarray(self.table, k.cross.nngp.dtype)
        flat, means = table.reshape(-1, table.shape[-1]), jnp.mean(table, -1)
        every = (flat @ flat.T / flat.shape[-1]).reshape(*k.sites, *k.sites)

        def spread(a: Array, shape: tuple[int, ...]) -> Array:
            return jnp.broadcast_to(a.reshape(*a.shape, *(1,) * (len(shape) - a.ndim)), shape)

        def rule(c: Covariance) -> Covariance:
            moments = every if c.pairs is Pairs.ALL_SITES else jnp.mean(table**2, -1)
            nngp = spread(moments, c.nngp.shape)
            return replace(c, nngp=nngp, ntk=None if c.ntk is None else jnp.zeros_like(nngp), minus=None, plus=None)

        mean1, mean2 = (spread(means, var.shape) for var in (k.var1, k.var2))
        return replace(k.each(rule), mean1=mean1, mean2=mean2).with_channels(table.shape[-1]).masked()


def table_for(x: Value, numbers: np.ndarray) -> np.ndarray | None:
    """Numbers that are added to a value, for every site and channel of ours; `None` where they differ in a batch."""
    wanted = tuple(int(n) for n in x.described(1))
    axis = x.groups.index((BATCH,)) + numbers.ndim - len(x.groups) if (BATCH,) in x.groups else -1
    if axis >= 0:
        first = numbers.take([0], axis)
        numbers = first if np.array_equal(np.broadcast_to(first, numbers.shape), numbers) else numbers
    try:
        full = np.broadcast_to(numbers, wanted)
    except ValueError:
        return None
    labels = [label for group in x.groups for label in group]
    apart = full.reshape([x.size[label] for label in labels])
    order = [labels.index(label) for label in (*x.sites, CHANNELS)]
    if BATCH in labels:
        return apart.transpose([labels.index(BATCH), *order])[0]
    return apart.transpose(order)
