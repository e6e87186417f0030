"""Linear systems with a kernel and noise, by Cholesky: faster than a spectrum where only the end matters."""

from typing import Any

import equinox as eqx
import numpy as np
import scipy.linalg
from jaxtyping import Float

from ._spectrum import KernelError, checked_kernel


class Factor(eqx.Module):
    """The lower Cholesky factor of `K + diag(noise)`. Make it with `factorize`.

    >>> import everwide.spectral as sp, numpy as np
    >>> factor = sp.factorize(np.diag([1.0, 3.0]), noise=1.0)
    >>> factor.solve(np.array([2.0, 4.0]))
    array([1., 1.])
    >>> round(factor.logdet(), 4)
    2.0794
    """

    lower: Float[np.ndarray, "n n"]

    def solve(self, b: Float[np.ndarray, "n *k"]) -> Float[np.ndarray, "n *k"]:
        """`(K + noise)^-1 b`."""
        return scipy.linalg.cho_solve((self.lower, True), b, check_finite=False)

    def whiten(self, b: Float[np.ndarray, "n *k"]) -> Float[np.ndarray, "n *k"]:
        """`L^-1 b`, whose squares sum to `b (K + noise)^-1 b`."""
        return scipy.linalg.solve_triangular(self.lower, b, lower=True, check_finite=False)

    def inverse_diagonal(self) -> Float[np.ndarray, " n"]:
        """The diagonal of `(K + noise)^-1`."""
        return np.sum(self.whiten(np.eye(len(self.lower))) ** 2, 0)

    def logdet(self) -> float:
        """`log det(K + noise)`."""
        return float(2 * np.sum(np.log(np.diagonal(self.lower))))


def factorize(kernel: Any, noise: Any = 0.0, *, what: str = "The kernel") -> Factor:
    """Factorize a kernel plus noise: one variance for all rows, or one for each.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.factorize(np.ones((2, 2)), noise=[1.0, 3.0]).solve(np.array([1.0, 1.0])).round(3)
    array([0.429, 0.143])
    """
    matrix = checked_kernel(kernel, what)
    matrix[np.diag_indices_from(matrix)] += checked_noise(noise, len(matrix))
    try:
        lower = scipy.linalg.cholesky(matrix, lower=True, check_finite=False, overwrite_a=True)
    except scipy.linalg.LinAlgError as fault:
        raise KernelError(
            f"{what} with its noise is singular up to rounding, so that a Cholesky factorization fails. Add noise (for "
            f"example 1e-6 times its mean diagonal), drop duplicate rows, or use Spectrum, which leaves out what "
            "cannot be learned."
        ) from fault
    return Factor(lower)


def checked_noise(noise: Any, rows: int) -> Float[np.ndarray, " n"]:
    """A variance for each row."""
    found = np.asarray(noise, np.float64)
    if found.shape not in ((), (rows,)):
        raise ValueError(f"noise has shape {found.shape}, expected one variance or ({rows},), one for each row.")
    if not np.isfinite(found).all() or (found < 0).any():
        raise ValueError(f"noise={noise!r}: expected finite variances, at least 0.")
    return np.broadcast_to(found, (rows,))
