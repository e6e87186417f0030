"""The kernel matrix of some examples, from whatever stands for a kernel."""

from typing import Any

import numpy as np
from jaxtyping import Float

from ._checks import InputError
from ._gram import gram
from ._kernel_matrix import checked_kernel
from .kernel import AbstractKernelFunction
from .layers import AbstractLayer
from .spectral import KernelError, Spectrum


def kernel_matrix(kernel: Any, x: Any, which: str = "ntk") -> np.ndarray:
    """Of a network, a kernel function of the library, a function of two batches, or a matrix already; as it comes.

    Not checked, and in its own precision, which tells what rounding may have done: see `everwide.spectral`.
    """
    if which not in ("ntk", "nngp"):
        raise InputError(f"which={which!r}: expected 'ntk' or 'nngp'.")
    if isinstance(kernel, AbstractLayer | AbstractKernelFunction):
        _given(x, type(kernel).__name__)
        return _of_one_output(getattr(gram(kernel, x), which))
    if callable(kernel):
        _given(x, "a kernel function")
        return np.asarray(kernel(x, x))
    matrix = np.asarray(kernel)
    if x is not None and matrix.shape[:1] != (len(x),):
        raise InputError(f"The kernel has shape {matrix.shape} and x {len(x)} rows. With a kernel matrix, pass x=None.")
    return matrix


def learnable_kernel(given: np.ndarray) -> Float[np.ndarray, "n n"]:
    """In float64, or a `KernelError`: indefinite beyond its rounding, or zero."""
    matrix = checked_kernel(given)
    if not matrix.any():
        raise KernelError("The kernel is zero: nothing is learned at any rate.")
    Spectrum.check(given)
    return matrix


def _of_one_output(matrix: np.ndarray) -> np.ndarray:
    if matrix.ndim > 2:
        raise InputError(
            f"The network has outputs at sites: its kernel has shape {matrix.shape}. End it with Flatten or pooling."
        )
    return matrix


def _given(x: Any, what: str) -> None:
    if x is None:
        raise InputError(f"x is missing: the kernel of {what} depends on the data. Or pass a kernel matrix.")
