"""Attention of a signal to itself as modules of JAX have it: softmax, scores divided by the root of their width."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..layers import SelfAttention
from ._graph import Apply, At, Graph
from ._layout import BATCH, Untranslatable, Value
from ._reasons import ATTENTION
from ._weights import Drawn, Law

NEVER = -1e4  # scores from here on count for nothing


def is_causal(allowed: np.ndarray, sites: int, added: np.ndarray | None = None) -> bool:
    """Whether a mask is that of sites which see themselves and those before them; else it must let all be seen."""
    if allowed.shape[-2:] != (sites, sites) and allowed.size != 1:
        raise Untranslatable(f"a mask of the shape {allowed.shape} is not one of {sites} x {sites} sites")
    if added is not None and np.any(added[allowed] != 0):
        raise Untranslatable("it adds numbers to the scores that are no parameters of the module; masks are read")
    if allowed.all():
        return False
    if not np.array_equal(allowed, np.broadcast_to(np.tri(sites, dtype=bool), allowed.shape)):
        raise Untranslatable("of masks, the causal one is read: a site sees itself and those before it")
    return True


@dataclass(frozen=True)
class Projection:
    """Weights of queries, keys, values or the output: a name, the numbers, their variance, and how many are summed."""

    name: str
    weight: Any
    variance: float
    fan_in: int
    law: Law

    def std(self, graph: Graph) -> float:
        """Of a sum over all inputs."""
        return math.sqrt(self.fan_in * graph.census.variance(self.name, self.weight, self.variance, self.law))


def attention(
    graph: Graph,
    at: At,
    x: Value,
    weights: Sequence[Projection],
    heads: tuple[int, int],
    widths: tuple[int, int],
    width: int,
    bias: float | None,
    mask: Any,
    key: Any,
) -> Value:
    """`weights`: of queries, keys, values and outputs. `heads`: of queries, and of keys. `widths`: of keys, and values.

    `bias`: the standard deviation of that of the output. `mask`: `None`, or where a site may look. `key`: tells the
    layer from others. Heads stay random, so the layer is sampled.
    """
    x.channels_at(-1, "its channels are the last axis")
    if len([group for group in x.groups if group != (BATCH,)]) != 2:
        raise Untranslatable(f"it attends along one axis, and its input has {x.words()}: merge the sites before it")
    if isinstance(mask, Value):
        raise Untranslatable("its mask depends on the input; the causal one is read")
    causal = mask is not None and is_causal(np.asarray(mask, bool), math.prod(x.shape[:-1]))
    queries, keys, values, out = (one.std(graph) for one in weights)
    layer = SelfAttention(
        width,
        scaling="sqrt",
        w_query_std=queries,
        w_key_std=keys,
        w_value_std=values,
        w_out_std=out,
        b_std=bias,
        heads=heads[0],
        key_heads=None if heads[1] == heads[0] else heads[1],
        key_width=widths[0],
        value_width=widths[1],
        causal=causal,
    )
    drawn = Drawn(key, weights[0].law, weights[0].fan_in)
    return graph.apply(at, x, Apply(layer, note=ATTENTION.format(kind=at.kind, width=width), drawn=drawn))
