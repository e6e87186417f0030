"""Attention of Flax NNX: weights are truncated normal with variance 1 / fan_in, biases begin at zero."""

from collections.abc import Mapping, Sequence
from typing import Any

from ._attention import Projection, attention
from ._graph import At, Graph
from ._layout import Untranslatable, Value
from ._weights import TRUNCATED


def reads_itself(layer: Any, x: Any, rest: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """Whether a call is attention of a signal to itself, without masks, noise and memory."""
    still = options.get("deterministic") or layer.deterministic or layer.dropout_rate == 0
    others = [options.get(name) for name in ("inputs_k", "inputs_v")]
    switched = any(options.get(name) is not None for name in ("mask", "attention_bias"))
    switched = switched or bool(options.get("is_causal")) or bool(options.get("decode", layer.decode))
    return bool(still) and not switched and all(one is None or one is x for one in (*rest, *others))


def read_attention(graph: Graph, at: At, layer: Any, x: Value) -> Value:
    """`nnx.MultiHeadAttention` of a signal to itself."""
    if layer.normalize_qk:
        raise Untranslatable("normalize_qk=True is not read; leave it out")
    if layer.in_kv_features != layer.in_features:
        raise Untranslatable("keys and values of their own width are not read")
    inner = layer.num_heads * layer.head_dim
    reads = [_projection(at, layer, name, layer.in_features) for name in ("query", "key", "value")]
    out = _projection(at, layer, "out", inner)
    for name in ("query", "key", "value", "out") if layer.use_bias else ():
        graph.census.constant(f"{at.place}.{name}.bias", getattr(layer, name).bias[...], 0.0)
    heads = layer.num_heads, getattr(layer, "num_kv_heads", layer.num_heads)  # Flax before 0.12.1 has no groups
    bias = 0.0 if layer.use_bias else None
    return attention(graph, at, x, (*reads, out), heads, (layer.head_dim,) * 2, layer.out_features, bias)


def _projection(at: At, layer: Any, name: str, fan_in: int) -> Projection:
    return Projection(f"{at.place}.{name}.kernel", getattr(layer, name).kernel[...], 1 / fan_in, fan_in, TRUNCATED)
