"""From a model and its data to its tangents; what was found out about a model is remembered."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._checks import InputError
from ..signal import ArchitectureError
from ._factors import AbstractTangents
from ._models import Model, TorchModel
from ._plan import Plan, plan
from ._refusals import refuse_batch_dependence
from ._tangents import jax_tangents
from ._torch import torch_tangents

_REMEMBERED = 8
_plans: dict[Any, Plan] = {}


def tangents_of(model: Model | TorchModel, x: Any) -> AbstractTangents:
    """The derivatives of a model for examples such as those of the batch `x`. Models that mix examples are refused."""
    if isinstance(model, TorchModel):
        return torch_tangents(model, x)
    one = jax.tree.map(lambda a: jnp.asarray(a[0]), x)
    leaves, structure = jax.tree.flatten(model.params)
    key = (model.f, structure, _shapes(leaves), jax.tree.structure(one), _shapes(jax.tree.leaves(one)))
    if key not in _plans:
        refuse_batch_dependence(model, x)
        while len(_plans) >= _REMEMBERED:
            _plans.pop(next(iter(_plans)))
    _plans[key] = _plans.pop(key) if key in _plans else traced(model.f, model.params, one)
    return jax_tangents(leaves, _plans[key])


def _shapes(arrays: list[Any]) -> tuple:
    """What a plan depends on: shapes, dtypes, and whether numbers are 64 bits wide unless somebody says otherwise."""
    return (jnp.result_type(float), *((a.shape, a.dtype) for a in arrays))


def traced(f: Callable[[Any, Any], Any], params: Any, one: Any) -> Plan:
    """The plan of a function of one example."""
    leaves, structure = jax.tree.flatten(params)
    rows, tree = jax.tree.flatten(one)
    names = tuple(jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(params))
    _check_output(jax.eval_shape(f, params, one))
    fn = lambda leaves, rows: jnp.ravel(f(jax.tree.unflatten(structure, leaves), jax.tree.unflatten(tree, rows)))
    found = plan(fn, names, leaves, rows)
    _check_reverse_mode(found, leaves, rows)
    return found


def _check_output(out: Any) -> None:
    """Raise unless a function returns a scalar or a vector of real numbers."""
    expected = "expected a scalar or a vector of real numbers for one example"
    leaves = jax.tree.leaves(out)
    if not isinstance(out, jax.ShapeDtypeStruct):
        kinds = f"{type(out).__name__} with {len(leaves)} arrays"
        raise ArchitectureError(
            f"f returns a {kinds}, {expected}. Choose one of them, or join them: jax.flatten_util.ravel_pytree(out)[0]."
        )
    if not jnp.issubdtype(out.dtype, jnp.floating):
        raise ArchitectureError(f"f returns {out.dtype}, {expected}. Return logits, or real and imaginary parts.")
    if len(out.shape) > 1 or 0 in out.shape:
        raise ArchitectureError(
            f"f returns an array of shape {out.shape}, {expected}. Return jnp.ravel(out); and note that f takes one "
            "example, without a batch axis."
        )


def _check_reverse_mode(found: Plan, leaves: list[Any], rows: list[Any]) -> None:
    """Raise where JAX cannot propagate derivatives backwards."""
    batch = [jax.ShapeDtypeStruct((1, *jnp.shape(row)), jnp.result_type(row)) for row in rows]
    try:
        jax_tangents(leaves, found).example_bytes(batch, 1)
    except ValueError as fault:
        if "Reverse-mode" not in str(fault):
            raise
        raise ArchitectureError(
            "f has a while_loop (or a fori_loop whose number of steps is not static) through which its parameters act: "
            "JAX cannot differentiate it backwards. Use lax.scan, or a fori_loop with static bounds."
        ) from fault


def as_batches(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Both batches as trees of host arrays, checked: examples first, the same tree and shapes on both sides."""
    a, b = _batch(x1, "x1"), None if x2 is None else _batch(x2, "x2")
    if b is None:
        return a, None
    if jax.tree.structure(a) != jax.tree.structure(b):
        raise InputError(f"x1 is a tree {jax.tree.structure(a)} and x2 {jax.tree.structure(b)}: they must agree.")
    one = lambda batch: [leaf.shape[1:] for leaf in jax.tree.leaves(batch)]
    if one(a) != one(b):
        raise InputError(f"x1 holds examples of shape {one(a)} and x2 of shape {one(b)}: they must agree.")
    dtypes = jax.tree.map(lambda p, q: np.result_type(p.dtype, q.dtype), a, b)
    cast = lambda batch: jax.tree.map(lambda leaf, dtype: leaf.astype(dtype, copy=False), batch, dtypes)
    return cast(a), cast(b)


def _batch(x: Any, label: str) -> Any:
    arrays = jax.tree.map(functools.partial(_host, label=label), x)
    leaves = jax.tree.leaves(arrays)
    if not leaves:
        raise InputError(f"{label} has no arrays. Pass examples along the first axis.")
    if any(leaf.ndim == 0 for leaf in leaves):
        raise InputError(
            f"{label} holds numbers where arrays with one row for each example were expected: lists, tuples and "
            f"dictionaries are trees of arrays. Use numpy.asarray({label})."
        )
    sizes = sorted({len(leaf) for leaf in leaves})
    if len(sizes) > 1:
        raise InputError(f"The arrays of {label} have {sizes} rows: the first axis of all of them is the examples.")
    if sizes[0] == 0:
        raise InputError(f"{label} is empty. Pass at least one example.")
    return arrays


def _host(a: Any, label: str) -> Any:
    try:
        found = np.asarray(a)
    except jax.errors.TracerArrayConversionError:
        raise InputError(
            f"{label} is traced by JAX, and this function works on the host, block by block. "
            "Inside jit use everwide.empirical.ntk_block."
        ) from None
    if found.dtype.kind in "OSUMmT":
        raise InputError(f"{label} holds {found.dtype}, expected numbers. Encode text and categories as numbers first.")
    return found
