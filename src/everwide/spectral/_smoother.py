"""Predictions from a kernel without any solving."""

from typing import Any

import numpy as np
from jaxtyping import Float

from .._checks import InputError, finite_array


def kernel_smoother(cross: Any, y: Any) -> Float[np.ndarray, "m *outputs"]:
    """Predictions without any solving: means of the targets, weighted by the kernel, `sum_i K_i y_i / sum_i K_i`.

    Args:
        cross: `(m, n)`, kernels of new rows with those of `y`; every row has a sum above 0.
        y: `(n,)` or `(n, outputs)`.

    Returns:
        `(m,)` or `(m, outputs)`.

    >>> import everwide.spectral as sp
    >>> sp.kernel_smoother([[1.0, 3.0], [2.0, 0.0]], [0.0, 4.0])
    array([3., 0.])

    Nadaraya 1964, On estimating regression; Watson 1964, Smooth regression analysis.
    """
    weights, targets = finite_array(cross, "cross"), finite_array(y, "y")
    if weights.ndim != 2 or targets.ndim not in (1, 2) or len(targets) != weights.shape[1]:
        raise InputError(f"cross {weights.shape} and y {targets.shape}: expected (m, n) with (n,) or (n, outputs).")
    sums = weights.sum(1)
    if not (sums > 0).all():
        raise InputError(f"cross[{int(np.argmin(sums))}] sums to {sums.min():.6g}: expected kernels with sums above 0.")
    return (weights @ targets) / sums.reshape(-1, *[1] * (targets.ndim - 1))
