"""Parameters and hyperparameters, the numbers in trees.

Parameters are points of a vector space: which leaves move, how to move them, and what outputs do along them.
Hyperparameters of layers may be traced, and meet arrays without widening them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._checks import InputError
from .signal import ArchitectureError

Hyper = float | Float[Array, ""]
Params = Any
Function = Callable[[Params, Any], Any]  # f(params, x) of one example
Vector = Float[Array, " p"]  # all parameters
Outputs = Float[Array, " outputs"]  # all outputs of a batch


def parameters(params: Params, label: str = "params") -> tuple[Params, Params]:
    """The floating-point arrays of a pytree, and everything else (integers, functions, Python numbers)."""
    moving, rest = eqx.partition(params, _moves)
    leaves = jax.tree.leaves(moving)
    if not leaves:
        raise InputError(
            f"{label} holds no floating-point array, so there is nothing to differentiate by. "
            "Turn Python numbers and integers into arrays: jax.numpy.asarray(value, float)."
        )
    if any(jnp.iscomplexobj(leaf) for leaf in leaves):
        raise InputError(f"{label} holds complex arrays. Pass real and imaginary parts as two arrays.")
    return jax.tree.map(jnp.asarray, moving), rest


def _moves(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def displacement(start: Params, end: Params, labels: tuple[str, str] = ("params", "new_params")) -> Params:
    """`end - start` of two trees of parameters, leaf by leaf, in the dtypes of `start`."""
    require_alike(start, end, labels)
    return jax.tree.map(lambda a, b: b.astype(a.dtype) - a, start, end)


def require_alike(start: Params, end: Params, labels: tuple[str, str]) -> None:
    """Raise unless both trees have the same leaves, of the same shapes."""
    first, second = ({p: jnp.shape(leaf) for p, leaf in named_leaves(tree)} for tree in (start, end))
    expected = f"{labels[1]} must have the structure and the shapes of {labels[0]}"
    for path in sorted(first.keys() ^ second.keys()):
        there, missing = labels if path in first else labels[::-1]
        raise InputError(f"{expected}, but {there} has a floating-point array at {path} and {missing} has none.")
    for path, shape in first.items():
        if second[path] != shape:
            raise InputError(f"{expected}, but at {path} the shapes are {shape} and {second[path]}.")
    if jax.tree.structure(start) != jax.tree.structure(end):
        raise InputError(f"{expected}, but the trees differ: {_shortened(start)} and {_shortened(end)}.")


def named_leaves(tree: Params) -> list[tuple[str, Array]]:
    """Every leaf with its place in the tree, such as `['dense'].weight`."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path) or "the root", leaf) for path, leaf in leaves]


def _shortened(tree: Params) -> str:
    text = str(jax.tree.structure(tree))
    return text if len(text) < 200 else f"{text[:200]}..."


def moved(start: Params, direction: Params, distance: Array) -> Params:
    """`start + distance * direction`."""
    return jax.tree.map(lambda a, d: a + distance.astype(a.dtype) * d, start, direction)


def zero(tree: Params) -> Float[Array, ""]:
    """The scalar 0 in the widest dtype of the tree."""
    return jnp.zeros((), max((leaf.dtype for leaf in jax.tree.leaves(tree)), key=lambda dtype: dtype.itemsize))


def norm(tree: Params) -> Float[Array, ""]:
    """The Euclidean norm over all leaves."""
    wide = zero(tree)
    return jnp.sqrt(sum((jnp.sum(jnp.square(leaf.astype(wide.dtype))) for leaf in jax.tree.leaves(tree)), wide))


def as_vector(tree: Params) -> Vector:
    """All leaves in one vector."""
    dtype = zero(tree).dtype
    return jnp.concatenate([leaf.astype(dtype).reshape(-1) for leaf in jax.tree.leaves(tree)])


def from_vector(vector: Vector, like: Params) -> Params:
    """The inverse of `as_vector`, with the shapes and dtypes of `like`."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])
    parts = jnp.split(vector, ends[:-1])
    shaped = [p.reshape(leaf.shape).astype(leaf.dtype) for p, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def batch_size(x: Any, label: str = "x") -> int:
    """Number of examples along the first axis of every array in `x`."""
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(x)}
    if len(sizes) != 1 or sizes == {()}:
        raise InputError(
            f"{label} must hold arrays with one common first axis, the examples; "
            f"found shapes {[np.shape(leaf) for leaf in jax.tree.leaves(x)]}. One example alone is x[None]."
        )
    return sizes.pop()[0]


def outputs(f: Function, params: Params, x: Any) -> Float[Array, "n *outputs"]:
    """`f` of every example."""
    batch_size(x)
    values = jax.vmap(lambda one: f(params, one))(jax.tree.map(jnp.asarray, x))
    if not (isinstance(values, jax.Array) and jnp.issubdtype(values.dtype, jnp.floating)):
        raise InputError(f"f must return one floating-point array for one example, got {jax.tree.structure(values)}.")
    return values


def vector_function(f: Function, params: Params, x: Any) -> Callable[[Vector], Outputs]:
    """All outputs for a batch as one vector, a function of all parameters as one vector."""
    like, rest = parameters(params)
    return lambda vector: outputs(f, eqx.combine(from_vector(vector, like), rest), x).reshape(-1)


def targets(y: Any, values: Float[Array, "n *outputs"]) -> Float[Array, "n *outputs"]:
    """`y` as an array that can be subtracted from the outputs `values`."""
    given = jnp.asarray(y)
    column = given.ndim + 1 == values.ndim and values.shape[-1] == 1 and given.shape == values.shape[:-1]
    if given.shape != values.shape and not column:
        raise InputError(f"y has shape {given.shape}, and the outputs have shape {values.shape}: they must agree.")
    return given.reshape(values.shape).astype(values.dtype)


class Products(NamedTuple):
    """`Phi` is parameters by outputs; `Psi_a` is the matrix of second derivatives of output `a`."""

    push: Callable[[Vector], Outputs]  # Phi^T v
    pull: Callable[[Outputs], Vector]  # Phi w
    curve: Callable[[Outputs, Vector], Vector]  # sum_a w_a Psi_a v
    curvature: Callable[[Vector], Outputs]  # v^T Psi_a v


def products(f: Function, params: Params, x: Any) -> Products:
    """For a batch `x`, at `params`, with all parameters and all outputs in one vector each."""
    values, here = vector_function(f, params, x), as_vector(parameters(params)[0])

    def push(v: Vector, at: Vector = here) -> Outputs:
        return jax.jvp(values, (at,), (v,))[1]

    def pull(w: Outputs, at: Vector = here) -> Vector:
        return jax.vjp(values, at)[1](w)[0]

    def curve(w: Outputs, v: Vector) -> Vector:
        return jax.jvp(lambda at: pull(w, at), (here,), (v,))[1]

    def curvature(v: Vector) -> Outputs:
        return jax.jvp(lambda at: push(v, at), (here,), (v,))[1]

    return Products(push, pull, curve, curvature)


def name(layer: Any) -> str:
    """How a layer is called in messages."""
    return type(layer).__name__


def positive(layer: Any, field: str, value: Any, *, zero: bool = True) -> None:
    """Raise if a concrete hyperparameter is negative (traced ones are not looked at)."""
    if isinstance(value, int | float) and not (value >= 0 if zero else value > 0):
        bound = "at least 0" if zero else "above 0"
        raise ArchitectureError(f"{name(layer)}({field}={value!r}): {field} must be {bound}. Pass its absolute value.")


def like(value: Any, array: Array) -> Any:
    """A hyperparameter that meets arrays without widening them: Python numbers stay weakly typed."""
    return value if isinstance(value, int | float) else jnp.asarray(value, array.dtype)


def squared(value: Any, array: Array) -> Any:
    """The square of a hyperparameter, taken before it is rounded to the dtype of the array."""
    return value * value if isinstance(value, int | float) else jnp.asarray(value * value, array.dtype)
