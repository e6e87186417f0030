"""Operations that all frameworks have, in their words: axes are counted as the framework counts them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..layers import (
    AvgPool,
    Conv,
    ConvDepthwise,
    ConvGrouped,
    ConvTranspose,
    Dense,
    Embedding,
    Flatten,
    GlobalAvgPool,
    GlobalSumPool,
    Identity,
    Index,
    InstanceNorm,
    LayerNorm,
    MaxPool,
    RmsNorm,
    Scale,
    SiteMap,
    SumPool,
)
from ._graph import Apply, At, Beside, Graph, Outcome, Pointwise, without
from ._layout import BATCH, CHANNELS, Untranslatable, Value
from ._mix import Mix
from ._parts import Everywhere, Part, Shuffle
from ._reasons import INSTANCE_NORM, MAX_POOL, MIXES, TOKENS
from ._weights import NORMAL, Drawn, Law

_SINGLE = Scale | AvgPool | Index  # of each channel by itself, and the same for all
EVALUATION = "evaluation mode: its statistics are 0 and 1, as before training"
GROUPS = "groups of many channels have the statistics of all, where all have one law"
LEARNED = "its own parameters start at 1 and 0; their part of the tangent kernel falls like 1/width"


@dataclass(frozen=True)
class Weights:
    """Weights and biases of a layer of a module, as its framework draws them.

    - `key`, `bias_key`: tell them from others. `weight`, `bias`: the numbers, or `None`; `name`: for messages.
    - `variance`, `law`: of an entry. `bias_variance`: `None` without biases. `bias_law`: its law, where it is not 0.
    - `frozen`: they are not trained.
    """

    key: Any
    name: str
    weight: Any
    bias: Any
    variance: float
    bias_variance: float | None
    law: Law
    bias_name: str = "bias"
    frozen: bool = False
    bias_key: Any = None

    @property
    def also(self) -> tuple[Any, ...]:
        """What tells its biases from others, if it has any."""
        return () if self.bias_key is None else (self.bias_key,)

    def scales(self, graph: Graph, fan_in: int) -> dict[str, Any]:
        """Arguments of our layers: `w_std`, `b_std` and `frozen`."""
        variance = graph.census.variance(f"{self.name}.weight", self.weight, self.variance, self.law)
        b_std = None
        if self.bias_variance is not None:
            name = f"{self.name}.{self.bias_name}"
            b_std = math.sqrt(graph.census.variance(name, self.bias, self.bias_variance, self.law))
        return {"w_std": math.sqrt(variance * fan_in), "b_std": b_std, "frozen": self.frozen}

    def drawn(self, fan_in: int) -> Drawn:
        """What the graph remembers of them."""
        words = f"bias of variance {self.bias_variance:.3g}, which falls like 1/width" if self.bias_variance else ""
        return Drawn(self.key, self.law, fan_in, words, self.also)


def dense(graph: Graph, at: At, x: Value, width: int, weights: Weights) -> Value:
    """A linear map of the last axis: of the channels, of all that was flattened into them, or of places."""
    x = graph.in_line(flattened(graph, x, -1), -1)
    if _is_places(x, -1):
        return _mixed(graph, at, x, -1, width, weights)
    x.channels_at(-1, "it acts on the last axis, which must be the channels")
    fan_in = x.size[CHANNELS]
    layer = Dense(width, **weights.scales(graph, fan_in))
    return graph.apply(at, x, Apply(layer, drawn=weights.drawn(fan_in)))


def _is_places(x: Value, axis: int) -> bool:
    return x.groups[axis] in [(label,) for label in x.sites]


def _mixed(graph: Graph, at: At, x: Value, axis: int, width: int, weights: Weights) -> Value:
    """A linear map of a site axis, whose weights all channels share."""
    label = x.groups[axis][0]
    layer = Mix(int(label), weights.law, Dense(width, **weights.scales(graph, x.size[label])))
    drawn = Drawn(weights.key, weights.law, x.size[label], also=weights.also)
    return graph.apply(at, x, Apply(layer, note=MIXES, drawn=drawn))


def flattened(graph: Graph, x: Value, axis: int) -> Value:
    """Where sites were merged into the channels of that axis, and it is read now: our `Flatten`."""
    group = x.groups[axis]
    if CHANNELS not in group or len(group) == 1:
        return x
    if {*group} != {CHANNELS, *x.sites}:
        raise Untranslatable(f"channels are merged with some of the sites only: {x.words()}")
    groups = tuple((CHANNELS,) if one == group else one for one in x.groups)
    return graph.apply(At("", "flatten"), x, Apply(Flatten()), groups)


@dataclass(frozen=True)
class Window:
    """A window over the site axes, one number for each of them in the order of the framework's axes.

    `padding` may be pairs, or "SAME", "VALID", "CIRCULAR". `transposed`: it upsamples. `groups`: of channels.
    """

    size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str | tuple[tuple[int, int], ...]
    dilation: tuple[int, ...] = ()
    transposed: bool = False
    groups: int = 1

    @property
    def is_single(self) -> bool:
        """Whether it sees one number at a time, of all channels together."""
        plain = isinstance(self.padding, str) or not any(map(any, self.padding))
        return {*self.size, *self.strides, self.groups} == {1} and plain and not self.transposed

    def ordered(self, x: Value, axes: Sequence[int]) -> dict[str, Any]:
        """Arguments of our layers; `axes` are those of the array over which the window slides."""
        groups = [x.groups[axis] for axis in axes]
        labels = [group[0] for group in groups if len(group) == 1]
        if len(labels) != len(groups) or sorted(labels, key=str) != sorted(x.sites, key=str):
            raise Untranslatable(f"its window slides over {len(self.size)} axes, and its input has {x.words()}")
        front = (1,) * (len(groups) - len(self.size))  # further axes, as of `jax.vmap`: each place by itself
        order = [labels.index(label) for label in x.sites]
        padding = self.padding
        if not isinstance(padding, str):
            padding = tuple(((0, 0),) * len(front) + tuple(padding))
            padding = tuple(padding[i] for i in order)
        out: dict[str, Any] = {"padding": padding, "strides": tuple((*front, *self.strides)[i] for i in order)}
        if self.dilation:
            out["dilation"] = tuple((*front, *self.dilation)[i] for i in order)
        return {"window": tuple((*front, *self.size)[i] for i in order)} | out


def convolution(graph: Graph, at: At, x: Value, channels: int, window: Window, width: int, weights: Weights) -> Value:
    """A convolution; `channels` is the axis of the channels, all others but examples are sites.

    One of single numbers may read places as if they were channels.
    """
    x = graph.in_line(x, channels)
    if _is_places(x, channels) and window.is_single:
        return _mixed(graph, at, x, channels, width, weights)
    x.channels_at(channels, f"its channels are axis {channels}")
    axes = [i for i, group in enumerate(x.groups) if group not in ((BATCH,), (CHANNELS,))]
    before = x.size[CHANNELS]
    fan_in = before // window.groups * math.prod(window.size)
    how = window.ordered(x, axes) | weights.scales(graph, fan_in)
    size = how.pop("window")
    if window.groups == 1:
        layer = (ConvTranspose if window.transposed else Conv)(size, width=width, **how)
    elif window.transposed:
        raise Untranslatable(f"groups={window.groups}: transposed convolutions in groups have no counterpart")
    elif window.groups == before:
        layer = ConvDepthwise(size, multiplier=width // before, **how)
    else:
        layer = ConvGrouped(size, groups=window.groups, width=width, **how)
    return graph.apply(at, x, Apply(layer, drawn=weights.drawn(fan_in)))


def largest(graph: Graph, at: At, x: Value, axes: Sequence[int], window: Window) -> Value:
    """The largest number in each window."""
    how = window.ordered(x, axes)
    layer = MaxPool(how.pop("window"), **how)
    return graph.apply(at, x, Apply(layer, note=MAX_POOL.format(kind=at.kind, window=layer.window)))


def pooled(graph: Graph, at: At, x: Value, axes: Sequence[int], window: Window, *, edges: bool = False) -> Value:
    """Means over windows; `edges`: those that reach into the padding divide by what they cover."""
    how = window.ordered(x, axes)
    return graph.apply(at, x, Apply(AvgPool(how.pop("window"), normalize_edges=edges, **how)))


def adapted(graph: Graph, at: At, x: Value, axes: Sequence[int], want: Sequence[int]) -> Value:
    """Means over windows that cover the sites and make so many of them: windows may differ by one, and overlap."""
    for axis, count in zip(axes, want, strict=True):
        group = x.groups[axis]
        if len(group) != 1 or group[0] not in x.sites:
            raise Untranslatable(f"its window slides over {len(axes)} axes, and its input has {x.words()}")
        have = x.size[group[0]]
        if have == count:
            continue
        low = np.arange(count) * have // count
        high = -(-(np.arange(count) + 1) * have // count)
        place = np.arange(have)
        covered = (place >= low[:, None]) & (place < high[:, None])
        x = graph.apply(at, x, Apply(SiteMap(covered / covered.sum(1, keepdims=True), axis=int(group[0]))))
    return x


def reduced(graph: Graph, at: At, x: Value, axes: Sequence[int], *, keep: bool, mean: bool = True) -> Value:
    """The mean (or the sum) over site axes, which are dropped, or kept with size 1."""
    gone = [label for axis in axes for label in x.groups[axis]]
    word = "mean" if mean else "sum"
    if BATCH in gone:
        raise Untranslatable(f"it takes the {word} over the examples of a batch, so that no example is by itself")
    if CHANNELS in gone:
        raise Untranslatable(f"it takes the {word} over the channels, which vanishes, or is a number, as they grow")
    if keep:
        window = tuple(x.size[s] if s in gone else 1 for s in x.sites)
        return graph.apply(at, x, Apply((AvgPool if mean else SumPool)(window)))
    if {*gone} == {*x.sites}:
        layer = GlobalAvgPool() if mean else GlobalSumPool()
        return graph.apply(at, x, Apply(layer), without(x, axes)) if gone else x
    for label in sorted(gone, key=int, reverse=True):
        row = np.full(x.size[label], 1 / x.size[label] if mean else 1.0)
        axis = next(i for i, group in enumerate(x.groups) if group == (label,))
        x = graph.apply(at, x, Apply(SiteMap(row, axis=int(label))), without(x, [axis]))
    return x


def taken(graph: Graph, at: At, x: Value, axis: int, item: int | slice) -> Value:
    """One place of a site axis, or a slice of it."""
    group = x.groups[axis]
    if group == (CHANNELS,) and isinstance(item, slice) and item.step in (None, 1):
        start, stop, _ = item.indices(x.size[CHANNELS])
        if stop - start == x.size[CHANNELS]:
            return x
        note = "channels of one law: second moments over some of them are those over all"
        return graph.apply(at, x, Apply(Part(start, stop), note=note))
    if x.cut and group == x.pieces[:1] and isinstance(item, int):
        return _piece(graph, at, x, axis, item)
    if not group and isinstance(item, int):  # of size 1
        return replace(x, groups=(*x.groups[:axis], *x.groups[axis + 1 :]))
    if len(group) != 1 or group[0] not in x.sites:
        raise Untranslatable(f"it indexes axis {axis}, and only single site axes can be indexed; there are {x.words()}")
    items = (*[slice(None)] * int(group[0]), item)
    return graph.apply(at, x, Apply(Index(*items)), without(x, [axis]) if isinstance(item, int) else None)


def _piece(graph: Graph, at: At, x: Value, axis: int, item: int) -> Value:
    """One of the parts of channels whose pieces are `(parts, ...)`: what is left is as it was."""
    count, *left = x.cut
    size = math.prod(left)
    start = item % count * size
    whole = replace(x, groups=tuple((label,) for label in (BATCH, *x.sites, CHANNELS)), cut=())
    part = graph.apply(at, whole, Apply(Part(start, start + size)))
    names = (
        {f"{CHANNELS}{i + 1}": f"{CHANNELS}{i}" for i in range(len(left))}
        if len(left) > 1
        else {f"{CHANNELS}1": CHANNELS}
    )
    groups = tuple(tuple(names.get(one, one) for one in group) for i, group in enumerate(x.groups) if i != axis)
    return replace(part, groups=groups, cut=tuple(left) if len(left) > 1 else ())


def put_together(graph: Graph, at: At, x: Value) -> Value:
    """Where pieces of the channels are one axis again, they are channels: as they were, or in another order."""
    for axis, group in enumerate(x.groups):
        if x.cut and {*group} == {*x.pieces}:
            groups = (*x.groups[:axis], (CHANNELS,), *x.groups[axis + 1 :])
            whole = replace(x, groups=groups, cut=())
            if group == x.pieces:
                return whole
            if group != x.pieces[::-1] or len(group) != 2:
                raise Untranslatable("it mixes channels in more than two pieces: turn two of them at a time")
            return graph.apply(at, whole, Apply(Shuffle(x.cut[0], _mixes(graph, x.node, x.cut[1]))))
    return x


def _mixes(graph: Graph, number: int, step: int) -> bool:
    """Whether channels that are taken every `step` see all branches alike: each of one law, and a multiple of that."""
    node = graph.nodes[number]
    if isinstance(node.op, Beside) and node.op.axis is None:
        return all(_mixes(graph, i, step) for i in node.inputs)
    if isinstance(node.op, Pointwise) or (isinstance(node.op, Apply) and isinstance(node.op.layer, _SINGLE)):
        return all(_mixes(graph, i, step) for i in node.inputs)
    known = isinstance(node.op, Apply) and isinstance(node.op.layer, Dense | Conv | ConvTranspose | Part | Shuffle)
    return known and node.shape[-1] % step == 0


def joined(graph: Graph, at: At, values: Sequence[Value], axis: int) -> Value:
    """Values side by side."""
    values = [flattened(graph, value, axis) for value in values]
    first = values[0]
    group = first.groups[axis]
    if any(value.groups != first.groups for value in values) or len(group) != 1 or group == (BATCH,):
        raise Untranslatable(
            "it puts values side by side whose axes do not agree: " + ", ".join(v.words() for v in values)
        )
    place = None if group == (CHANNELS,) else int(group[0])
    total, shape = sum(value.size[group[0]] for value in values), list(first.shape)
    shape[-1 if place is None else place] = total
    return graph.add(at, Beside(place), values, first.groups, tuple(shape))


def normalized(
    graph: Graph, at: At, x: Value, axes: Sequence[int], eps: float, *, centred: bool, learned: bool, groups: int = 1
) -> Value:
    """Division by the size of the signal over these axes, of which the channels must be one."""
    over = {label for axis in axes for label in x.groups[axis]}
    if BATCH in over or CHANNELS not in over:
        raise Untranslatable(
            f"it normalizes over {sorted(over)} of {x.words()}: only over channels it has a limit here"
        )
    sites = tuple(int(label) for label in x.sites if label in over)
    everywhere = bool(sites) and len(sites) == len(x.sites)
    layer = (LayerNorm if centred else RmsNorm)(sites=everywhere or sites or False, eps=float(eps), groups=groups)
    notes = [GROUPS] * (groups > 1) + [LEARNED] * learned
    return graph.apply(at, x, Apply(layer, note="; ".join(notes)))


def embedded(graph: Graph, at: At, x: Value, size: tuple[int, int], weight: Any, variance: float, key: Any) -> Value:
    """Normal vectors of that variance for tokens, which must be the input; `size`: how many, and their channels.

    `key`: tells the table from others.
    """
    if x.node != 0 or x.groups[-1][-1:] != (CHANNELS,):
        raise Untranslatable(TOKENS)
    w_std = math.sqrt(graph.census.variance(f"{at.place}.weight", weight, variance, NORMAL))
    op = Apply(Embedding(*size, w_std=w_std), drawn=Drawn(key, NORMAL, 1))
    return graph.apply(at, x, op, (*x.groups[:-1], x.groups[-1][:-1], (CHANNELS,)))


def normalized_alone(graph: Graph, at: At, x: Value, channels: int, eps: float, *, learned: bool) -> Value:
    """Each channel by itself, over all sites; `channels` is their axis."""
    x.channels_at(channels, f"its channels are axis {channels}")
    if any(BATCH in group and len(group) > 1 for group in x.groups):
        raise Untranslatable(f"it normalizes over sites, of which some are merged with the examples: {x.words()}")
    note = "; ".join([INSTANCE_NORM] + [LEARNED] * learned)
    return graph.apply(at, x, Apply(InstanceNorm(float(eps)), note=note))


def spread(graph: Graph, at: At, x: Value, like: Value) -> Value:
    """A value with sites of size 1, or without sites, repeated as often as the other has sites."""
    alone = not x.sites and like.sites and len(x.groups) == len(like.groups)
    if alone and all(one in (other, ()) for one, other in zip(x.groups, like.groups, strict=True)):
        return graph.apply(at, x, Apply(Everywhere(like.shape[:-1])), like.groups)
    if x.groups != like.groups or x.size[CHANNELS] != like.size[CHANNELS]:
        return x
    return repeated(graph, at, x, [0 if one == "n" else int(one) for one in like.described()])


def repeated(graph: Graph, at: At, x: Value, shape: Sequence[int]) -> Value:
    """A value whose sites of size 1 are repeated to an array of that shape."""
    shape = (1,) * (len(x.groups) - len(shape)) + tuple(shape)
    if not x.sites and len(shape) == len(x.groups):  # its places are new axes
        new = [i for i, group in enumerate(x.groups) if not group]
        names = {axis: (str(n),) for n, axis in enumerate(new)}
        groups = tuple(names.get(i, group) for i, group in enumerate(x.groups))
        return graph.apply(at, x, Apply(Everywhere(tuple(shape[i] for i in new))), groups) if new else x
    for group, size in zip(x.groups, shape, strict=True):
        if len(group) == 1 and group[0] in x.sites and x.size[group[0]] == 1 and size > 1:
            x = graph.apply(at, x, Apply(SiteMap(np.ones((size, 1)), axis=int(group[0]))))
    return x


def largest_of(graph: Graph, at: At, x: Value, axes: Sequence[int], *, keep: bool) -> Value:
    """The largest numbers over all sites of these axes, which are dropped, or kept with size 1."""
    gone = [label for axis in axes for label in x.groups[axis]]
    if BATCH in gone or CHANNELS in gone:
        raise Untranslatable(
            "the largest number over channels is not read, over sites it is; a softmax of outputs: leave it to the loss"
        )
    layer = MaxPool(tuple(x.size[label] if label in gone else 1 for label in x.sites))
    x = graph.apply(at, x, Apply(layer, note=MAX_POOL.format(kind=at.kind, window=layer.window)))
    if keep:
        return x
    items = tuple(0 if label in gone else slice(None) for label in x.sites)
    return graph.apply(At("", "squeeze"), x, Apply(Index(*items)), without(x, axes))


def refused(reason: str) -> Callable[[Graph, At, Any, Value], Value]:
    """What reads a layer that has no counterpart."""

    def refuse(graph: Graph, at: At, layer: Any, x: Value) -> Value:
        raise Untranslatable(reason.format(kind=at.kind, width=x.shape[-1]))

    return refuse


def begun(graph: Graph, at: At, x: Value, name: str, same: float) -> Value:
    """A value and a parameter that belongs to no layer, all of whose numbers begin as one: a factor, or zeros."""
    note = f"all {same:g} before training; {LEARNED.split('; ')[1]}"
    return graph.apply(at, x, changed(Scale(same) if name == "mul" else Identity(), note))


def changed(layer: Any, note: str) -> Apply:
    """A layer that stands for something else, with the reason."""
    return Apply(layer, Outcome.CHANGED, note)
