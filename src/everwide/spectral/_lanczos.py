"""Which eigenvalues a vector is made of, from products with the matrix alone."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float


class Measure(NamedTuple):
    """Eigenvalues, descending, and the share of the squared length of a vector that lies along each."""

    values: Float[np.ndarray, " k"]
    weights: Float[np.ndarray, " k"]


def lanczos_measure(product: Callable[[np.ndarray], np.ndarray], vector: np.ndarray, length: int) -> Measure:
    """Gauss quadrature of the spectral measure of `vector` with `length` nodes; exact from the rank of the matrix on.

    All vectors are kept orthogonal, twice, so that no eigenvalue appears as a ghost. Golub and Meurant (2010).
    """
    size = float(vector @ vector)
    if not size:
        return Measure(np.zeros(1), np.zeros(1))
    basis, diagonal, beside = [vector / size**0.5], [], []
    while True:
        image = product(basis[-1])
        diagonal.append(float(basis[-1] @ image))
        known = np.stack(basis)
        for _ in range(2):
            image = image - known.T @ (known @ image)
        length_left = float(np.linalg.norm(image))
        invariant = length_left <= 1e-13 * max(map(abs, diagonal))
        if invariant or len(diagonal) == min(length, len(vector)):
            break
        beside.append(length_left)
        basis.append(image / length_left)
    values, vectors = scipy.linalg.eigh_tridiagonal(np.array(diagonal), np.array(beside))
    return Measure(np.maximum(values[::-1], 0.0), size * vectors[0, ::-1] ** 2)
