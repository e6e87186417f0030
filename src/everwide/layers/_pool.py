"""Pooling over sites, and flattening them into channels."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._trees import name
from .._window import Padding, Slide, centre_of_window, checked_padding, per_axis, slides, window_sum
from ..kernel import Example, Kernel
from ..signal import Demand, Pairs, Signal
from ._base import AbstractFixed, AbstractLayer, Params
from ._conv import after_window
from ._sites import needs_sites


class Pool(eqx.Module):
    """Sums over sliding windows, divided by nothing, by the window or by the sites inside it."""

    window: tuple[int, ...] = eqx.field(static=True)
    strides: tuple[int, ...] = eqx.field(static=True)
    padding: Padding = eqx.field(static=True)
    mean: bool = eqx.field(static=True)
    normalize_edges: bool = eqx.field(static=True)

    def geometry(self, layer: AbstractLayer, sites: tuple[int, ...]) -> tuple[Slide, ...]:
        """How the window moves over these sites."""
        return slides(name(layer), sites, self.window, self.strides, (1,) * len(sites), self.padding)

    def pooled(self, a: Array, windows: Sequence[Slide], first: int = 0) -> Array:
        """Pool the axes of `a` that start at `first`."""
        for axis, slide in enumerate(windows, start=first):
            a = window_sum(a, (axis,), slide)
            if self.mean:
                shape = [1] * a.ndim
                shape[axis] = slide.out
                a = a / jnp.asarray(self._counts(slide), a.dtype).reshape(shape)
        return a

    def _counts(self, slide: Slide) -> np.ndarray:
        if not self.normalize_edges or slide.circular:
            return np.full(slide.out, slide.window)
        start = np.arange(slide.out) * slide.stride - slide.low
        return np.minimum(start + slide.window, slide.size) - np.maximum(start, 0)


class AbstractPool(AbstractFixed):
    """Both pooling layers, which differ only in what they divide by."""

    pool: eqx.AbstractVar[Pool]

    def describe(self, signal: Signal) -> Signal:
        needs_sites(self, signal, len(self.pool.window))
        return signal.reshaped(tuple(s.out for s in self.pool.geometry(self, signal.sites)), signal.channels)

    def demand(self, wanted: Demand) -> Demand:
        return wanted.all_sites()

    def forward(self, params: Params, example: Example) -> Example:
        windows = self.pool.geometry(self, example.x.shape[:-1])
        return after_window(example, self.pool.pooled(example.x, windows), windows)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        windows, rank = self.pool.geometry(self, k.sites), k.rank

        def both(a, _):
            return self.pool.pooled(self.pool.pooled(a, windows), windows, first=rank)

        k = k.each(lambda c: c.map(both)).means(lambda m: self.pool.pooled(m, windows))
        k = k.masks(lambda m: centre_of_window(m, windows))
        return replace(k, sites=tuple(s.out for s in windows)).masked()


class AvgPool(AbstractPool):
    """Mean over sliding windows. `strides=None` means windows that do not overlap.

    With `normalize_edges` a window that reaches into the padding divides by the sites it covers, not by its size.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.AvgPool((2, 2)), ew.Flatten(), ew.Dense(10))
    """

    pool: Pool

    def __init__(
        self,
        window: Sequence[int],
        *,
        strides: int | Sequence[int] | None = None,
        padding: str | Sequence[Sequence[int]] = "VALID",
        normalize_edges: bool = False,
    ):
        self.pool = _pool("AvgPool", window, strides, padding, mean=True, normalize_edges=normalize_edges)


class SumPool(AbstractPool):
    """Sum over sliding windows. `strides=None` means windows that do not overlap.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Conv((3,)), ew.Relu(), ew.layers.SumPool((2,)), ew.Flatten(), ew.Dense(10))
    """

    pool: Pool

    def __init__(
        self,
        window: Sequence[int],
        *,
        strides: int | Sequence[int] | None = None,
        padding: str | Sequence[Sequence[int]] = "VALID",
    ):
        self.pool = _pool("SumPool", window, strides, padding, mean=False, normalize_edges=False)


def _pool(layer: str, window, strides, padding, *, mean: bool, normalize_edges: bool) -> Pool:
    axes = len(window)
    window = per_axis(layer, "window", window, axes)
    strides = window if strides is None else per_axis(layer, "strides", strides, axes)
    return Pool(window, strides, checked_padding(layer, padding, axes), mean, normalize_edges)


class AbstractGlobalPool(AbstractFixed):
    """Pool all sites at once and drop their axes."""

    mean: eqx.AbstractClassVar[bool]

    def describe(self, signal: Signal) -> Signal:
        needs_sites(self, signal)
        return signal.reshaped((), signal.channels)

    def demand(self, wanted: Demand) -> Demand:
        return wanted.all_sites()

    def forward(self, params: Params, example: Example) -> Example:
        axes = tuple(range(example.x.ndim - 1))
        total = jnp.sum(example.x, axes)
        return replace(example, mask=None, x=total / self._count(example.mask, example.x.shape[:-1], total))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        axes = tuple(range(k.rank))
        both = tuple(range(2 * k.rank))
        count = {i: self._count(mask, k.sites, k.cross.nngp) for i, mask in ((1, k.mask1), (2, k.mask2))}
        k = k.each_with(
            lambda c, i, j: replace(c.map(lambda a, _: jnp.sum(a, both) / (count[i] * count[j])), pairs=Pairs.SAME_SITE)
        )
        k = k.means_with(lambda m, i: jnp.sum(m, axes) / count[i])
        return replace(k, mask1=None, mask2=None, sites=())

    def _count(self, mask: Array | None, sites: tuple[int, ...], like: Array) -> Array | float:
        if not self.mean:
            return 1.0
        if mask is None:
            return float(math.prod(sites))
        count = jnp.sum(mask, tuple(range(len(sites)))).astype(like.dtype)
        return jnp.maximum(count, 1)  # an example without sites has sums of zero


class GlobalAvgPool(AbstractGlobalPool):
    """Mean over all sites (over those that exist, where inputs are masked).

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(10))
    """

    mean: ClassVar[bool] = True


class GlobalSumPool(AbstractGlobalPool):
    """Sum over all sites.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.layers.GlobalSumPool(), ew.Dense(10))
    """

    mean: ClassVar[bool] = False


class Flatten(AbstractFixed):
    """All sites become channels; the next layer has independent weights for each.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.Flatten(), ew.Dense(10))
    """

    def describe(self, signal: Signal) -> Signal:
        channels = None if signal.channels is None else math.prod(signal.sites) * signal.channels
        return signal.mixed((), channels) if signal.sites else signal

    def demand(self, wanted: Demand) -> Demand:
        return wanted.same_site()

    def forward(self, params: Params, example: Example) -> Example:
        return replace(example, x=example.x.reshape(-1), mask=None)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        axes = tuple(range(k.rank))

        def average(a):
            return jnp.mean(a, axes) if axes else a

        k = k.each(lambda c: c.map(lambda a, _: average(a))) if axes else k
        channels = None if k.channels is None else k.channels * math.prod(k.sites)
        return replace(k.means(average), mask1=None, mask2=None, sites=(), channels=channels)
