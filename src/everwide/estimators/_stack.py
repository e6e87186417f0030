"""Several networks together: how much each one says, from predictions of rows that it has not learned from."""

import numpy as np
import scipy.optimize
from jaxtyping import Float

from ._scaling import counted

_ROWS = 300.0  # that speak for equal shares: few rows tell luck from merit badly
_LEAST = 0.03  # of all shares: below, a network is left out


def shares(
    predicted: Float[np.ndarray, "members n k"], y: Float[np.ndarray, "n k"], weights: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " members"]:
    """Of networks in their sum: non-negative, with the smallest squared error; the fewer rows, the more alike.

    The penalty is that of `_ROWS` more rows, on which networks differ by as much as the best one errs.
    """
    members, n, k = predicted.shape
    root = np.sqrt(weights * counted(weights) / weights.sum())[:, None]
    errors = np.average(np.mean((predicted - y) ** 2, axis=2), axis=1, weights=weights)
    doubt = np.sqrt(_ROWS * max(float(errors.min()), np.finfo(np.float64).tiny) * k)
    design = np.concatenate([(root * predicted).reshape(members, n * k).T, doubt * np.eye(members)])
    wanted = np.concatenate([(root * y).ravel(), np.full(members, doubt / members)])
    free = scipy.optimize.nnls(design, wanted)[0]
    kept = np.where(free < _LEAST * free.sum(), 0.0, free)
    return kept * (free.sum() / kept.sum()) if kept.any() else np.full(members, 1 / members)
