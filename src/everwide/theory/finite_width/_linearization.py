"""How far two-layer networks can be from their linearization, before anything is trained."""

from typing import Any

import numpy as np
from jaxtyping import Float

from ..._checks import InputError, finite_array, not_negative, positive, probability


def linearization_bound(
    radius: Any, *, width: float, curvature: float | None = None, delta: float | None = None
) -> Float[np.ndarray, "*radii"]:
    """The most by which `sum_j a_j s(w_j . x) / sqrt(width)` can differ from its linearization in `w`.

    For `|a_j| <= 1` and `|x| <= 1`. With a bound on `|s''|`: `curvature radius^2 / (2 sqrt(width))`. For ReLU,
    `|x| = 1` and Gaussian initial weights, over all weights within `radius` with probability `1 - delta`:
    `(2 radius^(4/3) + radius log(1 / delta)^(1/4)) / width^(1/6)`.

    Args:
        radius: Frobenius distances of the weights `w` from where the network was linearized.
        width: hidden units.
        curvature: a bound on `|s''|`; for tanh `4 / (3 sqrt 3)`.
        delta: instead of `curvature`, for ReLU: the risk that the bound is wrong.

    Returns:
        A bound for each radius.

    >>> from everwide.theory import finite_width
    >>> float(finite_width.linearization_bound(2.0, width=100, curvature=0.5))
    0.1
    >>> round(float(finite_width.linearization_bound(1.0, width=10**6, delta=0.05)), 3)
    0.332
    """
    distance, units = finite_array(radius, "radius"), positive(width, "width")
    if (distance < 0).any():
        raise InputError(f"radius={radius!r}: expected distances, 0 or more.")
    if (curvature is None) == (delta is None):
        raise InputError("linearization_bound: expected curvature= (smooth activations) or delta= (ReLU), one of both.")
    if delta is None:
        return np.asarray(not_negative(curvature, "curvature") * distance**2 / (2 * units**0.5))
    risk = np.log(1 / probability(delta, "delta")) ** 0.25
    return np.asarray((2 * distance ** (4 / 3) + distance * risk) / units ** (1 / 6))


def relu_linearization_sup(z: Any, a: Any, radius: float) -> float:
    """The largest difference between a ReLU network and its linearization, exactly, over all weights within `radius`.

    The network is `sum_j a_j relu(w_j . x) / sqrt(m)` with `|x| = 1`. A neuron gains `|u| - |z|` by moving past its
    kink. So the worst movement takes the `k` neurons of one sign that are nearest to theirs, and gives each the same
    share: `(radius sqrt(k) - sum of the k smallest |z|) / sqrt(m)`. For Gaussian weights it approaches
    `0.438 radius^(4/3) m^(-1/6)`.

    Args:
        z: `(m,)`, the preactivations `w_j . x` where it was linearized.
        a: `(m,)`, output weights, each 1 or -1.
        radius: Frobenius distance of the weights.

    Returns:
        The difference.

    >>> import numpy as np
    >>> from everwide.theory import finite_width
    >>> finite_width.relu_linearization_sup([0.0, 3.0, 1.0, 9.0], [1, 1, -1, -1], 2.0)
    1.0
    """
    near, signs, reach = np.abs(finite_array(z, "z")), finite_array(a, "a"), not_negative(radius, "radius")
    if near.ndim != 1 or near.shape != signs.shape or not near.size:
        raise InputError(f"z has shape {near.shape} and a {signs.shape}: both must be (m,), one number for a neuron.")
    if not (np.abs(signs) == 1).all():
        raise InputError("a must hold 1 and -1 only: the formula does not cover other output weights.")
    best = 0.0
    for sign in (1, -1):
        costs = np.cumsum(np.sort(near[signs == sign]))
        best = max(best, *(reach * np.sqrt(np.arange(1, len(costs) + 1)) - costs), 0.0)
    return float(best) / len(near) ** 0.5
