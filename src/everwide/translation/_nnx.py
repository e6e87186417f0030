"""Layers of Flax NNX, one by one: weights are truncated normal with variance 1 / fan_in, biases begin at zero."""

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

from ..activations import LeakyRelu
from ..layers import Dropout, Identity, Scale
from ..signal import ArchitectureError
from ._graph import Apply, At, Graph
from ._jax_calls import BATCH
from ._jaxpr import Mark, has_own_call, marked, read_call
from ._layout import Untranslatable, Value, start, start_tokens
from ._nnx_attention import mask_of, read_attention, reads_itself
from ._nnx_recurrent import read_rnn
from ._ops import (
    EVALUATION,
    LEARNED,
    Weights,
    Window,
    changed,
    convolution,
    dense,
    embedded,
    normalized,
    normalized_alone,
    refused,
)
from ._reasons import BATCH_NORM, MODE, OWN_CALL, UNREAD
from ._weights import TRUNCATED


def read_nnx(graph: Graph, module: Any, shape: Sequence[int], channels: int) -> Value:
    """The graph of a module, for examples of that shape."""
    nnx = _nnx()
    definition, state = nnx.split(module)
    whole = (nnx.GroupNorm, nnx.InstanceNorm)
    marks = [
        Mark(_at(path, layer), layer, _reader(layer), _masked(layer), _params(layer), isinstance(layer, whole))
        for path, layer in _layers(module)
    ]

    def call(x: Any) -> Any:
        own = nnx.merge(definition, state, copy=True)  # what it writes belongs to this trace alone
        with _marking([layer for _, layer in _layers(own)]):
            return own(x)

    named = {".".join(map(str, path)): one[...] for path, one in nnx.to_flat_state(nnx.state(module, nnx.Param))}
    graph.trained = list(named.values())
    graph.tables = {name: table for name, table in named.items() if table.ndim >= 2}
    tokens = start_tokens(shape) if any(isinstance(mark.layer, nnx.Embed) for mark in marks) else None
    inputs = start(shape, channels=channels, batched=True), tokens
    return read_call(graph, type(module).__name__, call, marks, (BATCH, *shape), inputs)


def _layers(module: Any) -> list[tuple[str, Any]]:
    """All layers that are read as a whole, with their places; of the outermost ones nothing inside."""
    layers: list[tuple[str, Any]] = []
    for path, layer in _nnx().iter_graph(module):
        if isinstance(layer, tuple(_readers())):
            layers.append((".".join(map(str, path)), layer))
    inside = {place for place, layer in layers if isinstance(layer, _composite())}
    return sorted((place, layer) for place, layer in layers if not any(place.startswith(f"{one}.") for one in inside))


@contextlib.contextmanager
def _marking(layers: list[Any]) -> Iterator[None]:
    """Calls of these layers leave a mark in the trace. Classes are changed meanwhile, and only these instances obey."""
    numbers = {id(layer): number for number, layer in enumerate(layers)}
    with contextlib.ExitStack() as stack:
        for kind in {type(layer) for layer in layers}:
            stack.enter_context(mock.patch.object(kind, "__call__", _marked_call(kind.__call__, numbers)))
        yield


def _marked_call(original: Callable[..., Any], numbers: dict[int, int]) -> Callable[..., Any]:
    nnx, first = _nnx(), list(inspect.signature(original).parameters)[1]

    def call(self: Any, *given: Any, **options: Any) -> Any:
        x, *rest = given or (options.pop(first, None),)
        number = numbers.get(id(self))
        if number is None:
            return original(self, x, *rest, **options)
        if isinstance(self, nnx.RNN) and (rest or options):
            return original(self, x, *rest, **options)  # a scan, which is refused
        if options.get("deterministic") and isinstance(self, nnx.Dropout):
            return x
        _refuse_mode(self, options)
        if isinstance(self, nnx.MultiHeadAttention) and not reads_itself(self, x, rest, options):
            return original(self, x, *rest, **options)  # products of signals, which are refused
        mask = mask_of(x, options) if isinstance(self, nnx.MultiHeadAttention) else None
        silent = isinstance(self, nnx.Dropout | nnx.BatchNorm)  # they write their state, and change no shape
        return marked(number, x, x if silent else original(self, x, *rest, **options), _params(self), mask)

    return call


def _refuse_mode(layer: Any, options: Mapping[str, Any]) -> None:
    """Raise where a call says another mode than the layer does, or has a mask."""
    for kind, option in ((_nnx().Dropout, "deterministic"), (_nnx().BatchNorm, "use_running_average")):
        given = options.get(option)
        if isinstance(layer, kind) and given is not None and bool(given) != bool(getattr(layer, option)):
            how = "module.eval() or module.train(), and no argument in the call"
            said = {"kind": type(layer).__name__, "option": option, "given": given, "own": getattr(layer, option)}
            raise ArchitectureError(MODE.format(how=how, **said))
    if options.get("mask") is not None and not isinstance(layer, _nnx().MultiHeadAttention):
        raise ArchitectureError(
            f"A {type(layer).__name__} is called with a mask, which is read of attention only: leave it out."
        )


def _params(layer: Any) -> tuple[Any, ...]:
    """The numbers of a layer, in their order."""
    return tuple(value[...] for _, value in _nnx().to_flat_state(_nnx().state(layer, _nnx().Param)))


def _masked(layer: Any) -> Callable[[Graph, At, Any, Value, Any], Value] | None:
    return read_attention if isinstance(layer, _nnx().MultiHeadAttention) else None


def _at(place: str, layer: Any) -> At:
    kind = type(layer).__name__
    sizes = [
        str(getattr(layer, name)) for name in ("in_features", "out_features", "num_features") if name in vars(layer)
    ]
    if "kernel_size" in vars(layer):
        sizes.append(str(layer.kernel_size))
    return At(place or "the top", f"{kind}({', '.join(sizes)})", kind, is_layer=True)


def _reader(layer: Any) -> Callable[[Graph, At, Any, Value], Value]:
    if has_own_call(layer, "flax"):
        return refused(OWN_CALL)
    return next(read for kind, read in _readers().items() if isinstance(layer, kind))


def _weights(at: At, layer: Any, fan_in: int) -> Weights:
    bias = layer.bias if layer.use_bias else None
    return Weights(
        key=id(layer.kernel),
        name=at.place,
        weight=layer.kernel[...],
        bias=None if bias is None else bias[...],
        variance=1 / fan_in,
        bias_variance=None if bias is None else 0.0,
        law=TRUNCATED,
        bias_key=None if bias is None else id(bias),
    )


def _linear(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    return dense(graph, at, x, layer.out_features, _weights(at, layer, layer.in_features))


def _conv(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    rank = len(layer.kernel_size)
    if layer.mask is not None or _each(layer.input_dilation, rank) != (1,) * rank:
        raise Untranslatable("masked weights and dilated inputs are not read")
    window = Window(
        tuple(layer.kernel_size),
        _each(layer.strides, rank),
        _padding(layer, rank),
        _each(layer.kernel_dilation, rank),
        groups=layer.feature_group_count,
    )
    fan_in = layer.in_features // layer.feature_group_count * math.prod(layer.kernel_size)
    return convolution(graph, at, x, -1, window, layer.out_features, _weights(at, layer, fan_in))


def _padding(layer: Any, rank: int) -> Any:
    padding = layer.padding
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID", "CIRCULAR"):
            raise Untranslatable(f"padding={padding!r}: SAME, VALID, CIRCULAR and numbers are read")
        if padding == "CIRCULAR" and _each(layer.strides, rank) != (1,) * rank:
            raise Untranslatable("padding='CIRCULAR' is read without strides")
        return padding
    pairs = [padding] * rank if isinstance(padding, int) else list(padding)
    return tuple((p, p) if isinstance(p, int) else tuple(p) for p in pairs)


def _each(value: Any, rank: int) -> tuple[int, ...]:
    return (value or 1,) * rank if value is None or isinstance(value, int) else tuple(value)


def _norm(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    axes = layer.reduction_axes
    axes = [axes] if isinstance(axes, int) else list(axes)
    centred = isinstance(layer, _nnx().LayerNorm)
    _unchanged(graph, at, layer)
    return normalized(graph, at, x, axes, layer.epsilon, centred=centred, learned=layer.scale is not None)


def _group_norm(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    if layer.group_size == 1:
        return _instance_norm(graph, at, layer, x)
    _unchanged(graph, at, layer)
    if layer.reduction_axes is not None:
        raise Untranslatable("reduction_axes of its own are not read: all axes but the first are, which is the default")
    x.channels_at(-1, "its groups are those of the last axis")
    axes = list(range(1, len(x.groups)))
    how = {"centred": True, "learned": layer.scale is not None, "groups": layer.num_groups}
    return normalized(graph, at, x, axes, layer.epsilon, **how)


def _instance_norm(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    _unchanged(graph, at, layer)
    if getattr(layer, "feature_axes", -1) != -1:
        raise Untranslatable("feature_axes of its own are not read: the last axis is, which is the default")
    return normalized_alone(graph, at, x, -1, layer.epsilon, learned=layer.scale is not None)


def _embed(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    size = layer.num_embeddings, layer.features
    return embedded(graph, at, x, size, layer.embedding[...], 1 / layer.features, id(layer.embedding))


def _batch_norm(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    if not layer.use_running_average:
        raise Untranslatable(BATCH_NORM.format(kind="BatchNorm"))
    _unchanged(graph, at, layer)
    graph.census.constant(f"{at.place}.mean", layer.mean[...], 0.0)
    graph.census.constant(f"{at.place}.var", layer.var[...], 1.0)
    note = EVALUATION if layer.scale is None and layer.bias is None else f"{EVALUATION}; {LEARNED}"
    return graph.apply(at, x, Apply(Scale(1 / math.sqrt(1 + layer.epsilon)), note=note))


def _unchanged(graph: Graph, at: At, layer: Any) -> None:
    for name, expected in (("scale", 1.0), ("bias", 0.0)):
        value = getattr(layer, name, None)
        if value is not None:
            graph.census.constant(f"{at.place}.{name}", value[...], expected)


def _dropout(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    if layer.deterministic or layer.rate == 0:
        return graph.apply(at, x, Apply(Identity(), note="evaluation mode: nothing is dropped"))
    if tuple(layer.broadcast_dims):
        raise Untranslatable("noise that several axes share is not read; module.eval() leaves it out")
    note = "training mode: the kernel of noisy passes; module.eval() leaves it out"
    return graph.apply(at, x, Apply(Dropout(float(layer.rate)), note=note))


def _prelu(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    slope = float(layer.negative_slope[...])
    return graph.apply(at, x, changed(LeakyRelu(slope), "its slope is learned, and not here"))


def _nnx() -> Any:
    from flax import nnx  # whoever brings a module has loaded it

    return nnx


def _kinds(*names: str) -> tuple[type, ...]:
    """Those that this version of Flax has."""
    nnx = _nnx()
    return tuple(getattr(nnx, name) for name in names if hasattr(nnx, name))


@functools.cache
def _readers() -> dict[type, Callable[[Graph, At, Any, Value], Value]]:
    nnx = _nnx()
    unread = "Bidirectional", "ConvTranspose", "LinearGeneral", "Einsum", "LoRALinear", "SpectralNorm", "WeightNorm"
    return {
        **{kind: refused(UNREAD) for kind in _kinds(*unread)},
        nnx.Linear: _linear,
        nnx.Conv: _conv,
        nnx.LayerNorm: _norm,
        nnx.RMSNorm: _norm,
        nnx.GroupNorm: _group_norm,
        nnx.BatchNorm: _batch_norm,
        nnx.Dropout: _dropout,
        nnx.PReLU: _prelu,
        nnx.Embed: _embed,
        nnx.InstanceNorm: _instance_norm,
        nnx.MultiHeadAttention: read_attention,
        nnx.RNN: read_rnn,
    }


def _composite() -> tuple[type, ...]:
    """Layers that contain others, and are read, or refused, as a whole."""
    return _kinds("MultiHeadAttention", "RNN", "Bidirectional", "SpectralNorm", "WeightNorm")
