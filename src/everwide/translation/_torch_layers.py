"""Layers of `torch.nn`, by the names of their classes: PyTorch is not imported before somebody brings a module."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..activations import LeakyRelu
from ..layers import Dropout, Identity, Scale, SiteMap
from ._graph import Apply, At, Graph
from ._layout import BATCH, Untranslatable, Value
from ._ops import (
    EVALUATION,
    LEARNED,
    Weights,
    Window,
    adapted,
    changed,
    convolution,
    dense,
    flattened,
    largest,
    normalized,
    normalized_alone,
    pooled,
    put_together,
    taken,
)
from ._reasons import ATTENTION, BATCH_NORM, SOFTMAX, UNREAD
from ._torch_attention import encoder, encoder_layer, read_attention
from ._torch_recurrent import read_recurrent
from ._torch_tokens import numbers, read_embedding
from ._weights import UNIFORM

# Names of `_formula`, and the numbers that they take.
_POINTWISE: dict[str, Callable[[Any], tuple[str, tuple[float, ...]]]] = {
    "ReLU": lambda m: ("relu", ()),
    "ReLU6": lambda m: ("clip", (0.0, 6.0)),
    "LeakyReLU": lambda m: ("leaky_relu", (m.negative_slope,)),
    "GELU": lambda m: ("gelu" if m.approximate == "none" else "gelu_tanh", ()),
    "SiLU": lambda m: ("silu", ()),
    "Tanh": lambda m: ("tanh", ()),
    "Sigmoid": lambda m: ("logistic", ()),
    "Softplus": lambda m: ("softplus", _plain_softplus(m)),
    "ELU": lambda m: ("elu", (m.alpha,)),
    "CELU": lambda m: ("celu", (m.alpha,)),
    "SELU": lambda m: ("selu", ()),
    "Mish": lambda m: ("mish", ()),
    "Hardtanh": lambda m: ("clip", (m.min_val, m.max_val)),
    "Hardsigmoid": lambda m: ("hard_sigmoid", ()),
    "Hardswish": lambda m: ("hard_swish", ()),
    "Softsign": lambda m: ("softsign", ()),
}


def _plain_softplus(module: Any) -> tuple[float, ...]:
    if module.beta != 1:
        raise Untranslatable(f"Softplus(beta={module.beta}): only beta=1 is read; divide and multiply by it yourself")
    return ()


def read_layer(graph: Graph, at: At, module: Any, x: Value, *, causal: bool = False) -> Value:
    """A layer of one value; `causal`: of attention, sites see themselves and those before them."""
    if "parametrizations" in dict(module.named_children()):
        raise Untranslatable(
            "its weights are parametrized (as by weight_norm), which changes their law: torch.nn.utils.parametrize."
            "remove_parametrizations(layer, 'weight') leaves plain ones"
        )
    if at.kind in _WEIGHTED and len({one.requires_grad for one in module.parameters()}) == 2:
        raise Untranslatable(
            "some of its parameters are trained and others are not: all of them are frozen here, or none"
        )
    if at.kind in _POINTWISE:
        name, options = _POINTWISE[at.kind](module)
        return graph.pointwise(at, name, (x, *options))
    if causal:
        return _CAUSAL[at.kind](graph, at, module, x, causal=True)
    if at.kind in _READERS:
        return _READERS[at.kind](graph, at, module, x)
    raise Untranslatable(_reason(module, at.kind, x))


def _reason(module: Any, kind: str, x: Value) -> str:
    if kind in ("Softmax", "LogSoftmax"):
        return SOFTMAX
    if kind == "TransformerDecoderLayer":
        return ATTENTION.format(kind=kind, width=x.shape[-1])
    return UNREAD.format(kind=kind)


def _weights(graph: Graph, at: At, module: Any, fan: int) -> Weights:
    """Both uniform between -1/sqrt(fan) and 1/sqrt(fan): `kaiming_uniform_(a=sqrt(5))`, and biases alike.

    `fan` is what PyTorch takes for the fan-in: in transposed convolutions, that of the shape of the weight.
    """
    variance, bias = 1 / (3 * fan), module.bias
    return Weights(
        key=id(module.weight),
        name=at.place,
        weight=numbers(module.weight),
        bias=None if bias is None else numbers(bias),
        variance=variance,
        bias_variance=None if bias is None else variance,
        law=UNIFORM,
        frozen=not module.weight.requires_grad,
        bias_key=None if bias is None else id(bias),
    )


def _linear(graph: Graph, at: At, module: Any, x: Value) -> Value:
    return dense(graph, at, x, module.out_features, _weights(graph, at, module, module.in_features))


def _conv(graph: Graph, at: At, module: Any, x: Value) -> Value:
    size, dilation = tuple(module.kernel_size), tuple(module.dilation)
    transposed = at.kind.startswith("ConvTranspose")
    reach = [d * (k - 1) for k, d in zip(size, dilation, strict=True)]
    if transposed:
        last = zip(reach, module.padding, module.output_padding, strict=True)
        padding: Any = tuple((r - p, r - p + extra) for r, p, extra in last)
    elif module.padding == "same":
        padding = tuple((r // 2, r - r // 2) for r in reach)
    else:
        padding = "VALID" if module.padding == "valid" else tuple((p, p) for p in module.padding)
    if module.padding_mode == "circular":
        if transposed or padding != tuple((r // 2, r // 2) for r in reach) or any(s > 1 for s in module.stride):
            raise Untranslatable("padding_mode='circular' is read where the window keeps the size")
        padding = "CIRCULAR"
    elif module.padding_mode != "zeros":
        raise Untranslatable(f"padding_mode={module.padding_mode!r}: only zeros and circular are known here")
    window = Window(size, tuple(module.stride), padding, dilation, transposed, module.groups)
    fan = module.weight.shape[1] * math.prod(size)
    return convolution(graph, at, x, 1, window, module.out_channels, _weights(graph, at, module, fan))


def _slides(at: At, x: Value) -> range:
    """The axes of a pooling layer or call, which PyTorch takes from the end: those from 2 on, if there are examples."""
    rank = int(at.kind[-2])
    if len(x.groups) != rank + 2:
        raise Untranslatable(
            f"its window slides over the {rank} behind examples and channels, and there are {x.words()}"
        )
    return range(2, rank + 2)


def average(
    graph: Graph, at: At, x: Value, size: Any, stride: Any, padding: Any, ceil: bool, *, edges: bool = False
) -> Value:
    """Means over windows of the axes from 2 on."""
    axes = _slides(at, x)
    size, padding = _tuple(size, len(axes)), _tuple(padding, len(axes))
    stride = size if stride is None or stride == () else _tuple(stride, len(axes))
    have = [int(n) for n in x.described(1)[2:]]
    if ceil and any(reach > p for reach, p in zip(map(_reach, have, size, stride, padding), padding, strict=True)):
        raise Untranslatable("ceil_mode=True lets windows reach beyond the sites; pad them yourself")
    pairs = tuple((p, p) for p in padding) if any(padding) else "VALID"
    return pooled(graph, at, x, axes, Window(size, stride, pairs), edges=edges)


def _avg_pool(graph: Graph, at: At, module: Any, x: Value) -> Value:
    check_divisor(getattr(module, "divisor_override", None))
    edges = not module.count_include_pad
    how = (module.kernel_size, module.stride, module.padding, module.ceil_mode)
    return average(graph, at, x, *how, edges=edges)


def check_divisor(divisor: int | None) -> None:
    """Sums that are divided by another number than that of their terms are no means."""
    if divisor is not None:
        raise Untranslatable("divisor_override is not known here; multiply by a constant")


def maximum(graph: Graph, at: At, x: Value, size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Value:
    """The largest numbers in windows of the axes from 2 on; beyond the sites there are none."""
    axes = _slides(at, x)
    if any(step != 1 for step in _tuple(dilation, len(axes))):
        raise Untranslatable("windows with gaps are not read")
    size, padding = _tuple(size, len(axes)), _tuple(padding, len(axes))
    stride = size if stride is None or stride == () else _tuple(stride, len(axes))
    have = [int(n) for n in x.described(1)[2:]]
    pairs = tuple(zip(padding, map(_reach, have, size, stride, padding) if ceil else padding, strict=True))
    return largest(graph, at, x, axes, Window(size, stride, pairs if any(map(any, pairs)) else "VALID"))


def _reach(have: int, size: int, stride: int, padding: int) -> int:
    """How far windows reach beyond the last site where their number is rounded up."""
    count = -(-(have + 2 * padding - size) // stride) + 1
    count -= (count - 1) * stride >= have + padding  # a window begins at a site, or in the padding before them
    return max((count - 1) * stride + size - have - padding, 0)


def _max_pool(graph: Graph, at: At, module: Any, x: Value) -> Value:
    if module.return_indices:
        raise Untranslatable("return_indices=True is not read")
    how = (module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode)
    return maximum(graph, at, x, *how)


def adaptive(graph: Graph, at: At, x: Value, size: Any, *, mean: bool = True) -> Value:
    """Means over windows that make so many of them, or the largest numbers in them."""
    axes = _slides(at, x)
    have = [math.prod(x.size[label] for label in x.groups[axis]) for axis in axes]
    want = [h if w is None else w for h, w in zip(have, _tuple(size, len(axes)), strict=True)]
    if any(h % w for h, w in zip(have, want, strict=True)):
        if mean:
            return adapted(graph, at, x, axes, want)
        raise Untranslatable(
            f"{have} sites become {want}: the largest numbers in windows of different sizes are not read; "
            "an input whose sites are a multiple of these is, and so is AdaptiveAvgPool"
        )
    window = tuple(h // w for h, w in zip(have, want, strict=True))
    return (pooled if mean else largest)(graph, at, x, axes, Window(window, window, "VALID"))


def resized(graph: Graph, at: At, x: Value, want: Sequence[int], mode: str, align: bool | None) -> Value:
    """Sites interpolated to others, one axis after the other: the matrix of each is what PyTorch makes of the unit."""
    import torch

    plain = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    for axis, count in zip(range(2, len(x.groups)), want, strict=True):
        group = x.groups[axis]
        if len(group) != 1 or group[0] not in x.sites or plain not in ("nearest", "nearest-exact", "linear", "area"):
            raise Untranslatable(
                f"mode={mode!r} of {x.words()}: nearest, linear and area are read, of site axes that are not merged"
            )
        if x.size[group[0]] != count:
            unit = torch.eye(x.size[group[0]], dtype=torch.float64)[None]
            made = torch.nn.functional.interpolate(unit, size=count, mode=plain, align_corners=align)
            x = graph.apply(at, x, Apply(SiteMap(made[0].numpy().T, axis=int(group[0]))))
    return x


def _upsample(graph: Graph, at: At, module: Any, x: Value) -> Value:
    have, scale = x.described(1)[2:], module.scale_factor
    size = _tuple(module.size, len(have)) if scale is None else None
    scales = () if scale is None else _tuple(scale, len(have))
    want = size or tuple(math.floor(int(n) * s) for n, s in zip(have, scales, strict=True))
    check_factors(scales, module.recompute_scale_factor)
    return resized(graph, at, x, want, module.mode, module.align_corners)


def check_factors(scales: Sequence[float], recompute: bool | None) -> None:
    """PyTorch places sites by the factor itself, not by the sizes, unless it is told to."""
    if recompute is not True and any(float(s) != int(s) for s in scales):
        raise Untranslatable(
            "factors that are not whole numbers are read with recompute_scale_factor=True, or as a size"
        )


def _adaptive(graph: Graph, at: At, module: Any, x: Value) -> Value:
    return adaptive(graph, at, x, module.output_size, mean="Avg" in at.kind)


def _layer_norm(graph: Graph, at: At, module: Any, x: Value) -> Value:
    axes = range(-len(module.normalized_shape), 0)
    _unchanged(graph, at, module)
    eps = float(np.finfo(np.float32).eps) if module.eps is None else module.eps
    centred = at.kind == "LayerNorm"
    x = flattened(graph, x, -1) if len(axes) == 1 else x
    return normalized(graph, at, x, axes, eps, centred=centred, learned=module.elementwise_affine)


def _group_norm(graph: Graph, at: At, module: Any, x: Value) -> Value:
    _unchanged(graph, at, module)
    if module.num_groups == module.num_channels:
        return normalized_alone(graph, at, x, 1, module.eps, learned=module.affine)
    if module.num_groups > 1:
        x.channels_at(1, "its groups are those of axis 1")
    axes = [i for i, group in enumerate(x.groups) if group != (BATCH,)]
    return normalized(graph, at, x, axes, module.eps, centred=True, learned=module.affine, groups=module.num_groups)


def _instance_norm(graph: Graph, at: At, module: Any, x: Value) -> Value:
    if module.track_running_stats and not module.training:
        return _batch_norm(graph, at, module, x)
    _unchanged(graph, at, module)
    return normalized_alone(graph, at, x, 1, module.eps, learned=module.affine)


def _batch_norm(graph: Graph, at: At, module: Any, x: Value) -> Value:
    if module.training or module.running_mean is None:
        raise Untranslatable(BATCH_NORM.format(kind=at.kind))
    _unchanged(graph, at, module)
    graph.census.constant(f"{at.place}.running_mean", numbers(module.running_mean), 0.0)
    graph.census.constant(f"{at.place}.running_var", numbers(module.running_var), 1.0)
    note = f"{EVALUATION}; {LEARNED}" if module.affine else EVALUATION
    return graph.apply(at, x, Apply(Scale(1 / math.sqrt(1 + module.eps)), note=note))


def _unchanged(graph: Graph, at: At, module: Any) -> None:
    for name, expected in (("weight", 1.0), ("bias", 0.0)):
        value = getattr(module, name, None)
        if value is not None:
            graph.census.constant(f"{at.place}.{name}", numbers(value), expected)


def _dropout(graph: Graph, at: At, module: Any, x: Value) -> Value:
    return dropped(graph, at, x, module.p, module.training, at.kind)


def dropped(graph: Graph, at: At, x: Value, rate: float, training: bool, kind: str) -> Value:
    """Noise in training mode, nothing in evaluation mode."""
    if not training or rate == 0:
        return graph.apply(at, x, Apply(Identity(), note="evaluation mode: nothing is dropped"))
    if kind != "Dropout":
        raise Untranslatable(f"{kind} drops whole channels or keeps moments; module.eval() leaves it out")
    note = "training mode: the kernel of noisy passes; module.eval() leaves it out"
    return graph.apply(at, x, Apply(Dropout(float(rate)), note=note))


def glu(graph: Graph, at: At, x: Value, axis: int) -> Value:
    """The first half of the channels, times a sigmoid of the second."""
    half = math.prod(x.size[label] for label in x.groups[axis]) // 2
    one, two = (taken(graph, at, x, axis, part) for part in (slice(half), slice(half, None)))
    return graph.pointwise(at, "mul", (one, graph.pointwise(at, "logistic", (two,))))


def _glu(graph: Graph, at: At, module: Any, x: Value) -> Value:
    return glu(graph, at, x, module.dim)


def _flatten(graph: Graph, at: At, module: Any, x: Value) -> Value:
    return put_together(graph, at, merged(x, module.start_dim, module.end_dim))


def merged(x: Value, first: int, last: int) -> Value:
    """Axes from the first to the last as one: read when a layer needs its channels."""
    count = len(x.groups)
    first, last = first % count, last % count
    group = tuple(label for one in x.groups[first : last + 1] for label in one)
    return replace(x, groups=(*x.groups[:first], group, *x.groups[last + 1 :]))


def _identity(graph: Graph, at: At, module: Any, x: Value) -> Value:
    return x


def _prelu(graph: Graph, at: At, module: Any, x: Value) -> Value:
    if not module.weight.is_meta and float(module.weight.std(correction=0)) > 0:
        raise Untranslatable("its slopes differ from channel to channel")
    slope = 0.25 if module.weight.is_meta else float(module.weight.flatten()[0])
    return graph.apply(at, x, changed(LeakyRelu(slope), "its slope is learned, and not here"))


def _tuple(value: Any, rank: int) -> tuple[Any, ...]:
    return (value,) * rank if isinstance(value, int | float) or value is None else tuple(value)


_READERS: dict[str, Callable[[Graph, At, Any, Value], Value]] = {
    "Linear": _linear,
    "Embedding": read_embedding,
    "RNN": read_recurrent,
    "LSTM": read_recurrent,
    "GRU": read_recurrent,
    "Flatten": _flatten,
    "GLU": _glu,
    "GroupNorm": _group_norm,
    "Identity": _identity,
    "LayerNorm": _layer_norm,
    "PReLU": _prelu,
    "RMSNorm": _layer_norm,
    "SyncBatchNorm": _batch_norm,
    "Upsample": _upsample,
    "UpsamplingNearest2d": _upsample,
    "UpsamplingBilinear2d": _upsample,
    "Dropout": _dropout,
    "AlphaDropout": _dropout,
    "FeatureAlphaDropout": _dropout,
}
for _rank in ("1d", "2d", "3d"):
    _READERS |= {
        f"Conv{_rank}": _conv,
        f"ConvTranspose{_rank}": _conv,
        f"AvgPool{_rank}": _avg_pool,
        f"AdaptiveAvgPool{_rank}": _adaptive,
        f"AdaptiveMaxPool{_rank}": _adaptive,
        f"MaxPool{_rank}": _max_pool,
        f"InstanceNorm{_rank}": _instance_norm,
        f"BatchNorm{_rank}": _batch_norm,
        f"Dropout{_rank}": _dropout,
    }

_WEIGHTED = ("Linear", "RNN", "LSTM", "GRU", "MultiheadAttention", *(n for n in _READERS if n.startswith("Conv")))

_CAUSAL = {
    "MultiheadAttention": read_attention,
    "TransformerEncoderLayer": encoder_layer(read_layer),
    "TransformerEncoder": encoder(read_layer),
}
_READERS |= _CAUSAL
