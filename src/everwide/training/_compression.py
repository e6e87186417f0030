"""A function of many rows as one of fewer: the nearest in the norm of the kernel's own space."""

import math

import numpy as np

from ..spectral import Factor, KernelError


def rounding(gram: np.ndarray, dtype: np.dtype) -> float:
    """What cannot be told from 0 in a kernel that was computed in that precision."""
    own = gram.diagonal()
    noise = max(len(gram) * float(np.finfo(dtype).eps) * float(own.max()), float(np.finfo(np.float64).tiny))
    if own.min() < -noise:
        raise KernelError(f"The kernel is not positive semidefinite: of a row with itself it is {own.min():.3g}.")
    return noise


def pivots(gram: np.ndarray, kept: int, most: int, noise: float) -> np.ndarray:
    """At most `most` rows in order, the last `kept` among them; the others by pivoted Cholesky, as long as they add."""
    old = len(gram) - kept
    rest = gram[:old, :old]
    if kept:
        known = Factor.of(gram[old:, old:], noise).whiten(gram[old:, :old])
        rest = rest - known.T @ known
    order, rank = Factor.pivots(rest, noise)
    some = np.sort(order[: max(min(rank, most - kept), 1 - kept)])
    return np.concatenate([some, np.arange(old, len(gram))]).astype(int)


def projected(gram: np.ndarray, chosen: np.ndarray, coefficients: np.ndarray, noise: float) -> np.ndarray:
    """Coefficients of the chosen rows for the nearest function, in the norm of the kernel's own space."""
    among = gram[np.ix_(chosen, chosen)]
    wanted = gram[chosen] @ coefficients
    factor = Factor.of(among, noise)
    near = np.zeros_like(wanted)
    for _ in range(3):  # refined, so that the ridge which keeps the factor finite leaves no trace
        near = near + factor.solve(wanted - among @ near)
    return near


def relative_error(gram: np.ndarray, old: np.ndarray, chosen: np.ndarray, new: np.ndarray) -> float:
    """The norm of the difference of two functions over that of the old one."""
    apart = old.copy()
    apart[chosen] -= new
    apart_squared, squared = (max(float(np.sum(a * (gram @ a))), 0.0) for a in (apart, old))
    return math.sqrt(apart_squared / squared) if squared else 0.0
