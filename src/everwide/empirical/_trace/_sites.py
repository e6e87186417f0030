"""Where a parameter meets data: the linear maps whose Jacobian is a sum of outer products.

Until then it is seen in views: transposed, reshaped, sliced, broadcast, scaled. Which entries of the leaf a view shows,
and in which order, is what numpy's strides describe. So a view carries a numpy array over memory that is never touched,
and numpy does the bookkeeping.

A rule is a linear map of a weight whose other operand is data: a `Dot`, a `Convolution` or an `Embedding`. It speaks of
one example, one cotangent and one step of every loop around it; `vmap` adds the axes.

- `weight(where)`: the entries of the weight in their parts.
- `bias(where)`: the same for something that is added to the result and has its shape, unless it differs between tokens.
- `tokens()`: the axes of the result that are tokens.
- `layout()`: equal for rules whose `right` does the same.
- `left(data)`: the data operand as `(groups, tokens, inputs)`, or as indices `(tokens,)`.
- `right(cotangent)`: a cotangent of the result as `(groups, tokens, outputs)`.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import JaxprEqn


class Level(NamedTuple):
    """An enclosing loop. `stride` is the distance between the entries of two steps; 0: all steps use the same ones."""

    length: int
    stride: int


@dataclass(frozen=True)
class View:
    """`scale` times the entries `where` of the leaf.

    - `where`: a view of an int8 array as large as the leaf: its address and strides count entries. Never read.
    - `scale`: one number, or `None` for 1. It may depend on data: only the leaf itself must enter linearly.
    - `nest`: the loops around this place, outermost first; `where` is the view in their first steps.
    """

    leaf: int
    where: np.ndarray
    scale: Array | None = None
    nest: tuple[Level, ...] = ()

    def at(self, where: np.ndarray) -> "View":
        """The same with other entries."""
        return replace(self, where=where)

    def times(self, factor: Any) -> "View":
        """Multiplied by one number."""
        return replace(self, scale=product(self.scale, factor))

    def repeated(self, length: int) -> "View":
        """As a loop sees it that uses the same entries in every step."""
        return replace(self, nest=(*self.nest, Level(length, 0)))

    def scanned(self) -> "View":
        """As a loop sees it that takes one step along the first axis after the other."""
        level = Level(self.where.shape[0], self.where.strides[0])
        return replace(self, where=self.where[0], nest=(*self.nest, level))


@functools.lru_cache(4096)
def whole(leaf: int, shape: tuple[int, ...]) -> View:
    """All of a leaf. Asked twice, it is at the same place: so views of two models can be compared."""
    return View(leaf, np.empty(shape, np.int8))


def product(scale: Array | None, factor: Any) -> Array:
    """The product of two numbers, one of which may be absent; the later dtype wins."""
    factor = jnp.asarray(factor).reshape(())
    return factor if scale is None else scale.astype(factor.dtype) * factor


def viewed(eqn: JaxprEqn, operands: Sequence[Any], position: int, view: View) -> list[View] | None:
    """What an equation makes of the view among its operands; `None` where that is no view."""
    name, params = eqn.primitive.name, eqn.params
    if name in _MOVES:
        moved = _MOVES[name](view.where, params)
        return None if moved is None else [view.at(moved)]
    if name == "split":
        cuts = np.cumsum(params["sizes"])[:-1]
        return [view.at(part) for part in np.split(view.where, cuts, params["axis"])]
    if name == "convert_element_type":
        return [view] if jnp.issubdtype(params["new_dtype"], jnp.inexact) else None
    return [view.times(scaling(eqn, operands, position))] if scales(eqn, position) else None


def scales(eqn: JaxprEqn, position: int) -> bool:
    """Whether all that an equation does is to multiply the operand at `position` by a number."""
    name, shapes = eqn.primitive.name, [v.aval.shape for v in eqn.invars]  # pyright: ignore[reportAttributeAccessIssue]
    if name == "neg":
        return True
    if name != "mul" and (name, position) != ("div", 0):
        return False
    result: Any = eqn.outvars[0].aval
    return math.prod(shapes[1 - position]) == 1 and shapes[position] == result.shape


def scaling(eqn: JaxprEqn, operands: Sequence[Any], position: int) -> Array:
    """The number by which an equation multiplies the operand at `position`, where it `scales` that."""
    if eqn.primitive.name == "neg":
        return jnp.asarray(-1, operands[0].dtype)
    other = jnp.asarray(operands[1 - position])
    return other if eqn.primitive.name == "mul" else 1 / other


def _reshaped(where: np.ndarray, params: dict[str, Any]) -> np.ndarray | None:
    if params.get("dimensions") is not None:
        return None
    new = where.reshape(params["new_sizes"])
    return new if np.may_share_memory(new, where) else None  # else numpy has copied: no strides say this


def _sliced(where: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    steps = params["strides"] or (1,) * where.ndim
    return where[tuple(map(slice, params["start_indices"], params["limit_indices"], steps))]


def _broadcast(where: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    new = set(range(len(params["shape"]))) - set(params["broadcast_dimensions"])
    return np.broadcast_to(np.expand_dims(where, tuple(new)), params["shape"])


_MOVES: dict[str, Callable[[np.ndarray, dict[str, Any]], np.ndarray | None]] = {
    "transpose": lambda where, params: where.transpose(params["permutation"]),
    "reshape": _reshaped,
    "squeeze": lambda where, params: where.squeeze(tuple(params["dimensions"])),
    "expand_dims": lambda where, params: np.expand_dims(where, tuple(params["dimensions"])),
    "slice": _sliced,
    "rev": lambda where, params: np.flip(where, tuple(params["dimensions"])),
    "broadcast_in_dim": _broadcast,
    "copy": lambda where, _: where,
    "copy_p": lambda where, _: where,
}


class Arranged(NamedTuple):
    """Entries of a leaf as weights: strided axes for groups, inputs and outputs (see `Outer`)."""

    where: np.ndarray  # (*groups, *inputs, *outputs)
    groups: int
    inputs: int
    nest: tuple[Level, ...] = ()

    def everywhere(self) -> np.ndarray:
        """With the loops around it as leading axes."""
        shape = (*(level.length for level in self.nest if level.stride), *self.where.shape)
        strides = (*(level.stride for level in self.nest if level.stride), *self.where.strides)
        return np.lib.stride_tricks.as_strided(self.where, shape, strides, writeable=False)

    def injective(self) -> bool:
        """No entry is shown twice."""
        where = self.where
        return all(stride or size == 1 for size, stride in zip(where.shape, where.strides, strict=True))

    def signature(self) -> tuple:
        """Equal for two sites if and only if the same entries play the same part."""
        where = self.everywhere()
        axes, first = list(zip(where.shape, where.strides, strict=True)), where.ndim - self.where.ndim + self.groups
        cuts = (axes[:first], axes[first : first + self.inputs], axes[first + self.inputs :])
        return (where.ctypes.data, *map(_merged, cuts))


def _merged(axes: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Neighbouring axes that are one axis in memory, as one."""
    joined: list[tuple[int, int]] = []
    for size, stride in axes:
        if size == 1:
            continue
        if joined and joined[-1][1] == size * stride:
            joined[-1] = (joined[-1][0] * size, stride)
        else:
            joined.append((size, stride))
    return tuple(joined)


class Window(NamedTuple):
    """The geometry of a convolution; `axes` are those of the data: examples, channels, then space."""

    axes: tuple[int, ...]
    size: tuple[int, ...]
    out: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    data_dilation: tuple[int, ...]
    dilation: tuple[int, ...]


def patches(data: Array, window: Window) -> Array:
    """`(sites, taps, channels)`: one strided slice of the padded data for each tap."""
    examples, channels, *space = window.axes
    data = data.transpose(examples, *space, channels)
    inner = [
        (low, high, dilation - 1) for (low, high), dilation in zip(window.padding, window.data_dilation, strict=True)
    ]
    data = lax.pad(data, jnp.zeros((), data.dtype), [(0, 0, 0), *inner, (0, 0, 0)])
    strides = (1, *window.strides, 1)

    def tap(offset: tuple[int, ...]) -> Array:
        start = [o * d for o, d in zip(offset, window.dilation, strict=True)]
        stop = [s + (n - 1) * step + 1 for s, n, step in zip(start, window.out, window.strides, strict=True)]
        return lax.slice(data, (0, *start, 0), (data.shape[0], *stop, data.shape[-1]), strides)

    seen = jnp.stack([tap(offset) for offset in np.ndindex(*window.size)], axis=-2)
    return seen.reshape(-1, *seen.shape[-2:])


@dataclass(frozen=True)
class Dot:
    """`dot_general`: batch axes are groups, the data's free axes are tokens."""

    groups: tuple[int, ...]  # axes of the weight
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    data: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # axes of the data: groups, tokens, inputs
    weight_first: bool

    def weight(self, where: np.ndarray) -> Arranged:
        axes = (*self.groups, *self.inputs, *self.outputs)
        return Arranged(where.transpose(axes), len(self.groups), len(self.inputs))

    def bias(self, where: np.ndarray) -> Arranged | None:
        return _without_tokens(where, self.tokens(), len(self.groups))

    def tokens(self) -> tuple[int, ...]:
        first = len(self.groups) + (len(self.outputs) if self.weight_first else 0)
        return tuple(range(first, first + len(self.data[1])))

    def layout(self) -> tuple:
        return ("dot", len(self.groups), len(self.data[1]), self.weight_first)

    def left(self, data: Array) -> Array:
        groups, tokens, _ = (math.prod(data.shape[i] for i in axes) for axes in self.data)
        return data.transpose(sum(self.data, ())).reshape(groups, tokens, -1)

    def right(self, cotangent: Array) -> Array:
        groups, tokens = range(len(self.groups)), self.tokens()
        outputs = (axis for axis in range(cotangent.ndim) if axis not in (*groups, *tokens))
        sizes = (math.prod(cotangent.shape[axis] for axis in axes) for axes in (groups, tokens))
        return cotangent.transpose(*groups, *tokens, *outputs).reshape(*sizes, -1)


@dataclass(frozen=True)
class Convolution:
    """`conv_general_dilated` with data on the left: feature groups are groups, sites are tokens."""

    window: Window
    kernel: tuple[int, ...]  # axes of the weight: output channels, input channels, then space
    result: tuple[int, ...]  # axes of the result: examples, channels, then space
    groups: int

    def weight(self, where: np.ndarray) -> Arranged:
        out, channels, *space = self.kernel
        where = where.transpose(out, *space, channels)
        where = where.reshape(self.groups, -1, *where.shape[1:])  # splitting an axis never copies
        return Arranged(np.moveaxis(where, 1, -1), 1, len(space) + 1)

    def bias(self, where: np.ndarray) -> Arranged | None:
        examples, channels, *space = self.result
        where = where.transpose(examples, *space, channels)
        where = where.reshape(*where.shape[:-1], self.groups, -1)
        return _without_tokens(where, tuple(range(len(space) + 1)), 1)

    def tokens(self) -> tuple[int, ...]:
        return (self.result[0], *self.result[2:])

    def layout(self) -> tuple:
        return ("convolution", self.result, self.groups)

    def left(self, data: Array) -> Array:
        seen = patches(data, self.window)  # (tokens, taps, channels)
        tokens, taps, _ = seen.shape
        split = seen.reshape(tokens, taps, self.groups, -1)
        return split.transpose(2, 0, 1, 3).reshape(self.groups, tokens, -1)

    def right(self, cotangent: Array) -> Array:
        examples, channels, *space = self.result
        moved = cotangent.transpose(examples, *space, channels)
        return moved.reshape(-1, self.groups, moved.shape[-1] // self.groups).swapaxes(0, 1)


@dataclass(frozen=True)
class Embedding:
    """`gather` of whole rows: the data are indices."""

    rows: int
    outputs: int
    drops: bool  # indices that are out of range show nothing; else they are moved into the range

    def weight(self, where: np.ndarray) -> Arranged:
        return Arranged(where, 0, 1)

    def bias(self, where: np.ndarray) -> Arranged | None:
        return None

    def tokens(self) -> tuple[int, ...]:
        return ()

    def layout(self) -> tuple:
        return ("embedding", self.outputs)

    def left(self, data: Array) -> Array:
        index = data.reshape(-1)
        if self.drops:
            return jnp.where((index < 0) | (index >= self.rows), -1, index)
        return jnp.clip(index, 0, self.rows - 1)

    def right(self, cotangent: Array) -> Array:
        return cotangent.reshape(1, -1, self.outputs)


Rule = Dot | Convolution | Embedding


def _without_tokens(where: np.ndarray, tokens: tuple[int, ...], groups: int) -> Arranged | None:
    """Drop the token axes of something that is the same for all of them."""
    if any(where.strides[i] and where.shape[i] > 1 for i in tokens):
        return None
    kept = where[tuple(0 if i in tokens else slice(None) for i in range(where.ndim))]
    return Arranged(kept, groups, 0)


def rule_for(eqn: JaxprEqn, position: int, view: View) -> Rule | None:
    """The rule by which the operand at `position` enters linearly, if there is one."""
    name = eqn.primitive.name
    if any(0 in v.aval.shape for v in (*eqn.invars, *eqn.outvars)):  # pyright: ignore[reportAttributeAccessIssue]
        return None
    if name == "dot_general":
        return _dot(eqn, position)
    if name == "conv_general_dilated" and position == 1 and eqn.params["batch_group_count"] == 1:
        return _convolution(eqn)
    if name == "gather" and position == 0 and not any(level.stride for level in view.nest):
        return _embedding(eqn)
    return None


def _dot(eqn: JaxprEqn, position: int) -> Dot:
    contracting, batch = eqn.params["dimension_numbers"]
    ranks = [len(v.aval.shape) for v in eqn.invars]  # pyright: ignore[reportAttributeAccessIssue]
    mine, other = position, 1 - position
    order = np.argsort(contracting[mine])  # the same inputs in the same order, however the product was written
    inputs, data_inputs = (tuple(int(contracting[i][j]) for j in order) for i in (mine, other))
    free = [tuple(a for a in range(ranks[i]) if a not in (*contracting[i], *batch[i])) for i in (0, 1)]
    data = (tuple(batch[other]), free[other], data_inputs)
    return Dot(tuple(batch[mine]), inputs, free[mine], data, weight_first=position == 0)


def _convolution(eqn: JaxprEqn) -> Convolution:
    numbers, p = eqn.params["dimension_numbers"], eqn.params
    kernel: Any = eqn.invars[1].aval
    result: Any = eqn.outvars[0].aval
    window = Window(
        axes=tuple(numbers.lhs_spec),
        size=tuple(kernel.shape[i] for i in numbers.rhs_spec[2:]),
        out=tuple(result.shape[i] for i in numbers.out_spec[2:]),
        strides=tuple(p["window_strides"]),
        padding=tuple(tuple(pad) for pad in p["padding"]),
        data_dilation=tuple(p["lhs_dilation"]),
        dilation=tuple(p["rhs_dilation"]),
    )
    return Convolution(window, tuple(numbers.rhs_spec), tuple(numbers.out_spec), p["feature_group_count"])


def _embedding(eqn: JaxprEqn) -> Embedding | None:
    d, sizes = eqn.params["dimension_numbers"], tuple(eqn.params["slice_sizes"])
    shape: Sequence[int] = eqn.invars[0].aval.shape  # pyright: ignore[reportAttributeAccessIssue]
    out: Sequence[Any] = eqn.outvars[0].aval.shape  # pyright: ignore[reportAttributeAccessIssue]
    trailing = tuple(range(len(out) - len(shape) + 1, len(out)))
    whole_rows = tuple(d.collapsed_slice_dims) == (0,) and sizes == (1, *shape[1:]) and not d.operand_batching_dims
    if not (whole_rows and tuple(d.start_index_map) == (0,) and tuple(d.offset_dims) == trailing):
        return None
    mode = eqn.params["mode"]
    return Embedding(shape[0], math.prod(shape[1:]), mode == lax.GatherScatterMode.FILL_OR_DROP)
