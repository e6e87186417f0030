"""What one training set lets a kernel learn: exact, for that set, where `learning_curve` speaks of the average."""

from typing import Any

import numpy as np
from jaxtyping import Float

from ..._checks import InputError, finite_array, not_negative
from ..._kernel_matrix import checked_kernel
from ...spectral import Factor, KernelError, Spectrum
from ...spectral import ridge as ridge_filter
from ._spectra import checked_eigenvalues


def transfer_matrix(eigenvalues: Any, eigenfunctions: Any, ridge: float = 0.0) -> Float[np.ndarray, "modes modes"]:
    """The matrix `T` that maps coefficients of a target to those of what is learned from its values on n examples.

    The diagonal holds the learnability of each mode, from 0 to 1, which never falls when examples are added. Without a
    ridge `T` is a projection, but an oblique one: the learnability `v' T v / v' v` of a mixture of modes can fall, and
    can leave the interval from 0 to 1.

    Args:
        eigenvalues: `(modes,)`.
        eigenfunctions: `(n, modes)`, at the training examples, orthonormal over the domain.
        ridge: added to the kernel's diagonal.

    Returns:
        `(modes, modes)`.

    >>> import numpy as np
    >>> from everwide.theory import eigenlearning
    >>> circle = np.array([0.0, 1.0, 2.5])
    >>> phi = np.stack([np.ones(3), 2**0.5 * np.cos(circle), 2**0.5 * np.sin(circle)], 1)
    >>> float(np.round(eigenlearning.transfer_matrix([1.0, 0.5, 0.5], phi[:2]).trace(), 10))
    2.0

    Simon et al., "The eigenlearning framework" (2021).
    """
    lam, phi, solved = _solved(eigenvalues, eigenfunctions, ridge, "transfer_matrix")
    return lam[:, None] * (phi.T @ solved)


def learnability_jacobian(
    eigenvalues: Any, eigenfunctions: Any, ridge: float = 0.0
) -> Float[np.ndarray, "modes modes"]:
    """`J[i, j]`: the derivative of the learnability of mode `j` in the eigenvalue of mode `i`.

    A stronger mode is learned better (the diagonal is at least 0) at the cost of every other (the rest is at most 0);
    without a ridge, rows sum to 0.

    Args:
        eigenvalues: `(modes,)`.
        eigenfunctions: `(n, modes)`, at the training examples, orthonormal over the domain.
        ridge: added to the kernel's diagonal.

    Returns:
        `(modes, modes)`.

    >>> import numpy as np
    >>> from everwide.theory import eigenlearning
    >>> eigenlearning.learnability_jacobian([1.0, 1.0], np.array([[1.0, 1.0]]))
    array([[ 0.25, -0.25],
           [-0.25,  0.25]])

    Simon et al. (2021).
    """
    lam, phi, solved = _solved(eigenvalues, eigenfunctions, ridge, "learnability_jacobian")
    overlap = phi.T @ solved
    return np.diag(overlap.diagonal()) - lam[None, :] * overlap * overlap.T


def learnability(kernel: Any, rows: Any, target: Any, ridge: float = 0.0) -> float:
    """`<f, f_hat> / <f, f>`: the part of a target that is learned from its values at some rows of the domain.

    0 without examples, 1 with all of them (no ridge, a positive definite kernel). In between it may leave that
    interval, and fall with more examples, unless the target is an eigenfunction.

    Args:
        kernel: `(m, m)`, of all points of the domain.
        rows: indices of the training examples.
        target: `(m,)` or `(m, outputs)`, its values at all points.
        ridge: added to the kernel's diagonal.

    Returns:
        The part.

    >>> import numpy as np
    >>> from everwide.theory import eigenlearning
    >>> eigenlearning.learnability(np.eye(4), [0, 1], [1.0, 1.0, 1.0, 1.0])
    0.5

    Simon et al. (2021).
    """
    matrix, values = checked_kernel(kernel), finite_array(target, "target")
    if not values.ndim or len(values) != len(matrix):
        raise InputError(f"target has shape {values.shape}, expected ({len(matrix)},): a value for each point.")
    chosen = _indices(rows, len(matrix))
    values = values.reshape(len(values), -1)
    if not np.any(values):
        raise InputError("target is 0 everywhere: there is nothing to learn.")
    if not len(chosen):
        return 0.0
    weights = Spectrum.of(matrix[np.ix_(chosen, chosen)]).apply(ridge_filter(ridge), values[chosen])
    return float(np.sum(values * (matrix[:, chosen] @ weights)) / np.sum(values**2))


def total_learnability(kernel: Any, ridge: float = 0.0) -> float:
    """The sum of the learnabilities of any complete orthonormal set of functions: no kernel is better on average.

    Without a ridge the sum is the rank of the kernel: `n`, if examples differ. With a ridge it is
    `n - ridge tr((K + ridge)^-1)`.

    Args:
        kernel: `(n, n)`, of the training examples.
        ridge: added to its diagonal.

    Returns:
        The sum.

    >>> import numpy as np
    >>> from everwide.theory import eigenlearning
    >>> eigenlearning.total_learnability(np.eye(5)), eigenlearning.total_learnability(np.eye(5), ridge=1.0)
    (5.0, 2.5)

    Simon et al. (2021).
    """
    spectrum = Spectrum.of(kernel)
    return float(np.sum(np.maximum(spectrum.values, 0) * spectrum.response(ridge_filter(ridge))))


def _solved(
    eigenvalues: Any, eigenfunctions: Any, ridge: float, name: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues, eigenfunctions at the examples, and `(K + ridge)^-1` times the latter."""
    lam, phi = checked_eigenvalues(eigenvalues), finite_array(eigenfunctions, "eigenfunctions")
    if phi.ndim != 2 or phi.shape[1] != len(lam):
        raise InputError(f"eigenfunctions has shape {phi.shape}, expected (n, {len(lam)}): a mode in each column.")
    not_negative(ridge, f"{name}: ridge")
    if not len(phi):
        return lam, phi, phi
    try:
        factor = Factor.of((phi * lam) @ phi.T, ridge)
    except KernelError:
        raise KernelError(
            f"{name}: the kernel of the {len(phi)} examples is singular: {np.sum(lam > 0)} modes have an eigenvalue "
            "above 0, and examples may repeat. Use more modes, different examples, or a ridge."
        ) from None
    return lam, phi, np.asarray(factor.solve(phi))


def _indices(rows: Any, size: int) -> np.ndarray:
    """Different whole numbers, each the place of a point."""
    chosen = np.asarray(rows)
    if not chosen.size:
        return np.zeros(0, int)
    if chosen.ndim != 1 or not np.issubdtype(chosen.dtype, np.integer):
        raise InputError(f"rows is {chosen.dtype} of shape {chosen.shape}, expected a list of indices of points.")
    if chosen.min() < 0 or chosen.max() >= size:
        raise InputError(f"rows go from {chosen.min()} to {chosen.max()}, expected indices from 0 to {size - 1}.")
    if len(np.unique(chosen)) != len(chosen):
        raise InputError("rows name a point twice: a second look at it teaches nothing. Pass numpy.unique(rows).")
    return chosen
