"""Loops: a parameter that every step uses has more tokens, one that is scanned over has a group for each step."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from ._ledger import Ledger, Value

Walk = Callable[[Any, Sequence[Any], Sequence[Value], Ledger], list[Value]]


def scanned(eqn: JaxprEqn, operands: list[Value], ledger: Ledger, walk: Walk) -> list[Value]:
    """`scan` with its taps as one more input and its records as one more output."""
    params = eqn.params
    consts, carry, length = params["num_consts"], params["num_carry"], params["length"]
    ledger.refuse(operands if length == 0 else operands[consts : consts + carry])
    kept, start, xs = operands[:consts], operands[consts : consts + carry], operands[consts + carry :]
    kept = [Value(value.array, None if value.view is None else value.view.repeated(length)) for value in kept]
    views = [None if value.view is None or length == 0 else value.view.scanned() for value in xs]

    def step(state: Sequence[Any], rows: Sequence[Any], zeros: Sequence[Any] | None) -> tuple[list[Any], Ledger]:
        inner = Ledger(zeros, ledger.unpooled)
        values = [*kept, *map(Value, state), *map(Value, rows, views)]
        found = [inner.settle(value) for value in walk(params["jaxpr"].jaxpr, params["jaxpr"].consts, values, inner)]
        inner.refuse(found)
        return [value.array for value in found], inner

    state = [_array(value.array, var) for value, var in zip(start, eqn.invars[consts:], strict=False)]
    rows, one = [value.array for value in xs], lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype)
    inner = _dry(lambda state, rows: step(state, rows, None)[1], state, [one(a) for a in rows])
    first = len(ledger.taps)
    ledger.taps += [jax.ShapeDtypeStruct((length, *tap.shape), tap.dtype) for tap in inner.taps]
    zeros = None if ledger.zeros is None else list(ledger.zeros[first : len(ledger.taps)])

    def body(state, inputs):
        found, ledger = step(state, *inputs)
        return found[:carry], (found[carry:], ledger.records)

    options = {"length": length, "reverse": params["reverse"], "unroll": params["unroll"]}
    state, (rows, records) = lax.scan(body, state, (rows, zeros), **options)
    ledger.sites += [replace(s, tap=s.tap + first, record=s.record + len(ledger.records)) for s in inner.sites]
    ledger.records += records
    ledger.refused |= inner.refused
    return [Value(array) for array in (*state, *rows)]


def _array(value: Any, var: Any) -> Any:
    """A number that stands in the equations as an array of its dtype."""
    return value if isinstance(value, jax.Array) else jnp.asarray(value, var.aval.dtype)


def _dry(fn: Callable[..., Ledger], *args: Any) -> Ledger:
    """What a step writes down, without running it."""
    found: list[Ledger] = []
    jax.eval_shape(lambda *a: found.append(fn(*a)), *args)
    found[0].records = []  # abstract values must not leave their trace
    return found[0]
