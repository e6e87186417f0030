"""Extreme eigenvalues of symmetric operators that are known by their products only."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

Vector = Float[Array, " p"]


class Cycle(NamedTuple):
    """The Ritz pair of largest magnitude after one cycle, and how far its first vector was from an eigenvector."""

    vector: Vector
    value: Float[Array, ""]
    start_value: Float[Array, ""]
    start_residual: Float[Array, ""]


class _Basis(NamedTuple):
    vectors: Float[Array, "k p"]
    diagonal: Float[Array, " k"]
    beside: Float[Array, " k"]


def lanczos_cycle(apply: Callable[[Vector], Vector], start: Vector, length: int) -> Cycle:
    """The best approximation to the eigenvector of largest |eigenvalue| in the Krylov space of a unit vector.

    All vectors are kept orthogonal, twice, so that no eigenvalue appears as a ghost.
    """
    size = min(length, len(start))
    empty = jnp.zeros((size, len(start)), start.dtype)
    numbers = jnp.zeros(size, start.dtype)

    def extend(k: Array, basis: _Basis) -> _Basis:
        vectors, (here, image) = basis.vectors, (basis.vectors[k], apply(basis.vectors[k]))
        diagonal = here @ image
        for _ in range(2):
            image = image - vectors.T @ (vectors @ image)
        length = jnp.linalg.norm(image)
        exhausted = length <= 10 * jnp.finfo(start.dtype).eps * jnp.max(jnp.abs(basis.diagonal.at[k].set(diagonal)))
        following = jnp.where(exhausted, 0, image / jnp.where(exhausted, 1, length))  # 0: the space is invariant
        vectors = vectors.at[k + 1].set(following, mode="drop")
        beside = jnp.where(exhausted, 0, length)
        return _Basis(vectors, basis.diagonal.at[k].set(diagonal), basis.beside.at[k].set(beside))

    basis = lax.fori_loop(0, size, extend, _Basis(empty.at[0].set(start), numbers, numbers))
    beside = jnp.diag(basis.beside[:-1], 1)
    values, combinations = jnp.linalg.eigh(jnp.diag(basis.diagonal) + beside + beside.T)
    best = jnp.argmax(jnp.abs(values))
    vector = combinations[:, best] @ basis.vectors
    return Cycle(vector / jnp.linalg.norm(vector), values[best], basis.diagonal[0], basis.beside[0])
