"""Attention of Flax NNX: weights are truncated normal with variance 1 / fan_in, biases begin at zero."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from ._attention import Projection, attention
from ._graph import At, Graph
from ._layout import Untranslatable, Value
from ._weights import TRUNCATED


def reads_itself(layer: Any, x: Any, rest: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """Whether a call is attention of a signal to itself, without noise and memory."""
    still = options.get("deterministic") or layer.deterministic or layer.dropout_rate == 0
    others = [options.get(name) for name in ("inputs_k", "inputs_v")]
    switched = options.get("attention_bias") is not None or bool(options.get("decode", layer.decode))
    return bool(still) and not switched and all(one is None or one is x for one in (*rest, *others))


def mask_of(x: Any, options: Mapping[str, Any]) -> Any:
    """Where sites may look: what is given, and the causal mask if it is asked for."""
    mask = options.get("mask")
    if not options.get("is_causal"):
        return mask
    causal = jnp.tri(x.shape[-2], dtype=bool)
    return causal if mask is None else jnp.logical_and(mask, causal)


def read_attention(graph: Graph, at: At, layer: Any, x: Value, mask: Any = None) -> Value:
    """`nnx.MultiHeadAttention` of a signal to itself."""
    from flax import nnx  # whoever brings a module has loaded it

    if layer.attention_fn is not nnx.dot_product_attention:
        raise Untranslatable("attention_fn of its own is not read: nnx.dot_product_attention is, which is the default")
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
    bias, key = 0.0 if layer.use_bias else None, id(layer.query.kernel)
    return attention(graph, at, x, (*reads, out), heads, (layer.head_dim,) * 2, layer.out_features, bias, mask, key)


def _projection(at: At, layer: Any, name: str, fan_in: int) -> Projection:
    return Projection(f"{at.place}.{name}.kernel", getattr(layer, name).kernel[...], 1 / fan_in, fan_in, TRUNCATED)
