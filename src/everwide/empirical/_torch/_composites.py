"""PyTorch layers that call no other layers, rebuilt from linear maps that can be watched: attention and recurrent ones.

What is rebuilt must give what the layer gives, or the layer is left alone.
"""

import math
from collections.abc import Callable
from typing import Any

Tensor = Any  # torch.Tensor; PyTorch is not imported before somebody brings a module
Linear = Callable[[Tensor, Any, str, str], Tensor]  # of an input, a layer, and the names of its weight and its bias
Rebuilt = Callable[..., Any]  # of the arguments of the layer; `None` where it has no rule for them


def rebuilt(layer: Any, linear: Linear) -> Rebuilt | None:
    """The layer as a function that calls `linear`. The types must be exactly these: a subclass may do other things."""
    from torch import nn

    if type(layer) is nn.MultiheadAttention:
        return lambda *args, **options: _attention(layer, linear, *args, **options)
    if type(layer) in (nn.RNN, nn.LSTM, nn.GRU):
        return lambda *args, **options: _recurrent(layer, linear, *args, **options)
    return None


def alike(mine: Any, theirs: Any) -> bool:
    """Whether two results are the same up to rounding."""
    import torch

    if not isinstance(theirs, torch.Tensor):
        return mine is theirs or (
            isinstance(mine, tuple) and len(mine) == len(theirs) and all(map(alike, mine, theirs))
        )
    if not isinstance(mine, torch.Tensor) or mine.shape != theirs.shape:
        return False
    tolerance = math.sqrt(torch.finfo(theirs.dtype).eps)
    return bool((mine - theirs).abs().max() <= tolerance * theirs.abs().max())


def _attention(
    layer: Any,
    linear: Linear,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    if layer.bias_k is not None or layer.add_zero_attn or query.ndim != 3 or (is_causal and attn_mask is None):
        return None
    q, k, v = (_heads(layer, a) for a in _projected(layer, linear, query, key, value))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if attn_mask is not None:
        full = attn_mask if attn_mask.ndim == 2 else attn_mask.unflatten(0, (-1, layer.num_heads))
        scores = scores + _added(full, scores)
    if key_padding_mask is not None:
        scores = scores + _added(key_padding_mask, scores)[:, None, None]
    shares = scores.softmax(-1)
    mixed = (shares @ v).transpose(1, 2).flatten(2)  # (n, tokens, channels)
    y = linear(mixed if layer.batch_first else mixed.transpose(0, 1), layer.out_proj, "weight", "bias")
    return y, (shares.mean(1) if average_attn_weights else shares) if need_weights else None


def _projected(layer: Any, linear: Linear, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """Queries, keys and values. Where they are made of different inputs, each is a part of a whole projection."""
    if layer.in_proj_weight is None:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        biases = [None] * 3 if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)
        made = (linear(a, layer, name, "no bias") for a, name in zip((query, key, value), names, strict=True))
        return [y if b is None else y + b for y, b in zip(made, biases, strict=True)]
    if query is key and key is value:
        return list(linear(query, layer, "in_proj_weight", "in_proj_bias").chunk(3, -1))
    return [
        linear(a, layer, "in_proj_weight", "in_proj_bias").chunk(3, -1)[i] for i, a in enumerate((query, key, value))
    ]


def _heads(layer: Any, a: Tensor) -> Tensor:
    """`(n, heads, tokens, channels)`."""
    return (a if layer.batch_first else a.transpose(0, 1)).unflatten(-1, (layer.num_heads, -1)).transpose(1, 2)


def _added(mask: Tensor, scores: Tensor) -> Tensor:
    """What a mask adds to scores: nothing, or minus infinity where it is true."""
    import torch

    return scores.new_zeros(mask.shape).masked_fill(mask, -math.inf) if mask.dtype == torch.bool else mask


def _recurrent(layer: Any, linear: Linear, x: Tensor, hx: Any = None) -> Any:
    import torch

    if not isinstance(x, torch.Tensor) or x.ndim != 3 or layer.proj_size or (layer.training and layer.dropout):
        return None
    x = x.transpose(0, 1) if layer.batch_first else x
    directions = ("", "_reverse") if layer.bidirectional else ("",)
    zero = x.new_zeros(layer.num_layers * len(directions), x.shape[1], layer.hidden_size)
    starts = (zero, zero) if hx is None else hx if isinstance(hx, tuple) else (hx,)
    ends: list[tuple[Tensor, ...]] = []
    for depth in range(layer.num_layers):
        sequences = []
        for suffix in (f"_l{depth}{direction}" for direction in directions):
            state, backwards = tuple(s[len(ends)] for s in starts), suffix.endswith("reverse")
            sequence, end = _sequence(layer, linear, x, state, suffix, backwards)
            sequences.append(sequence)
            ends.append(end)
        x = torch.cat(sequences, -1)
    last = tuple(torch.stack(parts) for parts in zip(*ends, strict=True))
    return x.transpose(0, 1) if layer.batch_first else x, last if layer.mode == "LSTM" else last[0]


def _sequence(
    layer: Any, linear: Linear, x: Tensor, state: tuple[Tensor, ...], suffix: str, backwards: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One direction of one layer: all hidden states, in the order of the inputs, and the last state."""
    import torch

    arriving = linear(x, layer, f"weight_ih{suffix}", f"bias_ih{suffix}")
    hidden: list[Tensor] = []
    for row in reversed(arriving) if backwards else arriving:
        state = _cell(layer.mode, row, linear(state[0], layer, f"weight_hh{suffix}", f"bias_hh{suffix}"), state)
        hidden.append(state[0])
    return torch.stack(hidden[::-1] if backwards else hidden), state


def _cell(mode: str, arriving: Tensor, kept: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The next state."""
    if mode == "LSTM":
        i, f, g, o = (arriving + kept).chunk(4, -1)
        c = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    if mode == "GRU":
        (r, z, n), (r2, z2, n2) = arriving.chunk(3, -1), kept.chunk(3, -1)
        new, old = (n + (r + r2).sigmoid() * n2).tanh(), (z + z2).sigmoid()
        return ((1 - old) * new + old * state[0],)
    return ((arriving + kept).tanh() if mode == "RNN_TANH" else (arriving + kept).relu(),)
