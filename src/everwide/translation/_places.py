"""Vectors of a module that belong to places, whatever stands there: learned positions, and tokens of its own."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._words import number
from ..layers import PositionEmbedding
from ..signal import ArchitectureError
from ._fixed import FixedVectors, table_for
from ._graph import Apply, At, Graph, Outcome
from ._layout import BATCH, CHANNELS, Untranslatable, Value
from ._ops import taken
from ._weights import NORMAL, Drawn


@dataclass(frozen=True)
class Places:
    """Numbers of the module with a vector for every place.

    - `name`: of the tensor, and `size`, its shape there. `values`: the numbers, `None` where there are shapes only.
    - `key`: tells it from others. `trained`: whether it is a parameter. `drawn`: by its framework, from N(0, 1).
    - `shape`: in which it comes to where it is read. `fixed`: it is neither drawn nor trained, and `values` are the
      numbers in that shape.
    """

    name: str
    values: np.ndarray | None
    key: Any
    size: tuple[int, ...]
    trained: bool = True
    drawn: bool = False
    shape: tuple[int, ...] = ()
    fixed: bool = False

    def for_places(self, x: Value) -> bool:
        """Whether it has more than one number for the sites of a value, not only for channels."""
        sizes = x.described(1)[len(x.groups) - len(self.shape) :] if len(self.shape) <= len(x.groups) else ()
        axes = zip(x.groups[len(x.groups) - len(self.shape) :], sizes, self.shape, strict=False)
        return any(have == size != 1 and CHANNELS not in group and BATCH not in group for group, size, have in axes)


def require_places(name: str, wanted: int, have: int) -> None:
    """Raise where a sequence is longer than a table of positions: shapes alone would not tell."""
    if wanted > have:
        raise ArchitectureError(
            f"{name} has vectors for {have} places, and the input has {wanted}. Shorten input_shape, or make the table "
            "longer."
        )


def number_of(places: Places) -> float | None:
    """The one number that all of its entries are, if they are."""
    values = places.values
    if places.drawn or values is None or not values.size or np.ptp(values) > 0:
        return None
    return float(values.flat[0])


def token_beside(graph: Graph, x: Value, places: Places, axis: int, batch: int) -> Value:
    """A vector that is the same for all examples, such as that of a class, to stand beside the sites of a value."""
    group = x.groups[axis]
    count = places.shape[axis] if len(places.shape) == len(x.groups) else 0
    if len(group) != 1 or group[0] not in x.sites or not 0 < count <= x.size[group[0]]:
        raise Untranslatable(
            f"it puts a tensor of the shape {places.shape} beside a signal of the shape {x.described()}: vectors of "
            "the module are read where they are further sites"
        )
    at = At("", "sites for vectors of the module")
    return add_places(graph, taken(graph, at, x, axis, slice(0, count)), places, batch)


def add_places(graph: Graph, x: Value, places: Places, batch: int) -> Value:
    """Vectors of places as a branch beside a value, to which they will be added."""
    if places.fixed and places.values is not None and not x.cut:
        return _add_fixed(graph, x, places, places.values)
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
    values, same = places.values, number_of(places)
    if same:
        raise Untranslatable(
            f"it adds {places.name}, which is {number(same, 3)} everywhere: a limit has vectors that are drawn around "
            "zero. Let it begin with zeros, or with random numbers; of a buffer the numbers themselves are read"
        )
    mean_square = 1.0 if values is None else float(np.mean(values**2))
    outcome, note = Outcome.EXACT, ""
    if places.drawn:
        mean_square = graph.census.variance(f"{places.name}.weight", values, 1.0, NORMAL)
    else:
        outcome, note = Outcome.CHANGED, f"normal numbers of its mean square, {number(mean_square, 3)}"
    layer = PositionEmbedding(x.size[CHANNELS], w_std=math.sqrt(mean_square), frozen=not places.trained)
    at = At(places.name, f"vectors of places {places.size}", "Places")
    return graph.apply(at, x, Apply(layer, outcome, note, Drawn(places.key, NORMAL, 1)))


def _add_fixed(graph: Graph, x: Value, places: Places, values: np.ndarray) -> Value:
    if not np.isfinite(values).all():
        raise Untranslatable(f"it adds fixed numbers of the shape {places.shape}, some of which are NaN or infinite")
    table = table_for(x, values)
    if table is None:
        raise Untranslatable(
            f"it adds fixed numbers of the shape {places.shape} to a signal of the shape {x.described()}: such numbers "
            "are read where they are the same for all examples"
        )
    at = At(places.name, f"fixed vectors {table.shape}", "Places")
    return graph.apply(at, x, Apply(FixedVectors(table), note="second moments over channels are those of its numbers"))
