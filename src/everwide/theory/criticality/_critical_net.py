"""A network with the variances at which it keeps its signals."""

import math
from typing import Any, NamedTuple

import equinox as eqx

from ...activations import AbstractActivation
from ...layers import AbstractLayer as AbstractLayer
from ...layers import (
    Aggregate,
    AvgPool,
    Concat,
    Conv,
    ConvLocal,
    ConvTranspose,
    Dense,
    Dropout,
    Flatten,
    GlobalAvgPool,
    GlobalSumPool,
    Identity,
    Index,
    LayerNorm,
    Product,
    RandomAffine,
    Repeat,
    Resize,
    RmsNorm,
    Scale,
    SelfAttention,
    Serial,
    SiteMap,
    Sum,
    SumPool,
)
from ...signal import ArchitectureError
from ._critical_init import critical_init
from ._point import CriticalPoint, Kind

_WEIGHTS = (Dense, Conv, ConvTranspose, ConvLocal)
_KEEP_VARIANCES = (Identity, Flatten, Index)
_CHANGE_VARIANCES = (AvgPool, SumPool, GlobalAvgPool, GlobalSumPool, Aggregate, SiteMap, Resize)
_REFUSED = {
    Sum: "a sum adds the variances of its branches, so that with a skip connection no variance of the weights keeps "
    "them. Multiply its branches by factors whose squares add up to 1 (Scale), and choose the others by hand",
    Product: "the variance of a product is the product of the variances: only the variance 1 would be kept",
    SelfAttention: "what attention passes on depends on the data. Choose its w_std by hand",
    LayerNorm: "normalization sets the variance by itself, whatever the weights are, and has no critical point",
    RmsNorm: "normalization sets the variance by itself, whatever the weights are, and has no critical point",
    Dropout: "dropout adds noise of its own to every input, so that no critical point is left (Schoenholz et al. 2017)",
    Scale: "a factor is a part of the weights. Leave it out",
}


class _Walk(NamedTuple):
    """What the next weights read: an activation's output, or (`None`) data, or a linear function of what was read."""

    last: CriticalPoint | None
    begins: bool  # no weights so far: the signal is the data
    moved: str  # the layer that has changed variances since the last weights, if any


def critical(net: AbstractLayer) -> AbstractLayer:
    """The same architecture with critical variances: signals neither vanish nor explode with depth.

    Weights that read an activation get its `C_w` and `C_b` (see `critical_init`); weights that read other weights
    `C_w = 1`, `C_b = 0`. The first weights bring inputs of unit variance to `K_star`, if the network has a half-stable
    activation, and otherwise keep them (`C_w = 1`, `C_b = 0`). A first repetition of `Repeat` that differs from the
    others is written out. Chains of weights, activations and pooling can be tuned, and `Concat` of such chains;
    everything else is refused, by name, with the reason. Zero padding takes variance from the border of an image;
    `"CIRCULAR"` padding does not. Also a method: `net.critical()`.

    >>> import everwide as ew
    >>> from everwide.theory.criticality import critical, propagate
    >>> net = ew.Serial(ew.Repeat(ew.Serial(ew.Dense(), ew.Gelu()), 20), ew.Dense(1))
    >>> tuned = critical(net)
    >>> before_each_activation = propagate(tuned).variance[1::2]
    >>> before_each_activation.min().round(6), before_each_activation.max().round(6)
    (np.float64(3.561553), np.float64(3.561553))
    """
    points = {id(layer): _point_of(layer) for layer in _activations(net)}
    tuned, _ = _tuned(net, _Walk(None, True, ""), points, _target(list(points.values())))
    return tuned


def _point_of(layer: AbstractActivation) -> CriticalPoint:
    point = critical_init(layer)
    if point.kind is Kind.NONE:
        raise ArchitectureError(f"{point.name} has no critical point: {point.reason}")
    return point


def _activations(layer: Any) -> list[AbstractActivation]:
    if isinstance(layer, AbstractActivation):
        return [layer]
    if isinstance(layer, Repeat):
        return _activations(layer.layer)
    inner = layer.layers if isinstance(layer, Serial) else layer.branches if isinstance(layer, Concat) else ()
    return [found for part in inner for found in _activations(part)]


def _target(points: list[CriticalPoint]) -> CriticalPoint | None:
    """The half-stable point that all activations must live at, if there is one."""
    tuned = [point for point in points if point.kind is Kind.HALF_STABLE]
    rivals = [p for p in points if p.kind is not Kind.SCALE_INVARIANT and tuned and not _close(p, tuned[0])]
    if rivals:
        raise ArchitectureError(
            f"{tuned[0].name} keeps the variance {tuned[0].K_star:.6g} only, but {rivals[0].name} keeps "
            f"{rivals[0].K_star:.6g}: they cannot share a critical network. Use one of them, or scale-invariant "
            "activations (Relu, LeakyRelu, Abs) beside it."
        )
    return tuned[0] if tuned else None


def _close(a: CriticalPoint, b: CriticalPoint) -> bool:
    return a.kind is b.kind and math.isclose(a.K_star, b.K_star, rel_tol=1e-9)


def _tuned(
    layer: AbstractLayer, walk: _Walk, points: dict[int, CriticalPoint], target: CriticalPoint | None
) -> tuple[AbstractLayer, _Walk]:
    if isinstance(layer, _WEIGHTS):
        weight, bias = _variances(walk, target)
        return _with_variances(layer, weight, bias), _Walk(None, False, "")
    if isinstance(layer, AbstractActivation):
        if target is not None and walk.moved:
            raise ArchitectureError(
                f"{walk.moved} changes variances by an amount that depends on the data, but {target.name} keeps "
                f"{target.K_star:.6g} only. Take {walk.moved} out, or use a scale-invariant activation such as Relu."
            )
        if walk.last is not None:
            raise ArchitectureError(
                f"{points[id(layer)].name} follows {walk.last.name} with no weights in between: it reads signals that "
                "are not Gaussian, and no variance is known to be kept. Put a Dense or Conv layer between them."
            )
        return layer, walk._replace(last=points[id(layer)])
    if isinstance(layer, Serial):
        inner = []
        for part in layer.layers:
            part, walk = _tuned(part, walk, points, target)
            inner.append(part)
        return Serial(*inner), walk
    if isinstance(layer, Repeat):
        return _repeated(layer, walk, points, target)
    if isinstance(layer, Concat):
        return _beside(layer, walk, points, target)
    if isinstance(layer, _CHANGE_VARIANCES):
        return layer, walk._replace(moved=type(layer).__name__)
    if isinstance(layer, _KEEP_VARIANCES):
        return layer, walk
    why = _REFUSED.get(type(layer), "it is not known what this layer does to variances")
    raise ArchitectureError(f"{type(layer).__name__} cannot be made critical: {why}.")


def _variances(walk: _Walk, target: CriticalPoint | None) -> tuple[float, float]:
    """`C_w` and `C_b` of weights that read what the walk has come to."""
    if walk.last is not None:
        return walk.last.C_w, walk.last.C_b
    if walk.begins and target is not None:  # C_w + C_b is what comes of unit variance
        return target.K_star - target.C_b, target.C_b
    return 1.0, 0.0


def _with_variances(layer: Any, weight: float, bias: float) -> AbstractLayer:
    old = layer.affine
    b_std = None if bias == 0 and old.b_std is None else math.sqrt(bias)
    return eqx.tree_at(lambda one: one.affine, layer, RandomAffine(math.sqrt(weight), b_std, old.frozen))


def _repeated(
    layer: Repeat, walk: _Walk, points: dict[int, CriticalPoint], target: CriticalPoint | None
) -> tuple[AbstractLayer, _Walk]:
    first, after = _tuned(layer.layer, walk, points, target)
    if layer.times == 1:
        return Repeat(first, 1), after
    again, settled = _tuned(layer.layer, after, points, target)
    if first == again:
        return Repeat(again, layer.times), settled
    return Serial(first, Repeat(again, layer.times - 1)), settled


def _beside(
    layer: Concat, walk: _Walk, points: dict[int, CriticalPoint], target: CriticalPoint | None
) -> tuple[AbstractLayer, _Walk]:
    inner, ends = zip(*(_tuned(branch, walk, points, target) for branch in layer.branches), strict=True)
    if any(end != ends[0] for end in ends):
        raise ArchitectureError(
            "Concat cannot be made critical: the weights after it would read branches that end in different ways. "
            "End all of them with the same activation, or all with weights."
        )
    return Concat(*inner, axis=layer.axis), ends[0]
