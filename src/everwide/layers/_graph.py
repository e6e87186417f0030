"""Sums over the neighbours in a graph that comes with each example."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..kernel import Covariance, Edges, Example, Graph, Kernel
from ..signal import ArchitectureError, Demand, Pairs, Signal
from ._base import AbstractFixed, Params
from ._sites import needs_sites


class Aggregate(AbstractFixed):
    """Each node becomes the sum of its neighbours: `y[p] = sum_q A[q, p] x[q]`.

    The graph belongs to the example: pass `Inputs(x, graph=...)`, a dense adjacency `(n, *nodes, *nodes)` or sparse
    `Edges`. `axes` names the site axes that are nodes; `None` is all of them.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Aggregate(), ew.GlobalAvgPool(), ew.Dense(1))
    """

    axes: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def __init__(self, axes: Sequence[int] | None = None):
        self.axes = None if axes is None else tuple(axes)

    def describe(self, signal: Signal) -> Signal:
        needs_sites(self, signal)
        rank = len(signal.sites)
        if any(not -rank <= a < rank for a in self._axes(rank)):
            raise ArchitectureError(f"Aggregate(axes={self.axes}): the input has {rank} site axes, {signal.shape}.")
        return signal

    def demand(self, wanted: Demand) -> Demand:
        return wanted.all_sites()

    def forward(self, params: Params, example: Example) -> Example:
        axes = self._axes(example.x.ndim - 1)
        graph = _checked(example.graph, [example.x.shape[a] for a in axes], trailing=0)
        return example.with_values(_aggregate(example.x, graph, axes, trailing=0))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        axes, rank = self._axes(k.rank), k.rank
        trailing = 1 if k.cross.same else 2
        nodes = [k.sites[a] for a in axes]
        graph = {1: _checked(k.graph1, nodes, trailing), 2: _checked(k.graph2, nodes, trailing)}
        right = tuple(rank + a for a in axes)

        def rule(c: Covariance, i: int, j: int) -> Covariance:
            def both(a: Array, _: Pairs) -> Array:
                return _aggregate(_aggregate(a, graph[i], axes, trailing), graph[j], right, trailing)

            return c.map(both)

        return k.each_with(rule).means_with(lambda m, i: _aggregate(m, graph[i], axes, trailing)).masked()

    def _axes(self, rank: int) -> tuple[int, ...]:
        return tuple(range(rank)) if self.axes is None else tuple(a % rank for a in self.axes)


def _checked(graph: Graph | None, nodes: list[int], trailing: int) -> Graph:
    if graph is None:
        raise ArchitectureError("Aggregate needs a graph with every example. Pass everwide.Inputs(x, graph=...).")
    if isinstance(graph, Edges):
        return graph
    have = graph.shape[: graph.ndim - trailing]
    if have != (*nodes, *nodes):
        raise ArchitectureError(
            f"Aggregate over nodes of shape {tuple(nodes)} needs an adjacency of shape {(*nodes, *nodes)} for each "
            f"example, got {have}."
        )
    return graph


def _aggregate(a: Array, graph: Graph, axes: tuple[int, ...], trailing: int) -> Array:
    """Sum over the neighbours along `axes` of `a`, whose last `trailing` axes are examples."""
    front = jnp.moveaxis(a, axes, tuple(range(len(axes))))
    size = math.prod(front.shape[: len(axes)])
    examples = front.shape[front.ndim - trailing :]
    flat = front.reshape(size, -1, *examples)
    if isinstance(graph, Edges):
        out = _sparse(flat, graph, trailing)
    else:
        adjacency = graph.astype(a.dtype).reshape(size, size, *graph.shape[graph.ndim - trailing :])
        out = jnp.einsum("qp...,qr...->pr...", adjacency, flat)
    return jnp.moveaxis(out.reshape(front.shape), tuple(range(len(axes))), axes)


def _sparse(a: Array, edges: Edges, trailing: int) -> Array:
    """`(nodes, rest, *examples)`: peel the examples off, then add the senders to the receivers."""
    if trailing == 0:
        used = edges.senders >= 0
        weights = jnp.where(used, edges.weights, 0).astype(a.dtype)
        messages = weights[:, None] * a[jnp.where(used, edges.senders, 0)]
        return jax.ops.segment_sum(messages, jnp.where(used, edges.receivers, 0), len(a))
    shared = edges.senders.shape[-1] == 1  # these examples are the other batch's
    inner = jax.tree.map(lambda e: e[..., 0], edges) if shared else edges
    peel = jax.vmap(lambda b, e: _sparse(b, e, trailing - 1), in_axes=(-1, None if shared else -1), out_axes=-1)
    return peel(a, inner)
