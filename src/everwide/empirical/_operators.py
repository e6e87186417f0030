"""Jacobians and tangent kernels that are never formed: products with vectors, a few examples at a time."""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import Array, Float, PyTree
from scipy.sparse.linalg import LinearOperator

from .._checks import InputError
from .._engine import budget, count, require
from ._models import Function, Model, as_model
from ._refusals import output_for_one, refuse_batch_dependence


class JacobianOperator(eqx.Module):
    """The Jacobian of all outputs for some examples with respect to the parameters: see `jacobian_operator`."""

    f: Function = eqx.field(static=True)
    params: PyTree
    x: PyTree
    outputs: int = eqx.field(static=True)
    examples: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)  # of the outputs
    bytes_each: int = eqx.field(static=True)  # for each example and vector
    memory: int = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows `examples * outputs`, columns: the number of parameters."""
        return self.examples * self.outputs, sum(leaf.size for leaf in jax.tree.leaves(self.params))

    def jvp(self, tangent: PyTree) -> Float[Array, "*m n k"]:
        """`J t` for a tangent like `params`: `(n, k)`. A leading axis of `m` tangents gives `(m, n, k)`."""
        shapes = [leaf.shape for leaf in jax.tree.leaves(self.params)]
        given = [jnp.shape(leaf) for leaf in jax.tree.leaves(tangent)]
        one, many = given == shapes, [a[1:] for a in given] == shapes and len({a[0] for a in given if a}) == 1
        if jax.tree.structure(tangent) != jax.tree.structure(self.params) or not (one or many):
            raise InputError(
                f"The tangent has leaves of shapes {given}, expected those of the parameters, {shapes}, in the same "
                "tree, or the same with one leading axis for many tangents."
            )
        tangents = jax.tree.map(lambda t, p: jnp.asarray(t, p.dtype), tangent, self.params)
        return _push(self, jax.tree.map(lambda t: t[None], tangents))[0] if one else _push(self, tangents)

    def vjp(self, cotangents: Any) -> PyTree:
        """`J^T c` for cotangents `(n, k)`: like `params`. `(m, n, k)` gives every leaf a leading axis of `m`."""
        c = jnp.asarray(cotangents, self.dtype)
        if c.ndim not in (2, 3) or c.shape[-2:] != (self.examples, self.outputs):
            raise InputError(
                f"The cotangents have shape {c.shape}, expected ({self.examples}, {self.outputs}): examples and "
                "outputs, after one leading axis for many of them."
            )
        out = _pull(self, c if c.ndim == 3 else c[None])
        return out if c.ndim == 3 else jax.tree.map(lambda a: a[0], out)

    def linear_operator(self) -> LinearOperator:
        """For `scipy.sparse.linalg`: parameters as in `jax.tree.leaves(params)`, outputs example by example."""
        leaves, structure = jax.tree.flatten(self.params)
        cuts = np.cumsum([leaf.size for leaf in leaves])[:-1]

        def forward(t: np.ndarray) -> np.ndarray:
            pieces = zip(np.split(t.T, cuts, axis=-1), leaves, strict=True)
            tangents = [jnp.asarray(piece.reshape(-1, *leaf.shape), leaf.dtype) for piece, leaf in pieces]
            return np.asarray(_push(self, jax.tree.unflatten(structure, tangents))).reshape(*t.shape[1:], -1).T

        def backward(c: np.ndarray) -> np.ndarray:
            pulled = _pull(self, jnp.asarray(c.T.reshape(-1, self.examples, self.outputs), self.dtype))
            return np.concatenate([np.asarray(a).reshape(*c.shape[1:], -1) for a in jax.tree.leaves(pulled)], -1).T

        return _scipy(self.shape, self.dtype, forward, backward)

    def _batch(self, params: Any, x: Any) -> Array:
        """`(n, k)` for a batch."""
        return jax.vmap(lambda one: jnp.atleast_1d(self.f(params, one)))(x)

    def _chunks(self, vectors: int) -> int:
        """In how many pieces the examples are taken, for so many vectors at once."""
        fit = max(1, self.memory // max(1, self.bytes_each * (1 + vectors)))
        return math.ceil(self.examples / fit)

    def _vectors(self, wanted: int) -> int:
        """How many vectors of the length of the parameters may be there at once."""
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.params))
        return max(1, min(wanted, self.memory // (2 * size)))


class NtkOperator(eqx.Module):
    """The tangent kernel between two batches of examples, as a linear map: see `ntk_operator`."""

    left: JacobianOperator
    right: JacobianOperator

    @property
    def shape(self) -> tuple[int, int]:
        """`(n1 * k, n2 * k)`."""
        return self.left.shape[0], self.right.shape[0]

    @property
    def T(self) -> "NtkOperator":  # noqa: N802 - as arrays call it
        """The transposed map."""
        return NtkOperator(self.right, self.left)

    def __matmul__(self, v: Any) -> Array:
        """`(n2, k) -> (n1, k)`, or `(n2, k, m) -> (n1, k, m)`."""
        v = jnp.asarray(v, self.right.dtype)
        expected = (self.right.examples, self.right.outputs)
        if v.ndim not in (2, 3) or v.shape[:2] != expected:
            raise InputError(
                f"The kernel acts on arrays of shape {expected} (examples, outputs), or on many in a last axis, got "
                f"{v.shape}. For flat vectors use linear_operator()."
            )
        if v.ndim == 2:
            return _kernel(self, v[None])[0]
        return jnp.moveaxis(_kernel(self, jnp.moveaxis(v, -1, 0)), 0, -1)

    def linear_operator(self) -> LinearOperator:
        """For `scipy.sparse.linalg`: vectors hold the outputs example by example."""
        return _scipy(self.shape, self.left.dtype, self._flat, self.T._flat)

    def _flat(self, v: np.ndarray) -> np.ndarray:
        return np.asarray(self @ v.reshape(self.right.examples, self.right.outputs, -1)).reshape(-1, *v.shape[1:])


def jacobian_operator(f: Any, params: Any, x: Any, *, memory: int | None = None) -> JacobianOperator:
    """The Jacobian of a model for the examples `x`, which is never formed.

    Args:
        f: A function, network or module, as in `as_model`; PyTorch modules have no such operator.
        params: As in `as_model`.
        x: Examples.
        memory: Bytes of the activations and tangents that are held at once (examples are taken in pieces, and so are
            vectors); `None`: half of what is free now.

    Returns:
        A linear map `(n * k, parameters)`: `jvp(tangent)` gives `(n, k)`, `vjp(cotangents)` a tree like `params`, both
        take many vectors at once along a leading axis, and `linear_operator()` is for `scipy.sparse.linalg`. It is a
        pytree: it may be an argument of a function that is compiled.

    >>> import everwide.empirical as emp, jax.numpy as jnp
    >>> op = emp.jacobian_operator(lambda params, x: params @ x, jnp.eye(2), jnp.ones((5, 2)))
    >>> op.shape, op.vjp(jnp.ones((5, 2))).tolist()
    ((10, 4), [[5.0, 5.0], [5.0, 5.0]])
    >>> op.jvp(jnp.ones((2, 2))).shape, op.jvp(jnp.ones((3, 2, 2))).shape
    ((5, 2), (3, 5, 2))

    """
    model = as_model(f, params)
    if not isinstance(model, Model):
        raise NotImplementedError(
            f"There is no operator for {type(model.module).__name__}, a PyTorch module. Use empirical_ntk for its "
            "kernel, per_example_gradients for its gradients, or torch.func.jvp and torch.func.vjp."
        )
    x = jax.tree.map(jnp.asarray, x)
    n, out = count(x), output_of(model, x)
    refuse_batch_dependence(model, x)
    each, have = activation_bytes(model, x), budget(memory)
    require(2 * each, have, "The Jacobian of one example", "Give more memory, or use jax.checkpoint in the model.")
    have = have if memory is not None else 1 << have.bit_length() - 1  # code is compiled for it: few different numbers
    return JacobianOperator(model.f, model.params, x, math.prod(out.shape), n, out.dtype, each, have)


def ntk_operator(f: Any, params: Any, x1: Any, x2: Any = None, *, memory: int | None = None) -> NtkOperator:
    """The tangent kernel of a model as a linear map `K v = J1 (J2^T v)`, which is never formed.

    A product costs one backward pass over `x2` and one forward pass over `x1`.

    Args:
        f: As in `jacobian_operator`.
        params: As in `jacobian_operator`.
        x1: Examples.
        x2: Examples for the columns; `None` pairs `x1` with itself.
        memory: As in `jacobian_operator`.

    Returns:
        A linear map `(n1 * k, n2 * k)`: `op @ v` takes `v` of shape `(n2, k)`, or `(n2, k, m)` for many vectors at
        once, `op.T` is the transposed map, and `linear_operator()` is for `scipy.sparse.linalg`. It is a pytree: it may
        be used inside `jax.jit`.

    >>> import everwide.empirical as emp, jax, jax.numpy as jnp
    >>> op = emp.ntk_operator(lambda params, x: params @ x, jnp.ones(2), jnp.eye(2))
    >>> solution, _ = jax.scipy.sparse.linalg.cg(lambda v: op @ v + v, jnp.ones((2, 1)))
    >>> solution.tolist()
    [[0.5], [0.5]]

    """
    left = jacobian_operator(f, params, x1, memory=memory)
    if x2 is None:
        return NtkOperator(left, left)
    right = jacobian_operator(Model(left.f, left.params), None, x2, memory=memory)
    if left.outputs != right.outputs:
        raise InputError(f"The model has {left.outputs} outputs on x1 and {right.outputs} on x2: they must agree.")
    return NtkOperator(left, right)


@eqx.filter_jit
def _push(op: JacobianOperator, tangents: Any) -> Array:
    """`(m, n, k)`."""
    return _many(op, functools.partial(_push_one, op), tangents)


@eqx.filter_jit
def _pull(op: JacobianOperator, cotangents: Array) -> Any:
    """Every leaf with a leading axis of `m`."""
    return _many(op, functools.partial(_pull_one, op), cotangents)


@eqx.filter_jit
def _kernel(op: NtkOperator, v: Array) -> Array:
    return _many(op.right, lambda c, at_once: _push_one(op.left, _pull_one(op.right, c, at_once), at_once), v)


def _push_one(op: JacobianOperator, tangent: Any, at_once: int) -> Array:
    def piece(x: Any) -> Array:
        return jax.jvp(lambda params: op._batch(params, x), (op.params,), (tangent,))[1]

    chunks = op._chunks(at_once)
    if chunks == 1:
        return piece(op.x)
    return lax.map(piece, in_chunks(op.x, chunks)).reshape(-1, op.outputs)[: op.examples]


def _pull_one(op: JacobianOperator, cotangents: Array, at_once: int) -> Any:
    def piece(x: Any, c: Array) -> Any:
        return jax.vjp(lambda params: op._batch(params, x), op.params)[1](c)[0]

    chunks = op._chunks(at_once)
    if chunks == 1:
        return piece(op.x, cotangents)
    x, c = in_chunks(op.x, chunks), in_chunks(cotangents, chunks)
    kept = jnp.arange(chunks * c.shape[1]).reshape(chunks, -1, 1) < op.examples
    start = jax.tree.map(jnp.zeros_like, op.params)
    return lax.scan(
        lambda total, xc: (jax.tree.map(jnp.add, total, piece(*xc)), None), start, (x, jnp.where(kept, c, 0))
    )[0]


def _many(op: JacobianOperator, one: Callable[..., Any], vectors: Any) -> Any:
    """Map over vectors, a few at a time; what does not depend on the vector is computed once for these."""
    m = jax.tree.leaves(vectors)[0].shape[0]
    at_once = op._vectors(m)
    mapped = functools.partial(one, at_once=at_once)
    return jax.vmap(mapped)(vectors) if m <= at_once else lax.map(mapped, vectors, batch_size=at_once)


def in_chunks(x: Any, chunks: int) -> Any:
    """`(n, ...) -> (chunks, size, ...)`; the last example fills up the last chunk."""
    n = count(x)
    size = math.ceil(n / chunks)
    index = np.minimum(np.arange(chunks * size), n - 1)
    return jax.tree.map(lambda a: a[index].reshape(chunks, size, *a.shape[1:]), x)


def output_of(model: Model, x: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of the output for one example: a scalar or a vector."""
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), x)
    out = output_for_one(model.f, model.params, one)
    if not isinstance(out, jax.ShapeDtypeStruct) or out.ndim > 1 or not jnp.issubdtype(out.dtype, jnp.floating):
        came = f"{out.dtype} of shape {out.shape}" if isinstance(out, jax.ShapeDtypeStruct) else type(out).__name__
        raise InputError(
            f"For one example f returned {came}, expected one array of floats, a scalar or a vector. "
            "Is f written for a batch? Use lambda params, x: f(params, x[None])[0]; for more axes, ravel the output."
        )
    return out


def activation_bytes(model: Model, x: Any) -> int:
    """What the passes of one example write, at most: what two examples write more than one."""

    def written(n: int) -> int:
        batch = jax.tree.map(lambda a: jax.ShapeDtypeStruct((n, *a.shape[1:]), a.dtype), x)
        return _written(jax.make_jaxpr(jax.vmap(model.f, (None, 0)))(model.params, batch).jaxpr)

    return max(1, written(2) - written(1))


def _written(equations: Jaxpr) -> int:
    """Bytes of all results, in loops of all steps."""
    total = 0
    for eqn in equations.eqns:
        held = [p for value in eqn.params.values() for p in (value if isinstance(value, tuple) else (value,))]
        inner = [p.jaxpr if isinstance(p, ClosedJaxpr) else p for p in held if isinstance(p, ClosedJaxpr | Jaxpr)]
        results: list[Any] = [v.aval for v in eqn.outvars]
        own = sum(math.prod(a.shape) * a.dtype.itemsize for a in results)
        total += max(own, eqn.params.get("length", 1) * sum(map(_written, inner)))
    return total


def _scipy(shape: tuple[int, int], dtype: Any, forward: Callable, backward: Callable) -> LinearOperator:
    """From functions of one vector, or of many as columns."""
    products: Any = {"matvec": forward, "matmat": forward, "rmatvec": backward, "rmatmat": backward, "dtype": dtype}
    return LinearOperator(shape, **products)
