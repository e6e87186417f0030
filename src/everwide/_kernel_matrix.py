"""A kernel matrix as somebody hands it over: checked, symmetric, in float64; and what rounding may have done to it."""

from typing import Any

import numpy as np
from jaxtyping import Float

from ._checks import InputError
from ._engine import require

_COPIES = 4  # the matrix, its decomposition, and what LAPACK works in
_ROUNDING = 1e3  # units of rounding by which entries may differ from their mirror images


class KernelError(InputError):
    """A matrix that is no kernel: not square, not finite, not symmetric, or not positive semidefinite.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.Spectrum.of(np.diag([1.0, -0.5]))
    Traceback (most recent call last):
        ...
    everwide._kernel_matrix.KernelError: The kernel is not positive semidefinite: its smallest eigenvalue is -0.5, \
the largest 1. Was it computed in float32, or is it a difference of kernels? Add a ridge of at least 0.5.
    """


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
    if off.max() > _ROUNDING * precision(kernel) * size:
        row, column = np.unravel_index(np.argmax(off), off.shape)
        raise KernelError(
            f"{what} is not symmetric: ({row}, {column}) holds {matrix[row, column]:.6g} and ({column}, {row}) "
            f"{matrix[column, row]:.6g}. Pass the kernel of the training rows with themselves."
        )
    return (matrix + matrix.T) / 2


def eigenvalue_noise(kernel: Any) -> float:
    """What rounding, of the entries as they came and of a decomposition in float64, may have done to eigenvalues."""
    matrix, eps = np.asarray(kernel, np.float64), precision(kernel)
    n, size = len(matrix), max(float(np.abs(matrix).max()), np.finfo(np.float64).tiny)
    largest = float(np.abs(matrix).sum(0).max())  # at least the largest eigenvalue
    return 4 * n**0.5 * eps * size + n * float(np.finfo(np.float64).eps) * largest


def precision(array: Any) -> float:
    """The unit of rounding of the numbers as they came."""
    dtype = np.asarray(array).dtype
    return float(np.finfo(dtype).eps) if np.issubdtype(dtype, np.floating) else float(np.finfo(np.float64).eps)
