"""The layers of the reference vocabulary that move or mix sites. Axes count as in the data: 0 is the batch."""

import numpy as np

from everwide.layers import (
    AbstractLayer,
    Aggregate,
    AvgPool,
    Flatten,
    GlobalAvgPool,
    GlobalSumPool,
    Index,
    LayerNorm,
    Resize,
    SiteMap,
    SumPool,
)
from everwide.signal import ArchitectureError, Signal

from ._words import Word


def site_axis(word: Word, axis: int, signal: Signal) -> int:
    """The site axis of a data axis (0 is the batch, the last one the channels)."""
    rank = len(signal.sites)
    site = (axis + rank + 2 if axis < 0 else axis) - 1
    if not 0 <= site < rank:
        raise ArchitectureError(
            f"Layer {word.type!r}: axis {axis} is no site axis of data with the axes (batch, {rank} sites, channels)."
        )
    return site


def avg_pool(w: Word, signal: Signal) -> AbstractLayer:
    normalize = w.flag("normalize_edges", False)
    return AvgPool(w.take("window"), strides=_strides(w), padding=w.take("padding", "VALID"), normalize_edges=normalize)


def sum_pool(w: Word, signal: Signal) -> AbstractLayer:
    return SumPool(w.take("window"), strides=_strides(w), padding=w.take("padding", "VALID"))


def _strides(w: Word):
    strides = w.take("strides", None)
    return 1 if strides is None else strides


def layernorm(w: Word, signal: Signal) -> AbstractLayer:
    axes, rank = w.take("axes", [-1]), len(signal.sites)
    axes = [axes] if isinstance(axes, int) else list(axes)
    chosen = {a % (rank + 2) for a in axes}
    if rank + 1 not in chosen or 0 in chosen:
        raise ArchitectureError(f"Layer 'layernorm': axes {axes} must hold the channels and not the batch.")
    sites = tuple(sorted(site_axis(w, a, signal) for a in chosen - {rank + 1}))
    everywhere = False if not sites else True if len(sites) == rank else sites
    return LayerNorm(sites=everywhere, eps=w.number("eps", 1e-12))


def aggregate(w: Word, signal: Signal) -> AbstractLayer:
    axes = w.take("axes", None)
    axes = [axes] if isinstance(axes, int) else axes
    return Aggregate(None if axes is None else tuple(site_axis(w, a, signal) for a in axes))


def image_resize(w: Word, signal: Signal) -> AbstractLayer:
    w.take("in_shape", None)  # follows from the layers before
    shape, method = list(w.take("shape")), w.choice("method", {"nearest": "nearest", "linear": "linear"} | _BILINEAR)
    if len(shape) != len(signal.sites) + 2 or shape[-1] not in (-1, signal.channels):
        raise ArchitectureError(f"Layer 'image_resize': shape {shape} must be [-1, *sites, -1] for {signal.sites}.")
    return Resize(tuple(shape[1:-1]), method=method, antialias=w.flag("antialias", True))


_BILINEAR = {"bilinear": "linear", "trilinear": "linear", "triangle": "linear"}


def index(w: Word, signal: Signal) -> AbstractLayer:
    items = [i if isinstance(i, int) else slice(*i) for i in (i if i is not None else [None] for i in w.take("idx"))]
    batch, sites, channels = items[:1], items[1 : len(signal.sites) + 1], items[len(signal.sites) + 1 :]
    if any(i != slice(None) for i in (*batch, *channels)) or len(channels) > 1:
        raise ArchitectureError(f"Layer 'index': only site axes can be indexed, got {w.type} {items}.")
    return Index(*sites)


def dot_general_rhs(w: Word, signal: Signal) -> AbstractLayer:
    rhs, axis = np.asarray(w.take("rhs"), float), site_axis(w, w.whole("axis"), signal)
    if rhs.ndim == 2 and axis != len(signal.sites) - 1:
        raise ArchitectureError("Layer 'dot_general_rhs': a matrix makes a new last axis, so contract the last one.")
    return SiteMap(rhs.T, axis=axis)


SITE_WORDS = {
    "avg_pool": avg_pool,
    "sum_pool": sum_pool,
    "global_avg_pool": lambda w, signal: GlobalAvgPool(),
    "global_sum_pool": lambda w, signal: GlobalSumPool(),
    "flatten": lambda w, signal: Flatten(),
    "layernorm": layernorm,
    "aggregate": aggregate,
    "image_resize": image_resize,
    "index": index,
    "dot_general_rhs": dot_general_rhs,
}
