"""Gaussian moments of a function by quadrature: what the closed forms are tested against.

A *blur* `blur(mean, variance)` is `E[f(mean + sqrt(variance) z)]`, analytic in `mean`; with it a moment over two
Gaussians is a one-dimensional integral, and complex steps give derivatives without subtraction. Functions with kinks
are homogeneous: polar coordinates leave an integral over the angle, smooth between the kinks.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from scipy.special import erf, gamma

Blur = Callable[[np.ndarray, float], np.ndarray]
Plain = Callable[[np.ndarray], np.ndarray]

_STEP = 1e-30


def _panels(edges: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    x, w = np.polynomial.legendre.leggauss(points)
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    return (middle[:, None] + half[:, None] * x).ravel(), (half[:, None] * w).ravel()


_SIDE = np.concatenate([np.linspace(0, 0.5, 20), np.linspace(0.5, 18, 60)[1:]])
_X, _W = _panels(np.concatenate([-_SIDE[:0:-1], _SIDE]), 16)
_DENSITY = _W * np.exp(-(_X**2) / 2) / np.sqrt(2 * np.pi)


def derivative(f: Plain) -> Plain:
    """By a complex step: no subtraction."""
    return lambda x: np.imag(f(x + 1j * _STEP)) / _STEP


def smooth_moments(blur: Blur, var1: float, cov: float, var2: float) -> tuple[float, float]:
    """`E[f(u) f(v)]` and `E[f'(u) f'(v)]`; the arguments are exact numbers."""
    if var1 < var2:
        var1, var2 = var2, var1
    if var1 == 0:
        zero = np.zeros(1)
        return float(blur(zero, 0.0)[0] ** 2), float(derivative(lambda x: blur(x, 0.0))(zero)[0] ** 2)
    rest = max(float(Fraction(var2) - Fraction(cov) ** 2 / Fraction(var1)), 0.0)
    u = np.sqrt(var1) * _X
    given = u * float(Fraction(cov) / Fraction(var1))
    moment = _DENSITY @ (blur(u, 0.0) * blur(given, rest))
    slope = _DENSITY @ (derivative(lambda x: blur(x, 0.0))(u) * derivative(lambda x: blur(x, rest))(given))
    return float(moment), float(slope)


def mean(f: Plain, var: float) -> float:
    """`E[f(u)]`, for functions with at most a kink at zero."""
    return float(_DENSITY @ f(np.sqrt(var) * _X))


def homogeneous_moment(f: Plain, degree: int, angle: float) -> float:
    """`E[f(u) f(v)]` for unit variances, `f(r x) = r^degree f(x)` for `r > 0`, and an angle between `u` and `v`."""
    psi, w = _circle(degree, angle)
    return float(w @ (f(np.cos(psi)) * f(np.cos(psi - angle))))


def homogeneous_distances(f: Plain, degree: int, std1: float, std2: float, angle: float) -> tuple[float, float]:
    """`E[(f(u) -+ f(v))^2]`: the integrand is positive, so that small results are accurate relative to themselves."""
    psi, w = _circle(degree, angle)
    one, other = std1**degree * f(np.cos(psi)), std2**degree * f(np.cos(psi - angle))
    return float(w @ (one - other) ** 2), float(w @ (one + other) ** 2)


def _circle(degree: int, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes between the kinks, and weights that include the integral over the radius."""
    psi, w = _panels(np.sort([-np.pi / 2, angle - np.pi / 2, np.pi / 2, angle + np.pi / 2, 3 * np.pi / 2]), 40)
    return psi, w * (2**degree * gamma(degree + 1) / (2 * np.pi))


def blur_by_nodes(f: Plain, points: int) -> Blur:
    """Gauss-Hermite: exact for polynomials of a degree below twice the number of points."""
    x, w = np.polynomial.hermite_e.hermegauss(points)
    w = w / w.sum()
    return lambda mean, var: sum(wi * f(mean + np.sqrt(var) * xi) for xi, wi in zip(x, w, strict=True))


def blur_erf(a: float, b: float, c: float) -> Blur:
    return lambda mean, var: a * erf(b * mean / np.sqrt(1 + 2 * b**2 * var)) + c


def blur_gelu(mean: np.ndarray, var: float) -> np.ndarray:
    t = mean / np.sqrt(1 + var)
    density = np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi)
    return mean * (1 + erf(t / np.sqrt(2))) / 2 + var / np.sqrt(1 + var) * density


def blur_sin(a: float, b: float, c: float) -> Blur:
    return lambda mean, var: a * np.exp(-(b**2) * var / 2) * np.sin(b * mean + c)


def blur_exp(a: float, b: float) -> Blur:
    return lambda mean, var: a * np.exp(b * mean + b**2 * var / 2)


def blur_gaussian(a: float, b: float) -> Blur:
    return lambda mean, var: a * np.exp(b * mean**2 / (1 - 2 * b * var)) / np.sqrt(1 - 2 * b * var)


def blur_gabor(mean: np.ndarray, var: float) -> np.ndarray:
    wide = 1 + 2 * var
    return np.exp(-(mean**2 + var / 2) / wide) * np.sin(mean / wide) / np.sqrt(wide)
