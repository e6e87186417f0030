"""Attention of PyTorch, and the layers of transformers that it makes of it."""

import math
from collections.abc import Callable
from typing import Any

from ..layers import SelfAttention
from ._graph import Apply, At, Graph
from ._layout import BATCH, Untranslatable, Value
from ._reasons import ATTENTION
from ._torch_tokens import numbers
from ._weights import UNIFORM, Drawn

Reader = Callable[[Graph, At, Any, Value], Value]


def read_attention(graph: Graph, at: At, module: Any, x: Value) -> Value:
    """Self-attention with scores divided by the root of the width of a head: its heads stay random, and are sampled."""
    examples = 0 if module.batch_first else 1
    if x.groups[examples] != (BATCH,):
        raise Untranslatable(f"it reads examples at axis {examples}, and its input has {x.words()}; see batch_first")
    x.channels_at(-1, "its channels are the last axis")
    if not module._qkv_same_embed_dim or module.bias_k is not None or module.add_zero_attn:
        raise Untranslatable("keys and values of their own width, and places beside those that come in, are not read")
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
        frozen=not module.in_proj_weight.requires_grad,
    )
    drawn = Drawn(id(module.in_proj_weight), UNIFORM, width)
    return graph.apply(at, x, Apply(layer, note=ATTENTION.format(kind=at.kind, width=width), drawn=drawn))


def encoder_layer(readers: Callable[[str], Reader]) -> Reader:
    """`nn.TransformerEncoderLayer`, from the readers of what is inside."""

    def read(graph: Graph, at: At, module: Any, x: Value) -> Value:
        def inside(name: str, value: Value) -> Value:
            own = getattr(module, name)
            kind = type(own).__name__
            known = "Linear" if kind == "NonDynamicallyQuantizableLinear" else kind
            return readers(known)(graph, At(f"{at.place}.{name}", kind, known, is_layer=True), own, value)

        def attend(value: Value) -> Value:
            return inside("dropout1", inside("self_attn", value))

        def feed(value: Value) -> Value:
            hidden = graph.pointwise(At(f"{at.place}.activation", act, act), act, (inside("linear1", value),))
            return inside("dropout2", inside("linear2", inside("dropout", hidden)))

        act = getattr(module.activation, "__name__", type(module.activation).__name__.lower())
        if act not in ("relu", "gelu"):
            raise Untranslatable(f"its activation {act} is not read; relu and gelu are")
        for norm, part in (("norm1", attend), ("norm2", feed)):
            before = inside(norm, x) if module.norm_first else x
            x = graph.pointwise(At("", "add"), "add", (x, part(before)))
            x = x if module.norm_first else inside(norm, x)
        return x

    return read


def encoder(read_one: Reader, readers: Callable[[str], Reader]) -> Reader:
    """`nn.TransformerEncoder`: such layers one after the other, and a normalization."""

    def read(graph: Graph, at: At, module: Any, x: Value) -> Value:
        for i, layer in enumerate(module.layers):
            place = f"{at.place}.layers.{i}"
            x = read_one(graph, At(place, type(layer).__name__, type(layer).__name__, is_layer=True), layer, x)
        if module.norm is None:
            return x
        kind = type(module.norm).__name__
        return readers(kind)(graph, At(f"{at.place}.norm", kind, kind, is_layer=True), module.norm, x)

    return read
