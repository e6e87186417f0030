"""PyTorch modules, read through `torch.fx`: on shapes alone, no number is computed and the module is never changed."""

import math
import operator
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..signal import ArchitectureError
from ._attention import NEVER, is_causal
from ._graph import At, Graph
from ._layout import Untranslatable, Value, start, start_tokens
from ._ops import taken
from ._reasons import OTHERS, ROUNDS, SEVERAL, STOPS
from ._torch_calls import CUTS, Call, cuts, read_call
from ._torch_constants import Evaluated
from ._torch_layers import read_layer
from ._torch_tokens import Constants, zeros_only
from ._torch_trace import STOPPED, defaults_of, line_of, refuse_unreadable, traced, without_numbers
from ._torch_written import Written

_MASKED = {
    "MultiheadAttention": ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask"),
    "TransformerEncoder": ("src", "mask", "src_key_padding_mask"),
    "TransformerEncoderLayer": ("src", "src_mask", "src_key_padding_mask"),
}
_BATCH = 7  # examples of the batch that is sent through: a size that axes seldom have


def read_torch(graph: Graph, module: Any, shape: Sequence[int], channels: int) -> Value:
    """The graph of a module, for examples of that shape whose channels are that axis."""
    refuse_unreadable(module)
    shapes = without_numbers(module)
    calls = traced(shapes, shape)
    run = _Run(graph, module, _fx().Interpreter(_fx().GraphModule(shapes, calls)))
    inputs = [node for node in calls.nodes if node.op == "placeholder"]
    tokens = any(run.kind_of(user) == "Embedding" for user in inputs[0].users)
    value = graph.begin(start_tokens(shape) if tokens else start(shape, channels=channels, batched=True))
    dtype = _torch().int64 if tokens else None
    run.known[inputs[0]], run.values[inputs[0]] = _torch().empty(_BATCH, *shape, device="meta", dtype=dtype), value
    run.known.update(zip(inputs[1:], defaults_of(shapes).values(), strict=False))
    for node in calls.nodes:
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
        self.stale: set[Any] = set()  # nodes of whose numbers some were overwritten
        self.several: set[Any] = set()  # nodes that return tuples
        self.parts: dict[Any, tuple[int, list[slice]]] = {}  # nodes that cut: along which axis, and where
        self.constants = Constants(module, interpreter.module, self.known)
        self.numbers = Evaluated(module, interpreter.module, self.known, self.values)
        self.written = Written(graph, module, self.known, self.values, self.numbers)

    def step(self, node: Any) -> None:
        """Run a node on shapes, and read it."""
        at, before = self._at(node), self._versions(node)
        try:
            with warnings.catch_warnings(), _torch().device("meta"):
                warnings.simplefilter("ignore")  # about speed: nothing is computed
                self.known[node] = self._on_shapes(node)
        except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError) as fault:
            raise ArchitectureError(_misfit(at, fault, self._shapes(node))) from None
        inputs = [self.values[one] for one in node.all_input_nodes if one in self.values]
        if self.written.concerns(node, at):
            self.written.step(node, at)
            return
        if not inputs:
            self._refuse_written(at, before)
            self.constants.read(node)
        if not inputs or _is_about_shapes(self.known[node]):
            return
        self.values[node] = self._value(node, at, inputs)
        self._overwrite(node, before)

    def _on_shapes(self, node: Any) -> Any:
        """What a node makes; encoders keep shapes, and would look at the numbers of their masks."""
        masked = len(node.all_input_nodes) > 1 and node.args
        if masked and self.kind_of(node) in ("TransformerEncoder", "TransformerEncoderLayer"):
            return _torch().empty_like(self.known[node.args[0]])
        made = self.interpreter.run_node(node)
        is_constant = node.op == "get_attr" and isinstance(made, _torch().Tensor)
        return made.to("meta") if is_constant else made  # made in forward, without the input

    def _versions(self, node: Any) -> dict[Any, int]:
        """How often the tensors that a node reads were written to."""
        return {one: self.known[one]._version for one in node.all_input_nodes if self._is_tensor(one)}

    def _refuse_written(self, at: At, before: dict[Any, int]) -> None:
        """Raise where a forward changes the numbers of the module."""
        if any(self.known[one]._version != version and one.op == "get_attr" for one, version in before.items()):
            raise ArchitectureError(
                f"{at.place} ({at.what}) writes into a tensor of the module, so that its weights are not those that it "
                "was drawn with. Do that once, before it is translated."
            )

    def _is_tensor(self, node: Any) -> bool:
        return isinstance(self.known.get(node), _torch().Tensor)

    def _overwrite(self, node: Any, before: dict[Any, int]) -> None:
        """Where a call writes into what it reads, whoever reads that later sees the new numbers."""
        for written in [one for one, version in before.items() if self.known[one]._version != version]:
            place, layout = _memory(self.known[written])
            for other in self.values:
                if not self._is_tensor(other) or other is node or _memory(self.known[other])[0] != place:
                    continue
                if _memory(self.known[other])[1] == layout:
                    self.values[other] = self.values[node]
                else:
                    self.stale.add(other)

    def _value(self, node: Any, at: At, inputs: list[Value]) -> Value:
        made = self.known[node]
        if isinstance(made, tuple | list):
            self.several.add(node)
            if at.kind in CUTS and isinstance(node.args[0], _fx().Node) and len(inputs) == 1:
                self.parts[node] = cuts(node.args, node.kwargs, [tuple(one.shape) for one in made])
                return inputs[0]
            made = made[0]
        shape = tuple(made.shape) if isinstance(made, _torch().Tensor) else None
        if at.kind in ("getitem", "getattr") and node.args[0] in self.several:
            return self._picked(node, at, inputs, shape)
        before = len(self.graph.nodes)
        try:
            value = self._read(node, at, inputs, shape or ())
        except Untranslatable as fault:
            del self.graph.nodes[before:]
            return self.graph.refuse(at, inputs, f"{fault}{'' if at.is_layer else line_of(node)}", shape)
        if shape is not None and value.described(_BATCH) != shape:
            del self.graph.nodes[before:]
            reason = f"it makes the shape {shape}, and what is known here makes {value.described(_BATCH)}"
            return self.graph.refuse(at, inputs, reason, shape)
        return value

    def _picked(self, node: Any, at: At, inputs: list[Value], shape: tuple[int, ...] | None) -> Value:
        """One of the parts that a value was cut into. Else the first result is what was read; others are not known."""
        source = node.args[0]
        if node.args[1] in (0, "values") and source not in self.parts:
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
                "last states of several layers are not read (take those at the last time), nor of two directions"
            )
        last = taken(self.graph, at, states, 1 if own.batch_first else 0, -1)
        return replace(last, groups=((), *last.groups))

    def kind_of(self, node: Any) -> str:
        """The name of the class of a layer that is called."""
        return type(self.module.get_submodule(str(node.target))).__name__ if node.op == "call_module" else ""

    def _read(self, node: Any, at: At, inputs: list[Value], shape: tuple[int, ...]) -> Value:
        if node.meta.get(STOPPED):
            raise Untranslatable(STOPS)
        if at.kind in ("to", "type") and node.args[0] in self.values and self._rounds(node):
            raise Untranslatable(ROUNDS)
        if not self.stale.isdisjoint(node.all_input_nodes):
            raise Untranslatable("it reads a tensor of which a part was overwritten in place; write to a copy of it")
        if node.op == "call_module":
            own = self.module.get_submodule(str(node.target))
            layer = self.graph.replacement(at, own)
            if layer is not None:
                return self.graph.replace(at, inputs[0], layer, shape)
            states = at.kind in ("RNN", "LSTM", "GRU") and zeros_only(node.all_input_nodes[1:])
            causal, others = self._mask(node, at.kind, inputs[0])
            itself = at.kind == "MultiheadAttention" and len(node.args) == 3
            alone = not node.args[1:] or causal
            if not (((alone or itself) and not others) or states):
                raise Untranslatable(OTHERS if at.kind in _MASKED else SEVERAL)
            return read_layer(self.graph, at, own, inputs[0], causal=causal)
        args, kwargs = self._arguments(node)
        layer = self.graph.replacement(at)
        if layer is not None:
            return self.graph.replace(at, inputs[0], layer, shape)
        return read_call(self.graph, at, Call(at.kind, args, kwargs, shape, _BATCH))

    def _rounds(self, node: Any) -> bool:
        """Whether numbers become whole numbers, or truth values."""
        return self.known[node.args[0]].is_floating_point() and not self.known[node].is_floating_point()

    def _mask(self, node: Any, kind: str, x: Value) -> tuple[bool, list[Any]]:
        """Whether a layer of attention has a causal mask; what it reads beside the mask and its input."""
        names = _MASKED.get(kind, ())
        given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        mask = given.get("mask", given.get("src_mask", given.get("attn_mask")))
        others = [one for one in node.all_input_nodes if one is not mask and one is not node.all_input_nodes[0]]
        if not names or mask is None:
            if names and given.get("is_causal"):
                raise Untranslatable("is_causal=True is read with the mask that it is a hint of")
            return False, others
        hidden = self.numbers.constant(mask)
        if hidden is None:
            raise Untranslatable("its mask depends on the input; the causal one is read")
        sites = math.prod(x.shape[:-1])
        allowed, added = (~hidden, None) if hidden.dtype == bool else (hidden > NEVER, hidden)
        return is_causal(allowed, sites, added), others

    def _arguments(self, node: Any) -> tuple[Any, Any]:
        return _fx().node.map_arg(node.args, self._look), _fx().node.map_arg(node.kwargs, self._look)

    def _look(self, node: Any) -> Any:
        if node in self.values:
            return self.values[node]
        places = self.constants.places.get(node)
        fixed = self.numbers.fixed(node) if places is None or not places.trained else None
        return fixed or places or self.known[node]

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


def _memory(tensor: Any) -> tuple[int, tuple[Any, ...]]:
    """Where the numbers of a tensor are, and which of them it has."""
    return tensor.untyped_storage()._cdata, (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())


def _is_about_shapes(made: Any) -> bool:
    return not isinstance(made, _torch().Tensor | tuple | list) or isinstance(made, _torch().Size) or made is None


def _misfit(at: At, fault: Exception, shapes: Sequence[tuple[int, ...]]) -> str:
    read = " and ".join(str(shape) for shape in shapes) or "nothing"
    reason = " ".join(str(fault).split()).rstrip(".")
    return (
        f"{at.place} ({at.what}) does not fit: an example comes in with the shape {read}, and PyTorch says: {reason}. "
        "input_shape is the shape of one example as the module reads it, without the batch, such as (3, 32, 32)."
    )
