"""The model that can be solved: one example, one hidden layer without an activation."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Course(NamedTuple):
    """Residuals and curvatures before the first step and after each; `residual` is the output, minus the target."""

    residual: Float[np.ndarray, " looks"]
    curvature: Float[np.ndarray, " looks"]


def recursion(output: float, curvature: float, rate: float, scale: float, steps: int, target: float = 0.0) -> Course:
    """Gradient descent on half the squared residual of `v . (u x) / sqrt(width)`, in two numbers, without any weights.

    `scale` is the squared length of `x` over the width; `curvature` is the tangent kernel, `scale` times the squared
    lengths of `v` and of `u x / |x|`. A course ends early where it overflows.

    Lewkowycz et al. 2020, equations of section 2; with a target.
    """
    z, k = float(output), float(curvature)
    courses = [(z - target, k)]
    for _ in range(steps):
        r = z - target
        step = rate * r
        z, k = z - step * k + scale * step**2 * z, k + scale * step * (step * k - 4 * z)
        if not (math.isfinite(z) and math.isfinite(k) and abs(z) < 1e100):
            break
        courses.append((z - target, k))
    return Course(*(np.asarray(part) for part in zip(*courses, strict=True)))


def limit(width: int, draws: int, seed: int, steps: int = 400) -> Float[np.ndarray, " draws"]:
    """The largest rate from which the residual still falls, in units of one over the curvature at the start.

    A bisection for each of several draws of the weights, for a target of 0.
    """
    rng, found = np.random.default_rng(seed), []
    for _ in range(draws):
        u, v = rng.normal(size=(2, width))
        output, curvature = float(u @ v) / width**0.5, float(u @ u + v @ v) / width
        low, high = 1.0, 16.0
        while high / low > 1.0005:
            middle = math.sqrt(low * high)
            course = recursion(output, curvature, middle / curvature, 1 / width, steps)
            falls = len(course.residual) > steps and abs(course.residual[-1]) < abs(course.residual[0])
            low, high = (middle, high) if falls else (low, middle)
        found.append(math.sqrt(low * high))
    return np.asarray(found)
