"""The model that can be solved: one example, one hidden layer without an activation."""

import math

import numpy as np
from jaxtyping import Float

from everwide.theory.stability import catapult


def limit(width: int, draws: int, seed: int, steps: int = 400) -> Float[np.ndarray, " draws"]:
    """The largest rate from which the residual still falls, in units of one over the curvature at the start.

    A bisection for each of several draws of the weights, for a target of 0.
    """
    rng, limits = np.random.default_rng(seed), []
    for _ in range(draws):
        u, v = rng.normal(size=(2, width))
        output, curvature = float(u @ v) / width**0.5, float(u @ u + v @ v) / width
        low, high = 1.0, 16.0
        while high / low > 1.0005:
            middle = math.sqrt(low * high)
            phase = catapult(output, curvature, middle / curvature, scale=1 / width, steps=steps).phase
            falls = phase in ("lazy", "catapult")
            low, high = (middle, high) if falls else (low, middle)
        limits.append(math.sqrt(low * high))
    return np.asarray(limits)
