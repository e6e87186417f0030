"""Attention of PyTorch, and the layers of transformers that it makes of it."""

import math
from collections.abc import Callable
from typing import Any

from .._words import listed
from ..layers import SelfAttention
from ._graph import Apply, At, Graph
from ._layout import BATCH, Untranslatable, Value
from ._reasons import ATTENTION, DROPPED_SCORES
from ._torch_tokens import numbers
from ._weights import UNIFORM, Drawn

Reader = Callable[..., Value]  # of a graph, a place, a layer and a value; `causal` is for those with attention in them


def read_attention(graph: Graph, at: At, module: Any, x: Value, *, causal: bool = False) -> Value:
    """Self-attention with scores divided by the root of the width of a head: its heads stay random, and are sampled."""
    examples = 0 if module.batch_first else 1
    if x.groups[examples] != (BATCH,):
        raise Untranslatable(f"it reads examples at axis {examples}, and its input has {x.words()}; see batch_first")
    x.channels_at(-1, "its channels are the last axis")
    if not module._qkv_same_embed_dim or module.bias_k is not None or module.add_zero_attn:
        raise Untranslatable("keys and values of their own width, and places beside those that come in, are not read")
    if module.training and module.dropout:
        raise Untranslatable(DROPPED_SCORES)
    width, head = module.embed_dim, module.head_dim
    read, out = numbers(module.in_proj_weight), module.out_proj
    inner = math.sqrt(width * graph.census.variance(f"{at.place}.in_proj_weight", read, 1 / (2 * width), UNIFORM))
    outer = numbers(out.weight)
    outer = math.sqrt(width * graph.census.variance(f"{at.place}.out_proj.weight", outer, 1 / (3 * width), UNIFORM))
    for name, bias in (("in_proj_bias", module.in_proj_bias), ("out_proj.bias", out.bias)):
        if bias is not None:
            graph.census.constant(f"{at.place}.{name}", numbers(bias), 0.0)
    layer = SelfAttention(
        width,
        scaling="sqrt",
        w_query_std=inner,
        w_key_std=inner,
        w_value_std=inner,
        w_out_std=outer,
        b_std=None if out.bias is None else 0.0,
        heads=module.num_heads,
        key_width=head,
        value_width=head,
        causal=causal,
        frozen=not module.in_proj_weight.requires_grad,
    )
    drawn = Drawn(id(module.in_proj_weight), UNIFORM, width)
    return graph.apply(at, x, Apply(layer, note=ATTENTION.format(kind=at.kind, width=width), drawn=drawn))


def encoder_layer(read_one: Reader) -> Reader:
    """`nn.TransformerEncoderLayer`, from a reader of what is inside."""

    def read(graph: Graph, at: At, module: Any, x: Value, *, causal: bool = False) -> Value:
        def inside(name: str, value: Value, *, causal: bool = False) -> Value:
            return _inside(read_one, graph, f"{at.place}.{name}", getattr(module, name), value, causal=causal)

        def attend(value: Value) -> Value:
            return inside("dropout1", inside("self_attn", value, causal=causal))

        def feed(value: Value) -> Value:
            return inside("dropout2", inside("linear2", inside("dropout", bend(inside("linear1", value)))))

        def bend(value: Value) -> Value:
            if not callable(getattr(module.activation, "forward", None)):
                act = _function(module.activation)
                return graph.pointwise(At(f"{at.place}.activation", act, act), act, (value,))
            return inside("activation", value)

        for norm, part in (("norm1", attend), ("norm2", feed)):
            before = inside(norm, x) if module.norm_first else x
            x = graph.pointwise(At("", "add"), "add", (x, part(before)))
            x = x if module.norm_first else inside(norm, x)
        return x

    return read


_FUNCTIONS = ("relu", "gelu", "silu", "mish", "selu", "tanh")  # of one tensor, and called alike in `_formula`


def _function(activation: Any) -> str:
    """The name of a function of torch.nn.functional."""
    from torch.nn import functional

    for name in _FUNCTIONS:
        if activation is getattr(functional, name):
            return name
    name = getattr(activation, "__name__", type(activation).__name__)
    raise Untranslatable(f"its activation {name} is not read; the functions {listed(_FUNCTIONS)} and layers are")


def _inside(read_one: Reader, graph: Graph, place: str, own: Any, x: Value, *, causal: bool = False) -> Value:
    """A layer inside another: of torch itself, since the forward of others is not read here."""
    kind = type(own).__name__
    if not type(own).__module__.startswith("torch.nn"):
        raise Untranslatable(f"{place} is a {kind}, which is not one of torch.nn, and is not read in it")
    known = "Linear" if kind == "NonDynamicallyQuantizableLinear" else kind
    return read_one(graph, At(place, kind, known, is_layer=True), own, x, causal=causal)


def encoder(read_one: Reader) -> Reader:
    """`nn.TransformerEncoder`: such layers one after the other, and a normalization."""

    def read(graph: Graph, at: At, module: Any, x: Value, *, causal: bool = False) -> Value:
        for i, layer in enumerate(module.layers):
            x = _inside(read_one, graph, f"{at.place}.layers.{i}", layer, x, causal=causal)
        return x if module.norm is None else _inside(read_one, graph, f"{at.place}.norm", module.norm, x)

    return read
