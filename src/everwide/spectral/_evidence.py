"""How well a kernel explains targets, with derivatives in every entry: what kernels are learned by."""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float

from .._checks import Choice, InputError, finite_array, positive
from .._engine import KernelError

_potrf, _potrs, _potri = scipy.linalg.get_lapack_funcs(("potrf", "potrs", "potri"), dtype=np.float64)


class Criterion(Choice):
    """What a kernel is judged by."""

    LIKELIHOOD = "likelihood"
    LEFT_OUT = "left_out"


class Evidence(NamedTuple):
    """The smaller, the better; and its derivative in every entry of the kernel, which is symmetric."""

    value: float
    slope: Float[np.ndarray, "n n"]


def evidence(kernel: Any, y: Any, noise: float, *, by: Criterion | str = Criterion.LIKELIHOOD) -> Evidence:
    """How well a Gaussian process explains targets, per row, its amplitude being the best: for learning kernels.

    Args:
        kernel: `(n, n)`, symmetric.
        y: targets `(n,)` or `(n, outputs)`; all outputs share the amplitude.
        noise: the variance of targets in units of the kernel: it is added to the diagonal.
        by: `"likelihood"`, the negative logarithm of the marginal likelihood of an output, over the rows; or
            `"left_out"`, half of the logarithm of the mean squared error of rows that are predicted from all others.

    Returns:
        `value`, and `slope`, its derivative in the entries of the kernel, `(n, n)`. Constants are left out.

    >>> import numpy as np
    >>> from everwide.spectral import evidence
    >>> x = np.linspace(-1, 1, 20)
    >>> near, far = (np.exp(-(((x[:, None] - x) / length) ** 2)) for length in (1.0, 0.01))
    >>> evidence(near, np.sin(3 * x), 1e-3).value < evidence(far, np.sin(3 * x), 1e-3).value
    True
    """
    criterion = Criterion(by)
    noisy, targets = finite_array(kernel, "kernel"), finite_array(y, "y")
    n = len(targets)
    if noisy.shape != (n, n) or targets.ndim > 2:
        shapes = f"kernel {noisy.shape} and y {targets.shape}"
        raise InputError(f"{shapes}: expected (n, n), and (n,) or (n, outputs).")
    targets = targets.reshape(n, -1)
    noisy[np.diag_indices(n)] += positive(noise, "noise")
    lower, failed = _potrf(noisy, lower=1, overwrite_a=1)
    if failed:
        raise KernelError(f"The kernel with the noise {noise:.3g} is not positive definite. Add more noise.")
    log_det = 2 * float(np.log(np.diagonal(lower)).sum())
    solved = _potrs(lower, targets, lower=1)[0]
    inverse = np.tril(_potri(lower, lower=1, overwrite_c=1)[0])
    inverse += np.tril(inverse, -1).T
    if criterion is Criterion.LIKELIHOOD:
        fit = max(float(np.sum(targets * solved)), np.finfo(np.float64).tiny)
        value = 0.5 * np.log(fit / targets.size) + 0.5 * log_det / n
        return Evidence(float(value), 0.5 * inverse / n - 0.5 / fit * (solved @ solved.T))
    return _left_out(inverse, solved)


def _left_out(inverse: np.ndarray, solved: np.ndarray) -> Evidence:
    """From residuals `solved_i / inverse_ii` of rows that are predicted from all others."""
    own = np.diagonal(inverse)[:, None]
    residuals = solved / own
    total = max(float(np.sum(residuals**2)), np.finfo(np.float64).tiny)
    mixed = (inverse @ (residuals / own)) @ solved.T
    own_part = (inverse * (np.sum(residuals**2, 1) / own[:, 0])) @ inverse
    return Evidence(0.5 * float(np.log(total / solved.size)), (own_part - 0.5 * (mixed + mixed.T)) / total)
