"""Gradient flow as a sum of resolvents: what is exact for ridges is thereby exact for stopping times.

Each row left out, predicted from all others, has a closed form for ridge regression, even for a complex ridge. By the
inverse Laplace transform, `(1 - exp(-x)) / x` is the integral of `exp(s) / (s (s + x))` over a contour around the
negative axis. On a parabola, few points of the trapezoidal rule give it to rounding (Weideman and Trefethen 2007,
"Parabolic and hyperbolic contours for computing the Bromwich integral").
"""

import numpy as np
from jaxtyping import Complex

_POINTS = 28  # the error falls as 2.85 ** -points: 4e-11 of the value, for every x


def resolvents() -> tuple[Complex[np.ndarray, " p"], Complex[np.ndarray, " p"]]:
    """Ridges `z` and factors `c` with `(1 - exp(-x)) / x = sum of Re(c / (x + z))` for all `x >= 0`."""
    theta = np.pi * np.arange(1, _POINTS, 2) / _POINTS  # the upper half; the lower one is its mirror image
    s = _POINTS * (0.1309 - 0.1194 * theta**2 + 0.2500j * theta)
    ds = _POINTS * (-2 * 0.1194 * theta + 0.2500j)
    return s, 2 * (2 * np.pi / _POINTS) * np.exp(s) * ds / (2j * np.pi) / s
