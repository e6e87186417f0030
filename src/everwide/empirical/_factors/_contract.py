"""Factors of a Jacobian, and how two of them make a kernel."""

import abc
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Inexact, Integer


class Outer(eqx.Module):
    """Weights that multiply data: `J[n, a, g] = sum over t of left[n, g, t] (x) right[n, a, g, t]`.

    `left` is what came in, `right` is the cotangent of what came out. Tokens are the places where the same weights are
    used (pixels, time steps, words); groups have weights of their own, so that the Jacobian is a block for each.
    A dense layer has one group and one token. A bias is one input that is always 1.

    The Jacobian `c` of complex parameters `w` says that an output changes by the real part of `c dw`. With `real_part`,
    they are two real parameters each, and the kernel is the real part of `c c'^H`.
    """

    left: Inexact[Array, "n groups tokens inputs"]
    right: Inexact[Array, "n k groups tokens outputs"]
    real_part: bool = eqx.field(static=True, default=False)

    def size(self) -> int:
        """Number of parameters."""
        return self.left.shape[1] * self.left.shape[3] * self.right.shape[4]


class Lookup(eqx.Module):
    """Rows of a table that are looked up: `J[n, a, row] = sum of right[n, a, t] over the t with indices[n, t] == row`.

    A negative index is no row at all. `real_part`: as in `Outer`.
    """

    indices: Integer[Array, "n tokens"]
    right: Inexact[Array, "n k tokens outputs"]
    rows: int = eqx.field(static=True)
    real_part: bool = eqx.field(static=True, default=False)

    def size(self) -> int:
        """Number of parameters."""
        return self.rows * self.right.shape[3]


class Plain(eqx.Module):
    """The Jacobian itself, of parameters with no structure that helps."""

    jacobian: Inexact[Array, "n k size"]

    def size(self) -> int:
        """Number of parameters."""
        return self.jacobian.shape[2]


Factor = Outer | Lookup | Plain


class Part(eqx.Module):
    """What some parameters add to the Jacobian. The parts of a model add up: their parameters are disjoint.

    `names` are the leaves that `factor` speaks of. A leaf may be cut into several parts.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    factor: Factor


class AbstractTangents(eqx.Module):
    """The derivatives of a model at some parameters: where factors come from.

    - `names`: one path for each parameter leaf, such as `"['layers'][0]['weight']"`.
    - `outputs`: length of the output for one example (1 where it is a scalar).
    """

    names: eqx.AbstractVar[tuple[str, ...]]
    outputs: eqx.AbstractVar[int]

    @abc.abstractmethod
    def factors(self, x: Any, cotangents: Float[Array, "k outputs"]) -> tuple[Part, ...]:
        """The Jacobians of `cotangents @ f(params, x[i])` for a batch of examples, leading axis first.

        Parts whose `right` is one and the same array (a weight and its bias) share work. Leaves without a part, and
        those that are not floating point, have no derivative.
        """

    @abc.abstractmethod
    def example_bytes(self, k: int) -> int:
        """Bytes that `factors` needs for each example, results included, with `k` cotangents."""


_UNROLLED = 4  # groups; more of them are a loop, so that their tiles need not exist at once
_NARROW = 16  # outputs of a group
_FEW, _CACHED = 256, 1 << 19  # a long product of few rows is summed in stretches of so many numbers, for the caches

_einsum = functools.partial(jnp.einsum, precision=lax.Precision.HIGHEST, optimize="optimal")


def all_outputs(a: Factor, b: Factor) -> Array:
    """`K[n, k, m, l] = <J1[n, k], J2[m, l]>`."""
    if right_of(a).shape[1] == right_of(b).shape[1] == 1:
        return summed_outputs(a, b)[:, None, :, None]
    match a, b:
        case Plain(), Plain():
            return _rows(a.jacobian, b.jacobian)
        case Lookup(), Lookup():
            return _pairs(_same_row(a, b), a.right, b.right)
        case Outer(), Outer():
            if a.left.shape[2] == 1 and a.left.shape[1] > 1 and a.right.shape[-1] <= _NARROW:
                inner = _einsum("ngti,mgti->nmg", a.left, b.left)
                return _einsum("nmg,nkgto,mlgto->nkml", inner, a.right, b.right)
            return _over_groups(_outer_pairs, a, b)
    raise _mismatch(a, b)


def summed_outputs(a: Factor, b: Factor) -> Array:
    """`K[n, m] = sum over k of <J1[n, k], J2[m, k]>`."""
    match a, b:
        case Plain(), Plain():
            return _long(a.jacobian, b.jacobian)
        case Lookup(), Lookup():
            return _sum(_same_row(a, b), a.right, b.right)
        case Outer(), Outer():
            return _outer_summed(a, b)
    raise _mismatch(a, b)


def equal_outputs(a: Factor, b: Factor) -> Array:
    """`K[n, m, k] = <J1[n, k], J2[m, k]>`."""

    def one(right1: Array, right2: Array) -> Array:
        alone = (eqx.tree_at(right_of, f, right[:, None]) for f, right in ((a, right1), (b, right2)))
        return summed_outputs(*alone)

    return jax.vmap(one, in_axes=1, out_axes=2)(right_of(a), right_of(b))


def right_of(factor: Factor) -> Any:  # an array, or what `equinox.tree_at` puts in its place
    """What has an axis of outputs, `(n, k, ...)`: the cotangents, or the Jacobian itself."""
    return factor.jacobian if isinstance(factor, Plain) else factor.right


def _rows(a: Array, b: Array) -> Array:
    """`(n, k, m, l)`, the inner products of everything behind the first two axes."""
    flat = [x.reshape(x.shape[0] * x.shape[1], -1) for x in (a, b)]
    return _product(*flat).reshape(*a.shape[:2], *b.shape[:2])


def _long(a: Array, b: Array) -> Array:
    """`(n, m)`, the inner products of everything behind the first axis."""
    return _product(a.reshape(len(a), -1), b.reshape(len(b), -1))


def _product(a: Array, b: Array) -> Array:
    """`a @ b.T`. As a product of two matrices and nothing else, it is spared a transposed copy."""
    dot = functools.partial(
        lax.dot_general, dimension_numbers=(((1,), (1,)), ((), ())), precision=lax.Precision.HIGHEST
    )
    rows = max(len(a), len(b))
    length = _CACHED // rows
    stretches = a.shape[1] // length
    if rows > _FEW or stretches < 2:
        return dot(a, b)

    def add(i: Array, total: Array) -> Array:
        return total + dot(*(lax.dynamic_slice_in_dim(x, i * length, length, axis=1) for x in (a, b)))

    rest = dot(a[:, stretches * length :], b[:, stretches * length :])
    return lax.fori_loop(0, stretches, add, rest)


def _outer_summed(a: Outer, b: Outer) -> Array:
    groups, tokens = a.left.shape[1:3]
    if groups == tokens == 1:
        return _long(a.left, b.left) * _long(a.right, b.right)
    if tokens == 1:
        return (_einsum("ngti,mgti->gnm", a.left, b.left) * _einsum("nkgto,mkgto->gnm", a.right, b.right)).sum(0)
    return _over_groups(lambda u1, v1, u2, v2: _sum(_einsum("nti,msi->ntms", u1, u2), v1, v2), a, b)


def _outer_pairs(u1: Array, v1: Array, u2: Array, v2: Array) -> Array:
    """One group."""
    if u1.shape[1] == 1:
        return _long(u1, u2)[:, None, :, None] * _rows(v1, v2)
    return _pairs(_einsum("nti,msi->ntms", u1, u2), v1, v2)


def _pairs(inner: Array, v1: Array, v2: Array) -> Array:
    return _einsum("ntms,nkto,mlso->nkml", inner, v1, v2)


def _sum(inner: Array, v1: Array, v2: Array) -> Array:
    return (inner * _einsum("nkto,mkso->ntms", v1, v2)).sum((1, 3))


def _same_row(a: Lookup, b: Lookup) -> Array:
    i, j = a.indices[:, :, None, None], b.indices[None, None]
    return ((i == j) & (i >= 0)).astype(a.right.dtype)


def _over_groups(fn: Callable[..., Array], a: Outer, b: Outer) -> Array:
    """The sum of `fn(left1, right1, left2, right2)` over the groups."""
    groups = a.left.shape[1]
    if groups <= _UNROLLED:
        parts = ((a.left[:, g], a.right[:, :, g], b.left[:, g], b.right[:, :, g]) for g in range(groups))
        return functools.reduce(jnp.add, (fn(*part) for part in parts))
    stacked = [jnp.moveaxis(array, axis, 0) for array, axis in ((a.left, 1), (a.right, 2), (b.left, 1), (b.right, 2))]
    shape = jax.eval_shape(fn, *(array[0] for array in stacked))
    zero = jnp.zeros(shape.shape, shape.dtype)
    return lax.scan(lambda total, part: (total + fn(*part), None), zero, stacked)[0]


def _mismatch(a: Factor, b: Factor) -> TypeError:
    return TypeError(f"{type(a).__name__} and {type(b).__name__} are factors of different parameters.")
