"""Which axis of a framework's array is what: examples, sites or channels. Ours are sites first, channels last."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .._words import listed

BATCH, CHANNELS = "n", "c"
Group = tuple[str, ...]  # the labels that an axis is made of, slowest first: an axis may be several of ours, flattened


class Untranslatable(Exception):  # noqa: N818 - it is caught, and becomes a row of the table
    """What a reader says of a call that has no counterpart here: the reason, and the way out."""


@dataclass(frozen=True)
class Value:
    """A value of the module: the node that makes it, and what its axes are.

    - `node`: its number in the graph.
    - `groups`: for every axis of the framework's array, the labels in it: `n` examples, `c` channels, `0`, `1`, ... our
      site axes in their order.
    - `sizes`: of all labels but `n`.
    - `cut`: where the channels are cut into pieces, the sizes of these; their labels are `c0`, `c1`, ...
    """

    node: int
    groups: tuple[Group, ...]
    sizes: tuple[tuple[str, int], ...]
    cut: tuple[int, ...] = ()

    @property
    def size(self) -> dict[str, int]:
        """Of every label; a batch has 1, as every other size would do."""
        return {BATCH: 1} | dict(self.sizes) | dict(zip(self.pieces, self.cut, strict=True))

    @property
    def pieces(self) -> tuple[str, ...]:
        """The labels of the pieces of the channels, if they are cut."""
        return tuple(f"{CHANNELS}{i}" for i in range(len(self.cut)))

    @property
    def sites(self) -> tuple[str, ...]:
        """The labels of our site axes, in their order."""
        return tuple(sorted((label for label, _ in self.sizes if label != CHANNELS), key=int))

    @property
    def shape(self) -> tuple[int, ...]:
        """As ours: sites first, channels last."""
        size = self.size
        return (*(size[label] for label in self.sites), size[CHANNELS])

    def permuted(self, order: Sequence[int]) -> "Value":
        """The same numbers with other axes first."""
        return replace(self, groups=tuple(self.groups[i] for i in order))

    def regrouped(self, shape: Sequence[int], batch: int) -> "Value":
        """After a reshape: labels stay in their order, in axes of these sizes; channels may be cut into pieces."""
        rest = [label for group in self.groups for label in group]
        size, groups = self.size | {BATCH: batch}, []
        order = list(self.pieces) or [CHANNELS]
        for wanted in shape:
            group: list[str] = []
            while rest and (have := math.prod(size[label] for label in group)) < wanted:
                label = rest.pop(0)
                if label in order and have * size[label] > wanted and size[label] * have % wanted == 0 == wanted % have:
                    label = _cut(label, wanted // have, order, rest, size)
                group.append(label)
            if math.prod(size[label] for label in group) != wanted:
                raise Untranslatable(
                    f"it cuts an axis into pieces ({self.described(batch)} becomes {tuple(shape)}); merging axes is "
                    "understood, splitting sites, as into windows of attention, is not"
                )
            groups.append(tuple(group))
        while rest and size[rest[0]] == 1:  # of size 1: it belongs to whoever is there, or to nobody in a single number
            label = rest.pop(0)
            groups[-1:] = [(*group, label) for group in groups[-1:]]
        if rest:
            raise Untranslatable(f"it changes the number of elements of {self.described(batch)}")
        if len(order) == 1:
            return replace(self, groups=tuple(groups))
        new = {label: f"{CHANNELS}{i}" for i, label in enumerate(order)}
        named = tuple(tuple(new.get(label, label) for label in group) for group in groups)
        return replace(self, groups=named, cut=tuple(size[label] for label in order))

    def described(self, batch: int = 0) -> tuple[int | str, ...]:
        """The shape as the framework has it."""
        size: dict[str, int] = self.size | {BATCH: batch}
        return tuple(
            "n" if group == (BATCH,) and not batch else math.prod(size[label] for label in group)
            for group in self.groups
        )

    def channels_at(self, axis: int, what: str) -> None:
        """Raise unless that axis is the channels and nothing else."""
        if not -len(self.groups) <= axis < len(self.groups) or self.groups[axis] != (CHANNELS,):
            new = -len(self.groups) <= axis < len(self.groups) and not self.groups[axis]
            hint = ". An axis that a call adds has no channels: give it in input_shape, with the size 1" if new else ""
            raise Untranslatable(f"{what}, and its input has {self.words()}{hint}")

    def words(self) -> str:
        """Of the axes, for messages."""
        names = {BATCH: "examples", CHANNELS: "channels"} | dict.fromkeys(self.pieces, "a piece of the channels")
        axes = [" x ".join(names.get(label, f"site axis {label}") for label in group) or "1" for group in self.groups]
        return f"the axes ({listed(axes, most=8)})" if axes else "no axes"


def _cut(label: str, first: int, order: list[str], rest: list[str], size: dict[str, int]) -> str:
    """Channels, or a piece of them, as two: the label of the first, while the second is left to be read."""
    one, two = f"{label}<", f"{label}>"
    size[one], size[two] = first, size[label] // first
    order[order.index(label) : order.index(label) + 1] = [one, two]
    rest.insert(0, two)
    return one


def start(shape: Sequence[int], *, channels: int, batched: bool) -> Value:
    """The input of a module: one axis of an example is its channels, the others are sites in their order."""
    channels %= len(shape)
    labels = [str(i - (i > channels)) if i != channels else CHANNELS for i in range(len(shape))]
    groups = tuple((label,) for label in labels)
    sizes = sorted(zip(labels, map(int, shape), strict=True))  # as those of all nodes: sites, and then channels
    return Value(0, ((BATCH,), *groups) if batched else groups, tuple(sizes))


def start_tokens(shape: Sequence[int], *, batched: bool = True) -> Value:
    """An input of whole numbers: all of its axes are sites, and the last one holds the one channel too."""
    sites = [(str(i),) for i in range(len(shape))]
    groups = (*sites[:-1], (*sites[-1], CHANNELS))
    sizes = (*((str(i), int(n)) for i, n in enumerate(shape)), (CHANNELS, 1))
    return Value(0, ((BATCH,), *groups) if batched else groups, sizes)
