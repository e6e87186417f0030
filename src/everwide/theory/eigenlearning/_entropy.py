"""How many balls cover the functions of a kernel."""

import math
from typing import Any, NamedTuple

import numpy as np

from ..._checks import InputError, at_least_zero, not_negative

_GAP = 6.0  # between both bounds


class EntropyNumber(NamedTuple):
    """Made by `entropy_number`."""

    lower: float
    upper: float


def entropy_number(eigenvalues: Any, bits: float, *, multiplicities: Any = None) -> EntropyNumber:
    """The smallest radius of `2^bits` balls that cover all functions of norm 1 of a kernel, between two bounds.

    It says how well a function is known, in the worst case, that is written down in so many bits. The functions are an
    ellipsoid, whose semi-axes are roots of eigenvalues: for eigenvalues that fall as `i^-a`, radii fall as
    `bits^(-a / 2)`.

    Args:
        eigenvalues: of the kernel, `(modes,)`, in any order.
        bits: the logarithm of the number of balls, to the base 2.
        multiplicities: how often each eigenvalue occurs; None is once.

    Returns:
        `lower` and `upper`, six times as much.

    >>> import numpy as np
    >>> from everwide.theory import eigenlearning
    >>> radius = eigenlearning.entropy_number(1 / np.arange(1, 1001) ** 2, 10)
    >>> round(radius.lower, 4), round(radius.upper, 4)
    (0.1117, 0.6702)

    Gordon, König and Schütt 1987, Geometric and probabilistic estimates for entropy and approximation numbers.
    """
    values = np.atleast_1d(at_least_zero(eigenvalues, "eigenvalues"))
    times = np.ones_like(values) if multiplicities is None else at_least_zero(multiplicities, "multiplicities")
    if values.ndim != 1 or times.shape != values.shape:
        raise InputError(f"eigenvalues {values.shape}, multiplicities {times.shape}: expected (modes,) of both.")
    seen = (values > 0) & (times > 0)
    order = np.argsort(-values[seen])
    logs, times = np.log(values[seen][order]) / 2, times[seen][order]
    if not len(logs):
        return EntropyNumber(0.0, 0.0)
    before = np.cumsum(times) - times
    products = np.cumsum(times * logs) - times * logs - not_negative(bits, "bits") * math.log(2)
    # among equal eigenvalues the bound is monotone: it is largest at the first or the last of them
    most = max(float(np.max((products + k * logs) / (before + k))) for k in (np.minimum(times, 1.0), times))
    return EntropyNumber(math.exp(most), _GAP * math.exp(most))
