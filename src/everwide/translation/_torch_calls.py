"""Functions of torch, torch.nn.functional and tensors, by their names."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..layers import Identity
from ._graph import Apply, At, Graph
from ._layout import CHANNELS, Untranslatable, Value
from ._ops import (
    begun,
    flattened,
    joined,
    largest_of,
    normalized,
    put_together,
    reduced,
    repeated,
    spread,
    taken,
)
from ._places import Places, add_places, number_of, token_beside
from ._reasons import STOPS
from ._torch_layers import adaptive, average, check_divisor, check_factors, dropped, glu, maximum, merged, resized

_PLAIN = {  # names of calls, and of operations in `_formula`
    "abs": "abs",
    "cos": "cos",
    "erf": "erf",
    "exp": "exp",
    "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_swish",
    "mish": "mish",
    "neg": "neg",
    "negative": "neg",
    "relu": "relu",
    "relu_": "relu",
    "selu": "selu",
    "sigmoid": "logistic",
    "sign": "sign",
    "silu": "silu",
    "sin": "sin",
    "softsign": "softsign",
    "square": "square",
    "tanh": "tanh",
}
_BINARY = {
    "add": "add",
    "add_": "add",
    "div": "div",
    "iadd": "add",
    "imul": "mul",
    "isub": "sub",
    "itruediv": "div",
    "maximum": "max",
    "minimum": "min",
    "mul": "mul",
    "mul_": "mul",
    "multiply": "mul",
    "pow": "pow",
    "sub": "sub",
    "subtract": "sub",
    "truediv": "div",
    "true_divide": "div",
}
_SAME = ("contiguous", "clone", "float", "double", "to", "type")


@dataclass(frozen=True)
class Call:
    """A call of a function or a method: values and constants as it got them, and the shape of what it returned."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    shape: tuple[int, ...]
    batch: int

    @property
    def x(self) -> Value:
        """The first argument, which must be a value."""
        first = self.args[0] if self.args else self.kwargs.get("input", self.kwargs.get("self"))
        if not isinstance(first, Value):
            raise Untranslatable("its first argument does not come from the input alone")
        return first

    def option(self, name: str, place: int, default: Any = None) -> Any:
        """An argument by its name or its place."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)

    def dims(self, name: str = "dim", place: int = 1, default: Any = None) -> list[int]:
        """Axes, as a number, a list, or what is left of the arguments."""
        value = self.args[place:] if len(self.args) > place + 1 else self.option(name, place, default)
        axes = list(range(len(self.x.groups))) if value is None else [value] if isinstance(value, int) else list(value)
        return [axis % len(self.x.groups) for axis in axes]


def read_call(graph: Graph, at: At, call: Call) -> Value:
    """A value from a call; `Untranslatable` with the reason."""
    if call.name in _PLAIN:
        return graph.pointwise(at, _PLAIN[call.name], (call.x,))
    if call.name in _BINARY:
        return _binary(graph, at, call)
    if call.name in _SAME:
        return call.x
    if call.name == "detach":
        raise Untranslatable(STOPS)
    if call.name in _CALLS:
        return _CALLS[call.name](graph, at, call)
    if "softmax" in call.name or call.name == "scaled_dot_product_attention":
        raise Untranslatable(
            "attention and softmax that are written out have no counterpart; see everwide.SelfAttention"
        )
    if call.name == "roll":
        raise Untranslatable("sites that are rolled, as those of shifted windows, are not read; leave the shift out")
    raise Untranslatable(f"a call of {call.name} is not known here; put it into a module, and name that in instead=")


def _binary(graph: Graph, at: At, call: Call) -> Value:
    if call.kwargs.get("alpha", 1) != 1 or call.kwargs.get("rounding_mode") is not None:
        raise Untranslatable(f"{call.name} with {dict(call.kwargs)} is not read; write it out")
    operands = [_plain(call.option("input", 0)), _plain(call.option("other", 1, call.kwargs.get("exponent")))]
    values = [one for one in operands if isinstance(one, Value)]
    if len(values) == 1:
        places = [one for one in operands if isinstance(one, Places)]
        same = number_of(places[0]) if places else None
        if same is not None and (_BINARY[call.name] == "mul" or same == 0) and not places[0].for_places(values[0]):
            return begun(graph, at, values[0], _BINARY[call.name], same)
    if len(values) == 1 and _BINARY[call.name] in ("add", "sub"):
        operands = [
            add_places(graph, values[0], one, call.batch) if isinstance(one, Places) else one for one in operands
        ]
    elif len(values) == 2:
        operands = [spread(graph, at, one, other) for one, other in (values, values[::-1])]
    for one in operands:
        if not isinstance(one, Value | int | float):
            raise Untranslatable(
                "it combines a signal with a tensor of the module that belongs to no layer: factors are read where all "
                "are the same number, as before training, and vectors of places, learned (nn.Parameter) or "
                "fixed, where they are added"
            )
    return graph.pointwise(at, _BINARY[call.name], operands)


def _plain(one: Any) -> Any:
    """A number, where fixed numbers are all the same."""
    same = number_of(one) if isinstance(one, Places) and one.fixed else None
    return one if same is None else same


def _gelu(graph: Graph, at: At, call: Call) -> Value:
    exact = call.kwargs.get("approximate", "none") == "none"
    return graph.pointwise(at, "gelu" if exact else "gelu_tanh", (call.x,))


def _leaky_relu(graph: Graph, at: At, call: Call) -> Value:
    return graph.pointwise(at, "leaky_relu", (call.x, float(call.option("negative_slope", 1, 0.01))))


def _elu(graph: Graph, at: At, call: Call) -> Value:
    return graph.pointwise(at, call.name, (call.x, float(call.option("alpha", 1, 1.0))))


def _clip(graph: Graph, at: At, call: Call) -> Value:
    defaults = {"hardtanh": (-1.0, 1.0), "relu6": (0.0, 6.0)}.get(call.name, (-math.inf, math.inf))
    names = ("min_val", "max_val") if call.name == "hardtanh" else ("min", "max")
    bounds = [call.option(names[i], i + 1, defaults[i]) if call.name != "relu6" else defaults[i] for i in range(2)]
    low, high = (default if one is None else one for one, default in zip(bounds, defaults, strict=True))
    return graph.pointwise(at, "clip", (call.x, float(low), float(high)))


def _softplus(graph: Graph, at: At, call: Call) -> Value:
    if call.option("beta", 1, 1) != 1:
        raise Untranslatable("softplus is read with beta=1 only")
    return graph.pointwise(at, "softplus", (call.x,))


def _dropout(graph: Graph, at: At, call: Call) -> Value:
    return dropped(graph, at, call.x, call.option("p", 1, 0.5), call.option("training", 2, True), "Dropout")


def _concat(graph: Graph, at: At, call: Call) -> Value:
    given, axis = call.option("tensors", 0), call.option("dim", 1, 0)
    if not isinstance(given, Sequence) or not all(isinstance(one, Value | Places) for one in given):
        raise Untranslatable("it puts a signal beside a tensor of the module that belongs to no layer")
    lined = [graph.in_line(one, axis) if isinstance(one, Value) else one for one in given]
    like = next(one for one in lined if isinstance(one, Value))
    values = [one if isinstance(one, Value) else token_beside(graph, like, one, axis, call.batch) for one in lined]
    return joined(graph, at, values, axis)


def _glu(graph: Graph, at: At, call: Call) -> Value:
    return glu(graph, at, call.x, call.option("dim", 1, -1))


def _norm(graph: Graph, at: At, call: Call) -> Value:
    """`layer_norm(x, shape, weight, bias, eps)`, and `rms_norm`, which has no bias."""
    centred = call.name == "layer_norm"
    shape, weight, bias = call.option("normalized_shape", 1), call.option("weight", 2), call.kwargs.get("bias")
    bias = call.option("bias", 3) if centred else bias
    eps = call.option("eps", 4 if centred else 3, 1e-5 if centred else None)
    for name, places, expected in (("weight", weight, 1.0), ("bias", bias, 0.0)):
        if isinstance(places, Places):
            graph.census.constant(f"{at.place}.{name}", places.values, expected)
        elif places is not None:
            raise Untranslatable("its weight and bias must be tensors of the module, or none")
    x = flattened(graph, call.x, -1) if len(shape) == 1 else call.x
    eps = float(np.finfo(np.float32).eps) if eps is None else float(eps)
    axes = range(-len(shape), 0)
    return normalized(graph, at, x, axes, eps, centred=centred, learned=weight is not None)


def _stochastic_depth(graph: Graph, at: At, call: Call) -> Value:
    rate, training = call.option("p", 1, 0.0), call.option("training", 3, True)
    if training and rate:
        raise Untranslatable(
            f"in training mode it drops whole branches at the rate {rate}: module.eval() keeps them all, and "
            "everwide.layers.StochasticDepth has the kernel of training"
        )
    return graph.apply(at, call.x, Apply(Identity(), note="evaluation mode: every branch is kept"))


CUTS = ("chunk", "split", "tensor_split", "unsafe_chunk", "unsafe_split")


def cuts(args: Sequence[Any], kwargs: Mapping[str, Any], shapes: Sequence[tuple[int, ...]]) -> tuple[int, list[slice]]:
    """Where a value is cut into parts of these shapes: the axis, and what each takes of it."""
    axis = args[2] if len(args) > 2 else kwargs.get("dim", 0)
    ends = list(itertools.accumulate(shape[axis] for shape in shapes))
    return axis, [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _flatten(graph: Graph, at: At, call: Call) -> Value:
    return put_together(graph, at, merged(call.x, call.option("start_dim", 1, 0), call.option("end_dim", 2, -1)))


def _reshape(graph: Graph, at: At, call: Call) -> Value:
    return put_together(graph, at, call.x.regrouped(call.shape, call.batch))


def _permute(graph: Graph, at: At, call: Call) -> Value:
    return call.x.permuted(call.dims("dims"))


def _transpose(graph: Graph, at: At, call: Call) -> Value:
    count = len(call.x.groups)
    order, (a, b) = list(range(count)), (call.option("dim0", 1) % count, call.option("dim1", 2) % count)
    order[a], order[b] = b, a
    return call.x.permuted(order)


def _reduce(graph: Graph, at: At, call: Call) -> Value:
    keep = bool(
        call.kwargs.get("keepdim", call.args[2] if len(call.args) == 3 and call.args[2] in (True, False) else False)
    )
    short = Call(call.name, call.args[:2], call.kwargs, call.shape, call.batch)
    return reduced(graph, at, call.x, short.dims(), keep=keep, mean=call.name == "mean")


def _avg_pool(graph: Graph, at: At, call: Call) -> Value:
    size, stride = call.option("kernel_size", 1), call.option("stride", 2)
    padding, ceil = call.option("padding", 3, 0), call.option("ceil_mode", 4, False)
    edges = not call.option("count_include_pad", 5, True)
    check_divisor(call.option("divisor_override", 6))
    return average(graph, at, call.x, size, stride, padding, ceil, edges=edges)


def _adaptive(graph: Graph, at: At, call: Call) -> Value:
    return adaptive(graph, at, call.x, call.option("output_size", 1), mean="avg" in call.name)


def _max_pool(graph: Graph, at: At, call: Call) -> Value:
    names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    how = [
        call.option(name, i + 1, default)
        for i, (name, default) in enumerate(zip(names, (2, None, 0, 1, False), strict=True))
    ]
    return maximum(graph, at, call.x, *how)


def _interpolate(graph: Graph, at: At, call: Call) -> Value:
    scale = call.option("scale_factor", 2, None)
    scales = scale if isinstance(scale, tuple | list) else () if scale is None else (scale,)
    check_factors(scales, call.option("recompute_scale_factor", 5, None))
    if call.option("antialias", 6, False):
        raise Untranslatable("antialias=True is not read; without it, nearest, linear and area are")
    mode, align = call.option("mode", 3, "nearest"), call.option("align_corners", 4, None)
    return resized(graph, at, call.x, call.shape[2:], mode, align)


def _expand(graph: Graph, at: At, call: Call) -> Value:
    """Sites of size 1, repeated."""
    return repeated(graph, at, call.x, call.shape)


def _amax(graph: Graph, at: At, call: Call) -> Value:
    """The largest numbers over site axes; of `max` along an axis, the first result."""
    keep = bool(call.kwargs.get("keepdim", call.args[2] if len(call.args) > 2 else False))
    short = Call(call.name, call.args[:2], call.kwargs, call.shape, call.batch)
    if call.name == "max" and (call.option("dim", 1) is None or isinstance(call.option("dim", 1), Value)):
        raise Untranslatable("max of a whole tensor, or of two, is not read; along a site axis it is")
    return largest_of(graph, at, call.x, short.dims(), keep=keep)


def _squeeze(graph: Graph, at: At, call: Call) -> Value:
    """Axes of size 1 go, with the sites in them: these are merged into the next one, which changes nothing."""
    return call.x.regrouped(call.shape, call.batch)


def _item(graph: Graph, at: At, call: Call) -> Value:
    x, items = call.x, call.args[1]
    items = items if isinstance(items, tuple) else (items,)
    if Ellipsis in items:
        i = items.index(Ellipsis)
        items = (*items[:i], *[slice(None)] * (len(x.groups) - len(items) + 1), *items[i + 1 :])
    if not all(isinstance(one, int | slice) for one in items):
        raise Untranslatable(f"only numbers and slices are read as an index, got {items}")
    for axis in reversed(range(len(items))):
        item = items[axis]
        if isinstance(item, int) and x.groups[axis] == (CHANNELS,) and x.size[CHANNELS] == 1:
            have = [int(n) for n in x.described(call.batch)]
            x = x.regrouped([*have[:axis], *have[axis + 1 :]], call.batch)
            continue
        if item != slice(None):
            x = taken(graph, at, x, axis, item)
    return x


_CALLS: dict[str, Callable[[Graph, At, Call], Value]] = {
    "adaptive_avg_pool1d": _adaptive,
    "adaptive_avg_pool2d": _adaptive,
    "adaptive_avg_pool3d": _adaptive,
    **{f"adaptive_max_pool{rank}d": _adaptive for rank in (1, 2, 3)},
    **{f"max_pool{rank}d": _max_pool for rank in (1, 2, 3)},
    "amax": _amax,
    "avg_pool1d": _avg_pool,
    "avg_pool2d": _avg_pool,
    "avg_pool3d": _avg_pool,
    "cat": _concat,
    "celu": _elu,
    "clamp": _clip,
    "clip": _clip,
    "concat": _concat,
    "concatenate": _concat,
    "dropout": _dropout,
    "elu": _elu,
    "expand": _expand,
    "expand_as": _expand,
    "flatten": _flatten,
    "gelu": _gelu,
    "getitem": _item,
    "glu": _glu,
    "hardtanh": _clip,
    "interpolate": _interpolate,
    "layer_norm": _norm,
    "leaky_relu": _leaky_relu,
    "max": _amax,
    "mean": _reduce,
    "movedim": lambda graph, at, call: _moved(call),
    "permute": _permute,
    "relu6": _clip,
    "reshape": _reshape,
    "rms_norm": _norm,
    "softplus": _softplus,
    "squeeze": _squeeze,
    "stochastic_depth": _stochastic_depth,
    "sum": _reduce,
    "swapaxes": _transpose,
    "transpose": _transpose,
    "unflatten": _reshape,
    "unsqueeze": _reshape,
    "view": _reshape,
}


def _moved(call: Call) -> Value:
    count = len(call.x.groups)
    start, end = call.option("source", 1) % count, call.option("destination", 2) % count
    order = [i for i in range(count) if i != start]
    order.insert(end, start)
    return call.x.permuted(order)
