"""The smallest and the largest eigenvalue of a kernel matrix, without its spectrum where it is large."""

from typing import Any, NamedTuple

from ..._kernel_matrix import checked_kernel, eigenvalue_noise
from ...spectral import KernelError, Spectrum


class Extremes(NamedTuple):
    """Of a symmetric positive definite matrix with `rows` rows."""

    smallest: float
    largest: float
    rows: int


def definite_extremes(kernel: Any) -> Extremes:
    """Both extremes; a `KernelError` where the smallest cannot be told from 0."""
    matrix = checked_kernel(kernel)
    largest, smallest = Spectrum.largest(matrix), Spectrum.smallest(matrix)
    if not smallest > eigenvalue_noise(kernel):
        raise KernelError(
            f"The smallest eigenvalue of the kernel is {smallest:.3g}, the largest {largest:.3g}: it is singular up to "
            "rounding, and nothing can be proved from it. Drop duplicate rows, and rows that are multiples of others; "
            "compute the kernel in float64."
        )
    return Extremes(smallest, largest, len(matrix))
