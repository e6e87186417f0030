"""The eigendecomposition of a kernel matrix, checked, on the host, in float64."""

from typing import Any

import equinox as eqx
import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float

from .._engine import require
from ._filters import AbstractFilter

_COPIES = 4  # the matrix, its decomposition, and what LAPACK works in
_ROUNDING = 1e3  # units of rounding by which entries may differ from their mirror images
_NEGATIVE = 10  # times what rounding does to eigenvalues, by which the smallest may be below 0


class KernelError(ValueError):
    """A matrix that is no kernel: not square, not finite, not symmetric, or not positive semidefinite.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.Spectrum.of(np.diag([1.0, -0.5]))
    Traceback (most recent call last):
        ...
    everwide.spectral._spectrum.KernelError: The kernel is not positive semidefinite: its smallest eigenvalue is -0.5, \
the largest 1. Was it computed in float32, or is it a difference of kernels? Add a ridge of at least 0.5.
    """


class Spectrum(eqx.Module):
    """A kernel matrix `(n, n)` as eigenvalues, ascending, and eigenvectors, in its columns. Make it with `of`.

    Directions whose eigenvalues are zero up to rounding cannot be learned: filters leave them alone.

    >>> import everwide.spectral as sp, numpy as np
    >>> spectrum = sp.Spectrum.of(np.diag([2.0, 1.0, 0.0]))
    >>> spectrum.rank
    2
    """

    values: Float[np.ndarray, " n"]
    vectors: Float[np.ndarray, "n n"]
    rank: int = eqx.field(static=True)  # directions that can be learned

    @classmethod
    def of(cls, kernel: Any, *, what: str = "The kernel") -> "Spectrum":
        """Decompose a symmetric positive semidefinite matrix; `what` names it in errors."""
        matrix = checked_kernel(kernel, what)
        noise = _noise(matrix, _precision(kernel))
        values, vectors = scipy.linalg.eigh(matrix, driver="evd", check_finite=False, overwrite_a=True)
        if values[0] < -_NEGATIVE * noise:
            raise KernelError(
                f"{what} is not positive semidefinite: its smallest eigenvalue is {values[0]:.3g}, the largest "
                f"{values[-1]:.3g}. Was it computed in float32, or is it a difference of kernels? "
                f"Add a ridge of at least {-values[0]:.2g}."
            )
        return cls(values, vectors, int(np.sum(values > noise)))

    @property
    def learnable(self) -> Bool[np.ndarray, " n"]:
        """Which directions can be learned."""
        return np.arange(len(self.values)) >= len(self.values) - self.rank

    def response(self, filter: AbstractFilter, rows: int | None = None) -> Float[np.ndarray, "*times n"]:
        """The filter at every eigenvalue, 0 where nothing can be learned; `rows` where one has several eigenvalues."""
        return np.where(self.learnable, filter(np.maximum(self.values, 0), rows), 0)

    def modes(self, b: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """Columns in the basis of the eigenvectors."""
        return self.vectors.T @ b

    def apply(
        self, filter: AbstractFilter, b: Float[np.ndarray, "n k"], rows: int | None = None
    ) -> Float[np.ndarray, "*times n k"]:
        """`g(K) b`: the coefficients by which training has moved after the time of the filter.

        >>> import everwide.spectral as sp, numpy as np
        >>> sp.Spectrum.of(np.diag([2.0, 4.0])).apply(sp.ridge(), np.ones((2, 1))).ravel()
        array([0.5 , 0.25])
        """
        return at_once(self.vectors, self.response(filter, rows)[..., None] * self.modes(b))


def at_once(matrix: Float[np.ndarray, "m n"], b: Float[np.ndarray, "*times n k"]) -> Float[np.ndarray, "*times m k"]:
    """`matrix @ b` for all times, as one product: many thin ones are several times slower."""
    times, (n, k) = b.shape[:-2], b.shape[-2:]
    found = matrix @ np.moveaxis(b, -2, 0).reshape(n, -1)
    return np.moveaxis(found.reshape(len(matrix), *times, k), 0, -2)


def checked_kernel(kernel: Any, what: str = "The kernel") -> Float[np.ndarray, "n n"]:
    """A symmetric float64 copy, or a `KernelError`."""
    shape = np.shape(kernel)
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise KernelError(f"{what} has shape {shape}, expected (n, n): training rows with themselves.")
    way_out = "Use fewer rows, or everwide.training.train, which only reads the rows of its batches."
    require(_COPIES * 8 * shape[0] ** 2, None, f"{what} of shape {shape}, decomposed in float64,", way_out)
    matrix = np.array(kernel, np.float64)
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise KernelError(f"{what} holds {matrix[row, column]} at ({row}, {column}). Compute it from finite data.")
    size = float(np.abs(matrix).max())
    off = np.abs(matrix - matrix.T)
    if off.max() > _ROUNDING * _precision(kernel) * size:
        row, column = np.unravel_index(np.argmax(off), off.shape)
        raise KernelError(
            f"{what} is not symmetric: ({row}, {column}) holds {matrix[row, column]:.6g} and ({column}, {row}) "
            f"{matrix[column, row]:.6g}. Pass the kernel of the training rows with themselves."
        )
    return (matrix + matrix.T) / 2


def check_definite(matrix: np.ndarray, what: str = "The kernel") -> None:
    """Raise if a symmetric matrix has an eigenvalue below 0 by more than rounding: a Cholesky factorization tells."""
    shifted = np.array(matrix, np.float64)
    shifted[np.diag_indices_from(shifted)] += _NEGATIVE * _noise(shifted, _precision(matrix))
    try:
        scipy.linalg.cholesky(shifted, check_finite=False, overwrite_a=True)
    except scipy.linalg.LinAlgError:
        smallest = float(scipy.linalg.eigvalsh(matrix.astype(np.float64), subset_by_index=(0, 0))[0])
        raise KernelError(
            f"{what} is not positive semidefinite: its smallest eigenvalue is {smallest:.3g}. "
            f"Add a ridge of at least {-smallest:.2g}."
        ) from None


def eigenvalue_noise(kernel: Any) -> float:
    """What rounding, of the numbers as they came and of a decomposition, may have done to eigenvalues."""
    return _noise(np.asarray(kernel, np.float64), _precision(kernel))


def _noise(matrix: np.ndarray, eps: float) -> float:
    """What rounding of the entries, in units of `eps`, and of the decomposition, in float64, do to eigenvalues."""
    n, size = len(matrix), max(float(np.abs(matrix).max()), np.finfo(np.float64).tiny)
    largest = float(np.abs(matrix).sum(0).max())  # at least the largest eigenvalue
    return 4 * n**0.5 * eps * size + n * float(np.finfo(np.float64).eps) * largest


def _precision(kernel: Any) -> float:
    """The unit of rounding of the numbers as they came."""
    dtype = np.asarray(kernel).dtype
    return float(np.finfo(dtype).eps) if np.issubdtype(dtype, np.floating) else float(np.finfo(np.float64).eps)
