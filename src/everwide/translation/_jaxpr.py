"""Modules of JAX, read through the trace of a call. Layers leave marks in it, so that what they compute is not read."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jaxtyping import Array

from ..signal import ArchitectureError
from ._graph import At, Graph
from ._jax_calls import BATCH, UNARY, call_of
from ._layout import Untranslatable, Value
from ._ops import taken
from ._places import require_places
from ._reasons import STOPS

_MARK = "everwide_mark_"
_OVER_SITES, _OVER_WEIGHTS = "_sites", "_weights"  # behind the number of a mark: over what `jax.vmap` runs there
_INLINED = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint")


@dataclass(frozen=True)
class Mark:
    """A layer of a module: its place, the layer, and what reads it."""

    at: At
    layer: Any
    read: Callable[[Graph, At, Any, Value], Value]
    read_masked: Callable[[Graph, At, Any, Value, Any], Value] | None = None  # with a mask
    weights: tuple[Any, ...] = ()  # the numbers of the layer
    whole: bool = False  # it reads all axes that come in: where `jax.vmap` runs over some, it is another layer


def marked(number: int, x: Array, y: Array, weights: Sequence[Any], mask: Any = None) -> Array:
    """`y`, the output of the layer of that number, for `x`; the trace tells, and has its weights and a mask too.

    Axes over which `jax.vmap` runs come first, wherever they were: the others are those that the layer reads.
    """
    beside, count = [*weights, *([] if mask is None else [mask])], len(weights)

    def marking(runs: str) -> Callable[[Array, list[Array], Array], Array]:
        def mark(x: Array, beside: list[Array], y: Array) -> Array:
            return y + jnp.zeros((), y.dtype)  # an output that is an input would be forwarded, past the mark

        def rule(size: int, is_batched: Any, x: Array, beside: list[Array], y: Array) -> tuple[Array, bool]:
            over = _OVER_WEIGHTS if any(is_batched[1][:count]) or runs == _OVER_WEIGHTS else _OVER_SITES
            return marking(over)(x, beside, y), True

        mark.__name__ = f"{_MARK}{number}{runs}"
        moved = custom_vmap(jax.jit(mark))
        moved.def_vmap(rule)
        return moved

    return marking("")(x, beside, y)


def read_call(
    graph: Graph,
    name: str,
    call: Callable[[Array], Any],
    marks: Sequence[Mark],
    shape: tuple[int, ...],
    inputs: tuple[Value, Value | None],
) -> Value:
    """The graph of a call on an array of that shape: a value of numbers, or one of tokens where it takes no other."""
    x, tokens = inputs
    dtype = graph.trained[0].dtype if graph.trained else jnp.float32  # convolutions take one alone
    if tokens is not None and _takes_tokens(call, shape, dtype):
        x, dtype = tokens, jnp.int32
    program = _traced(name, call, jax.ShapeDtypeStruct(shape, dtype), x)
    out = program.out_avals
    if len(out) != 1:
        raise ArchitectureError(
            f"{name} returns {len(out)} arrays, expected one. Wrap it in a module that returns that."
        )
    results = _Walk(graph, marks).run(program.jaxpr, program.consts, [graph.begin(x)])
    if not isinstance(results[0], Value):
        raise ArchitectureError(f"{name} returns numbers that do not depend on its input.")
    return results[0]


def _takes_tokens(call: Callable[[Array], Any], shape: tuple[int, ...], dtype: Any) -> bool:
    """Whether it takes whole numbers, and no others."""
    try:
        jax.eval_shape(call, jax.ShapeDtypeStruct(shape, dtype))
    except (TypeError, ValueError, IndexError):
        return True
    return False


def _traced(name: str, call: Callable[[Array], Any], array: jax.ShapeDtypeStruct, x: Value) -> ClosedJaxpr:
    try:
        return jax.make_jaxpr(call)(array)
    except jax.errors.ConcretizationTypeError as fault:
        raise ArchitectureError(
            f"{name} cannot be read without its data ({type(fault).__name__}). Control flow and conversions that "
            "depend on the values of the input have no one graph: take them out of the call, or decide them in "
            "__init__. The kernel of the module as it is: everwide.empirical_ntk(module, None, x)."
        ) from None
    except ArchitectureError:
        raise
    except (TypeError, ValueError, AssertionError, IndexError, AttributeError) as fault:
        batch = " (examples first)" if x.groups[0] == ("n",) else ""
        raise ArchitectureError(
            f"{name} does not take an array of the shape {array.shape}{batch}: {type(fault).__name__}: "
            f"{' '.join(str(fault).split())[:300].rstrip('.')}. input_shape is the shape of one example as it is read."
        ) from None


class _Walk:
    """Follows values through a trace; whatever does not depend on the input is computed."""

    def __init__(self, graph: Graph, marks: Sequence[Mark]):
        self.graph, self.marks = graph, marks
        self.scope: list[str] = []
        self.stopped: list[Any] = []  # arrays of which gradients were stopped

    def run(self, jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, inputs, strict=True))

        self.graph.learned += [one for one in consts if self._is_parameter(one)]

        def look(var: Any) -> Any:
            return var.val if isinstance(var, Literal) else env[var]

        for eqn in _needed(jaxpr):
            number = _mark_of(eqn)
            read = eqn.invars[:-1] if number is not None else eqn.invars
            results = self._step(eqn, [look(var) for var in read], number)
            env.update(zip(eqn.outvars, results, strict=True))
        return [look(var) for var in jaxpr.outvars]

    def _step(self, eqn: JaxprEqn, operands: list[Any], number: int | None) -> list[Any]:
        values = [one for one in operands if isinstance(one, Value)]
        inner = _inlined(eqn)
        if inner is not None and number is None:
            self.scope.append(str(eqn.params.get("name", "")))
            results = self.run(inner.jaxpr, inner.consts, operands)
            self.scope.pop()
            return results
        if number is not None and not isinstance(operands[0], Value):
            return [self._looked_up(self.marks[number], operands[0])]
        if not values:
            results = eqn.primitive.bind(*operands, **eqn.params)
            results = list(results) if eqn.primitive.multiple_results else [results]
            if eqn.primitive.name == "stop_gradient":
                results = [jnp.array(one, copy=True) for one in results]  # told from what it was by what it is
                self.stopped += results
            elif any(self.graph.is_learned(one) or self._is_scalar(one) for one in operands):
                self.graph.learned += results
            return results
        if eqn.primitive.name == "optimization_barrier":
            return operands
        if eqn.primitive.name == "split":
            return self._split(eqn, operands[0])
        self.graph.learned += [one for one in operands if self._is_scalar(one)]
        outputs: list[Any] = list(eqn.outvars)
        first, *others = [tuple(var.aval.shape) for var in outputs]
        value = self._value(eqn, operands, values, number, first)
        return [value, *(self.graph.refuse(self._at(eqn), values, "", shape) for shape in others)]

    def _is_scalar(self, one: Any) -> bool:
        """Whether a number has the value of a parameter: single ones stand in the trace by their value."""
        return not isinstance(one, Value) and not np.ndim(one) and self._is_parameter(one)

    def _is_parameter(self, one: Any) -> bool:
        """Whether a constant of the trace has the numbers of a parameter."""
        alike = [own for own in self.graph.trained if np.shape(own) == np.shape(one) and own.dtype == one.dtype]
        return any(np.array_equal(np.asarray(own), np.asarray(one)) for own in alike)

    def _looked_up(self, mark: Mark, numbers: Any) -> Any:
        """Rows of a table of vectors that do not depend on the input: learned positions."""
        table = next((one for name, one in self.graph.tables.items() if name.startswith(f"{mark.at.place}.")), None)
        if table is None or not jnp.issubdtype(jnp.asarray(numbers).dtype, jnp.integer):
            raise ArchitectureError(
                f"{mark.at.place} ({mark.at.what}) is called on numbers that do not depend on the input. Only tables "
                "of positions are read so: leave it out, or give it the input."
            )
        require_places(mark.at.place, int(jnp.max(jnp.asarray(numbers))) + 1, len(table))
        rows = jnp.asarray(table)[numbers]
        self.graph.learned.append(rows)
        return rows

    def _split(self, eqn: JaxprEqn, x: Value) -> list[Any]:
        """Parts of one axis."""
        ends = list(itertools.accumulate(int(size) for size in eqn.params["sizes"]))
        at, out, outputs = self._at(eqn), list[Any](), list[Any](eqn.outvars)
        for start, end, var in zip([0, *ends[:-1]], ends, outputs, strict=True):
            try:
                out.append(taken(self.graph, at, x, int(eqn.params["axis"]), slice(start, end)))
            except Untranslatable as fault:
                out.append(self.graph.refuse(at, [x], str(fault), tuple(var.aval.shape)))
        return out

    def _value(
        self, eqn: JaxprEqn, operands: list[Any], values: list[Value], number: int | None, shape: tuple[int, ...]
    ) -> Value:
        at = self._at(eqn) if number is None else self.marks[number].at
        before = len(self.graph.nodes)
        try:
            value = self._read(eqn, operands, values[0], number, at, shape)
        except Untranslatable as fault:
            del self.graph.nodes[before:]
            return self.graph.refuse(at, values if number is None else values[:1], str(fault), shape)
        if value.described(BATCH) != shape:
            del self.graph.nodes[before:]
            reason = f"it makes the shape {shape}, and what is known here makes {value.described(BATCH)}"
            return self.graph.refuse(at, values, reason, shape)
        return value

    def _read(
        self, eqn: JaxprEqn, operands: list[Any], x: Value, number: int | None, at: At, shape: tuple[int, ...]
    ) -> Value:
        mark = None if number is None else self.marks[number]
        layer = self.graph.replacement(at, None if mark is None else mark.layer)
        if layer is not None:
            return self.graph.replace(at, x, layer, shape)
        if mark is not None:
            _require_one(mark, eqn)
            return self._marked(mark, at, x, operands[1:])
        return call_of(self.graph, at, eqn.primitive.name, eqn.params, operands, shape)

    def _marked(self, mark: Mark, at: At, x: Value, beside: list[Any]) -> Value:
        """A layer, whose weights must be those that the module has."""
        count = len(mark.weights)
        for there, own in zip(beside, mark.weights, strict=False):
            if any(there is one for one in self.stopped):
                raise Untranslatable(STOPS)
            if isinstance(there, Value) or not np.array_equal(np.asarray(there), np.asarray(own)):
                raise Untranslatable("its weights are changed where it is called: do that once, before translating it")
        if len(beside) == count:
            return mark.read(self.graph, at, mark.layer, x)
        assert mark.read_masked is not None
        return mark.read_masked(self.graph, at, mark.layer, x, beside[count])

    def _at(self, eqn: JaxprEqn) -> At:
        named = next((name for name in reversed(self.scope) if name and not name.startswith(("_", "<"))), "")
        name = eqn.primitive.name
        return At("", named or name, named if named and name in UNARY else name)


def _mark_of(eqn: JaxprEqn) -> int | None:
    name = _name_of(eqn)
    return int(name[len(_MARK) :].partition("_")[0]) if name.startswith(_MARK) else None


def _name_of(eqn: JaxprEqn) -> str:
    inside = eqn.params["call"].jaxpr.eqns if eqn.primitive.name == "custom_vmap_call" else ()
    return str(inside[0].params.get("name", "")) if len(inside) == 1 else ""


def _require_one(mark: Mark, eqn: JaxprEqn) -> None:
    """Raise where `jax.vmap` makes many layers of one."""
    if _name_of(eqn).endswith(_OVER_WEIGHTS):
        raise Untranslatable("jax.vmap runs over its weights, so that it is many layers: write one for each")
    if mark.whole and _name_of(eqn).endswith(_OVER_SITES):
        raise Untranslatable(
            "jax.vmap runs it over sites, each by itself, and it is read where it sees all of them; LayerNorm is read "
            "either way"
        )


def has_own_call(layer: Any, framework: str) -> bool:
    """Whether a layer is of a class that somebody derived from one of the framework, and computes something else."""
    kind = next(kind for kind in type(layer).__mro__ if "__call__" in vars(kind))
    return kind.__module__.partition(".")[0] != framework


def _inlined(eqn: JaxprEqn) -> ClosedJaxpr | None:
    if eqn.primitive.name not in _INLINED:
        return None
    inner = next(eqn.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in eqn.params)
    return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())


def _needed(jaxpr: Jaxpr) -> list[JaxprEqn]:
    """The equations on which the results depend; of a marked layer its output is not read."""
    wanted = {var for var in jaxpr.outvars if not isinstance(var, Literal)}
    kept = []
    for eqn in reversed(jaxpr.eqns):
        if wanted.isdisjoint(eqn.outvars):
            continue
        kept.append(eqn)
        read = eqn.invars[:-1] if _mark_of(eqn) is not None else eqn.invars
        wanted.update(var for var in read if not isinstance(var, Literal))
    return kept[::-1]
