"""Tables of PyTorch: vectors of tokens, and of the places where they stand."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..layers import Embedding
from ._graph import Apply, At, Graph, Outcome
from ._layout import CHANNELS, Untranslatable, Value
from ._places import Places, require_places
from ._reasons import FILLER, TOKENS
from ._weights import NORMAL, Drawn


def numbers(parameter: Any) -> Any:
    """On the host; `None` where a module has shapes only."""
    if parameter.is_meta:
        return None
    plain = parameter.detach().cpu()
    return (plain if plain.is_complex() else plain.double()).numpy()


def read_embedding(graph: Graph, at: At, module: Any, x: Value) -> Value:
    """A vector for every token, drawn from N(0, 1)."""
    if x.node != 0 or x.groups[-1][-1:] != (CHANNELS,):
        raise Untranslatable(TOKENS)
    if module.max_norm is not None:
        raise Untranslatable("max_norm changes vectors as they are read; leave it out")
    weight, filler = numbers(module.weight), module.padding_idx
    weight = weight if weight is None or filler is None else np.delete(weight, filler, 0)
    w_std = math.sqrt(graph.census.variance(f"{at.place}.weight", weight, 1.0, NORMAL))
    frozen = not module.weight.requires_grad
    layer = Embedding(module.num_embeddings, module.embedding_dim, w_std=w_std, frozen=frozen)
    note = "" if filler is None else FILLER.format(filler=filler)
    outcome = Outcome.CHANGED if note else Outcome.EXACT
    op = Apply(layer, outcome, note, Drawn(id(module.weight), NORMAL, 1))
    return graph.apply(at, x, op, (*x.groups[:-1], x.groups[-1][:-1], (CHANNELS,)))


_SHAPES_ONLY = ("getitem", "unsqueeze", "expand", "view", "reshape", "to", "permute", "transpose", "squeeze", "float")


class Constants:
    """What a module computes without its input: vectors of places, and the numbers of these places."""

    def __init__(self, module: Any, shapes: Any, known: dict[Any, Any]):
        self.module, self.shapes, self.known = module, shapes, known
        self.places: dict[Any, Places] = {}
        self.counts: set[Any] = set()

    def read(self, node: Any) -> None:
        """A node that does not depend on the input."""
        if not isinstance(getattr(self.known[node], "shape", None), tuple):
            return
        shape = tuple(self.known[node].shape)
        read, name = node.all_input_nodes, getattr(node.target, "__name__", str(node.target))
        if node.op == "get_attr":
            self._attribute(node, shape)
        elif node.op == "call_module":
            own = self.module.get_submodule(str(node.target))
            if type(own).__name__ == "Embedding" and read and read[0] in self.counts:
                require_places(str(node.target), shape[-2], own.num_embeddings)
                self.places[node] = places_of(str(node.target), own.weight, shape, drawn=True)
        elif name == "arange":
            self.counts.add(node)
        elif name in _SHAPES_ONLY and read and read[0] in self.places:
            self.places[node] = replace(self.places[read[0]], shape=shape)
        elif name in _SHAPES_ONLY and read and read[0] in self.counts:
            self.counts.add(node)

    def _attribute(self, node: Any, shape: tuple[int, ...]) -> None:
        name = str(node.target)
        parameter, buffer = (
            dict(own).get(name) for own in (self.module.named_parameters(), self.module.named_buffers())
        )
        if parameter is not None:
            self.places[node] = places_of(name, parameter, shape)
            return
        made = getattr(self.shapes, name, None) if buffer is None else buffer  # `torch.arange(6)` becomes a constant
        if hasattr(made, "is_meta") and _is_count(made):
            self.counts.add(node)


def places_of(name: str, parameter: Any, shape: tuple[int, ...], *, drawn: bool = False) -> Places:
    """A parameter of the module, as it comes in that shape to where it is read."""
    size, trained = tuple(parameter.shape), parameter.requires_grad
    return Places(name, numbers(parameter), id(parameter), size, trained, drawn, shape)


def _is_count(tensor: Any) -> bool:
    """Whether a buffer holds 0, 1, 2, ..."""
    values = numbers(tensor)
    return values is not None and bool(np.array_equal(np.ravel(values), np.arange(values.size)))


def zeros_only(nodes: Sequence[Any]) -> bool:
    """Whether all of these are made by `torch.zeros`, or by `torch.zeros_like`."""
    return all(getattr(one.target, "__name__", one.target) in ("zeros", "zeros_like", "new_zeros") for one in nodes)
