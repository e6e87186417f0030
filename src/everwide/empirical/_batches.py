"""Examples as trees of arrays: the first axis of all of them counts the examples."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._checks import InputError


@dataclass(frozen=True)
class Batches:
    """Examples on the host, leading axis first; without `x2`, `x1` is paired with itself. Made by `as_batches`."""

    x1: Any
    x2: Any = None

    def sizes(self) -> tuple[int, int]:
        """Examples on both sides."""
        return count(self.x1), count(self.x1 if self.x2 is None else self.x2)


def as_batches(x1: Any, x2: Any) -> Batches:
    """Both batches as trees of host arrays, checked: examples first, the same tree and shapes on both sides."""
    if x2 is None:
        return Batches(_batch(x1, "x1"))
    a, b = _batch(x1, "x1"), _batch(x2, "x2")
    if jax.tree.structure(a) != jax.tree.structure(b):
        raise InputError(f"x1 is a tree {jax.tree.structure(a)} and x2 {jax.tree.structure(b)}: they must agree.")
    one, other = ([leaf.shape[1:] for leaf in jax.tree.leaves(batch)] for batch in (a, b))
    if one != other:
        raise InputError(f"x1 holds examples of shape {one} and x2 of shape {other}: they must agree.")
    dtypes = jax.tree.map(lambda p, q: np.result_type(p.dtype, q.dtype), a, b)
    return Batches(*(jax.tree.map(lambda leaf, dtype: leaf.astype(dtype, copy=False), x, dtypes) for x in (a, b)))


def _batch(x: Any, label: str) -> Any:
    arrays = jax.tree.map(lambda a: _host(a, label), x)
    count(arrays, label)
    return arrays


def _host(a: Any, label: str) -> np.ndarray:
    try:
        array = np.asarray(a)
    except jax.errors.TracerArrayConversionError:
        raise InputError(
            f"{label} is traced by JAX, and this function works on the host, block by block. "
            "Inside jit use everwide.empirical.ntk_block."
        ) from None
    if array.dtype.kind in "OSUMmT":
        raise InputError(f"{label} holds {array.dtype}, expected numbers. Encode text and categories as numbers first.")
    return array


def count(x: Any, label: str = "x") -> int:
    """The number of examples, at least one: the first axis of all leaves."""
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(x)]
    if not shapes:
        raise InputError(f"{label} has no arrays. Pass examples along the first axis.")
    if () in shapes:
        raise InputError(
            f"{label} holds numbers where arrays with one row for each example were expected: lists, tuples and "
            f"dictionaries are trees of arrays. Use numpy.asarray({label})."
        )
    sizes = sorted({shape[0] for shape in shapes})
    if len(sizes) > 1:
        raise InputError(f"The arrays of {label} have {sizes} rows: the first axis of all of them is the examples.")
    if sizes[0] == 0:
        raise InputError(f"{label} is empty. Pass at least one example.")
    return sizes[0]
