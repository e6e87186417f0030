"""PyTorch modules, read through `torch.fx`: on shapes alone, no number is computed and the module is never changed."""

import copy
import inspect
import operator
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..signal import ArchitectureError
from ._graph import At, Graph
from ._layout import Untranslatable, Value, start, start_tokens
from ._ops import taken
from ._reasons import OTHERS
from ._torch_calls import CUTS, Call, cuts, read_call
from ._torch_layers import read_layer
from ._torch_tokens import Constants, zeros_only

_BATCH = 7  # examples of the batch that is sent through: a size that axes seldom have


def read_torch(graph: Graph, module: Any, shape: Sequence[int], channels: int) -> Value:
    """The graph of a module, for examples of that shape whose channels are that axis."""
    _refuse_lazy(module)
    shapes = _without_numbers(module)
    traced = _traced(shapes)
    run = _Run(graph, module, _fx().Interpreter(_fx().GraphModule(shapes, traced)))
    inputs = [node for node in traced.nodes if node.op == "placeholder"]
    tokens = any(run.kind_of(user) == "Embedding" for user in inputs[0].users)
    value = graph.begin(start_tokens(shape) if tokens else start(shape, channels=channels, batched=True))
    dtype = _torch().int64 if tokens else None
    run.known[inputs[0]], run.values[inputs[0]] = _torch().empty(_BATCH, *shape, device="meta", dtype=dtype), value
    run.known.update(zip(inputs[1:], _defaults(shapes).values(), strict=False))
    for node in traced.nodes:
        if node.op == "output":
            return run.result(node)
        if node.op != "placeholder" and (node.users or node.target is not operator.getitem):
            run.step(node)  # one of several results that nobody reads need not be known
    raise AssertionError


class _Run:
    """What every node of the traced module is: a tensor without numbers (`known`), and a value (`values`)."""

    def __init__(self, graph: Graph, module: Any, interpreter: Any):
        self.graph, self.module, self.interpreter = graph, module, interpreter
        self.known: dict[Any, Any] = interpreter.env
        self.values: dict[Any, Value] = {}
        self.several: set[Any] = set()  # nodes that return tuples
        self.parts: dict[Any, tuple[int, list[slice]]] = {}  # nodes that cut: along which axis, and where
        self.constants = Constants(module, self.known)

    def step(self, node: Any) -> None:
        """Run a node on shapes, and read it."""
        at = self._at(node)
        try:
            with warnings.catch_warnings(), _torch().device("meta"):
                warnings.simplefilter("ignore")  # about speed: nothing is computed
                self.known[node] = self.interpreter.run_node(node)
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as fault:
            raise ArchitectureError(_misfit(at, fault, self._shapes(node))) from None
        inputs = [self.values[one] for one in node.all_input_nodes if one in self.values]
        if not inputs:
            self.constants.read(node)
        if not inputs or _is_about_shapes(self.known[node]):
            return
        self.values[node] = self._value(node, at, inputs)

    def _value(self, node: Any, at: At, inputs: list[Value]) -> Value:
        made = self.known[node]
        if isinstance(made, tuple | list):
            self.several.add(node)
            if at.kind in CUTS and isinstance(node.args[0], _fx().Node) and len(inputs) == 1:
                self.parts[node] = cuts(node.args, node.kwargs, [tuple(one.shape) for one in made])
                return inputs[0]
            made = made[0]
        shape = tuple(made.shape) if isinstance(made, _torch().Tensor) else None
        if node.target.__name__ == "getitem" if callable(node.target) else False:
            source = node.args[0]
            if source in self.several:
                return self._picked(node, at, inputs, shape)
        before = len(self.graph.nodes)
        try:
            value = self._read(node, at, inputs, shape or ())
        except Untranslatable as fault:
            del self.graph.nodes[before:]
            return self.graph.refuse(at, inputs, str(fault), shape)
        if shape is not None and value.described(_BATCH) != shape:
            del self.graph.nodes[before:]
            reason = f"it makes the shape {shape}, and what is known here makes {value.described(_BATCH)}"
            return self.graph.refuse(at, inputs, reason, shape)
        return value

    def _picked(self, node: Any, at: At, inputs: list[Value], shape: tuple[int, ...] | None) -> Value:
        """One of the parts that a value was cut into. Else the first result is what was read; others are not known."""
        source = node.args[0]
        if node.args[1] == 0 and source not in self.parts:
            return inputs[0]
        try:
            if source in self.parts:
                axis, places = self.parts[source]
                return taken(self.graph, at, inputs[0], axis, places[node.args[1]])
            return self._last_state(node, at, inputs[0])
        except Untranslatable as fault:
            return self.graph.refuse(at, inputs, str(fault), shape)

    def _last_state(self, node: Any, at: At, states: Value) -> Value:
        """The second result of a recurrent layer: its states at the last time, behind an axis of size 1."""
        source = node.args[0]
        own = self.module.get_submodule(str(source.target)) if source.op == "call_module" else None
        kind = self.kind_of(source)
        if own is None or kind not in ("RNN", "GRU", "LSTM"):
            raise Untranslatable("only the first of several results is read")
        if own.num_layers > 1 or own.bidirectional:
            raise Untranslatable(
                "last states of several layers or directions are not read; take the last of all states"
            )
        last = taken(self.graph, at, states, 1 if own.batch_first else 0, -1)
        return replace(last, groups=((), *last.groups))

    def kind_of(self, node: Any) -> str:
        """The name of the class of a layer that is called."""
        return type(self.module.get_submodule(str(node.target))).__name__ if node.op == "call_module" else ""

    def _read(self, node: Any, at: At, inputs: list[Value], shape: tuple[int, ...]) -> Value:
        if node.op == "call_module":
            own = self.module.get_submodule(str(node.target))
            layer = self.graph.replacement(at, own)
            if layer is not None:
                return self.graph.replace(at, inputs[0], layer, shape)
            states = at.kind in ("RNN", "LSTM", "GRU") and zeros_only(node.all_input_nodes[1:])
            itself = at.kind == "MultiheadAttention" and len(node.args) == 3 and len(node.all_input_nodes) == 1
            alone = not node.args[1:] and len(node.all_input_nodes) == 1
            if not (alone or itself or states):
                raise Untranslatable(OTHERS if at.kind == "MultiheadAttention" else "it takes more than one argument")
            return read_layer(self.graph, at, own, inputs[0])
        args, kwargs = self._arguments(node)
        layer = self.graph.replacement(at)
        if layer is not None:
            return self.graph.replace(at, inputs[0], layer, shape)
        return read_call(self.graph, at, Call(at.kind, args, kwargs, shape, _BATCH))

    def _arguments(self, node: Any) -> tuple[Any, Any]:
        return _fx().node.map_arg(node.args, self._look), _fx().node.map_arg(node.kwargs, self._look)

    def _look(self, node: Any) -> Any:
        return self.values.get(node, self.constants.places.get(node, self.known[node]))

    def _at(self, node: Any) -> At:
        if node.op == "call_module":
            layer = self.module.get_submodule(str(node.target))
            what = " ".join(repr(layer).split())
            return At(
                str(node.target), what if len(what) < 60 else f"{what[:57]}...", type(layer).__name__, is_layer=True
            )
        kind = str(node.target) if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        return At(_module_of(node) + node.name, kind, kind.strip("_") if kind.startswith("__") else kind)

    def _shapes(self, node: Any) -> list[tuple[int, ...]]:
        tensors = [self.known[one] for one in node.all_input_nodes]
        return [tuple(one.shape[1:]) for one in tensors if isinstance(one, _torch().Tensor)]

    def result(self, node: Any) -> Value:
        """What the module returns."""
        out = node.args[0]
        if isinstance(out, _fx().Node) and out in self.parts:
            raise ArchitectureError(
                f"{type(self.module).__name__} returns {len(self.parts[out][1])} parts of a tensor, expected one. "
                "Wrap it in a module that returns the one you mean."
            )
        if not isinstance(out, _fx().Node) or out not in self.values:
            what = "nothing that depends on its input" if isinstance(out, _fx().Node) else type(out).__name__
            raise ArchitectureError(
                f"{type(self.module).__name__} returns {what}, expected one tensor. Wrap it in a module that returns "
                "the one you mean."
            )
        return self.values[out]


def _torch() -> Any:
    import torch  # whoever brings a module has loaded it

    return torch


def _fx() -> Any:
    from torch import fx

    return fx


def _module_of(node: Any) -> str:
    """The place of the module in which a call stands."""
    stack = node.meta.get("nn_module_stack") or {}
    return next((f"{path}." for path in reversed(list(stack)) if path), "")


def _is_about_shapes(made: Any) -> bool:
    return not isinstance(made, _torch().Tensor | tuple | list) or isinstance(made, _torch().Size) or made is None


def _misfit(at: At, fault: Exception, shapes: Sequence[tuple[int, ...]]) -> str:
    read = " and ".join(str(shape) for shape in shapes) or "nothing"
    reason = " ".join(str(fault).split()).rstrip(".")
    return (
        f"{at.place} ({at.what}) does not fit: an example comes in with the shape {read}, and PyTorch says: {reason}. "
        "input_shape is the shape of one example as the module reads it, without the batch, such as (3, 32, 32)."
    )


def _refuse_lazy(module: Any) -> None:
    lazy = [name for name, value in module.named_parameters() if _torch().nn.parameter.is_lazy(value)]
    if lazy:
        raise ArchitectureError(
            f"{type(module).__name__} is lazy: {lazy[0]} has no shape yet. Call the module once on a batch, "
            "module(torch.zeros(2, *input_shape)), and then translate it."
        )


def _without_numbers(module: Any) -> Any:
    """A copy whose tensors have shapes only: nothing large is copied, and nothing that runs changes the module."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        empty = _torch().empty_like(parameter, device="meta")
        memo[id(parameter)] = _torch().nn.Parameter(empty, requires_grad=parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = _torch().empty_like(buffer, device="meta")
    return copy.deepcopy(module, memo)


def _defaults(module: Any) -> dict[str, Any]:
    """Of all arguments but the first."""
    given = list(inspect.signature(module.forward).parameters.values())[1:]
    return {one.name: one.default for one in given if one.default is not inspect.Parameter.empty}


def _traced(module: Any) -> Any:
    """The calls of a module's forward, which must not depend on values."""
    given = list(inspect.signature(module.forward).parameters.values())
    needed = [one.name for one in given[1:] if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    if needed:
        raise ArchitectureError(
            f"{type(module).__name__}.forward needs {', '.join(needed)} beside its input. Wrap it in a module that "
            "takes one tensor."
        )
    try:
        return _fx().Tracer().trace(module, concrete_args=_defaults(module) or None)
    except Exception as fault:  # whatever a forward does with a proxy
        raise ArchitectureError(
            f"{type(module).__name__}.forward cannot be read without its data ({type(fault).__name__}: "
            f"{' '.join(str(fault).split()).rstrip('.')}). Control flow, len() and conversions that depend on the "
            "values or the shape of the input have no one graph: take them out of forward, or decide them in __init__. "
            "The kernel of the module as it is: everwide.empirical_ntk(module, None, x)."
        ) from None
