"""The smallest and the largest eigenvalue of a symmetric matrix, without its spectrum where it is large."""

from collections.abc import Callable

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

_DENSE = 256  # rows up to which all eigenvalues cost less than a Lanczos run


def largest_eigenvalue(matrix: np.ndarray) -> float:
    """By Lanczos where the matrix is large."""
    if len(matrix) <= _DENSE:
        return float(scipy.linalg.eigvalsh(matrix, check_finite=False)[-1])
    return lanczos_largest(len(matrix), lambda v: matrix @ v)


def smallest_eigenvalue(matrix: np.ndarray) -> float:
    """Where large, the inverse of the largest of the inverse; 0 where there is no Cholesky factor."""
    if len(matrix) <= _DENSE:
        return float(scipy.linalg.eigvalsh(matrix, check_finite=False)[0])
    try:
        factor = scipy.linalg.cho_factor(matrix, lower=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return 0.0
    return 1 / lanczos_largest(len(matrix), lambda v: scipy.linalg.cho_solve(factor, v, check_finite=False))


def lanczos_largest(n: int, product: Callable[[np.ndarray], np.ndarray]) -> float:
    """Of an operator on vectors of length `n`, known by its products."""
    start = np.random.default_rng(0).normal(size=n)  # must not depend on anybody's seeds
    operator = scipy.sparse.linalg.LinearOperator((n, n), matvec=lambda v: product(v.ravel()), dtype=np.float64)  # pyright: ignore[reportCallIssue]
    if n < 3:
        return float(np.linalg.eigvalsh(np.stack([operator.matvec(e) for e in np.eye(n)]))[-1])
    return float(scipy.sparse.linalg.eigsh(operator, k=1, which="LA", v0=start, return_eigenvectors=False)[0])
