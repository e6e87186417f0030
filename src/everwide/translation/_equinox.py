"""Layers of Equinox, one by one: weights and biases are uniform between -1 / sqrt(fan_in) and 1 / sqrt(fan_in)."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
from equinox import nn
from jax import lax
from jaxtyping import Array

from ..activations import LeakyRelu
from ..layers import Dropout, Identity, Scale
from ..signal import ArchitectureError
from ._attention import Projection, attention
from ._graph import Apply, At, Graph
from ._jaxpr import Mark, has_own_call, marked, read_call
from ._layout import CHANNELS, Untranslatable, Value, start, start_tokens
from ._ops import (
    EVALUATION,
    LEARNED,
    Weights,
    Window,
    changed,
    convolution,
    dense,
    embedded,
    largest,
    normalized,
    normalized_alone,
    pooled,
    refused,
)
from ._reasons import BATCH_NORM, MODE, OWN_CALL, RECURRENT, UNREAD
from ._weights import UNIFORM


class Marked(eqx.Module):
    """A layer that leaves its number in the trace of a call."""

    layer: Any
    number: int = eqx.field(static=True)

    def __call__(
        self, x: Array, *rest: Any, key: Any = None, mask: Any = None, inference: Any = None, process_heads: Any = None
    ) -> Any:
        own = _weights_of(self.layer)
        if isinstance(self.layer, nn.Dropout) and inference:
            return x
        _refuse_mode(self.layer, inference)
        if isinstance(self.layer, nn.BatchNorm):
            return (marked(self.number, x, x, own), *rest) if rest else marked(self.number, x, x, own)
        if isinstance(self.layer, nn.Dropout):
            return marked(self.number, x, x, own)
        if isinstance(self.layer, nn.MultiheadAttention):
            mask = rest[2] if len(rest) > 2 else mask
            out = self.layer(x, *rest[:2], mask=mask, key=key, inference=inference, process_heads=process_heads)
            itself = process_heads is None and all(one is x for one in rest[:2])
            return marked(self.number, x, out, own, mask) if itself else out
        return marked(self.number, x, self.layer(x, *rest), own)

    def __getattr__(self, name: str) -> Any:
        """What a module asks its layer for: sizes, weights."""
        return getattr(vars(self).get("layer"), name)


def _weights_of(layer: Any) -> tuple[Any, ...]:
    """The numbers of a layer, in their order."""
    return tuple(leaf for leaf in jax.tree.leaves(layer) if eqx.is_inexact_array(leaf))


def _refuse_mode(layer: Any, inference: Any) -> None:
    """Raise where a call says another mode than the layer does."""
    own = getattr(layer, "inference", None)
    if inference is not None and own is not None and bool(inference) != bool(own):
        kind, how = type(layer).__name__, "equinox.nn.inference_mode(module), and no argument in the call"
        given = {"kind": kind, "option": "inference", "given": inference, "own": own, "how": how}
        raise ArchitectureError(MODE.format(**given))


def read_equinox(graph: Graph, module: Any, shape: Sequence[int], channels: int) -> Value:
    """The graph of a module, for examples of that shape."""
    marks: list[Mark] = []

    def mark(path: Any, layer: Any) -> Any:
        if not _is_read(layer):
            return layer
        masked = _attention if isinstance(layer, nn.MultiheadAttention) else None
        at = _at(jax.tree_util.keystr(path), layer)
        marks.append(Mark(at, layer, _reader(layer), masked, _weights_of(layer), isinstance(layer, nn.GroupNorm)))
        return Marked(layer, len(marks) - 1)

    replaced = jax.tree_util.tree_map_with_path(mark, module, is_leaf=_is_read)
    for path, leaf in jax.tree_util.tree_flatten_with_path(module)[0]:
        if eqx.is_inexact_array(leaf):
            graph.trained.append(leaf)
            if leaf.ndim >= 2:
                graph.tables[jax.tree_util.keystr(path).lstrip(".")] = leaf
    tokens = any(isinstance(mark.layer, nn.Embedding) for mark in marks)
    inputs = start(shape, channels=channels, batched=False), start_tokens(shape, batched=False) if tokens else None
    return read_call(graph, type(module).__name__, _called(replaced), marks, tuple(shape), inputs)


def _called(module: Any) -> Callable[[Array], Any]:
    """A call on one array; a key is passed where one is taken, and of a result with a state the first part is read."""
    taken = inspect.signature(type(module).__call__).parameters
    options: dict[str, Any] = {"key": jr.key(0)} if "key" in taken else {}
    if "state" in taken and not isinstance(module, nn.Sequential):
        options["state"] = None

    def call(x: Array) -> Any:
        out = module(x, **options)
        return out[0] if "state" in options and isinstance(out, tuple) else out

    return call


def _is_read(layer: Any) -> bool:
    return isinstance(layer, tuple(_READERS))


def _reader(layer: Any) -> Callable[[Graph, At, Any, Value], Value]:
    if has_own_call(layer, "equinox"):
        return refused(OWN_CALL)
    return next(read for kind, read in _READERS.items() if isinstance(layer, kind))


def _at(place: str, layer: Any) -> At:
    kind = type(layer).__name__
    names = ("in_features", "out_features", "in_channels", "out_channels", "kernel_size", "shape", "p")
    sizes = [str(getattr(layer, name)) for name in names if name in vars(layer)]
    return At(place.lstrip(".") or "the top", f"{kind}({', '.join(sizes)})", kind, is_layer=True)


def _weights(at: At, layer: Any, fan_in: int) -> Weights:
    variance = 1 / (3 * fan_in)
    return Weights(
        key=id(layer.weight),
        name=at.place,
        weight=layer.weight,
        bias=layer.bias,
        variance=variance,
        bias_variance=None if layer.bias is None else variance,
        law=UNIFORM,
        bias_key=None if layer.bias is None else id(layer.bias),
    )


def _linear(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    fan_in, width = (1 if n == "scalar" else n for n in (layer.in_features, layer.out_features))
    out = dense(graph, at, x, width, _weights(at, layer, fan_in))
    return replace(out, groups=out.groups[:-1]) if layer.out_features == "scalar" else out


def _conv(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    size, padding = tuple(layer.kernel_size), layer.padding
    reach = [d * (k - 1) for k, d in zip(size, layer.dilation, strict=True)]
    keeps = padding == "SAME" or [*map(tuple, padding)] == [(r // 2, r - r // 2) for r in reach]
    if layer.padding_mode == "CIRCULAR" and keeps and set(layer.stride) == {1}:
        padding = "CIRCULAR"
    elif layer.padding_mode != "ZEROS":
        raise Untranslatable(f"padding_mode={layer.padding_mode!r}: zeros are read, and CIRCULAR that keeps the size")
    if isinstance(padding, str) and padding not in ("SAME", "VALID", "CIRCULAR"):
        raise Untranslatable(f"padding={padding!r} is not known here")
    padding = padding if isinstance(padding, str) else tuple((int(low), int(high)) for low, high in padding)
    window = Window(size, tuple(layer.stride), padding, tuple(layer.dilation), groups=layer.groups)
    fan_in = layer.in_channels // layer.groups * math.prod(size)
    channels = len(x.groups) - 1 - len(size)  # `jax.vmap` may have put sites in front
    return convolution(graph, at, x, channels, window, layer.out_channels, _weights(at, layer, fan_in))


def _channels(x: Value) -> int:
    """Where the channels are: first, unless `jax.vmap` has put sites in front."""
    return next((i for i, group in enumerate(x.groups) if group == (CHANNELS,)), 0)


def _pool(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    kind = type(layer).__name__
    if layer.use_ceil:
        raise Untranslatable("use_ceil=True lets windows reach beyond the sites; pad them yourself")
    padding = tuple((int(low), int(high)) for low, high in layer.padding)
    window = Window(tuple(layer.kernel_size), tuple(layer.stride), padding if any(map(any, padding)) else "VALID")
    if not ((kind.startswith("AvgPool") and layer.operation is lax.add) or layer.operation is lax.max):
        raise Untranslatable("only means over windows are read, and the largest numbers in them")
    axes = [axis for axis, group in enumerate(x.groups) if group != (CHANNELS,)]
    return (largest if layer.operation is lax.max else pooled)(graph, at, x, axes, window)


def _adaptive(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    axes = [axis for axis, group in enumerate(x.groups) if group != (CHANNELS,)]
    have = [x.described()[axis] for axis in axes]
    want = (*have[: len(have) - len(layer.target_shape)], *layer.target_shape)  # those of `jax.vmap` stay
    if any(int(h) % int(w) for h, w in zip(have, want, strict=True)):
        raise Untranslatable(
            f"{have} sites become {want}: windows of different sizes are not read; take an input whose sites are a "
            "multiple of these"
        )
    size = tuple(int(h) // int(w) for h, w in zip(have, want, strict=True))
    return (pooled if "Avg" in at.kind else largest)(graph, at, x, axes, Window(size, size, "VALID"))


def _norm(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    axes = range(-len(layer.shape), 0)
    _unchanged(graph, at, layer)
    centred = isinstance(layer, nn.LayerNorm)
    return normalized(graph, at, x, axes, layer.eps, centred=centred, learned=layer.use_weight)


def _group_norm(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    _unchanged(graph, at, layer)
    if layer.groups == layer.channels:
        return normalized_alone(graph, at, x, _channels(x), layer.eps, learned=layer.channelwise_affine)
    x.channels_at(0, "its groups are those of the first axis")
    how = {"centred": True, "learned": layer.channelwise_affine, "groups": layer.groups}
    return normalized(graph, at, x, range(len(x.groups)), layer.eps, **how)


def _attention(graph: Graph, at: At, layer: Any, x: Value, mask: Any = None) -> Value:
    reads = layer.query_proj, layer.key_proj, layer.value_proj
    if any(one.bias is not None for one in reads):
        raise Untranslatable("biases of queries, keys and values are not read; use_output_bias is")
    if layer.dropout.p and not layer.dropout.inference:
        raise Untranslatable("dropout of attention is not read; equinox.nn.inference_mode(module) leaves it out")
    weights = []
    for name in ("query_proj", "key_proj", "value_proj", "output_proj"):
        own = getattr(layer, name)
        fan_in = int(own.in_features)
        weights.append(Projection(f"{at.place}.{name}.weight", own.weight, 1 / (3 * fan_in), fan_in, UNIFORM))
    out = layer.output_proj
    bias = None if out.bias is None else math.sqrt(1 / (3 * out.in_features))
    heads, widths = (layer.num_heads,) * 2, (layer.qk_size, layer.vo_size)
    return attention(graph, at, x, weights, heads, widths, layer.output_size, bias, mask, id(layer.query_proj.weight))


def _embedding(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    return embedded(graph, at, x, (layer.num_embeddings, layer.embedding_size), layer.weight, 1.0, id(layer.weight))


def _unchanged(graph: Graph, at: At, layer: Any) -> None:
    for name, expected in (("weight", 1.0), ("bias", 0.0)):
        value = getattr(layer, name, None)
        if value is not None:
            graph.census.constant(f"{at.place}.{name}", value, expected)


def _batch_norm(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    if not layer.inference:
        raise Untranslatable(BATCH_NORM.format(kind="BatchNorm"))
    _unchanged(graph, at, layer)
    note = EVALUATION if layer.weight is None else f"{EVALUATION}; {LEARNED}"
    return graph.apply(at, x, Apply(Scale(1 / math.sqrt(1 + layer.eps)), note=note))


def _dropout(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    if layer.inference or layer.p == 0:
        return graph.apply(at, x, Apply(Identity(), note="inference mode: nothing is dropped"))
    note = "training mode: the kernel of noisy passes; equinox.nn.inference_mode(module) leaves it out"
    return graph.apply(at, x, Apply(Dropout(float(layer.p)), note=note))


def _prelu(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    if layer.negative_slope.size != 1:
        raise Untranslatable("its slopes are those of single channels")
    return graph.apply(
        at, x, changed(LeakyRelu(float(layer.negative_slope.reshape(()))), "its slope is learned, and not here")
    )


_READERS: dict[type, Callable[[Graph, At, Any, Value], Value]] = {
    nn.Linear: _linear,
    nn.ConvTranspose: refused(UNREAD),
    nn.Conv: _conv,
    nn.AdaptivePool: _adaptive,
    nn.Pool: _pool,
    nn.LayerNorm: _norm,
    nn.RMSNorm: _norm,
    nn.GroupNorm: _group_norm,
    nn.BatchNorm: _batch_norm,
    nn.Dropout: _dropout,
    nn.PReLU: _prelu,
    nn.Embedding: _embedding,
    nn.MultiheadAttention: _attention,
    nn.GRUCell: refused(RECURRENT),
    nn.LSTMCell: refused(RECURRENT),
    nn.SpectralNorm: refused(UNREAD),
    nn.WeightNorm: refused(UNREAD),
}
