"""Tables of PyTorch: vectors of tokens, and of the places where they stand."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._words import number
from ..layers import Embedding, PositionEmbedding
from ._graph import Apply, At, Graph, Outcome
from ._layout import BATCH, CHANNELS, Untranslatable, Value
from ._reasons import FILLER, TOKENS
from ._weights import NORMAL, Drawn


def numbers(parameter: Any) -> Any:
    """On the host; `None` where a module has shapes only."""
    return None if parameter.is_meta else parameter.detach().double().cpu().numpy()


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


@dataclass(frozen=True)
class Places:
    """A tensor of the module with a vector for every place: its name, the numbers, and the shape in which it comes."""

    name: str
    weight: Any
    drawn: bool  # by PyTorch, from N(0, 1)
    shape: tuple[int, ...] = ()


def add_places(graph: Graph, x: Value, places: Places, batch: int) -> Value:
    """Vectors of places as a branch beside a value, to which they will be added."""
    wanted, shape = x.described(batch), places.shape
    wide = (1,) * (len(wanted) - len(shape)) + shape
    axes = zip(x.groups, wanted, wide, strict=False)
    if (
        len(wide) > len(wanted)
        or not x.sites
        or any(have != size and (group != (BATCH,) or have != 1) for group, size, have in axes)
    ):
        raise Untranslatable(
            f"it adds a tensor of the module that belongs to no layer, of the shape {shape}, to a signal of the shape "
            f"{x.described()}: of such tensors, a vector for every place is read"
        )
    values = numbers(places.weight)
    mean_square = 1.0 if values is None else float(np.mean(values**2))
    outcome, note = Outcome.EXACT, ""
    if places.drawn:
        mean_square = graph.census.variance(f"{places.name}.weight", values, 1.0, NORMAL)
    else:
        outcome, note = Outcome.CHANGED, f"normal numbers of its mean square, {number(mean_square, 3)}"
    layer = PositionEmbedding(x.size[CHANNELS], w_std=math.sqrt(mean_square), frozen=not places.weight.requires_grad)
    at = At(places.name, f"vectors of places {tuple(places.weight.shape)}", "Places")
    return graph.apply(at, x, Apply(layer, outcome, note, Drawn(id(places.weight), NORMAL, 1)))


_SHAPES_ONLY = ("getitem", "unsqueeze", "expand", "view", "reshape", "to", "permute", "transpose", "squeeze", "float")


class Constants:
    """What a module computes without its input: vectors of places, and the numbers of these places."""

    def __init__(self, module: Any, known: dict[Any, Any]):
        self.module, self.known = module, known
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
                self.places[node] = Places(str(node.target), own.weight, drawn=True, shape=shape)
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
            self.places[node] = Places(name, parameter, drawn=False, shape=shape)
        elif buffer is not None and _is_count(buffer):
            self.counts.add(node)


def _is_count(tensor: Any) -> bool:
    """Whether a buffer holds 0, 1, 2, ..."""
    values = numbers(tensor)
    return values is not None and bool(np.array_equal(np.ravel(values), np.arange(values.size)))


def zeros_only(nodes: Sequence[Any]) -> bool:
    """Whether all of these are made by `torch.zeros`, or by `torch.zeros_like`."""
    return all(getattr(one.target, "__name__", one.target) in ("zeros", "zeros_like", "new_zeros") for one in nodes)
