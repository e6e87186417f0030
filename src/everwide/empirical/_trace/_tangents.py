"""The derivatives of a JAX function, leaf by leaf.

How they are computed is a `Plan`, decided once for each model and shape of the data.
"""

import functools
import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr
from jaxtyping import Float

from ...signal import ArchitectureError
from .._factors import AbstractTangents, Factor, Lookup, Outer, Part, Plain, two_reals
from .._refusals import output_for_one
from ._sites import Embedding, Level, whole
from ._walk import Ledger, Record, Site, Value, alike, dry, look


@dataclass(frozen=True)
class Share:
    """Sites of one leaf that use the same entries in the same way: their tokens are one long list.

    `alone`: the cotangents are not shared with other leaves.
    """

    leaf: int
    sites: tuple[Site, ...]
    alone: bool = False

    def cotangents(self) -> tuple:
        """Equal for shares whose cotangents are the same numbers in the same order."""
        return (*((self.key(),) if self.alone else ()), *(site.cotangent() for site in self.sites))

    def key(self) -> tuple:
        """Which entries of which leaf, and in which order: equal where Jacobians of two models can be multiplied."""
        first = self.sites[0]
        return (self.leaf, isinstance(first.rule, Embedding), first.arranged.signature())


@dataclass(frozen=True, eq=False)
class Plan:
    """The equations of a model for one example, and what to do for each parameter leaf.

    - `shares`: what is known as a sum of outer products.
    - `plain`: the leaves that are differentiated as they are.
    - `taps`: the zeros that the walk adds. `unpooled`: as in `Ledger`.
    - `holomorphic`: complex parameters stay complex, and the outputs are the real parts of what the model gives.
    """

    equations: ClosedJaxpr
    names: tuple[str, ...]
    outputs: int
    shares: tuple[Share, ...]
    plain: tuple[int, ...]
    unpooled: frozenset[int]
    taps: tuple[jax.ShapeDtypeStruct, ...]
    holomorphic: bool = False

    def shapes(self) -> tuple[list[jax.ShapeDtypeStruct], list[jax.ShapeDtypeStruct]]:
        """Of the leaves, and of one example."""
        avals: list[Any] = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in self.equations.in_avals]
        return avals[: len(self.names)], avals[len(self.names) :]

    def run(self, leaves: list[Any], x: list[Any], zeros: list[Any]) -> tuple[jax.Array, list[Any]]:
        """The output for one example, and what the walk has recorded."""
        ledger = Ledger(zeros, self.unpooled)
        (y,) = look(self.equations, _start(leaves, x, self.plain), ledger)
        return y, ledger.records


def _start(leaves: list[Any], x: list[Any], plain: Container[int]) -> list[Value]:
    trained = [i not in plain and jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) for i, leaf in enumerate(leaves)]
    views = [whole(i, tuple(jnp.shape(leaf))) if trained[i] else None for i, leaf in enumerate(leaves)]
    return [*map(Value, leaves, views), *map(Value, x)]


def plan(
    fn: Callable[..., jax.Array], names: tuple[str, ...], leaves: list[Any], x: list[Any], holomorphic: bool
) -> Plan:
    """Trace `fn(leaves, x)`, the vector of outputs for one example, and walk until no leaf is refused."""
    equations = jax.make_jaxpr(fn)(leaves, x)
    return _walked(equations, names, leaves, x, holomorphic, frozenset(), frozenset())


def _walked(
    equations: ClosedJaxpr,
    names: tuple[str, ...],
    leaves: list[Any],
    x: list[Any],
    holomorphic: bool,
    plain: frozenset[int],
    unpooled: frozenset[int],
) -> Plan:
    """A plan in which those leaves, and others as need be, are plain or not pooled."""
    outputs = equations.out_avals[0].shape[0]

    def looked(leaves: list[Any], x: list[Any]) -> Ledger:
        ledger = Ledger(None, unpooled)
        look(equations, _start(leaves, x, plain), ledger)
        return ledger

    while True:
        ledger = dry(looked, leaves, x)
        mixed = {s.leaf for s in ledger.sites if s.pooled} & {s.leaf for s in ledger.sites if not s.pooled}
        shares, refused = _shares(ledger, turns=outputs == 1)
        if mixed:
            unpooled |= mixed
        elif refused:
            plain |= refused
        else:
            break
    kept = tuple(shares), tuple(sorted(plain)), unpooled, tuple(ledger.taps)
    return Plan(equations, names, outputs, *kept, holomorphic)


def _shares(ledger: Ledger, turns: bool) -> tuple[list[Share], set[int]]:
    """Sites by what they show; a leaf whose sites overlap without being equal, or turned, is refused."""
    refused = set(ledger.refused)
    sites_of: dict[int, dict[Any, list[Site]]] = {}
    for site in ledger.sites:
        kinds = sites_of.setdefault(site.leaf, {})
        start, groups, inputs, outputs = site.arranged.signature()
        lookup = isinstance(site.rule, Embedding)
        key, other = (lookup, start, groups, inputs, outputs), (lookup, start, groups, outputs, inputs)
        turned = turns and not lookup and not site.pooled and key not in kinds and other in kinds
        kinds.setdefault(other if turned else key, []).append(replace(site, turned=turned))
    for leaf, kinds in sites_of.items():
        shown = [sites[0].arranged.everywhere() for sites in kinds.values()]
        pairs = ((a, b) for i, a in enumerate(shown) for b in shown[:i])
        if any(np.shares_memory(a, b) for a, b in pairs):
            refused.add(leaf)
    shares = [Share(leaf, tuple(sites)) for leaf, kinds in sites_of.items() for sites in kinds.values()]
    return shares, refused


class JaxTangents(AbstractTangents):
    """A plan at some parameters, which may be traced."""

    leaves: list[Any]
    plan: Plan = eqx.field(static=True)

    def __init__(self, leaves: list[Any], plan: Plan):
        self.leaves, self.plan = leaves, plan

    @property
    def names(self) -> tuple[str, ...]:
        return self.plan.names

    @property
    def outputs(self) -> int:
        return self.plan.outputs

    def factors(self, x: Any, cotangents: Float[Array, "k outputs"]) -> tuple[Part, ...]:
        each = jax.vmap(lambda row: _one_example(self.plan, self.leaves, row, cotangents))
        left, right, plain = each(jax.tree.leaves(x))
        shared = dict(zip(_different(self.plan.shares), right, strict=True))  # one array for a weight and its bias
        pairs = zip(self.plan.shares, left, strict=True)
        outer = [Part((self.names[s.leaf],), self._factor(s, a, shared[s.cotangents()])) for s, a in pairs]
        rest = zip(self.plan.plain, plain, strict=True)
        return (*outer, *(Part((self.names[leaf],), Plain(self._plain(a))) for leaf, a in rest))

    def _factor(self, share: Share, left: Array, right: Array) -> Factor:
        rule, has_complex = share.sites[0].rule, jnp.iscomplexobj(self.leaves[share.leaf])
        real_part = has_complex and not self.plan.holomorphic
        if isinstance(rule, Embedding):
            return Lookup(left, right[:, :, 0] if has_complex else right[:, :, 0].real, rule.rows, real_part)
        if not has_complex:
            left, right = _real(left, right)
        known = jnp.issubdtype(left.dtype, jnp.inexact)
        dtype = np.promote_types(left.dtype, right.dtype) if known else right.dtype
        return Outer(left.astype(dtype), right if right.dtype == dtype else right.astype(dtype), real_part)

    def _plain(self, jacobian: Array) -> Array:
        return two_reals(jacobian) if jnp.iscomplexobj(jacobian) and not self.plan.holomorphic else jacobian

    def example_bytes(self, k: int) -> int:
        leaves, one = self.plan.shapes()
        cotangents = jax.ShapeDtypeStruct((k, self.outputs), jnp.float32)
        made = jax.eval_shape(lambda *args: _one_example(self.plan, *args), leaves, one, cotangents)
        taps = sum(k * tap.size * tap.dtype.itemsize for tap in self.plan.taps)
        return taps + sum(a.size * a.dtype.itemsize for a in jax.tree.leaves((made, one)))


def traced(f: Callable[[Any, Any], Any], params: Any, one: Any, holomorphic: bool = False) -> JaxTangents:
    """The tangents of a function of one example such as `one`.

    Complex outputs are twice as many real ones, the real parts first; of a holomorphic function, only these: with the
    derivatives of a real part, those of the function are known.
    """
    leaves, structure = jax.tree.flatten(params)
    rows, tree = jax.tree.flatten(one)
    names = tuple(jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(params))
    _check_output(output_for_one(f, params, one))

    def flat(leaves: list[Any], rows: list[Any]) -> Array:
        y = jnp.ravel(f(jax.tree.unflatten(structure, leaves), jax.tree.unflatten(tree, rows)))
        if not jnp.iscomplexobj(y):
            return y
        return y.real if holomorphic else jnp.concatenate([y.real, y.imag])

    tangents = JaxTangents(leaves, plan(flat, names, leaves, rows, holomorphic))
    try:
        cotangents = jnp.zeros((1, tangents.outputs), jnp.float32)
        jax.eval_shape(lambda *args: _one_example(tangents.plan, *args), leaves, rows, cotangents)
    except ValueError as fault:
        if "Reverse-mode" not in str(fault):
            raise
        raise ArchitectureError(
            "f has a while_loop (or a fori_loop whose number of steps is not static) through which its parameters act: "
            "JAX cannot differentiate it backwards. Use lax.scan, or a fori_loop with static bounds."
        ) from fault
    return tangents


def paired(a: Plan, b: Plan) -> tuple[Plan, Plan]:
    """Two functions of the same parameters with parts that correspond; what only one of them uses is left out."""
    plain = frozenset[int]()
    while True:
        plans = [_again(plan, plain) for plan in (a, b)]
        keys = [[share.key() for share in plan.shares] for plan in plans]
        used = [{key[0] for key in some} for some in keys]
        common = set(keys[0]) & set(keys[1])
        differ = {key[0] for some in keys for key in some if key not in common} & used[0] & used[1]
        refused = plain.union(*(plan.plain for plan in plans), differ)
        if refused == plain:
            break
        plain = refused
    order = {key: i for i, key in enumerate(keys[0]) if key in common}
    kept = [sorted((s for s in plan.shares if s.key() in order), key=lambda s: order[s.key()]) for plan in plans]
    alone = [tuple(replace(share, alone=True) for share in some) for some in kept]
    return replace(plans[0], shares=alone[0]), replace(plans[1], shares=alone[1])


def _again(plan: Plan, plain: frozenset[int]) -> Plan:
    """The same equations, with these leaves plain and no leaf pooled."""
    every = frozenset(range(len(plan.names)))
    return _walked(plan.equations, plan.names, *plan.shapes(), plan.holomorphic, plain, every)


def _check_output(out: Any) -> None:
    """Raise unless a function returns a scalar or a vector of real or complex numbers."""
    expected = "expected a scalar or a vector of real or complex numbers for one example"
    if not isinstance(out, jax.ShapeDtypeStruct):
        kinds = f"{type(out).__name__} with {len(jax.tree.leaves(out))} arrays"
        raise ArchitectureError(
            f"f returns a {kinds}, {expected}. Choose one of them, or join them: jax.flatten_util.ravel_pytree(out)[0]."
        )
    if not jnp.issubdtype(out.dtype, jnp.inexact):
        raise ArchitectureError(f"f returns {out.dtype}, {expected}. Return logits, or probabilities.")
    if len(out.shape) > 1 or 0 in out.shape:
        raise ArchitectureError(
            f"f returns an array of shape {out.shape}, {expected}. Return jnp.ravel(out); and note that f takes one "
            "example, without a batch axis."
        )


def _one_example(plan: Plan, leaves: list[Any], x: list[Any], cotangents: Array) -> tuple[list, list, list]:
    """For one example: `left` of every share, `right` of every share that has its own, and the plain Jacobians."""

    def outputs(zeros: list[Array], plain: list[Array]) -> tuple[Array, list[Any]]:
        changed = dict(zip(plan.plain, plain, strict=True))
        return plan.run([changed.get(i, leaf) for i, leaf in enumerate(leaves)], x, zeros)

    zeros, *_ = alike(([jnp.zeros(tap.shape, tap.dtype) for tap in plan.taps], leaves, x))
    y, pull, records = jax.vjp(outputs, zeros, [leaves[i] for i in plan.plain], has_aux=True)
    turned = any(site.turned for share in plan.shares for site in share.sites)
    wanted = jnp.ones((1, 1), y.dtype) if turned else cotangents.astype(y.dtype)
    taps, jacobians = jax.vmap(pull)(alike((wanted, y))[0])
    left = [_lefts(share.sites, records, taps) for share in plan.shares]
    right = [_rights(share.sites, records, taps) for share in _different(plan.shares).values()]
    plain = [jacobian.reshape(len(wanted), -1) for jacobian in jacobians]
    if turned:  # there is one output: its cotangents are numbers
        right, plain = ([_multiples(cotangents, a) for a in some] for some in (right, plain))
    return left, right, plain


def _multiples(cotangents: Array, a: Array) -> Array:
    """`(k, ...)`, from what belongs to one output, with its cotangents `(k, 1)`."""
    return cotangents.astype(a.dtype).reshape(-1, *(1,) * (a.ndim - 1)) * a


def _different(shares: tuple[Share, ...]) -> dict[tuple, Share]:
    """One share for each of the different cotangents."""
    return {share.cotangents(): share for share in shares}


def _real(left: Array, right: Array) -> tuple[Array, Array]:
    """The real part of the sum of their products: that of the imaginary parts, with the other sign, are more tokens."""
    if not jnp.iscomplexobj(left) or not jnp.iscomplexobj(right):
        return left.real, right.real
    return jnp.concatenate([left.real, -left.imag], 2), jnp.concatenate([right.real, right.imag], 3)


def _rights(sites: Sequence[Site], records: Sequence[Record], taps: Sequence[Array]) -> Array:
    """The cotangents at all sites of a share, `(k, groups, tokens, outputs)`; the data, where it is turned."""

    def one(site: Site) -> Array:
        record, tap = records[site.record], taps[site.tap]
        if site.turned:
            return _left(site, record, tap[0])[None]
        return jax.vmap(functools.partial(_right, site, record.scale))(tap)

    return _joined([one(site) for site in sites], axis=2)


def _lefts(sites: Sequence[Site], records: Sequence[Record], taps: Sequence[Array]) -> Array:
    """What came in at all sites of a share, `(groups, tokens, inputs)`, or the indices `(tokens,)`."""
    if isinstance(sites[0].rule, Embedding):
        each = (_in_every_step(site.rule.left, site.arranged.nest)(records[site.record].data) for site in sites)
        return _joined([indices.reshape(-1) for indices in each], axis=0)

    def one(site: Site) -> Array:
        record, tap = records[site.record], taps[site.tap][0]
        return _right(site, None, tap) if site.turned else _left(site, record, tap)

    return _joined([one(site) for site in sites], axis=1)


def _right(site: Site, scale: Array | None, tap: Array) -> Array:
    nest, rule = site.arranged.nest, site.rule
    if site.pooled is not None:
        everywhere = jnp.broadcast_to(jnp.expand_dims(tap, site.pooled.axes), site.pooled.shape)
        return rule.right(everywhere)[:, 0].reshape(-1, 1, 1)
    if isinstance(rule, Embedding) and scale is not None:  # indices cannot be scaled
        return _folded(lambda tap, scale: rule.right(tap) * scale.astype(tap.dtype), nest, tap, scale)
    return _folded(rule.right, nest, tap)


def _left(site: Site, record: Record, tap: Array) -> Array:
    rule = site.rule

    def one(data: Array | None, scale: Array | None, derivative: Array | None, tap: Array) -> Array:
        if data is None:  # a bias: one input that is always 1
            result = tap if derivative is None else derivative
            left = jnp.ones((*rule.right(result).shape[:2], 1), tap.dtype)
        else:
            left = rule.left(data)
        left = left if scale is None else left * scale.astype(left.dtype)
        if derivative is None:
            return left
        summed = jnp.einsum("gti,gto->goi", left, rule.right(derivative).astype(left.dtype), precision="highest")
        return summed.reshape(-1, 1, left.shape[-1])

    arrays = (None if array is None else jnp.asarray(array) for array in record)  # constants of a trace are others
    return _folded(one, site.arranged.nest, *arrays, tap)


def _in_every_step(fn: Callable[..., Array], nest: tuple[Level, ...]) -> Callable[..., Array]:
    for _ in nest:
        fn = jax.vmap(fn)
    return fn


def _folded(fn: Callable[..., Array], nest: tuple[Level, ...], *arrays: Array | None) -> Array:
    """Apply `fn` in every step of the loops; steps with weights of their own are groups, the others are tokens."""
    depth = len(nest)
    groups = [i for i, level in enumerate(nest) if level.stride]
    tokens = [i for i, level in enumerate(nest) if not level.stride]
    moved = _in_every_step(fn, nest)(*arrays).transpose(*groups, depth, *tokens, depth + 1, depth + 2)
    sizes = moved.shape[: len(groups) + 1], moved.shape[len(groups) + 1 : -1]
    return moved.reshape(*map(math.prod, sizes), moved.shape[-1])


def _joined(parts: list[Array], axis: int) -> Array:
    """One after the other; a single part is not copied."""
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis)
