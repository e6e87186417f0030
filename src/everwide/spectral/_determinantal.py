"""Determinantal point processes: random sets of rows that a kernel finds different from each other.

With the kernel `L` between all rows, a set `S` has the probability `det(L_S) / det(I + L)`. Sampling goes through the
eigenvectors (Hough et al. 2006; Kulesza and Taskar 2012, algorithms 1 and 8).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .._checks import InputError, positive
from .._engine import checked_kernel
from ._decompositions import Spectrum
from ._pivots import pivoted


def leverage_scores(kernel: Any, ridge: float = 1.0) -> Float[np.ndarray, " n"]:
    """Ridge leverage scores, the diagonal of `K (K + ridge)^-1`: how much of a row's fit is its own doing.

    With the ridge 1 they are the probabilities of rows to be in a `determinantal_sample` of random size.

    Args:
        kernel: `(n, n)`, between all rows.
        ridge: above 0. The scores sum to the effective dimension, the expected size of the set.

    Returns:
        A number from 0 to 1 for each row.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.leverage_scores(np.diag([1.0, 3.0]))
    array([0.5 , 0.75])

    Alaoui and Mahoney, "Fast randomized kernel ridge regression with statistical guarantees" (2015).

    """
    spectrum, least = Spectrum.of(kernel), positive(ridge, "ridge")
    values = np.maximum(spectrum.values, 0.0)
    return spectrum.squares @ (values / (values + least))


def determinantal_sample(kernel: Any, size: int | None = None, *, seed: int = 0) -> Int[np.ndarray, " size"]:
    """A random set of rows in which similar ones are rarely together: a determinantal point process (DPP).

    Args:
        kernel: `L`, `(n, n)`, between all rows.
        size: of the set (a k-DPP), at most the rank of the kernel. None: it is random too (an L-ensemble).
        seed: of the draw.

    Returns:
        Rows, ascending.

    >>> import everwide.spectral as sp, numpy as np
    >>> twins = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> 2 in sp.determinantal_sample(twins, 2)    # never both twins
    True

    Kulesza and Taskar, "Determinantal point processes for machine learning" (2012), algorithms 1 and 8.

    """
    spectrum = Spectrum.of(kernel)
    values = np.where(spectrum.learnable, np.maximum(spectrum.values, 0.0), 0.0)
    rng = np.random.default_rng(seed)
    if size is None:
        chosen = rng.random(len(values)) < values / (1 + values)
    else:
        chosen = _modes_of_size(values, _checked_size(size, spectrum.rank), rng)
    return np.sort(_project(spectrum.vectors[:, chosen], rng))


def determinantal_map(kernel: Any, size: int) -> Int[np.ndarray, " size"]:
    """The greedy MAP set of a determinantal point process: each row adds most to the determinant of those before.

    It is where a Gaussian process with this kernel is least certain, given the rows before: a pivoted Cholesky
    factorization, row by row.

    Args:
        kernel: `(n, n)`, between all rows.
        size: of the set.

    Returns:
        Rows, the most telling first.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.determinantal_map(np.array([[2.0, 1.9, 0.0], [1.9, 2.0, 0.0], [0.0, 0.0, 1.0]]), 2)
    array([0, 2])

    Chen, Zhang and Zhou, "Fast greedy MAP inference for determinantal point process" (2018).

    """
    matrix = checked_kernel(kernel)
    size = _checked_size(size, len(matrix))
    rows = pivoted(lambda some: matrix[:, some], np.diagonal(matrix), size, greedy=True).rows
    if len(rows) < size:
        raise InputError(f"size={size}: only {len(rows)} rows of this kernel are linearly independent. Ask for fewer.")
    return rows


def partial_cholesky(
    columns: Callable[[Int[np.ndarray, " b"]], Any], diagonal: Any, size: int, *, seed: int = 0
) -> Float[np.ndarray, "n rank"]:
    """Features `F` with `F F^T` nearly the kernel, from few of its columns: a randomly pivoted Cholesky factorization.

    Rows are drawn with probabilities in proportion to what is left of the diagonal, some at a time, so that a kernel
    between a million rows is never formed. With as many columns as rows it is exact.

    Args:
        columns: a function of rows `(b,)` that gives their columns of the kernel, `(n, b)`.
        diagonal: of the kernel, `(n,)`.
        size: columns that are computed at the most.
        seed: of the draw.

    Returns:
        `(n, rank)`, with a rank of at most `size`.

    >>> import everwide.spectral as sp, numpy as np
    >>> kernel = np.array([[2.0, 1.0, 2.0], [1.0, 1.0, 1.0], [2.0, 1.0, 2.0]])
    >>> f = sp.partial_cholesky(lambda rows: kernel[:, rows], np.diagonal(kernel), 3)
    >>> np.allclose(f @ f.T, kernel), f.shape[1]
    (True, 2)

    Epperly, Tropp and Webber, "Embrace rejection" (2024); Chen, Epperly, Tropp and Webber, "Randomly pivoted Cholesky"
    (2022).

    """
    return pivoted(columns, diagonal, size, seed=seed).features


def _checked_size(size: Any, most: int) -> int:
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or not 1 <= size <= most:
        raise InputError(f"size={size!r}: expected a whole number from 1 to {most}, the rank of the kernel.")
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
