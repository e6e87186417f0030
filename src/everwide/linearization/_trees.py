"""Parameters as points of a vector space: which leaves move, and how to move them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import InputError

Params = Any
Function = Callable[[Params, Any], Any]  # f(params, x) of one example


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
    found = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path) or "the root", leaf) for path, leaf in found]


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


def as_vector(tree: Params) -> Float[Array, " p"]:
    """All leaves in one vector."""
    dtype = zero(tree).dtype
    return jnp.concatenate([leaf.astype(dtype).reshape(-1) for leaf in jax.tree.leaves(tree)])


def from_vector(vector: Float[Array, " p"], like: Params) -> Params:
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
    found = jax.vmap(lambda one: f(params, one))(jax.tree.map(jnp.asarray, x))
    if not (isinstance(found, jax.Array) and jnp.issubdtype(found.dtype, jnp.floating)):
        raise InputError(f"f must return one floating-point array for one example, got {jax.tree.structure(found)}.")
    return found


def vector_function(f: Function, params: Params, x: Any) -> Callable[[Float[Array, " p"]], Float[Array, " outputs"]]:
    """All outputs for a batch as one vector, a function of all parameters as one vector."""
    like, rest = parameters(params)
    return lambda vector: outputs(f, eqx.combine(from_vector(vector, like), rest), x).reshape(-1)


def targets(y: Any, found: Float[Array, "n *outputs"]) -> Float[Array, "n *outputs"]:
    """`y` as an array that can be subtracted from the outputs `found`."""
    given = jnp.asarray(y)
    column = given.ndim + 1 == found.ndim and found.shape[-1] == 1 and given.shape == found.shape[:-1]
    if given.shape != found.shape and not column:
        raise InputError(f"y has shape {given.shape}, and the outputs have shape {found.shape}: they must agree.")
    return given.reshape(found.shape).astype(found.dtype)
