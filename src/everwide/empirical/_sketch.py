"""Tangent features: few numbers of each example whose inner products are the tangent kernel, on average.

A layer's Jacobian is a product of what came in and what comes back: its projection is the product of two small ones,
so that no Jacobian is formed (Pham and Pagh 2013, "Fast and scalable polynomial kernels via explicit feature maps").
"""

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from .._checks import InputError, whole
from .._engine import as_batches, budget, count, require, trusted_filter_jit, trusted_jit
from ._factors import Factor, Lookup, Outer, Part, Plain, multiplied_out
from ._gradients import Projection
from ._models import TorchModel, as_model
from ._ntk import dtype_of, tangents_of
from ._operators import output_of
from ._torch import PlanError, torch_tangents
from ._trace import JaxTangents, Plan

_LARGEST = 1024  # examples at a time
_OUTPUTS = 1 << 31  # which key draws the signs of outputs: no model has so many parts
_ROOM = 1 << 28  # bytes of factors and their projections that are there at a time


def tangent_features(
    f: Any,
    params: Any,
    x: Any,
    key: Array,
    dim: int,
    *,
    outputs: str = "full",
    weights: Any = None,
    last: bool = False,
    memory: int | None = None,
) -> Float[np.ndarray, "n *k dim"]:
    """Random projections of the Jacobians of single examples: features whose kernel is the tangent kernel, on average.

    `E[sum_s p[i, a, s] p[j, b, s]]` is `empirical_ntk[i, j, a, b]`. The same `key` and `dim` give the same projection,
    whatever the examples are, so that a pool can be projected in parts.

    Args:
        f: A function, network or module, as in `as_model`.
        params: As in `as_model`.
        x: Examples.
        key: A JAX key.
        dim: Numbers that are kept.
        outputs: `"full"`: features of every output, `(n, k, dim)`. `"trace"`: one set whose kernel is the mean over the
            outputs on average, `(n, dim)`.
        weights: `(n, k)`: the features of `weights[i] @ f(x[i])` instead, `(n, dim)`, such as gradients of a loss.
        last: Only the weights of the last layer, and its bias.
        memory: Bytes of what is held besides the result; `None`: a quarter of a gigabyte, or half of what is free.

    Returns:
        The features, on the host.

    >>> import everwide.empirical as emp, jax, jax.numpy as jnp
    >>> f = lambda params, x: jnp.tanh(x @ params["w"]) @ params["v"]
    >>> params = {"w": jnp.ones((3, 5)), "v": jnp.ones((5, 2))}
    >>> emp.tangent_features(f, params, jnp.eye(3), jax.random.key(0), dim=16).shape
    (3, 2, 16)
    >>> emp.tangent_features(f, params, jnp.eye(3), jax.random.key(0), dim=16, outputs="trace").shape
    (3, 16)

    """
    batch, model = as_batches(x, None).x1, as_model(f, params)
    whole(dim, "dim")
    if outputs not in ("full", "trace"):
        raise InputError(f"outputs={outputs!r}: expected 'full' or 'trace'.")
    dtype = dtype_of(model)
    shares = None if weights is None else np.asarray(weights, dtype)

    def run(tangents: Any) -> np.ndarray:
        return _in_pieces(tangents, batch, (key, dim, outputs == "trace", last), shares, memory)

    with jax.enable_x64(True) if dtype == np.float64 else contextlib.nullcontext():
        try:
            return run(tangents_of(model, batch))
        except PlanError:  # what this PyTorch module calls depends on the data
            return run(torch_tangents(model, batch, plain_only=True))  # pyright: ignore[reportArgumentType]


def evaluate(f: Any, params: Any, x: Any, *, memory: int | None = None) -> Float[np.ndarray, "n k"]:
    """The outputs of a model for many examples, in pieces.

    Args:
        f: A function, network or module, as in `as_model`.
        params: As in `as_model`.
        x: Examples.
        memory: Bytes of what is held besides the result; `None`: a quarter of a gigabyte, or half of what is free.

    Returns:
        `(n, k)`, on the host; one column where an output is a number.

    >>> import everwide.empirical as emp, jax.numpy as jnp
    >>> emp.evaluate(lambda params, x: params @ x, jnp.ones(3), jnp.eye(3)).ravel().tolist()
    [1.0, 1.0, 1.0]

    """
    batch, model = as_batches(x, None).x1, as_model(f, params)
    size = _size(8 * sum(math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(batch)), memory)
    if isinstance(model, TorchModel):
        call: Callable[[Any], Any] = torch_tangents(model, batch).predict
    else:
        output_of(model, jax.tree.map(lambda a: jnp.asarray(a[:1]), batch))  # floats, or a sentence
        call = functools.partial(_outputs_of(model.f), model.params)
    pieces = [np.asarray(call(some))[:kept] for some, kept in _cuts(batch, size)]
    return np.concatenate([piece.reshape(len(piece), -1) for piece in pieces])


@functools.lru_cache(32)
def _outputs_of(f: Any) -> Any:
    return jax.jit(jax.vmap(f, (None, 0)))


def _in_pieces(tangents: Any, x: Any, how: tuple[Array, int, bool, bool], weights: Any, memory: int | None) -> Any:
    key, dim, trace, last = how
    n, k = count(x), tangents.outputs
    if weights is not None and weights.shape != (n, k):
        raise InputError(f"weights have shape {weights.shape}, expected ({n}, {k}): examples and outputs.")
    cotangents, pieces = jnp.eye(k, dtype=jnp.float32), []
    size = _size(_bytes(tangents, x, cotangents, dim), memory)
    for start, (some, kept) in zip(range(0, n, size), _cuts(x, size), strict=True):
        if isinstance(tangents, JaxTangents):
            features = _compiled(tangents.plan, dim, last)(tangents.leaves, jax.tree.leaves(some), cotangents, key)
        else:
            features = _sketched_jit(tangents.factors(some, cotangents), key, dim, last)
        if weights is not None:
            shares = np.zeros((len(features), k), weights.dtype)
            shares[:kept] = weights[start : start + kept]
            features = jnp.einsum("nks,nk->ns", features, jnp.asarray(shares, features.dtype))
        elif trace:
            signs = jr.rademacher(jr.fold_in(key, _OUTPUTS), (k, dim), features.dtype) / math.sqrt(k)
            features = jnp.einsum("nks,ks->ns", features, signs)
        pieces.append(np.asarray(features)[:kept])
    return np.concatenate(pieces)


def _bytes(tangents: Any, x: Any, cotangents: Array, dim: int) -> int:
    """Of one example, while its factors are made and projected, or multiplied out."""
    if isinstance(tangents, JaxTangents):
        return _planned_bytes(tangents.plan, dim)
    parts = tangents.factors(jax.tree.map(lambda a: jnp.asarray(a[:1]), x), cotangents)
    return tangents.example_bytes(len(cotangents)) + 8 * sum(_numbers(part.factor, dim) for part in parts)


@functools.lru_cache(32)
def _planned_bytes(plan: Plan, dim: int) -> int:
    leaves, one = plan.shapes()
    rows = [jax.ShapeDtypeStruct((1, *a.shape), a.dtype) for a in one]
    cotangents = jax.ShapeDtypeStruct((plan.outputs, plan.outputs), jnp.float32)
    parts = eqx.filter_eval_shape(
        lambda leaves, *some: JaxTangents(leaves, plan).factors(*some), leaves, rows, cotangents
    )
    made = JaxTangents([], plan).example_bytes(plan.outputs)
    return made + 8 * sum(_numbers(part.factor, dim) for part in parts)


def _numbers(factor: Factor, dim: int) -> int:
    k, tokens = factor.jacobian.shape[1] if isinstance(factor, Plain) else factor.right.shape[1], 1
    if (isinstance(factor, Outer) and _in_factors(factor, dim)) or isinstance(factor, Lookup):
        tokens = math.prod(factor.right.shape[2:-1])
        return (k + 1) * tokens * dim
    return k * (factor.size() + dim)


def _size(each: int, memory: int | None) -> int:
    """Examples at a time, a power of two: few sizes are compiled."""
    have = min(budget(None), _ROOM) if memory is None else memory
    require(each, have, "The derivatives of one example", "Give more memory.")
    return min(_LARGEST, 1 << (have // each).bit_length() - 1)


def _cuts(x: Any, size: int) -> Any:
    """Pieces of one size, of which so many examples are new: a ragged end repeats its last one."""
    n = count(x)
    size = min(size, 1 << (n - 1).bit_length()) if n > 1 else 1
    for start in range(0, n, size):
        index = np.minimum(np.arange(start, start + size), n - 1)
        yield jax.tree.map(lambda a, index=index: jnp.asarray(a[index]), x), min(size, n - start)


@functools.lru_cache(32)
def _compiled(plan: Plan, dim: int, last: bool) -> Any:
    return trusted_jit(lambda leaves, x, cot, key: _sketched(JaxTangents(leaves, plan).factors(x, cot), key, dim, last))


def _sketched(parts: tuple[Part, ...], key: Array, dim: int, last: bool) -> Float[Array, "n k dim"]:
    chosen = _last_layer(parts) if last else dict(enumerate(parts))
    if not chosen:
        raise InputError("No parameter of the model is used, so that it has no tangent features.")
    features = [_sketch(part.factor, jr.fold_in(key, i), dim) for i, part in chosen.items()]
    dtype = jnp.result_type(*{feature.dtype for feature in features})
    return functools.reduce(jnp.add, (feature.astype(dtype) for feature in features)) / math.sqrt(dim)


_sketched_jit = trusted_filter_jit(_sketched)


def _last_layer(parts: tuple[Part, ...]) -> dict[int, Part]:
    """The last weight that multiplies data and has the width of the outputs, with what shares its cotangents."""
    outer = [
        p.factor for p in parts if isinstance(p.factor, Outer) and p.factor.right.shape[-1] == p.factor.right.shape[1]
    ]
    weights = [factor for factor in outer if factor.left.shape[-1] > 1] or outer
    if not weights:
        raise InputError("The model has no last layer that multiplies features by weights. Use all of its parameters.")
    right = weights[-1].right
    return {i: p for i, p in enumerate(parts) if isinstance(p.factor, Outer) and p.factor.right is right}


def _sketch(factor: Factor, key: Array, dim: int) -> Float[Array, "n k dim"]:
    """Of one part of the Jacobian, times the root of `dim`."""
    if isinstance(factor, Outer) and _in_factors(factor, dim):
        groups, inputs, outputs = factor.left.shape[1], factor.left.shape[3], factor.right.shape[4]
        first, second = jr.split(key)
        left = jnp.einsum("ngti,gis->ngts", factor.left, _signs(first, (groups, inputs, dim), factor.left))
        right = jnp.einsum("nkgto,gos->nkgts", factor.right, _signs(second, (groups, outputs, dim), factor.right))
        return jnp.einsum("ngts,nkgts->nks", left, right)
    if isinstance(factor, Lookup):
        first, second = jr.split(key)
        table = _signs(first, (factor.rows, dim), factor.right)
        left = jnp.where(factor.indices[..., None] >= 0, table[factor.indices], 0)
        right = factor.right @ _signs(second, (factor.right.shape[-1], dim), factor.right)
        return jnp.einsum("nts,nkts->nks", left, right)
    jacobian = factor.jacobian if isinstance(factor, Plain) else multiplied_out(factor)
    flat = jacobian.reshape(-1, jacobian.shape[-1])
    return Projection(jr.rademacher, dim).leaf(flat, key).reshape(*jacobian.shape[:2], dim)


def _in_factors(factor: Outer, dim: int) -> bool:
    """Whether two small projections cost less than one of the product."""
    (_, groups, tokens, inputs), (_, k, _, _, outputs) = factor.left.shape, factor.right.shape
    apart = tokens * (inputs + k * (outputs + 1)) * dim
    return apart * groups <= k * groups * inputs * outputs * (tokens + dim)


def _signs(key: Array, shape: tuple[int, ...], like: Array) -> Array:
    return jr.rademacher(key, shape, like.dtype)
