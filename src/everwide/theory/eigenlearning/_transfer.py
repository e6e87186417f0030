"""One training set: what is learned of each target."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float

from ..._checks import InputError, finite_array, not_negative, row_weights, whole
from ..._engine import KernelOperator, checked_kernel
from ...spectral import Factor, KernelError, Spectrum, leading
from ...spectral import ridge as ridge_filter
from ._hermite import checked_eigenvalues

_PRECISE = 1e-5  # residuals of the strongest modes, of the largest eigenvalue
_UNIT = 1e-6  # by which weights may miss a sum of 1
_ROUNDING = 1e-10  # share of a norm that rounding leaves on modes of eigenvalue 0


class Mercer(eqx.Module):
    """`K(x, x') = sum_i lam_i psi_i(x) psi_i(x')` on points with weights. Made by `mercer`."""

    eigenvalues: Float[np.ndarray, " modes"]
    eigenfunctions: Float[np.ndarray, "points modes"]
    weights: Float[np.ndarray, " points"]
    rest: float = 0.0  # the sum of the eigenvalues that are not here

    def coefficients(self, target: Any) -> Float[np.ndarray, "modes *outputs"]:
        """Of values `(points,)` or `(points, outputs)`: what `learning_curve` asks for, one output at a time."""
        return np.tensordot(self.eigenfunctions * self.weights[:, None], _values(target, len(self.weights)), (0, 0))

    def cumulative_power(self, target: Any) -> Float[np.ndarray, " modes"]:
        """The share of a target's power on the first 1, 2, ... modes: how well the kernel is aligned with a task.

        Of values `(points,)` or `(points, outputs)`; outputs add up.

        Canatar, Bordelon and Pehlevan, "Spectral bias and task-model alignment" (2021).
        """
        powers = np.sum(self.coefficients(target).reshape(len(self.weights), -1) ** 2, 1)
        if not powers.any():
            raise InputError("target is 0 everywhere: it has no power to share among the modes.")
        return np.cumsum(powers) / np.sum(powers)


class Transfer(NamedTuple):
    """Made by `transfer_matrix`."""

    matrix: Float[np.ndarray, "modes modes"]
    jacobian: Float[np.ndarray, "modes modes"]

    @property
    def learnability(self) -> Float[np.ndarray, " modes"]:
        """Of each mode, from 0 to 1."""
        return self.matrix.diagonal()


def mercer(kernel: Any, weights: Any = None, *, modes: int | None = None) -> Mercer:
    """Decompose a kernel matrix as an operator on functions of its points, each with a weight, by default all equal.

    On a random sample of M rows, `eigenvalues` estimates the spectrum of the kernel under the distribution of the
    rows: those of `kernel / M`. The strongest modes are accurate, the weakest of a sample are not.

    Args:
        kernel: `(M, M)`; or `everwide.operator(net, x)`, for more rows than a matrix may have.
        weights: `(M,)`, above 0, in all 1; of an operator they are equal.
        modes: how many of the strongest are found, by products alone; by default all.

    Returns:
        `eigenvalues`, `(modes,)`, descending, 0 where they are zero up to rounding; `eigenfunctions`,
        `(points, modes)`, orthonormal: `psi.T @ (weights[:, None] * psi)` is the identity; `weights`; `rest`: the sum
        of the eigenvalues that were not asked for; `coefficients(target)`: what `learning_curve` asks for;
        `cumulative_power(target)`: the share of its power on the first 1, 2, ... modes. Modes far weaker than what is
        learned act as a ridge, `learning_curve(..., ridge=ridge + modes.rest)`, and what a target has along them as
        noise.

    >>> import numpy as np
    >>> from everwide.theory import eigenlearning
    >>> x = np.linspace(-1, 1, 50)
    >>> modes = eigenlearning.mercer(np.exp(-((x[:, None] - x) ** 2)))
    >>> bool(np.isclose(modes.eigenvalues.sum(), 1.0))  # the mean of the diagonal
    True
    """
    if modes is not None or isinstance(kernel, KernelOperator):
        return _strongest(kernel, weights, modes)
    points = len(checked_kernel(kernel))
    share = np.full(points, 1 / points) if weights is None else row_weights(weights, points)
    if abs(share.sum() - 1) > _UNIT:
        raise InputError(f"weights sum to {share.sum():.6g}, expected 1. Pass weights / weights.sum().")
    spectrum = Spectrum.of(kernel, weights=share)
    values = np.where(spectrum.learnable, np.maximum(spectrum.values, 0), 0)[::-1]
    return Mercer(values, (spectrum.vectors / spectrum.roots[:, None])[:, ::-1], share)


def _strongest(kernel: Any, weights: Any, modes: int | None) -> Mercer:
    if weights is not None or modes is None:
        raise InputError(
            f"mercer(weights={'None' if weights is None else 'given'}, modes={modes}): of an operator, and of some "
            "modes, rows have equal weights, and modes= says how many."
        )
    matrix = kernel if isinstance(kernel, KernelOperator) else checked_kernel(kernel)
    points = len(matrix)
    pairs = leading(matrix, whole(modes, "mercer: modes"), tolerance=_PRECISE)
    values = np.maximum(pairs.values.astype(np.float64), 0) / points
    rest = float(matrix.diagonal().mean(dtype=np.float64) - values.sum())
    functions = pairs.vectors.astype(np.float64) * points**0.5
    return Mercer(values, functions, np.full(points, 1 / points), max(rest, 0.0))


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


def transfer_matrix(eigenvalues: Any, eigenfunctions: Any, ridge: float = 0.0) -> Transfer:
    """The matrix `T` that maps coefficients of a target to those of what is learned from its values on n examples.

    The learnability of a mode never falls when examples are added. A stronger mode is learned better (the diagonal of
    the Jacobian is at least 0) at the cost of every other (the rest is at most 0; without a ridge, rows sum to 0).
    Without a ridge `T` is a projection, but an oblique one: the learnability `v' T v / v' v` of a mixture of modes can
    fall, and can leave the interval from 0 to 1.

    Args:
        eigenvalues: `(modes,)`.
        eigenfunctions: `(n, modes)`, at the training examples, orthonormal over the domain.
        ridge: added to the kernel's diagonal.

    Returns:
        `matrix`: `T`, `(modes, modes)`; `learnability`: its diagonal, from 0 to 1; `jacobian`: `[i, j]` the derivative
        of the learnability of mode `j` in the eigenvalue of mode `i`.

    >>> import numpy as np
    >>> from everwide.theory import eigenlearning
    >>> circle = np.array([0.0, 1.0, 2.5])
    >>> phi = np.stack([np.ones(3), 2**0.5 * np.cos(circle), 2**0.5 * np.sin(circle)], 1)
    >>> float(np.round(eigenlearning.transfer_matrix([1.0, 0.5, 0.5], phi[:2]).learnability.sum(), 10))
    2.0
    >>> eigenlearning.transfer_matrix([1.0, 1.0], np.array([[1.0, 1.0]])).jacobian
    array([[ 0.25, -0.25],
           [-0.25,  0.25]])

    Simon et al., "The eigenlearning framework" (2021).
    """
    lam, phi = checked_eigenvalues(eigenvalues), np.asarray(eigenfunctions)
    phi = finite_array(phi, "eigenfunctions") if phi.size else phi  # no examples are examples too
    if phi.ndim != 2 or phi.shape[1] != len(lam):
        raise InputError(f"eigenfunctions has shape {phi.shape}, expected (n, {len(lam)}): a mode in each column.")
    not_negative(ridge, "transfer_matrix: ridge")
    try:
        solved = Factor.of((phi * lam) @ phi.T, ridge).solve(phi) if len(phi) else phi
    except KernelError:
        raise KernelError(
            f"transfer_matrix: the kernel of the {len(phi)} examples is singular: {np.sum(lam > 0)} modes have an "
            "eigenvalue above 0, and examples may repeat. Use more modes, different examples, or a ridge."
        ) from None
    overlap = phi.T @ np.asarray(solved)
    return Transfer(lam[:, None] * overlap, np.diag(overlap.diagonal()) - lam[None, :] * overlap * overlap.T)


def learnability(kernel: Any, rows: Any, target: Any = None, ridge: float = 0.0) -> float:
    """`<f, f_hat> / <f, f>`: the part of a target that is learned from its values at some rows of the domain.

    0 without examples, 1 with all of them (no ridge, a positive definite kernel). In between it may leave that
    interval, and fall with more examples, unless the target is an eigenfunction. The sum over any complete orthonormal
    set of targets is the rank of the kernel of the training examples, or `n - ridge tr((K + ridge)^-1)`: no kernel is
    better on average.

    Args:
        kernel: `(m, m)`, of all points of the domain.
        rows: indices of the training examples.
        target: `(m,)` or `(m, outputs)`, its values at all points; `None`: that sum.
        ridge: added to the kernel's diagonal.

    Returns:
        The part, or the sum.

    >>> import numpy as np
    >>> from everwide.theory import eigenlearning
    >>> eigenlearning.learnability(np.eye(4), [0, 1], [1.0, 1.0, 1.0, 1.0])
    0.5
    >>> eigenlearning.learnability(np.eye(5), range(5)), eigenlearning.learnability(np.eye(5), range(5), ridge=1.0)
    (5.0, 2.5)

    Simon et al. (2021).
    """
    matrix = checked_kernel(kernel)
    chosen = _indices(rows, len(matrix))
    values = None if target is None else _values(target, len(matrix)).reshape(len(matrix), -1)
    if values is not None and not np.any(values):
        raise InputError("target is 0 everywhere: there is nothing to learn.")
    if not len(chosen):
        return 0.0
    spectrum = Spectrum.of(matrix[np.ix_(chosen, chosen)])
    if values is None:
        return float(np.sum(np.maximum(spectrum.values, 0) * spectrum.response(ridge_filter(ridge))))
    weights = spectrum.apply(ridge_filter(ridge), values[chosen])
    return float(np.sum(values * (matrix[:, chosen] @ weights)) / np.sum(values**2))


def _values(target: Any, points: int) -> np.ndarray:
    values = finite_array(target, "target")
    if values.ndim not in (1, 2) or len(values) != points or not values.size:
        raise InputError(f"target has shape {values.shape}, expected ({points},): a value at each point.")
    return values


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
