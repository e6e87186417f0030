"""A module as a graph of nodes, whatever framework it comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._checks import Choice
from ..layers import AbstractLayer
from ..signal import ArchitectureError, Signal
from ._layout import BATCH, CHANNELS, Group, Untranslatable, Value
from ._parts import Line
from ._weights import Census, Drawn


class Outcome(Choice):
    """What became of a layer of a module."""

    EXACT = "exact"
    CHANGED = "changed"
    SAMPLED = "sampled"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Apply:
    """One of our layers, of one value."""

    layer: AbstractLayer
    outcome: Outcome = Outcome.EXACT
    note: str = ""
    drawn: Drawn | None = None


@dataclass(frozen=True)
class Pointwise:
    """An operation of single numbers (see `_formula`), of values and constants; `None` stands for the next value."""

    name: str
    operands: tuple[float | None, ...] = (None,)


@dataclass(frozen=True)
class Beside:
    """Values side by side: in the channels, or along one of our site axes."""

    axis: int | None = None


@dataclass(frozen=True)
class Refused:
    """Nothing that is known here; without a reason where it is only what comes before it that is not known."""

    reason: str


Op = Apply | Pointwise | Beside | Refused | None  # `None`: the input


@dataclass(frozen=True)
class At:
    """A place in a module, and what stands there, in the words of its framework."""

    place: str
    what: str
    kind: str = ""  # the name of its class or function, by which it may be replaced
    is_layer: bool = False  # of the module, not only a call


@dataclass(frozen=True)
class Node:
    """An operation of a module; `inputs` are numbers of other nodes, `shape` is that of its result, in our order."""

    at: At
    op: Op
    inputs: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass
class Graph:
    """Nodes in the order in which they run; the first is the input, `output` the number of the last."""

    instead: Mapping[str, Any]
    census: Census
    nodes: list[Node] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)  # nodes whose axes nobody knows any more
    output: int = 0
    tables: dict[str, Any] = field(default_factory=dict)  # parameters that belong to no layer: arrays by their names
    trained: list[Any] = field(default_factory=list)  # all parameters, where a reader follows what depends on them
    learned: list[Any] = field(default_factory=list)  # arrays that depend on these

    def is_learned(self, array: Any) -> bool:
        """Whether an array depends on parameters."""
        return any(array is one for one in self.learned)

    def begin(self, value: Value) -> Value:
        """The input."""
        self.nodes = [Node(At("", "input"), None, (), value.shape)]
        return value

    def add(self, at: At, op: Op, inputs: Sequence[Value], groups: tuple[Group, ...], shape: tuple[int, ...]) -> Value:
        """A new value with these axes, and this shape in our order; its sites are numbered from 0."""
        self.nodes.append(Node(at, op, tuple(value.node for value in inputs), shape))
        if any(value.node in self.lost for value in inputs):
            self.lost.add(len(self.nodes) - 1)
        labels = [*map(str, range(len(shape) - 1)), CHANNELS]
        return Value(len(self.nodes) - 1, groups, tuple(zip(labels, shape, strict=True)))

    def apply(self, at: At, x: Value, op: Apply, groups: tuple[Group, ...] | None = None) -> Value:
        """A layer of one value; axes stay as they are, unless others are given."""
        _refuse_cut(x)
        try:
            out = op.layer.describe(Signal(x.shape, concrete=True, readouts=frozenset())).shape  # laws come later
        except ArchitectureError as fault:
            raise Untranslatable(str(fault).rstrip(".")) from None
        assert None not in out  # widths are given everywhere
        return self.add(at, op, (x,), x.groups if groups is None else groups, tuple(int(n or 0) for n in out))

    def in_line(self, x: Value, axis: int | None = None) -> Value:
        """Where an axis (or that one) is all site axes, merged in their order, it is one of them from now on."""
        if len(x.sites) < 2 or x.sites not in (x.groups if axis is None else x.groups[axis : axis + 1 or None]):
            return x
        groups = tuple(("0",) if group == x.sites else group for group in x.groups)
        return self.apply(At("", "flatten"), x, Apply(Line()), groups)

    def pointwise(self, at: At, name: str, operands: Sequence["Value | float"]) -> Value:
        """An operation of numbers; values must have one layout."""
        if len({one.groups for one in operands if isinstance(one, Value)}) > 1:
            operands = [self.in_line(one) if isinstance(one, Value) else one for one in operands]
        values = [one for one in operands if isinstance(one, Value)]
        first = values[0]
        _refuse_cut(first)
        if any(v.groups != first.groups or v.sizes != first.sizes for v in values):
            shapes = " and ".join(str(v.described()) for v in values)
            raise Untranslatable(f"it combines values of the shapes {shapes}, and only equal ones are understood")
        op = Pointwise(name, tuple(None if isinstance(one, Value) else float(one) for one in operands))
        return self.add(at, op, values, first.groups, first.shape)

    def replacement(self, at: At, owner: Any = None) -> AbstractLayer | None:
        """What was asked for instead of this place, by its name or by the kind of what stands there."""
        for key in (at.place, at.kind):
            if key in self.instead:
                self.used.add(key)
                chosen = self.instead[key]
                return chosen if isinstance(chosen, AbstractLayer) else chosen(owner)
        return None

    def refuse(self, at: At, inputs: Sequence[Value], reason: str, shape: tuple[int, ...] | None) -> Value:
        """A node of which nothing is known; what follows is read as if its axes had kept their meaning."""
        follows = not at.is_layer and any(value.node in self.lost for value in inputs)
        return self._shaped(at, Refused("" if follows else reason), inputs, shape)

    def replace(self, at: At, x: Value, layer: AbstractLayer, shape: tuple[int, ...] | None) -> Value:
        """The layer that was asked for."""
        op = Apply(layer, Outcome.CHANGED, f"instead of {at.kind}, as asked for")
        try:
            out = self.apply(at, x, op)
        except Untranslatable as fault:
            raise ArchitectureError(f"instead={{{at.kind!r}: ...}} does not fit at {at.place}: {fault}.") from None
        if shape is None or len(out.sizes) == len(x.sizes):
            return out
        self.nodes.pop()
        return self._shaped(at, op, (x,), shape)

    def _shaped(self, at: At, op: Op, inputs: Sequence[Value], shape: tuple[int, ...] | None) -> Value:
        """A value whose array has that shape: axes keep their meaning, or are examples, sites and channels."""
        x = inputs[0]
        have = tuple(int(n) for n in x.described(1)) if shape is None else shape
        batched = (BATCH,) in x.groups
        sites = tuple((str(i),) for i in range(len(have) - batched - 1))
        groups = (*(((BATCH,),) if batched else ()), *sites, (CHANNELS,))[: len(have)]
        kept = len(have) == len(x.groups) and all(len(group) == 1 for group in x.groups) and not x.cut
        groups = x.groups if kept else groups
        size = {group[0]: n for group, n in zip(groups, have, strict=True)}
        labels = sorted((label for label in size if label not in (BATCH, CHANNELS)), key=int)
        value = self.add(at, op, inputs, groups, (*(size[label] for label in labels), size.get(CHANNELS, 1)))
        if isinstance(op, Refused) and not kept:
            self.lost.add(value.node)
        return value


def _refuse_cut(x: Value) -> None:
    if x.cut:
        raise Untranslatable(
            f"it acts on channels that are cut into pieces of {' x '.join(map(str, x.cut))}: pieces may be moved and "
            "put together again, and torch.chunk or a slice takes a part of the channels"
        )


def without(value: Value, axes: Sequence[int]) -> tuple[Group, ...]:
    """The other axes, their sites numbered from 0 again."""
    gone = {label for axis in axes for label in value.groups[axis]}
    left = [label for label in value.sites if label not in gone]
    new = {label: str(i) for i, label in enumerate(left)} | {BATCH: BATCH, CHANNELS: CHANNELS}
    dropped = {axis % len(value.groups) for axis in axes}
    return tuple(tuple(new[label] for label in group) for i, group in enumerate(value.groups) if i not in dropped)
