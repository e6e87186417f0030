"""What PyTorch can say of a module before it is read: its calls, on tensors without numbers."""

import copy
import importlib
import inspect
import operator
import os
import re
from collections.abc import Sequence
from typing import Any

from ..signal import ArchitectureError

STOPPED = "everwide_stopped"  # in the meta of a node: gradients were off when it was called
DRAWN = "everwide_drawn"  # in the meta of a node: forward made it without its input, and drew random numbers


def _torch() -> Any:
    importlib.import_module("torch.fx")
    import torch  # whoever brings a module has loaded it

    return torch


def refuse_unreadable(module: Any) -> None:
    """Raise where weights have no shapes yet, or where layers do more than their classes say."""
    lazy = [name for name, value in module.named_parameters() if _torch().nn.parameter.is_lazy(value)]
    if lazy:
        raise ArchitectureError(
            f"{type(module).__name__} is lazy: {lazy[0]} has no shape yet. Call the module once on a batch, "
            "module(torch.zeros(2, *input_shape)), and then translate it."
        )
    for name, layer in module.named_modules():
        hooked = layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer)
        if hooked and (layer is module or _torch().fx.Tracer().is_leaf_module(layer, name)):
            raise ArchitectureError(
                f"{name or 'The module'} ({type(layer).__name__}) has forward hooks, or a forward of its own (as by "
                "torch.nn.utils.weight_norm, spectral_norm and prune): they may change what it computes, and are not "
                "read. Remove them (hook.remove(), torch.nn.utils.remove_weight_norm) before it is translated."
            )


def without_numbers(module: Any) -> Any:
    """A copy whose tensors have shapes only: nothing large is copied, and nothing that runs changes the module."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        empty = _torch().empty_like(parameter, device="meta")
        memo[id(parameter)] = _torch().nn.Parameter(empty, requires_grad=parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = _torch().empty_like(buffer, device="meta")
    try:
        return copy.deepcopy(module, memo)
    except Exception as fault:  # whatever a module holds
        raise ArchitectureError(
            f"{type(module).__name__} cannot be copied ({type(fault).__name__}: {_sentence(fault)}), and a copy "
            "without numbers is read. Take out of it what copy.deepcopy does not take."
        ) from None


def _sentence(fault: Exception) -> str:
    return " ".join(str(fault).split()).rstrip(".")


def defaults_of(module: Any) -> dict[str, Any]:
    """Of all arguments but the first."""
    given = list(inspect.signature(module.forward).parameters.values())[1:]
    return {one.name: one.default for one in given if one.default is not inspect.Parameter.empty}


def traced(module: Any, shape: Sequence[int]) -> Any:
    """The calls of a module's forward for examples of that shape, which must not depend on values."""
    given = list(inspect.signature(module.forward).parameters.values())
    needed = [one.name for one in given[1:] if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    if needed:
        raise ArchitectureError(
            f"{type(module).__name__}.forward needs {', '.join(needed)} beside its input. Wrap it in a module that "
            "takes one tensor."
        )
    decided: list[bool] = []
    while True:
        try:
            return _trace(module, decided)
        except _Undecided as asked:
            answer = _decision(module, asked.calls, tuple(shape))
            if answer is None:
                raise ArchitectureError(_no_graph(module, asked)) from None
            decided.append(answer)
        except Exception as fault:  # whatever a forward does with a proxy
            raise ArchitectureError(_no_graph(module, fault)) from None


def _trace(module: Any, decided: Sequence[bool]) -> Any:
    before = _torch().get_rng_state()
    calls = _tracer(decided).trace(module, concrete_args=defaults_of(module) or None)
    drew = not _torch().equal(before, _torch().get_rng_state())
    for node in calls.nodes:
        node.meta[DRAWN] = drew and node.op == "get_attr" and str(node.target).startswith("_tensor_constant")
    return calls


def _no_graph(module: Any, fault: Exception) -> str:
    return (
        f"{type(module).__name__}.forward cannot be read without its data ({type(fault).__name__.lstrip('_')}: "
        f"{_sentence(fault)}). Control flow, len() and conversions that depend on the values of the input, or on the "
        "number of examples, have no one graph: take them out of forward, or decide them in __init__. The kernel of "
        "the module as it is: everwide.empirical_ntk(module, None, x)."
    )


class _Undecided(Exception):  # noqa: N818 - it is caught, and answered
    """A condition in a forward; `calls` compute it."""

    def __init__(self, calls: Any):
        self.calls = calls

    def __str__(self) -> str:
        return "a condition on the values of a tensor"


def _decision(module: Any, calls: Any, shape: tuple[int, ...]) -> bool | None:
    """What a condition is for examples of that shape, if it depends on nothing else."""
    torch = _torch()
    for dtype in (None, torch.int64):  # numbers, or tokens
        answers = []
        for batch in (7, 5):
            x = torch.empty(batch, *shape, device="meta", dtype=dtype)
            try:
                with torch.device("meta"):
                    run = torch.fx.Interpreter(torch.fx.GraphModule(module, calls))
                    answers.append(run.run(x, *defaults_of(module).values()))
            except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
                break
        if len(answers) == 2 and all(isinstance(one, bool) for one in answers) and answers[0] == answers[1]:
            return answers[0]
    return None


def _tracer(decided: Sequence[bool]) -> Any:
    """One that follows buffers, knows earlier decisions, and remembers where gradients are switched off."""
    tracer, enabled = _torch().fx.Tracer(), _torch().is_grad_enabled
    tracer.proxy_buffer_attributes = tracer.record_stack_traces = True
    make, before, answers = tracer.create_node, enabled(), iter(decided)

    def create_node(*args: Any, **kwargs: Any) -> Any:
        node = make(*args, **kwargs)
        node.meta[STOPPED] = before and not enabled()
        return node

    def to_bool(condition: Any) -> bool:
        for answer in answers:
            return answer
        calls, copies = _torch().fx.Graph(), dict[Any, Any]()
        calls.graph_copy(tracer.graph, copies)
        calls.output(copies[condition.node])
        raise _Undecided(calls)

    def add_in_place(one: Any, other: Any) -> Any:
        return tracer.create_proxy("call_function", operator.iadd, (one, other), {})

    kind = type("Proxy", (_torch().fx.Proxy,), {"__iadd__": add_in_place})  # torch.fx would make a new tensor of x += y
    tracer.create_node, tracer.to_bool, tracer.proxy = create_node, to_bool, lambda node: kind(node, tracer)
    return tracer


def line_of(node: Any) -> str:
    """Where a call stands in the code of the module, in brackets; nothing where that is not known."""
    frames = re.findall(r'File "([^"]+)", line (\d+)', node.stack_trace or "")
    inner = (os.path.dirname(_torch().__file__), os.path.dirname(os.path.dirname(__file__)))
    own = [
        (os.path.basename(name), line)
        for name, line in frames
        if not name.startswith(inner) and "site-packages" not in name
    ]
    return f" ({own[-1][0]}, line {own[-1][1]})" if own else ""
