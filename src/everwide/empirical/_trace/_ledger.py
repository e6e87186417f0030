"""What a walk through a model writes down."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
from jax import Array

from ._sites import Arranged, Embedding, Rule
from ._views import View, product


class Pooled(NamedTuple):
    """The sum, after an elementwise function, over all tokens of a result: its shape and the axes."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Use:
    """A parameter that has just entered a linear map (or, as a bias, has been added to its result).

    - `data`: what it has met; `None` for a bias.
    - `scale`: a number by which the result has been multiplied since.
    - `pooled`, `derivative`: the result went through an elementwise function and was summed (see `_pooling`).
    """

    leaf: int
    rule: Rule
    arranged: Arranged
    data: Any
    scale: Array | None
    pooled: Pooled | None = None
    derivative: Array | None = None

    def times(self, factor: Any) -> "Use":
        """The same, when the result is multiplied by a number."""
        return replace(self, scale=product(self.scale, factor))


@dataclass(frozen=True)
class Value:
    """An array on its way through the model.

    - `view`: it is a view of a parameter.
    - `uses`: parameters whose derivative needs the cotangent of this array, which nobody has tapped yet.
    """

    array: Any
    view: View | None = None
    uses: tuple[Use, ...] = ()


@dataclass(frozen=True)
class Site:
    """A `Use` whose tap has been placed; `record` is the place of its arrays among the records."""

    leaf: int
    rule: Rule
    arranged: Arranged
    pooled: Pooled | None
    tap: int
    record: int

    def cotangent(self) -> tuple:
        """Equal for sites whose cotangents are the same numbers in the same order."""
        own = self.record if isinstance(self.rule, Embedding) else None  # its scale goes with the cotangent
        loops = tuple(bool(level.stride) for level in self.arranged.nest)
        return (self.tap, self.rule.layout(), loops, self.pooled, own)


class Record(NamedTuple):
    """The arrays of a `Use`."""

    data: Any
    scale: Array | None
    derivative: Array | None


class Ledger:
    """Taps, sites and records in the order in which they are met.

    A tap is a zero that is added to an array, so that the derivative with respect to it is the array's cotangent.

    - `zeros`: the taps; a walk that only looks passes `None`.
    - `unpooled`: leaves that are also used elsewhere, so that their uses must look alike.
    """

    def __init__(self, zeros: Sequence[Array] | None = None, unpooled: frozenset[int] = frozenset()):
        self.zeros, self.unpooled = zeros, unpooled
        self.taps: list[jax.ShapeDtypeStruct] = []
        self.sites: list[Site] = []
        self.records: list[Record] = []
        self.refused: set[int] = set()

    def refuse(self, values: Iterable[Value]) -> None:
        """The leaves that are seen in `values` are used in a way that has no rule."""
        self.refused |= {value.view.leaf for value in values if value.view is not None}

    def settle(self, value: Value) -> Value:
        """Tap the array, if anybody waits for its cotangent."""
        if not value.uses:
            return value
        array, tap = value.array, len(self.taps)
        self.taps.append(jax.ShapeDtypeStruct(array.shape, array.dtype))
        for use in value.uses:
            self.sites.append(Site(use.leaf, use.rule, use.arranged, use.pooled, tap, len(self.records)))
            self.records.append(Record(use.data, use.scale, use.derivative))
        return Value(array if self.zeros is None else array + self.zeros[tap], value.view)
