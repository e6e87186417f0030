"""Primitives of JAX, by their names."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..layers import SiteMap
from ._graph import Apply, At, Graph
from ._layout import BATCH as BATCH_LABEL
from ._layout import Untranslatable, Value
from ._ops import Window, begun, joined, largest, largest_of, pooled, put_together, reduced, spread, taken
from ._places import Places, add_places, token_beside
from ._reasons import ROUNDS, STOPS

BATCH = 7  # examples of the batch that is sent through: a size that axes seldom have

UNARY = {"abs", "cos", "erf", "erfc", "exp", "expm1", "log1p"}
UNARY |= {"logistic", "neg", "sign", "sin", "sqrt", "square", "tanh"}
_BINARY = {name: name for name in ("add", "div", "eq", "ge", "gt", "le", "lt", "max", "min", "mul", "ne", "pow", "sub")}
_BINARY |= {"add_any": "add", "and": "and", "or": "or"}
_SAME = ("copy", "copy_p", "reduce_precision")
_CONTROL = ("cond", "while", "scan")


def call_of(
    graph: Graph, at: At, name: str, params: Mapping[str, Any], operands: Sequence[Any], shape: tuple[int, ...]
) -> Value:
    """What a primitive makes of values and constants."""
    values = [one for one in operands if isinstance(one, Value)]
    if name in _SAME:
        return values[0]
    if name == "stop_gradient":
        raise Untranslatable(STOPS)
    if name == "convert_element_type":
        if not jnp.issubdtype(params["new_dtype"], jnp.floating) and values[0].node:  # not of tokens
            raise Untranslatable(ROUNDS)
        return values[0]
    if name in UNARY:
        return graph.pointwise(at, name, values)
    begins = _begins(graph, name, operands) if len(values) == 1 else None
    if begins is not None:
        return begun(graph, At("a parameter", at.what, at.kind), values[0], name, begins)
    if name in ("add", "sub") and len(values) == 1:
        operands = [one if isinstance(one, Value) else _placed(graph, values[0], one) for one in operands]
    if name in _BINARY and len(values) == 2:
        operands = [spread(graph, at, one, other) for one, other in (values, values[::-1])]
    if name in _BINARY or name == "select_n":
        return graph.pointwise(at, _BINARY.get(name, "select"), [_operand(one) for one in operands])
    if name == "not":
        return graph.pointwise(at, "not", values)
    if name == "integer_pow":
        return graph.pointwise(at, "pow", (values[0], float(params["y"])))
    if name == "clamp":
        low, x, high = operands
        return graph.pointwise(at, "clip", (x, _number(low), _number(high)))
    if name in _CALLS:
        return _CALLS[name](graph, at, params, operands, shape)
    raise Untranslatable(_reason(name))


def _reason(name: str) -> str:
    if name in _CONTROL:
        return f"control flow ({name}) is not read; write the layers out, or use everwide.Repeat"
    if name in ("dot_general", "conv_general_dilated", "ragged_dot"):
        return "it multiplies by weights that belong to no layer known here, or a signal by a signal (attention)"
    return f"the primitive {name} is not known here"


def _placed(graph: Graph, x: Value, array: Any) -> Any:
    """A branch of vectors of places: learned ones are a parameter of the module, others must not depend on any."""
    places = places_of(graph, x, array) if graph.is_learned(array) else _fixed(np.asarray(array, np.float64))
    return array if places is None else add_places(graph, x, places, BATCH)


def _begins(graph: Graph, name: str, operands: Sequence[Any]) -> float | None:
    """The number with which a parameter begins, where it is a factor, or added and 0."""
    own = next((one for one in operands if not isinstance(one, Value)), None)
    if name not in ("add", "mul") or not graph.is_learned(own):
        return None
    numbers = np.unique(np.asarray(own, np.float64))
    return float(numbers[0]) if len(numbers) == 1 and (name == "mul" or numbers[0] == 0) else None


def _fixed(values: np.ndarray) -> Places | None:
    """What is neither drawn nor trained, unless it is one number."""
    if not values.size or (values == values.flat[0]).all():
        return None
    return Places("", values, ("fixed",), values.shape, trained=False, shape=values.shape, fixed=True)


def places_of(graph: Graph, x: Value, array: Any) -> Places | None:
    """What is known of a parameter of the module that is the same for all examples: its first rows, or all."""
    values = np.asarray(array)
    values = values.reshape((1,) * (len(x.groups) - values.ndim) + values.shape)
    batch = [i for i, group in enumerate(x.groups) if group == (BATCH_LABEL,) and values.shape[i : i + 1] != (1,)]
    if values.ndim != len(x.groups) or any(np.any(values != values.take([0], axis)) for axis in batch):
        return None
    one = values.take([0], batch[0]) if batch else values
    for name, table in graph.tables.items():
        flat = np.ravel(table)[: one.size]
        if np.shape(table)[-1:] == values.shape[-1:] and np.array_equal(flat, np.ravel(one)):
            return Places(name, np.asarray(table), (name,), np.shape(table), shape=values.shape)
    return None


def _operand(one: Any) -> Value | float:
    return one if isinstance(one, Value) else _number(one)


def _number(one: Any) -> float:
    """A constant, of which all entries are the same."""
    array = np.asarray(one, np.float64)
    if array.size and (array == array.flat[0]).all():
        return float(array.flat[0])
    raise Untranslatable(
        f"it combines a signal with an array of shape {array.shape} that belongs to no layer known here"
    )


def _reshape(graph: Graph, at: At, params: Mapping[str, Any], operands: Sequence[Any], shape: tuple[int, ...]) -> Value:
    return put_together(graph, at, operands[0].regrouped(shape, BATCH))


def _transpose(graph: Graph, at: At, params: Mapping[str, Any], operands: Sequence[Any], shape: Any) -> Value:
    return operands[0].permuted(params["permutation"])


def _broadcast(graph: Graph, at: At, params: Mapping[str, Any], operands: Sequence[Any], shape: Any) -> Value:
    """New axes of size 1, and sites of size 1 that are repeated."""
    x, places = operands[0], [int(axis) for axis in params["broadcast_dimensions"]]
    groups: list[tuple[str, ...]] = [()] * len(shape)
    for group, place in zip(x.groups, places, strict=True):
        groups[place] = group
    for axis, size in enumerate(shape):
        group = groups[axis]
        if len(group) == 1 and group[0] in x.sites and x.size[group[0]] == 1 and size > 1:
            x = graph.apply(at, x, Apply(SiteMap(np.ones((size, 1)), axis=int(group[0]))))
        elif not group and size > 1:
            raise Untranslatable("it repeats a signal along a new axis; keep sites of size 1 to be repeated")
    return replace(x, groups=tuple(groups))


def _concatenate(graph: Graph, at: At, params: Mapping[str, Any], operands: Sequence[Any], shape: Any) -> Value:
    axis = int(params["dimension"])
    lined = [graph.in_line(one, axis) if isinstance(one, Value) else one for one in operands]
    like = next(one for one in lined if isinstance(one, Value))
    places = [None if isinstance(one, Value) else places_of(graph, like, one) for one in lined]
    if any(one is None and not isinstance(own, Value) for one, own in zip(places, lined, strict=True)):
        raise Untranslatable("it puts a signal beside an array that belongs to no layer known here")
    pairs = zip(lined, places, strict=True)
    values = [own if one is None else token_beside(graph, like, one, axis, BATCH) for own, one in pairs]
    return joined(graph, at, values, axis)


def _sum(graph: Graph, at: At, params: Mapping[str, Any], operands: Sequence[Any], shape: Any) -> Value:
    """The mean, and then as often as there were sites: a division that follows is put together with that."""
    x, axes = operands[0], [int(axis) for axis in params["axes"]]
    count = math.prod(x.size[label] for axis in axes for label in x.groups[axis])
    out = reduced(graph, at, x, axes, keep=False)
    return graph.pointwise(at, "mul", (out, float(count)))


def _windows(params: Mapping[str, Any], x: Value) -> tuple[list[int], Window]:
    """The axes over which a window slides, and how."""
    size = [int(n) for n in params["window_dimensions"]]
    sites = [axis for axis, group in enumerate(x.groups) if len(group) == 1 and group[0] in x.sites]
    if any(n != 1 for axis, n in enumerate(size) if axis not in sites):
        raise Untranslatable("its window covers channels or examples")
    dilated = {*params.get("base_dilation", ()), *params.get("window_dilation", ())} - {1}
    if dilated:
        raise Untranslatable("windows with gaps are not read")
    pick = tuple(size[axis] for axis in sites), tuple(int(params["window_strides"][axis]) for axis in sites)
    padding = tuple((int(params["padding"][axis][0]), int(params["padding"][axis][1])) for axis in sites)
    return sites, Window(*pick, padding if any(map(any, padding)) else "VALID")


def _window_sum(graph: Graph, at: At, params: Mapping[str, Any], operands: Sequence[Any], shape: Any) -> Value:
    axes, window = _windows(params, operands[0])
    out = pooled(graph, at, operands[0], axes, window)
    return graph.pointwise(at, "mul", (out, float(math.prod(window.size))))


def _window_max(graph: Graph, at: At, params: Mapping[str, Any], operands: Sequence[Any], shape: Any) -> Value:
    return largest(graph, at, operands[0], *_windows(params, operands[0]))


def _slice(graph: Graph, at: At, params: Mapping[str, Any], operands: Sequence[Any], shape: Any) -> Value:
    x, strides = operands[0], params["strides"] or (1,) * len(params["start_indices"])
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    before = x.described(BATCH)
    for axis, (low, high, stride) in enumerate(bounds):
        if (low, high, stride) != (0, before[axis], 1):
            x = taken(graph, at, x, axis, slice(int(low), int(high), int(stride)))
    return x


_CALLS: dict[str, Callable[[Graph, At, Mapping[str, Any], Sequence[Any], Any], Value]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "expand_dims": _reshape,
    "reduce_max": lambda graph, at, how, x, _: largest_of(graph, at, x[0], [*map(int, how["axes"])], keep=False),
    "reduce_sum": _sum,
    "reduce_window_max": _window_max,
    "reduce_window_sum": _window_sum,
    "reshape": _reshape,
    "slice": _slice,
    "squeeze": _reshape,
    "transpose": _transpose,
}
