"""Recurrent layers of PyTorch: everything is uniform between -1 / sqrt(hidden_size) and 1 / sqrt(hidden_size)."""

import math
from typing import Any

from ..activations import Relu, Tanh
from ..layers import AbstractLayer, Dropout, Gru, Index, Lstm, Recurrent
from ._graph import Apply, At, Graph
from ._layout import BATCH, CHANNELS, Untranslatable, Value
from ._ops import joined
from ._reasons import GATES
from ._torch_tokens import numbers
from ._weights import UNIFORM, Drawn


def read_recurrent(graph: Graph, at: At, module: Any, x: Value) -> Value:
    """States at all times, of the last layer."""
    examples, time = (0, 1) if module.batch_first else (1, 0)
    if len(x.groups) != 3 or x.groups[examples] != (BATCH,) or len(x.groups[time]) != 1 or len(x.sites) != 1:
        order = "(examples, times, channels)" if module.batch_first else "(times, examples, channels)"
        raise Untranslatable(f"it reads {order}, and its input has {x.words()}; batch_first=True reads examples first")
    x.channels_at(2, "its channels are the last axis")
    if module.proj_size:
        raise Untranslatable("proj_size: states that are projected are not read")
    for level in range(module.num_layers):
        ways = [_one(graph, at, module, x, level, backwards) for backwards in range(1 + module.bidirectional)]
        x = ways[0] if len(ways) == 1 else joined(graph, at, ways, 2)
        if module.training and module.dropout and level + 1 < module.num_layers:
            x = graph.apply(at, x, Apply(Dropout(float(module.dropout)), note="between its layers, in training mode"))
    return x


def _one(graph: Graph, at: At, module: Any, x: Value, level: int, backwards: int) -> Value:
    """One layer, in one direction of time."""
    suffix = f"l{level}{'_reverse' * backwards}"
    at = At(f"{at.place}.{suffix}", at.what, at.kind, is_layer=True)
    scales, drawn = _scales(graph, at, module, suffix, x.size[CHANNELS])
    if at.kind == "RNN":
        activation = Tanh() if module.nonlinearity == "tanh" else Relu()
        layer: AbstractLayer = Recurrent(activation, module.hidden_size, reverse=bool(backwards), **scales)
        return graph.apply(at, x, Apply(layer, drawn=drawn))
    layer, turn = (Lstm if at.kind == "LSTM" else Gru)(module.hidden_size, **scales), Index(slice(None, None, -1))
    x = graph.apply(At("", "flip"), x, Apply(turn)) if backwards else x
    x = graph.apply(at, x, Apply(layer, note=GATES, drawn=drawn))
    return graph.apply(At("", "flip"), x, Apply(turn)) if backwards else x


def _scales(graph: Graph, at: At, module: Any, suffix: str, channels: int) -> tuple[dict[str, Any], Drawn]:
    """Arguments of our layers; PyTorch has two biases, which are added, and both are trained."""
    hidden, place = module.hidden_size, at.place.removesuffix(f".{suffix}")

    def spread(kind: str, count: int) -> float:
        name = f"{kind}_{suffix}"
        values = numbers(getattr(module, name))
        return math.sqrt(count * graph.census.variance(f"{place}.{name}", values, 1 / (3 * hidden), UNIFORM))

    weight = getattr(module, f"weight_ih_{suffix}")
    scales: dict[str, Any] = {"u_std": spread("weight_ih", channels), "w_std": spread("weight_hh", hidden)}
    if module.bias:
        scales |= {"b_std": spread("bias_ih", 1), "b_state_std": spread("bias_hh", 1)}
    words = f"biases of variance {1 / (3 * hidden):.3g}, which falls like 1/width" if module.bias else ""
    names = ("weight_hh", "bias_ih", "bias_hh") if module.bias else ("weight_hh",)
    also = tuple(id(getattr(module, f"{name}_{suffix}")) for name in names)
    return scales | {"frozen": not weight.requires_grad}, Drawn(id(weight), UNIFORM, channels, words, also)
