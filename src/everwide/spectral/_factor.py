"""The Cholesky factor of a kernel with noise: faster than a spectrum where only the end of training matters."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from .._checks import row_variances
from .._engine import KernelError, checked_kernel

_potrf, _potri, _pstrf = scipy.linalg.get_lapack_funcs(("potrf", "potri", "pstrf"), dtype=np.float64)
_FIRST_JITTER, _LAST_JITTER = 1e-15, 1e-2  # in units of the mean of the diagonal
_EPS = float(np.finfo(np.float64).eps)


class Factor(eqx.Module):
    """The lower Cholesky factor of `K + diag(noise)`. Make it with `of`.

    The factor of the first rows is the leading block of the factor of all: `extended` adds rows, and
    `lower[:s, :s]` belongs to the first `s`.

    Fields: `lower` `(n, n)`; `jitter`, what had to be added to the diagonal beyond the noise.

    >>> import everwide.spectral as sp, numpy as np
    >>> factor = sp.Factor.of(np.diag([1.0, 3.0]), noise=1.0)
    >>> factor.solve(np.array([2.0, 4.0]))
    array([1., 1.])
    >>> round(factor.logdet(), 4)
    2.0794
    """

    lower: Float[np.ndarray | Array, "n n"]
    jitter: float = eqx.field(static=True, default=0.0)

    @classmethod
    def of(cls, kernel: Any, noise: Any = 0.0, *, what: str = "The kernel") -> "Factor":
        """Factorize a kernel plus noise.

        Args:
            kernel: `(n, n)`, symmetric and positive semidefinite.
            noise: variances, added to the diagonal: one for all rows, or one for each.
            what: names the matrix in errors.

        Returns:
            The factor, in float64.

        >>> import everwide.spectral as sp, numpy as np
        >>> sp.Factor.of(np.ones((2, 2)), noise=[1.0, 3.0]).solve(np.array([1.0, 1.0])).round(3)
        array([0.429, 0.143])

        """
        matrix = checked_kernel(kernel, what)
        matrix[np.diag_indices_from(matrix)] += row_variances(noise, len(matrix))
        lower, fault = _potrf(matrix.T, lower=True, clean=True, overwrite_a=True)
        if fault:
            raise KernelError(
                f"{what} with its noise is singular up to rounding, so that a Cholesky factorization fails. Add noise "
                "(for example 1e-6 times its mean diagonal), drop duplicate rows, or use Spectrum, which leaves out "
                "what cannot be learned."
            )
        return cls(lower)

    @classmethod
    def with_jitter(cls, matrix: Float[np.ndarray, "n n"], unit: float = 1.0) -> "Factor":
        """Of a symmetric matrix, which is used up; jitter, at first 1e-15 units, grows until that succeeds."""
        diagonal, jitter = matrix.diagonal().copy(), 0.0
        while True:
            matrix[np.diag_indices_from(matrix)] = diagonal + jitter
            lower, fault = _potrf(matrix.T, lower=True, clean=True, overwrite_a=False)
            if not fault:
                return cls(lower, jitter)
            if jitter >= _LAST_JITTER * unit:
                raise KernelError(
                    f"The kernel of {len(matrix)} rows is not positive definite, even with {jitter / unit:.0e} of its "
                    "diagonal added. Is it the kernel of a network, and are the inputs finite?"
                )
            jitter = max(10 * jitter, _FIRST_JITTER * unit)

    @classmethod
    def traced(cls, kernel: Float[Array, "n n"], noise: Any = 0.0) -> "Factor":
        """In JAX, unchecked: inside `jax.jit` and `jax.grad`. It holds NaN where there is no factor.

        >>> import everwide.spectral as sp, jax, jax.numpy as jnp
        >>> evidence = lambda size: sp.Factor.traced(size * jnp.eye(2)).log_evidence(jnp.ones((2, 1)))
        >>> float(jax.grad(evidence)(1.0))  # the targets have the variance 1
        0.0
        """
        return cls(jnp.linalg.cholesky(kernel + jnp.asarray(noise, kernel.dtype) * jnp.eye(len(kernel))))

    def extended(self, cross: Float[np.ndarray, "m n"], among: Float[np.ndarray, "m m"]) -> "Factor":
        """With new rows: their kernel with the old ones, and among themselves with their noise.

        Rounding of copies of old rows is mended by more jitter, which `jitter` counts.
        """
        below = self.whiten(cross.T).T
        rest = among - below @ below.T
        rest[np.diag_indices_from(rest)] += self.jitter
        smallest = float(scipy.linalg.eigvalsh(rest, subset_by_index=(0, 0), check_finite=False)[0])
        more = max(len(rest) * _EPS * max(float(np.abs(rest).max()), 1.0) - smallest, 0.0)
        rest[np.diag_indices_from(rest)] += more
        n = len(self.lower)
        lower = np.zeros((n + len(rest), n + len(rest)), order="F")
        lower[:n, :n], lower[n:, :n] = self.lower, below
        lower[n:, n:] = scipy.linalg.cholesky(rest, lower=True, check_finite=False)
        return Factor(lower, self.jitter + more)

    def solve(self, b: Float[np.ndarray | Array, "n *k"]) -> Float[np.ndarray | Array, "n *k"]:
        """`(K + noise)^-1 b`."""
        return self._scipy.cho_solve((self.lower, True), b, check_finite=False)

    def whiten(self, b: Float[np.ndarray | Array, "n *k"]) -> Float[np.ndarray | Array, "n *k"]:
        """`L^-1 b`, whose squares sum to `b (K + noise)^-1 b`."""
        return self._scipy.solve_triangular(self.lower, b, lower=True, check_finite=False)

    def inverse_diagonal(self) -> Float[np.ndarray, " n"]:
        """The diagonal of `(K + noise)^-1`: the inverse variances of rows, each given all others."""
        return _potri(self.lower, lower=True)[0].diagonal().copy()

    def logdet(self) -> Any:
        """`log det(K + noise)`."""
        traced = 2 * (jnp if self._scipy is jax.scipy.linalg else np).log(self.lower.diagonal()).sum()
        return traced if self._scipy is jax.scipy.linalg else float(traced)

    def log_evidence(self, y: Float[np.ndarray | Array, "n k"]) -> Any:
        """The log marginal likelihood of targets under a Gaussian process with this kernel and noise, all outputs."""
        n, k = y.shape
        return -0.5 * ((self.whiten(y) ** 2).sum() + k * self.logdet() + n * k * math.log(2 * math.pi))

    @property
    def _scipy(self) -> Any:
        return scipy.linalg if isinstance(self.lower, np.ndarray) else jax.scipy.linalg

    @staticmethod
    def pivots(matrix: Float[np.ndarray, "n n"], noise: float) -> tuple[np.ndarray, int]:
        """Rows in the order of a pivoted Cholesky factorization, and how many of them add more than `noise`."""
        _, order, rank, _ = _pstrf(matrix, tol=noise, lower=1)
        return order - 1, int(rank)
