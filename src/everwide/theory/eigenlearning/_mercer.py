"""A kernel on finitely many weighted points: its Mercer decomposition, and norms in its space of functions."""

import math
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..._checks import InputError, finite_array
from ...spectral import Spectrum
from ._spectra import checked_eigenvalues

_UNIT = 1e-6  # by which weights may miss a sum of 1
_ROUNDING = 1e-10  # share of a norm that rounding leaves on modes of eigenvalue 0


class Mercer(eqx.Module):
    """`K(x, x') = sum_i lam_i psi_i(x) psi_i(x')` on points with weights. Made by `mercer`."""

    eigenvalues: Float[np.ndarray, " modes"]
    eigenfunctions: Float[np.ndarray, "points modes"]
    weights: Float[np.ndarray, " points"]

    def coefficients(self, target: Any) -> Float[np.ndarray, "modes *outputs"]:
        """Of values `(points,)` or `(points, outputs)`: what `learning_curve` asks for, one output at a time."""
        values = finite_array(target, "target")
        if not values.ndim or len(values) != len(self.weights):
            raise InputError(
                f"target has shape {values.shape}, expected ({len(self.weights)},): a value at each point."
            )
        return np.tensordot(self.eigenfunctions * self.weights[:, None], values, (0, 0))


def mercer(kernel: Any, weights: Any = None) -> Mercer:
    """Decompose a kernel matrix as an operator on functions of its points, each with a weight, by default all equal.

    On a random sample of M rows, `eigenvalues` estimates the spectrum of the kernel under the distribution of the
    rows: those of `kernel / M`. The strongest modes are accurate, the weakest of a sample are not.

    Args:
        kernel: `(M, M)`.
        weights: `(M,)`, above 0, in all 1.

    Returns:
        `eigenvalues`, `(modes,)`, descending, 0 where they are zero up to rounding; `eigenfunctions`,
        `(points, modes)`, orthonormal: `psi.T @ (weights[:, None] * psi)` is the identity; `weights`;
        `coefficients(target)`: what `learning_curve` asks for.

    >>> import numpy as np
    >>> from everwide.theory import eigenlearning
    >>> x = np.linspace(-1, 1, 50)
    >>> modes = eigenlearning.mercer(np.exp(-((x[:, None] - x) ** 2)))
    >>> bool(np.isclose(modes.eigenvalues.sum(), 1.0))  # the mean of the diagonal
    True
    """
    shape = np.shape(kernel)
    points = shape[0] if shape else 0
    share = np.full(points, 1 / max(points, 1)) if weights is None else finite_array(weights, "weights")
    if share.shape != (points,):
        raise InputError(f"weights has shape {share.shape}, expected ({points},): one for each row of the kernel.")
    if (share <= 0).any():
        place = int(np.argmax(share <= 0))
        raise InputError(f"weights[{place}] is {share[place]:.6g}, expected a number above 0. Leave such points out.")
    if points and abs(share.sum() - 1) > _UNIT:
        raise InputError(f"weights sum to {share.sum():.6g}, expected 1. Pass weights / weights.sum().")
    root = np.sqrt(share)
    scaled = np.asarray(kernel) * (np.outer(root, root) if len(shape) == 2 and shape[1] == points else 1)
    spectrum = Spectrum.of(scaled)
    values = np.where(spectrum.learnable, np.maximum(spectrum.values, 0), 0)[::-1]
    return Mercer(values, (spectrum.vectors / root[:, None])[:, ::-1], share)


def rkhs_norm(eigenvalues: Any, coefficients: Any) -> float:
    """The norm of a function in the space of its kernel: `sqrt(sum_i a_i^2 / lam_i)`, from `mercer` or elsewhere.

    That space is the image of the square root of the kernel's operator: a function with a part on a mode of
    eigenvalue 0 is not in it, and its norm is infinite. On the points of a kernel matrix it is `sqrt(f' K^-1 f)`.

    Args:
        eigenvalues: `(modes,)`.
        coefficients: `(modes,)`.

    Returns:
        The norm.

    >>> from everwide.theory import eigenlearning
    >>> eigenlearning.rkhs_norm([1.0, 0.25, 0.0], [3.0, 2.0, 0.0])
    5.0
    """
    lam, a = checked_eigenvalues(eigenvalues), finite_array(coefficients, "coefficients")
    if a.shape != lam.shape:
        raise InputError(f"coefficients has shape {a.shape}, expected {lam.shape}: one for each of the eigenvalues.")
    size = float(np.linalg.norm(a))
    if (np.abs(a[lam == 0]) > _ROUNDING * size).any():
        return math.inf
    some = lam > 0
    return float(np.linalg.norm(a[some] / np.sqrt(lam[some])))


def cumulative_power(eigenvectors: Any, target: Any) -> Float[np.ndarray, " modes"]:
    """The share of a target's power on the first 1, 2, ... modes: how well a kernel is aligned with a task.

    Args:
        eigenvectors: `(points, modes)`, in columns, strongest first, orthogonal, of any length: those of `mercer` with
            equal weights, or `numpy.linalg.eigh(kernel)[1][:, ::-1]`.
        target: `(points,)` or `(points, outputs)`; outputs add up.

    Returns:
        `(modes,)`. The last share is 1 if the modes are complete, and less if some were left out.

    >>> import numpy as np
    >>> from everwide.theory import eigenlearning
    >>> eigenlearning.cumulative_power(np.eye(3), [2.0, 1.0, 1.0])
    array([0.66666667, 0.83333333, 1.        ])

    Canatar, Bordelon and Pehlevan, "Spectral bias and task-model alignment" (2021).
    """
    vectors, values = finite_array(eigenvectors, "eigenvectors"), finite_array(target, "target")
    if vectors.ndim != 2 or not vectors.size:
        raise InputError(f"eigenvectors has shape {vectors.shape}, expected (points, modes): a mode in each column.")
    if not values.ndim or len(values) != len(vectors):
        raise InputError(f"target has shape {values.shape}, expected ({len(vectors)},): a value for each row.")
    values = values.reshape(len(values), -1)
    total, lengths = np.sum(values**2), np.sum(vectors**2, 0)
    if not total > 0:
        raise InputError("target is 0 everywhere: it has no power to share among the modes.")
    if (lengths == 0).any():
        raise InputError(f"eigenvectors[:, {int(np.argmin(lengths))}] is 0: it is no mode. Leave it out.")
    return np.cumsum(np.sum((vectors.T @ values) ** 2, 1) / lengths) / total
