"""Determinantal point processes: random sets of rows that a kernel finds different from each other.

With the kernel `L` between all rows, a set `S` has the probability `det(L_S) / det(I + L)`. Sampling goes through the
eigenvectors (Hough et al. 2006; Kulesza and Taskar 2012, algorithms 1 and 8).
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ._spectrum import Spectrum, checked_kernel


def inclusion_probabilities(kernel: Any) -> Float[np.ndarray, " n"]:
    """The probability of each row to be in the set; they sum to its expected size.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.inclusion_probabilities(np.diag([1.0, 3.0]))
    array([0.5 , 0.75])
    """
    spectrum = Spectrum.of(kernel)
    values = np.maximum(spectrum.values, 0.0)
    return spectrum.vectors**2 @ (values / (1 + values))


def diverse_sample(kernel: Any, size: int | None = None, *, seed: int = 0) -> Int[np.ndarray, " size"]:
    """A random set of rows, ascending, in which similar rows are rarely together; of that size, or of a random one.

    >>> import everwide.spectral as sp, numpy as np
    >>> twins = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> 2 in sp.diverse_sample(twins, 2)    # never both twins
    True
    """
    spectrum = Spectrum.of(kernel)
    values = np.where(spectrum.learnable, np.maximum(spectrum.values, 0.0), 0.0)
    rng = np.random.default_rng(seed)
    if size is None:
        chosen = rng.random(len(values)) < values / (1 + values)
    else:
        chosen = _modes_of_size(values, _checked_size(size, spectrum.rank), rng)
    return np.sort(_project(spectrum.vectors[:, chosen], rng))


def diverse_rows(kernel: Any, size: int) -> Int[np.ndarray, " size"]:
    """Rows, the most telling first, each of which adds most to the determinant: a diverse set without chance.

    It is where a Gaussian process with this kernel is least certain, given the rows before (Chen et al. 2018).

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.diverse_rows(np.array([[2.0, 1.9, 0.0], [1.9, 2.0, 0.0], [0.0, 0.0, 1.0]]), 2)
    array([0, 2])
    """
    matrix = checked_kernel(kernel)
    size = _checked_size(size, len(matrix))
    left, factor = np.diagonal(matrix).copy(), np.zeros((size, len(matrix)))
    noise = len(matrix) * float(np.finfo(np.float64).eps) * float(left.max())
    rows: list[int] = []
    for step in range(size):
        row = int(np.argmax(left))
        if left[row] <= noise:
            raise ValueError(f"size={size}: only {step} rows of this kernel are linearly independent. Ask for fewer.")
        factor[step] = (matrix[row] - factor[:step, row] @ factor[:step]) / np.sqrt(left[row])
        left = left - factor[step] ** 2
        left[row] = -np.inf
        rows.append(row)
    return np.array(rows)


def _checked_size(size: Any, most: int) -> int:
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or not 1 <= size <= most:
        raise ValueError(f"size={size!r}: expected a whole number from 1 to {most}, the rank of the kernel.")
    return int(size)


def _modes_of_size(values: Float[np.ndarray, " n"], size: int, rng: np.random.Generator) -> np.ndarray:
    """Which eigenvectors, `size` of them, with probabilities in proportion to the products of their eigenvalues."""
    logs = np.log(np.maximum(values, np.finfo(np.float64).tiny))
    sums = np.full((size + 1, len(values) + 1), -np.inf)  # logarithms of elementary symmetric polynomials
    sums[0] = 0.0
    for n, log in enumerate(logs, start=1):
        sums[1:, n] = np.logaddexp(sums[1:, n - 1], log + sums[:-1, n - 1])
    chosen, left = np.zeros(len(values), bool), size
    for n in range(len(values), 0, -1):
        if left and np.log(rng.random()) < logs[n - 1] + sums[left - 1, n - 1] - sums[left, n]:
            chosen[n - 1] = True
            left -= 1
    return chosen


def _project(basis: Float[np.ndarray, "n k"], rng: np.random.Generator) -> Int[np.ndarray, " k"]:
    """A set of as many rows as there are orthonormal columns, with probability `det(basis_S)^2`."""
    rows = []
    while basis.shape[1]:
        weights = np.sum(basis**2, axis=1)
        row = int(rng.choice(len(basis), p=weights / weights.sum()))
        rows.append(row)
        pivot = int(np.argmax(np.abs(basis[row])))
        rest = np.delete(basis, pivot, axis=1) - np.outer(
            basis[:, pivot] / basis[row, pivot], np.delete(basis[row], pivot)
        )
        basis = np.linalg.qr(rest)[0] if rest.shape[1] else rest
    return np.array(rows, dtype=np.int64)
