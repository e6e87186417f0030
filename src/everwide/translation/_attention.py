"""Attention of a signal to itself as modules of JAX have it: softmax, scores divided by the root of their width."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..layers import SelfAttention
from ._graph import Apply, At, Graph
from ._layout import BATCH, Untranslatable, Value
from ._reasons import ATTENTION
from ._weights import Drawn, Law


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
) -> Value:
    """`weights`: of queries, keys, values and outputs. `heads`: of queries, and of keys. `widths`: of keys, and values.

    `bias`: the standard deviation of that of the output. Heads stay random, so the layer is sampled.
    """
    x.channels_at(-1, "its channels are the last axis")
    if len([group for group in x.groups if group != (BATCH,)]) != 2:
        raise Untranslatable(f"it attends along one axis, and its input has {x.words()}: merge the sites before it")
    query, key, value, out = (one.std(graph) for one in weights)
    layer = SelfAttention(
        width,
        scaling="sqrt",
        w_query_std=query,
        w_key_std=key,
        w_value_std=value,
        w_out_std=out,
        b_std=bias,
        heads=heads[0],
        key_heads=None if heads[1] == heads[0] else heads[1],
        key_width=widths[0],
        value_width=widths[1],
    )
    drawn = Drawn((at.place, id(weights[0].weight)), weights[0].law, weights[0].fan_in)
    return graph.apply(at, x, Apply(layer, note=ATTENTION.format(kind=at.kind, width=width), drawn=drawn))
