"""Lanczos: what products with a symmetric matrix alone say about its eigenvalues."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import lax
from jaxtyping import Array, Float

_INVARIANT = 1e-13  # of the largest entry: below, or below 10 units of rounding, the Krylov space is invariant


class Measure(NamedTuple):
    """Eigenvalues, descending, and the share of the squared length of a vector that lies along each."""

    values: Float[np.ndarray, " k"]
    weights: Float[np.ndarray, " k"]


class Krylov(NamedTuple):
    """A matrix in an orthonormal basis of a Krylov space, where it is tridiagonal.

    `vectors`: the basis, in rows; those beyond an invariant space are 0. `diagonal` and `beside` it. `size`: the length
    of the vector it began with.
    """

    vectors: Float[Array, "k n"]
    diagonal: Float[Array, " k"]
    beside: Float[Array, " k"]
    size: Float[Array, ""]

    def extreme(self) -> tuple[Float[Array, ""], Float[Array, " n"]]:
        """The Ritz value of largest magnitude and its unit vector, in JAX."""
        beside = jnp.diag(self.beside[:-1], 1)
        values, combinations = jnp.linalg.eigh(jnp.diag(self.diagonal) + beside + beside.T)
        best = jnp.argmax(jnp.abs(values))
        vector = combinations[:, best] @ self.vectors
        return values[best], vector / jnp.linalg.norm(vector)

    def measure(self) -> Measure:
        """Gauss quadrature of the spectral measure of the first vector, on the host; Golub and Meurant (2010).

        Exact from the rank of the matrix on.
        """
        diagonal, beside = np.asarray(self.diagonal, np.float64), np.asarray(self.beside, np.float64)
        k = int(np.argmax(beside[:-1] == 0)) + 1 if (beside[:-1] == 0).any() else len(diagonal)
        values, vectors = scipy.linalg.eigh_tridiagonal(diagonal[:k], beside[: k - 1])
        return Measure(np.maximum(values[::-1], 0.0), float(self.size) ** 2 * vectors[0, ::-1] ** 2)


def lanczos(kernel: Any, start: Any, length: int) -> Krylov:
    """Steps of the Lanczos process with full reorthogonalization, twice, so that no eigenvalue appears as a ghost.

    Args:
        kernel: a symmetric matrix, or a JAX function that multiplies a vector with it.
        start: the vector to begin with, `(n,)`. A numpy array works in float64, a JAX array in its own precision, and
            inside `jax.jit`.
        length: steps, at most `n`.

    Returns:
        `vectors`, `diagonal`, `beside` of the tridiagonal matrix; `measure()`: eigenvalues and the share of `start`
        along each; `extreme()`: the eigenvalue of largest magnitude and its vector.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.lanczos(np.diag([1.0, 3.0, 5.0]), np.array([1.0, 2.0, 0.0]), 3).measure()
    Measure(values=array([3., 1.]), weights=array([4., 1.]))

    """
    if isinstance(start, np.ndarray):
        with jax.enable_x64(True):
            vector = jnp.asarray(start, jnp.float64)
            if isinstance(kernel, Callable):
                return _process(kernel, vector, length)
            return _of_matrix(jnp.asarray(kernel, jnp.float64), vector, length)
    return _process(kernel if isinstance(kernel, Callable) else kernel.__matmul__, start, length)


@partial(jax.jit, static_argnums=2)
def _of_matrix(matrix: Float[Array, "n n"], start: Float[Array, " n"], length: int) -> Krylov:
    return _process(lambda v: matrix @ v, start, length)


def _process(apply: Callable[[Array], Array], start: Float[Array, " n"], length: int) -> Krylov:
    k, rounding = min(length, len(start)), max(_INVARIANT, 10 * float(jnp.finfo(start.dtype).eps))
    size = jnp.linalg.norm(start)

    def extend(step: Array, basis: Krylov) -> Krylov:
        here = basis.vectors[step]
        image = apply(here)
        diagonal = basis.diagonal.at[step].set(here @ image)
        for _ in range(2):
            image = image - basis.vectors.T @ (basis.vectors @ image)
        left = jnp.linalg.norm(image)
        invariant = left <= rounding * jnp.max(jnp.abs(diagonal))
        following = jnp.where(invariant, 0, image / jnp.where(invariant, 1, left))
        vectors = basis.vectors.at[step + 1].set(following, mode="drop")
        return Krylov(vectors, diagonal, basis.beside.at[step].set(jnp.where(invariant, 0, left)), basis.size)

    first = jnp.zeros((k, len(start)), start.dtype).at[0].set(start / jnp.where(size > 0, size, 1))
    zeros = jnp.zeros(k, start.dtype)
    return lax.fori_loop(0, k, extend, Krylov(first, zeros, zeros, size))
