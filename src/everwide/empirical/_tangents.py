"""The derivatives of a JAX function, leaf by leaf."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ._assemble import lefts, rights
from ._factors import AbstractTangents, Factor, Lookup, Outer, Part, Plain
from ._plan import Plan, Share
from ._sites import Embedding


class JaxTangents(AbstractTangents):
    """A plan at some parameters, which may be traced. Make it with `jax_tangents`."""

    leaves: list[Any]
    plan: Plan = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    outputs: int = eqx.field(static=True)

    def factors(self, x: Any, cotangents: Float[Array, "k outputs"]) -> tuple[Part, ...]:
        one = lambda row: _one_example(self.plan, self.leaves, row, cotangents)
        left, right, plain = jax.vmap(one)(jax.tree.leaves(x))
        shared = dict(zip(_different(self.plan.shares), right, strict=True))  # one array for a weight and its bias
        name = lambda leaf: (self.names[leaf],)
        found = zip(self.plan.shares, left, strict=True)
        structured = [Part(name(share.leaf), _factor(share, a, shared[share.cotangents()])) for share, a in found]
        return (*structured, *(Part(name(leaf), Plain(a)) for leaf, a in zip(self.plan.plain, plain, strict=True)))

    def example_bytes(self, x: Any, k: int) -> int:
        one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), jax.tree.leaves(x))
        cotangents = jax.ShapeDtypeStruct((k, self.outputs), jnp.float32)
        shapes = jax.eval_shape(lambda *args: _one_example(self.plan, *args), self.leaves, one, cotangents)
        taps = sum(k * tap.size * tap.dtype.itemsize for tap in self.plan.taps)
        return taps + sum(a.size * a.dtype.itemsize for a in jax.tree.leaves((shapes, one)))


def jax_tangents(leaves: list[Any], plan: Plan) -> JaxTangents:
    """The tangents of a planned function at the leaves of its parameters."""
    return JaxTangents(leaves=leaves, plan=plan, names=plan.names, outputs=plan.outputs)


def _one_example(plan: Plan, leaves: list[Any], x: list[Any], cotangents: Array) -> tuple[list, list, list]:
    """For one example: `left` of every share, `right` of every share that has its own, and the plain Jacobians."""

    def outputs(zeros: list[Array], plain: list[Array]) -> tuple[Array, list[Any]]:
        changed = dict(zip(plan.plain, plain, strict=True))
        return plan.run([changed.get(i, leaf) for i, leaf in enumerate(leaves)], x, zeros)

    zeros = [jnp.zeros(tap.shape, tap.dtype) for tap in plan.taps]
    y, pull, records = jax.vjp(outputs, zeros, [leaves[i] for i in plan.plain], has_aux=True)
    taps, jacobians = jax.vmap(pull)(cotangents.astype(y.dtype))
    left = [lefts(share.sites, records, taps) for share in plan.shares]
    right = [rights(share.sites, records, taps) for share in _different(plan.shares).values()]
    return left, right, [jacobian.reshape(len(cotangents), -1) for jacobian in jacobians]


def _different(shares: tuple[Share, ...]) -> dict[tuple, Share]:
    """One share for each of the different cotangents."""
    return {share.cotangents(): share for share in shares}


def _factor(share: Share, left: Array, right: Array) -> Factor:
    rule = share.sites[0].rule
    if isinstance(rule, Embedding):
        return Lookup(left, right[:, :, 0], rule.rows)
    dtype = np.promote_types(left.dtype, right.dtype) if jnp.issubdtype(left.dtype, jnp.floating) else right.dtype
    return Outer(left.astype(dtype), right if right.dtype == dtype else right.astype(dtype))
