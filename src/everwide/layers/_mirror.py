"""Mirror images beside an image, for networks that treat them alike."""

import itertools
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ..kernel import Example, Kernel
from ..signal import ArchitectureError, Demand, Pairs, Signal
from ._base import AbstractFixed, Params
from ._sites import needs_sites


class Mirror(AbstractFixed):
    """An example beside its mirror images along site axes, in a new first site axis: `2^k` copies for `k` axes.

    Windows that cover one copy, `Conv((1, 3, 3))`, treat copies alike; a mean over the new axis, as in `GlobalAvgPool`,
    then makes a network that cannot tell an image from its mirror image. Its kernel is the mean over all pairs of
    copies: training sees all mirror images, and makes no more rows of them.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.layers.Mirror(1), ew.Conv((1, 3, 3)), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(1))
    >>> import numpy as np
    >>> x = np.arange(8.0).reshape(1, 2, 4, 1)
    >>> bool(np.allclose(ew.ntk(net, x), ew.ntk(net, x, x[:, :, ::-1])))
    True
    """

    axes: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, *axes: int):
        self.axes = axes
        if not axes or len(set(axes)) < len(axes):
            raise ArchitectureError(f"Mirror{axes}: expected site axes, each of them once: Mirror(1) swaps columns.")

    def copies(self, rank: int) -> list[tuple[slice, ...]]:
        """For each copy, what it takes of `rank` site axes; the first is the example itself."""
        flipped = {axis % rank for axis in self.axes}
        sides = [(slice(None), slice(None, None, -1)) if axis in flipped else (slice(None),) for axis in range(rank)]
        return list(itertools.product(*sides))

    def describe(self, signal: Signal) -> Signal:
        needs_sites(self, signal)
        rank = len(signal.sites)
        if len({axis % rank for axis in self.axes}) < len(self.axes) or not all(-rank <= a < rank for a in self.axes):
            raise ArchitectureError(
                f"Mirror{self.axes}: expected different axes of the {rank} site axes of an input of shape "
                f"{signal.shape}. Channels are no site axis."
            )
        return signal.reshaped((2 ** len(self.axes), *signal.sites), signal.channels)

    def demand(self, wanted: Demand) -> Demand:
        return wanted

    def forward(self, params: Params, example: Example) -> Example:
        copies = self.copies(example.x.ndim - 1)
        mask = None if example.mask is None else _stacked(example.mask, copies)
        return replace(example, x=_stacked(example.x, copies), mask=mask)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        copies, rank = self.copies(k.rank), k.rank

        def spread(a: Array, pairs: Pairs) -> Array:
            if pairs is Pairs.SAME_SITE:
                return _stacked(a, copies)
            right = [(*(slice(None),) * rank, *copy) for copy in copies]
            return jnp.stack([jnp.stack([a[copy] for copy in copies])[(slice(None), *r)] for r in right], rank + 1)

        k = k.each(lambda c: c.map(spread)).means(lambda m: _stacked(m, copies)).masks(lambda m: _stacked(m, copies))
        return replace(k, sites=(len(copies), *k.sites))


def _stacked(a: Array, copies: list[tuple[slice, ...]]) -> Array:
    return jnp.stack([a[copy] for copy in copies])
