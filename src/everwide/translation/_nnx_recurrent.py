"""Recurrent layers of Flax NNX: `RNN` around a cell. Inputs have LeCun's weights, states orthogonal ones."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..activations import AbstractActivation, Relu, Tanh
from ..layers import AbstractLayer, Gru, Index, Lstm, Recurrent
from ._graph import Apply, At, Graph
from ._layout import BATCH, CHANNELS, Untranslatable, Value
from ._reasons import GATES, RECURRENT
from ._weights import ORTHOGONAL, TRUNCATED, Drawn

_GATES = {"LSTMCell": Lstm, "OptimizedLSTMCell": Lstm, "GRUCell": Gru}
_ORTHOGONAL = "orthogonal weights of the state are taken to be normal, which has the same limit"
_GRID = np.linspace(-3, 3, 13, dtype=np.float32)


def read_rnn(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    """States at all times."""
    if layer.time_major or layer.return_carry:
        raise Untranslatable("time_major and return_carry are not read: states at all times are, examples first")
    if x.groups != ((BATCH,), ("0",), (CHANNELS,)):
        raise Untranslatable(f"it reads (examples, times, channels), and its input has {x.words()}")
    own, op = _cell(graph, at, layer.cell)
    turn = Apply(Index(slice(None, None, -1)))
    x = graph.apply(At("", "flip"), x, turn) if layer.reverse else x
    note = f"{GATES}; {_ORTHOGONAL}" if own is not Recurrent else _ORTHOGONAL
    x = graph.apply(at, x, Apply(op, note=note, drawn=Drawn(id(layer.cell), TRUNCATED, layer.cell.in_features)))
    return graph.apply(At("", "flip"), x, turn) if layer.reverse and layer.keep_order else x


def _cell(graph: Graph, at: At, cell: Any) -> tuple[type, AbstractLayer]:
    """The layer of ours that a cell is, with its kind."""
    kind, hidden = type(cell).__name__, cell.hidden_features
    if kind == "SimpleCell" and not cell.residual:
        return Recurrent, Recurrent(_activation(cell.activation_fn), hidden, **_scales(graph, at, cell))
    if kind not in _GATES:
        raise Untranslatable(RECURRENT)
    if not (_is(cell.gate_fn, jax.nn.sigmoid) and _is(cell.activation_fn, jnp.tanh)):
        raise Untranslatable("gates are read with sigmoid and tanh only")
    return _GATES[kind], _GATES[kind](hidden, **_scales(graph, at, cell))


def _is(fn: Callable[[Any], Any], other: Callable[[Any], Any]) -> bool:
    with jax.ensure_compile_time_eval():
        return bool(np.allclose(fn(jnp.asarray(_GRID)), other(jnp.asarray(_GRID)), atol=1e-6))


def _activation(fn: Callable[[Any], Any]) -> AbstractActivation:
    for known in (Tanh(), Relu()):
        if _is(fn, known):
            return known
    raise Untranslatable("the activation of a cell is read where it is tanh or relu")


def _scales(graph: Graph, at: At, cell: Any) -> dict[str, Any]:
    """Arguments of our layers. A cell has one map for all gates, or one for each."""
    split = type(cell).__name__ == "LSTMCell"
    inputs = [cell.ii, cell.if_, cell.ig, cell.io] if split else [cell.dense_i]
    states = [cell.hi, cell.hf, cell.hg, cell.ho] if split else [cell.dense_h]
    out: dict[str, Any] = {}
    for maps, names, law in ((inputs, ("u_std", "b_std"), TRUNCATED), (states, ("w_std", "b_state_std"), ORTHOGONAL)):
        fan_in, fan_out = maps[0].in_features, maps[0].out_features
        expected = 1 / (fan_in if law is TRUNCATED else max(fan_in, fan_out))
        kernel = np.stack([np.asarray(one.kernel[...]) for one in maps])
        name = f"{at.place}.{names[0].removesuffix('_std')}"
        out[names[0]] = math.sqrt(fan_in * graph.census.variance(name, kernel, expected, law))
        if maps[0].use_bias:
            for one in maps:
                graph.census.constant(f"{at.place}.bias", one.bias[...], 0.0)
            out[names[1]] = 0.0
    return out
