"""Walks through the equations of a model, taps the arrays where parameters meet data, and writes down what was seen.

Equations that see no parameter run as they are. A leaf that is used in a way that has no rule is refused: the caller
walks again with that leaf as plain data, and differentiates it as everybody does.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from ..._equations import bind
from . import _pooling as pooling
from ._sites import Arranged, Embedding, Rule, View, product, rule_for, scales, scaling, viewed

SUMS = ("add", "sub", "add_any")


class Pooled(NamedTuple):
    """The sum, after an elementwise function, over all tokens of a result: its shape and the axes."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]


@dataclass(frozen=True)
class Use:
    """A parameter that has just entered a linear map (or, as a bias, has been added to its result).

    - `data`: what it has met; `None` for a bias.
    - `scale`: a number by which the result has been multiplied since.
    - `pooled`, `derivative`: the result went through an elementwise function and was summed (see `_pooling`).
    """

    leaf: int
    rule: Rule
    arranged: Arranged
    data: Any
    scale: Array | None
    pooled: Pooled | None = None
    derivative: Array | None = None

    def times(self, factor: Any) -> "Use":
        """The same, when the result is multiplied by a number."""
        return replace(self, scale=product(self.scale, factor))


@dataclass(frozen=True)
class Value:
    """An array on its way through the model.

    - `view`: it is a view of a parameter.
    - `uses`: parameters whose derivative needs the cotangent of this array, which nobody has tapped yet.
    """

    array: Any
    view: View | None = None
    uses: tuple[Use, ...] = ()


@dataclass(frozen=True)
class Site:
    """A `Use` whose tap has been placed; `record` is the place of its arrays among the records.

    `turned`: the weight is used transposed, as derivatives inside a model do. Then data and cotangent change places,
    which they can where there is one output.
    """

    leaf: int
    rule: Rule
    arranged: Arranged
    pooled: Pooled | None
    tap: int
    record: int
    turned: bool = False

    def cotangent(self) -> tuple:
        """Equal for sites whose cotangents are the same numbers in the same order."""
        own = (
            self.record if self.turned or isinstance(self.rule, Embedding) else None
        )  # its scale goes with the cotangent
        loops = tuple(bool(level.stride) for level in self.arranged.nest)
        return (self.tap, self.rule.layout(), loops, self.pooled, own)


class Record(NamedTuple):
    """The arrays of a `Use`."""

    data: Any
    scale: Array | None
    derivative: Array | None


class Ledger:
    """Taps, sites and records in the order in which they are met.

    A tap is a zero that is added to an array, so that the derivative with respect to it is the array's cotangent.

    - `zeros`: the taps; a walk that only looks passes `None`.
    - `unpooled`: leaves that are also used elsewhere, so that their uses must look alike.
    """

    def __init__(self, zeros: Sequence[Array] | None = None, unpooled: frozenset[int] = frozenset()):
        self.zeros, self.unpooled = zeros, unpooled
        self.taps: list[jax.ShapeDtypeStruct] = []
        self.sites: list[Site] = []
        self.records: list[Record] = []
        self.refused: set[int] = set()

    def refuse(self, values: Iterable[Value]) -> None:
        """The leaves that are seen in `values` are used in a way that has no rule."""
        self.refused |= {value.view.leaf for value in values if value.view is not None}

    def settle(self, value: Value) -> Value:
        """Tap the array, if anybody waits for its cotangent."""
        if not value.uses:
            return value
        array, tap = value.array, len(self.taps)
        self.taps.append(jax.ShapeDtypeStruct(array.shape, array.dtype))
        for use in value.uses:
            self.sites.append(Site(use.leaf, use.rule, use.arranged, use.pooled, tap, len(self.records)))
            self.records.append(Record(use.data, use.scale, use.derivative))
        return Value(array if self.zeros is None else array + self.zeros[tap], value.view)


def look(program: ClosedJaxpr, values: Sequence[Value], ledger: Ledger) -> list[jax.Array]:
    """Walk, and settle everything: for the results of a whole program."""
    settled = [ledger.settle(value) for value in walk(program.jaxpr, program.consts, values, ledger)]
    ledger.refuse(settled)
    return [value.array for value in settled]


def walk(jaxpr: Jaxpr, consts: Sequence[Any], values: Sequence[Value], ledger: Ledger) -> list[Value]:
    """The results of a jaxpr. Results may still wait for their tap: the caller settles them."""
    env: dict[Any, Value] = dict(zip(jaxpr.constvars, map(Value, consts), strict=True))
    env.update(zip(jaxpr.invars, values, strict=True))

    def read(var: Any) -> Value:
        return Value(var.val) if isinstance(var, Literal) else env[var]

    waits, pools = _may_wait(jaxpr), Pools(jaxpr, ledger)
    for number, eqn in enumerate(jaxpr.eqns):
        results = _step(eqn, [read(var) for var in eqn.invars], ledger)
        for var, value in zip(eqn.outvars, results, strict=True):
            value = pools.summed(var, value, lambda v: read(v).array)
            env[var] = value if var in waits else ledger.settle(pools.entered(number, var, value))
    return [read(var) for var in jaxpr.outvars]


class Pools:
    """Values that wait for their tap until they have been summed over their tokens."""

    def __init__(self, jaxpr: Jaxpr, ledger: Ledger):
        self.jaxpr, self.ledger = jaxpr, ledger
        self.waiting: dict[Any, list[tuple[pooling.Pool, tuple[Use, ...]]]] = {}

    def entered(self, number: int, var: Any, value: Value) -> Value:
        """Without its uses, if they can wait for a sum."""
        if not all(_may_pool(use, var.aval.shape, self.ledger) for use in value.uses) or not value.uses:
            return value
        pool = pooling.find(self.jaxpr, number, var, bind)
        if pool is None or not all(_is_over_tokens(use, var.aval.shape, pool.sink) for use in value.uses):
            return value
        self.waiting.setdefault(pool.sink.outvars[0], []).append((pool, value.uses))
        return Value(value.array)

    def summed(self, var: Any, value: Value, read: Any) -> Value:
        """With the uses that have waited for this sum."""
        uses = []
        for pool, waiting in self.waiting.get(var, ()):
            change = pooling.derivative(pool, read, bind)
            pooled = Pooled(pool.start.aval.shape, tuple(pool.sink.params["axes"]))
            uses += [replace(use, pooled=pooled, derivative=change) for use in waiting]
        return self.ledger.settle(Value(value.array, uses=tuple(uses))) if uses else value


def _may_pool(use: Use, shape: tuple[int, ...], ledger: Ledger) -> bool:
    """There is something to gain, and no loop or other use of the leaf is in the way."""
    several = any(shape[i] > 1 for i in use.rule.tokens())
    return several and not use.arranged.nest and use.leaf not in ledger.unpooled


def _is_over_tokens(use: Use, shape: tuple[int, ...], sink: JaxprEqn) -> bool:
    long = {i for i, size in enumerate(shape) if size > 1}
    return long & set(sink.params["axes"]) == long & set(use.rule.tokens())


def _may_wait(jaxpr: Jaxpr) -> set[Any]:
    """Variables that are read once, where the cotangent of what is read is known from that of the result."""
    readers: dict[Any, list[JaxprEqn | None]] = {}
    inside = ((eqn, var) for eqn in jaxpr.eqns for var in eqn.invars)
    for eqn, var in (*inside, *((None, var) for var in jaxpr.outvars)):
        if not isinstance(var, Literal):
            readers.setdefault(var, []).append(eqn)
    return {var for var, eqns in readers.items() if len(eqns) == 1 and _carries(eqns[0], var)}


def _carries(eqn: JaxprEqn | None, var: Any) -> bool:
    """An equation only adds something to `var`, or multiplies it by a number. `None`: it is a result."""
    if eqn is None:
        return True
    if eqn.primitive.name in SUMS:
        return eqn.outvars[0].aval.shape == var.aval.shape  # pyright: ignore[reportAttributeAccessIssue]
    return scales(eqn, eqn.invars.index(var))


def _step(eqn: JaxprEqn, operands: list[Value], ledger: Ledger) -> list[Value]:
    name = eqn.primitive.name
    if any(value.uses for value in operands):
        return [_sum(eqn, operands, ledger) if name in SUMS else _scaled(eqn, operands, ledger)]
    seen = [i for i, value in enumerate(operands) if value.view is not None]
    if seen and name in pooling.CALLS:
        return walk(*pooling.called(eqn), operands, ledger)
    if seen and name == "scan":
        return _scanned(eqn, operands, ledger)
    results = bind(eqn, [value.array for value in operands])
    if len(seen) == 1 and name != "stop_gradient":
        return _enter(eqn, operands, seen[0], results, ledger)
    if name != "stop_gradient":
        ledger.refuse(operands)
    return [Value(array) for array in results]


def _enter(eqn: JaxprEqn, operands: list[Value], position: int, results: list[Any], ledger: Ledger) -> list[Value]:
    """One operand is a view: so is the result, or the view meets data, or it is refused."""
    view = operands[position].view
    assert view is not None
    views = viewed(eqn, [value.array for value in operands], position, view)
    if views is not None:
        return [Value(array, v) for array, v in zip(results, views, strict=True)]
    rule = rule_for(eqn, position, view)
    arranged = None if rule is None else rule.weight(view.where)._replace(nest=view.nest)
    if rule is None or arranged is None or not arranged.injective():
        ledger.refuse(operands)
        return [Value(array) for array in results]
    return [Value(results[0], uses=(Use(view.leaf, rule, arranged, operands[1 - position].array, view.scale),))]


def _scaled(eqn: JaxprEqn, operands: list[Value], ledger: Ledger) -> Value:
    """A tap that waits behind a multiplication by a number; that number may have one of its own."""
    position = max(range(len(operands)), key=lambda i: (bool(operands[i].uses), operands[i].array.size))
    waiting = operands[position]
    ledger.refuse(operands)
    others = [value if i == position else ledger.settle(value) for i, value in enumerate(operands)]
    arrays = [value.array for value in others]
    factor = scaling(eqn, arrays, position)  # `_carries` has looked
    return Value(bind(eqn, arrays)[0], uses=tuple(use.times(factor) for use in waiting.uses))


def _sum(eqn: JaxprEqn, operands: list[Value], ledger: Ledger) -> Value:
    """A tap that waits behind a sum: with data, with another one that waits, or with a bias."""
    array = bind(eqn, [value.array for value in operands])[0]
    uses: list[Use] = []
    for value, negative in zip(operands, (False, eqn.primitive.name == "sub"), strict=True):
        added = value.uses if value.view is None else _bias(value.view, operands, array.shape)
        if value.view is not None and not added:
            ledger.refuse([value])
        uses += [use.times(np.asarray(-1, array.dtype)) if negative else use for use in added]
    return Value(array, uses=tuple(uses))


def _bias(view: View, operands: list[Value], shape: tuple[int, ...]) -> tuple[Use, ...]:
    """A view as the bias of one of the linear maps that wait."""
    where = np.broadcast_to(view.where, shape)
    for host in (use for value in operands for use in value.uses):
        arranged = host.rule.bias(where)
        same_loops = [bool(level.stride) for level in view.nest] == [bool(level.stride) for level in host.arranged.nest]
        if arranged is not None and arranged.injective() and same_loops:
            return (Use(view.leaf, host.rule, arranged._replace(nest=view.nest), None, view.scale),)
    return ()


def _scanned(eqn: JaxprEqn, operands: list[Value], ledger: Ledger) -> list[Value]:
    """A loop, with its taps as one more input and its records as one more output.

    A parameter that every step uses has more tokens, one that is scanned over has a group for each step.
    """
    params = eqn.params
    consts, carry, length = params["num_consts"], params["num_carry"], params["length"]
    ledger.refuse(operands if length == 0 else operands[consts : consts + carry])
    kept, start, xs = operands[:consts], operands[consts : consts + carry], operands[consts + carry :]
    kept = [Value(value.array, None if value.view is None else value.view.repeated(length)) for value in kept]
    views = [None if value.view is None or length == 0 else value.view.scanned() for value in xs]

    def step(state: Sequence[Any], rows: Sequence[Any], zeros: Sequence[Any] | None) -> tuple[list[Any], Ledger]:
        inner = Ledger(zeros, ledger.unpooled)
        values = [*kept, *map(Value, state), *map(Value, rows, views)]
        return look(params["jaxpr"], values, inner), inner

    # a number may stand in the equations: as an array of its dtype
    pairs: Any = zip(start, eqn.invars[consts : consts + carry], strict=True)
    state = [jnp.asarray(value.array, var.aval.dtype) for value, var in pairs]
    rows = [value.array for value in xs]
    inner = dry(lambda state, rows: step(state, [_first(a) for a in rows], None)[1], state, rows)
    first = len(ledger.taps)
    ledger.taps += [jax.ShapeDtypeStruct((length, *tap.shape), tap.dtype) for tap in inner.taps]
    zeros = None if ledger.zeros is None else list(ledger.zeros[first : len(ledger.taps)])

    def body(state, inputs):
        results, inner = step(state, *inputs)
        return results[:carry], (results[carry:], inner.records)

    options = {"length": length, "reverse": params["reverse"], "unroll": params["unroll"]}
    state, (rows, records) = lax.scan(body, state, (rows, zeros), **options)
    ledger.sites += [replace(s, tap=s.tap + first, record=s.record + len(ledger.records)) for s in inner.sites]
    ledger.records += records
    ledger.refused |= inner.refused
    return [Value(array) for array in (*state, *rows)]


def _first(a: Array) -> Array:
    """One row, such as those of `a`, of which there may be none."""
    return a[0] if len(a) else jnp.zeros(a.shape[1:], a.dtype)


def dry(fn: Callable[..., Ledger], *args: Any) -> Ledger:
    """What `fn` writes down, without running it."""
    written: list[Ledger] = []
    jax.eval_shape(lambda *a: written.append(fn(*a)), *args)
    written[0].records = []  # abstract values must not leave their trace
    return written[0]


def alike(tree: Any) -> Any:
    """Inside `jax.shard_map`, arrays that all vary over the axes of the mesh over which any of them does.

    Else a derivative with respect to one that does not vary would be summed over the devices.
    """
    axes = frozenset().union(*(_axes(a) for a in jax.tree.leaves(tree)))
    return jax.tree.map(lambda a: _varying(a, axes - _axes(a)), tree)


def _axes(a: Any) -> frozenset[Any]:
    kind = jax.typeof(a)
    own = getattr(kind, "manual_axis_type", None)  # JAX before 0.9 calls it `vma`
    return getattr(kind, "vma", frozenset()) if own is None else own.varying


def _varying(a: Any, axes: frozenset[Any]) -> Any:
    if not axes:
        return a
    newer, older = (getattr(lax, name, None) for name in ("pcast", "pvary"))  # JAX before 0.9 has the older one only
    return newer(a, tuple(axes), to="varying") if newer is not None else older(a, tuple(axes))  # pyright: ignore[reportOptionalCall]
