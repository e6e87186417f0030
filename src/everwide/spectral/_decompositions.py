"""A kernel matrix, decomposed or factorized, checked, on the host, in float64.

A `Spectrum`, its eigenvalues and eigenvectors, tells of any time of training; a `Factor`, a Cholesky factor of the
kernel with noise, is faster where only the end matters.
"""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jaxtyping import Array, Bool, Float

from .._checks import InputError, finite_array, float_dtype, row_variances, row_weights
from .._engine import KernelError, checked_kernel, eigenvalue_noise, precision
from ._filters import AbstractFilter

_NEGATIVE = 10  # times what rounding does to eigenvalues, by which the smallest may be below 0
_DENSE = 256  # rows up to which all eigenvalues cost less than a Lanczos run
_potrf, _trtri, _pstrf = scipy.linalg.get_lapack_funcs(("potrf", "trtri", "pstrf"), dtype=np.float64)
_FIRST_JITTER, _LAST_JITTER = 1e-15, 1e-2  # in units of the mean of the diagonal
_EPS = float(np.finfo(np.float64).eps)


class Spectrum(eqx.Module):
    """A kernel matrix `(n, n)` as eigenvalues, ascending, and eigenvectors, in its columns. Make it with `of`.

    Directions whose eigenvalues are zero up to rounding cannot be learned: filters leave them alone. With weights, it
    is the matrix `sqrt(w_i w_j) K_ij` that is decomposed: a row of weight `w` counts as `w` rows.

    Fields: `values` `(m,)`, `vectors` `(n, m)`, `rank` (directions that can be learned), `roots` (of the weights).

    >>> import everwide.spectral as sp, numpy as np
    >>> spectrum = sp.Spectrum.of(np.diag([2.0, 1.0, 0.0]))
    >>> spectrum.rank
    2
    """

    values: Float[np.ndarray, " m"]
    vectors: Float[np.ndarray, "n m"]
    rank: int = eqx.field(static=True)
    roots: Float[np.ndarray, "#n"] = eqx.field(default_factory=lambda: np.ones(1))

    @classmethod
    def of(cls, kernel: Any, *, weights: Any = None, what: str = "The kernel", dtype: Any = np.float64) -> "Spectrum":
        """Decompose a symmetric positive semidefinite matrix.

        Args:
            kernel: `(n, n)`, symmetric, positive semidefinite up to its rounding.
            weights: `(n,)`, above 0: a row of weight `w` counts as `w` rows. None: all are 1.
            what: names the matrix in errors.
            dtype: `np.float32` halves time and memory; small eigenvalues are then below rounding, and not learned.

        Returns:
            The spectrum, in that dtype.

        >>> import everwide.spectral as sp, numpy as np
        >>> sp.Spectrum.of(np.eye(2), weights=[1.0, 4.0]).values
        array([1., 4.])

        """
        matrix = checked_kernel(kernel, what).astype(float_dtype(dtype), copy=False)
        roots = _roots(weights, len(matrix)).astype(matrix.dtype)
        noise = (eigenvalue_noise(kernel) + _lost(matrix)) * float(roots.max()) ** 2
        spectrum = cls.unchecked(matrix, roots, noise)
        if spectrum.values[0] < -_NEGATIVE * noise:
            raise KernelError(
                f"{what} is not positive semidefinite: its smallest eigenvalue is {spectrum.values[0]:.3g}, the "
                f"largest {spectrum.values[-1]:.3g}. Was it computed in float32, or is it a difference of kernels? "
                f"Add a ridge of at least {-spectrum.values[0]:.2g}."
            )
        return spectrum

    @classmethod
    def of_features(
        cls, features: Any, *, weights: Any = None, what: str = "The features", dtype: Any = np.float64
    ) -> "Spectrum":
        """The spectrum of the kernel `G G^T` of features `G`, from `G` itself: the primal road.

        Costs `n p min(n, p)`, and half of the digits are not lost in squares. There are `min(n, p)` eigenvectors: along
        all others the kernel is 0.

        Args:
            features: `G`, `(n, p)`.
            weights: `(n,)`, above 0, as in `of`.
            what: names the features in errors.
            dtype: as in `of`.

        Returns:
            A spectrum with `vectors` `(n, min(n, p))`.

        >>> import everwide.spectral as sp, numpy as np
        >>> g = np.array([[1.0], [2.0], [2.0]])
        >>> sp.Spectrum.of_features(g).apply(sp.ridge(1.0), np.ones((3, 1))).ravel()
        array([0.05555556, 0.11111111, 0.11111111])

        """
        g = finite_array(features, what).astype(float_dtype(dtype), copy=False)
        if g.ndim != 2 or not g.size:
            raise InputError(f"{what} have shape {g.shape}, expected (n, features).")
        roots = _roots(weights, len(g)).astype(g.dtype)
        vectors, sizes, _ = scipy.linalg.svd(roots[:, None] * g, full_matrices=False, check_finite=False)
        rank = int(np.sum(sizes > sizes[0] * max(g.shape) * max(precision(features), precision(g))))
        return cls(sizes[::-1] ** 2, vectors[:, ::-1], rank, roots)

    @classmethod
    def unchecked(cls, matrix: Float[np.ndarray, "n n"], roots: Float[np.ndarray, "#n"], noise: float) -> "Spectrum":
        """Of a symmetric matrix that is used up; eigenvalues up to `noise` cannot be learned."""
        if roots.size > 1:
            matrix *= roots
            matrix *= roots[:, None]
        driver = "evd" if len(matrix) > 1 else "ev"  # scipy 1.13 has no room for a single number
        values, vectors = scipy.linalg.eigh(matrix, driver=driver, check_finite=False, overwrite_a=True)
        return cls(values, vectors, int(np.sum(values > noise)), roots)

    @property
    def learnable(self) -> Bool[np.ndarray, " m"]:
        """Which directions can be learned."""
        return np.arange(len(self.values)) >= len(self.values) - self.rank

    @cached_property
    def squares(self) -> Float[np.ndarray, "n m"]:
        """Of the entries of the eigenvectors: what diagonals of functions of the kernel are made of."""
        return self.vectors**2

    def response(self, filter: AbstractFilter, n: int | None = None) -> Float[np.ndarray, "*times m"]:
        """The filter at every eigenvalue, 0 where nothing can be learned; `n` rows if one has several eigenvalues."""
        return np.where(self.learnable, filter(np.maximum(self.values, 0), n or len(self.vectors)), 0)

    def modes(self, b: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "m k"]:
        """Columns in the basis of the eigenvectors."""
        return self.vectors.T @ (self.roots[:, None] * b.astype(self.vectors.dtype, copy=False))

    def rows(
        self, modes: Float[np.ndarray, "*times m k"], cross: Float[np.ndarray, "r n"] | None = None
    ) -> Float[np.ndarray, "*times rows k"]:
        """Columns in the basis of the eigenvectors as columns of rows again; times `cross`, if there is one.

        For all times it is one product: many thin ones are several times slower.
        """
        times, (m, k) = modes.shape[:-2], modes.shape[-2:]
        flat = np.moveaxis(modes, -2, 0).reshape(m, -1).astype(self.vectors.dtype, copy=False)
        if cross is None:
            flat = self.roots[:, None] * (self.vectors @ flat)
        else:  # in the order that costs less
            weighted = cross.astype(self.vectors.dtype, copy=False) * self.roots
            flat = (weighted @ self.vectors) @ flat if len(cross) < flat.shape[1] else weighted @ (self.vectors @ flat)
        return np.moveaxis(flat.reshape(len(flat), *times, k), 0, -2)

    def apply(
        self, filter: AbstractFilter, b: Float[np.ndarray, "n k"], n: int | None = None
    ) -> Float[np.ndarray, "*times n k"]:
        """`g(K) b`: the coefficients by which training has moved after the time of the filter.

        >>> import everwide.spectral as sp, numpy as np
        >>> sp.Spectrum.of(np.diag([2.0, 4.0])).apply(sp.ridge(), np.ones((2, 1))).ravel()
        array([0.5 , 0.25])
        """
        return self.rows(self.response(filter, n)[..., None] * self.modes(b))

    @staticmethod
    def largest(kernel: np.ndarray | Callable[[np.ndarray], np.ndarray], n: int = 0) -> float:
        """The largest eigenvalue of a symmetric matrix, or of the operator with these products on `n` numbers."""
        if isinstance(kernel, np.ndarray):
            if len(kernel) <= _DENSE:
                return float(scipy.linalg.eigvalsh(kernel, check_finite=False)[-1])
            return Spectrum.largest(lambda v: kernel @ v, len(kernel))
        if n < 3:
            return float(np.linalg.eigvalsh(np.stack([kernel(e) for e in np.eye(n)]))[-1])
        start = np.random.default_rng(0).normal(size=n)  # must not depend on anybody's seeds
        operator = scipy.sparse.linalg.LinearOperator((n, n), matvec=lambda v: kernel(v.ravel()), dtype=np.float64)  # pyright: ignore[reportCallIssue]
        return float(scipy.sparse.linalg.eigsh(operator, k=1, which="LA", v0=start, return_eigenvectors=False)[0])

    @staticmethod
    def smallest(kernel: np.ndarray) -> float:
        """The smallest eigenvalue of a symmetric matrix; 0 where it is large and has no Cholesky factor."""
        if len(kernel) <= _DENSE:
            return float(scipy.linalg.eigvalsh(kernel, check_finite=False)[0])
        try:
            factor = scipy.linalg.cho_factor(kernel, lower=True, check_finite=False)
        except scipy.linalg.LinAlgError:
            return 0.0
        return 1 / Spectrum.largest(lambda v: scipy.linalg.cho_solve(factor, v, check_finite=False), len(kernel))

    @staticmethod
    def check(kernel: np.ndarray, what: str = "The kernel") -> None:
        """Raise a `KernelError` if a symmetric matrix has an eigenvalue below 0 by more than rounding."""
        shifted = np.array(kernel, np.float64)
        shifted[np.diag_indices_from(shifted)] += _NEGATIVE * eigenvalue_noise(kernel)
        try:  # a Cholesky factorization tells, at a fraction of the price
            scipy.linalg.cholesky(shifted, check_finite=False, overwrite_a=True)
        except scipy.linalg.LinAlgError:
            smallest = float(scipy.linalg.eigvalsh(kernel.astype(np.float64), subset_by_index=(0, 0))[0])
            raise KernelError(
                f"{what} is not positive semidefinite: its smallest eigenvalue is {smallest:.3g}. "
                f"Add a ridge of at least {-smallest:.2g}."
            ) from None

    @staticmethod
    def root(covariance: Float[np.ndarray, "*times n n"]) -> Float[np.ndarray, "*times n n"]:
        """`R` with `R R^T` the covariance: what Gaussian samples are drawn with. Eigenvalues below 0 count as 0."""
        values, vectors = np.linalg.eigh(covariance)
        return vectors * np.sqrt(np.maximum(values, 0))[..., None, :]

    @staticmethod
    def traced(kernel: Float[Array, "n n"]) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
        """Eigenvalues, 0 where they are rounding, and eigenvectors, in JAX: inside `jax.jit` and `jax.grad`."""
        values, vectors = jnp.linalg.eigh((kernel + kernel.T) / 2)
        return jnp.where(values > values[-1] * len(values) * jnp.finfo(values.dtype).eps, values, 0), vectors


def _lost(matrix: np.ndarray) -> float:
    """What a decomposition in float32 does to eigenvalues: its rounding of the largest, as often as a walk adds up."""
    if matrix.dtype == np.float64:
        return 0.0
    return len(matrix) ** 0.5 * float(np.finfo(matrix.dtype).eps) * float(np.abs(matrix).sum(0).max())


def _roots(weights: Any, n: int) -> Float[np.ndarray, "#n"]:
    return np.ones(1) if weights is None else np.sqrt(row_weights(weights, n))


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

    def unwhiten(self, b: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """`L^-T b`, which takes coefficients of white features to those of the kernel's rows."""
        return scipy.linalg.solve_triangular(self.lower, b, trans=1, lower=True, check_finite=False)

    def inverse_diagonal(self) -> Float[np.ndarray, " n"]:
        """The diagonal of `(K + noise)^-1`: the inverse variances of rows, each given all others.

        It is the sum of squares in the columns of `L^-1`: half of the price of the whole inverse.
        """
        inverse = _trtri(self.lower, lower=True)[0]
        return np.einsum("ij,ij->j", inverse, inverse)

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
    def solve_blocks(
        blocks: Float[np.ndarray, "many k k"], b: Float[np.ndarray, "many *m k w"]
    ) -> Float[np.ndarray, "many *m k w"]:
        """`A_i^-1 b_i` of many small positive definite matrices; those that are singular get the least jitter."""
        size = np.maximum(np.trace(blocks, axis1=1, axis2=2), np.finfo(np.float64).tiny)[:, None, None]
        safe = blocks + _EPS * size * np.eye(blocks.shape[-1])
        return np.linalg.solve(safe.reshape(len(safe), *(1,) * (b.ndim - 3), *safe.shape[1:]), b)

    @staticmethod
    def pivots(matrix: Float[np.ndarray, "n n"], noise: float) -> tuple[np.ndarray, int]:
        """Rows in the order of a pivoted Cholesky factorization, and how many of them add more than `noise`."""
        _, order, rank, _ = _pstrf(matrix, tol=noise, lower=1)
        return order - 1, int(rank)
