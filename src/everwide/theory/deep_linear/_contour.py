"""Mellin-Barnes integrals of products of Gamma functions, in logarithms."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.optimize
from scipy.special import digamma, loggamma, polygamma

# Stirling's series of log Gamma, in odd powers of 1/z; from `_FAR` on it is exact to rounding.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_FAR = 16.0
_NEGLIGIBLE = -50.0  # exponents below the largest one that do not count
_FIRST_STEP, _HALVINGS, _FARTHEST = 0.25, 10, 30.0
_AGREED, _ROUNDING = 1e-14, 16 * float(np.finfo(np.float64).eps)  # of the integral; of its exponents

_LOST = 1e-4  # rounding of exponents, beyond which an integrand has no digits


@dataclass(frozen=True)
class Gammas:
    """`prod_j [Gamma(x_j + d_j) / (Gamma(x_j) x_j^d_j)]^count_j` with `d_j = s - shift_j`, a function of `s`.

    Divided in this way a factor is near 1 for large `x_j`, so that many of them keep their digits. `Gamma(s)` itself
    has `x = 1` and `shift = 1`.
    """

    x: np.ndarray
    shift: np.ndarray
    count: np.ndarray

    @property
    def rightmost_pole(self) -> float:
        """No pole has a larger real part."""
        return float(np.max(self.shift - self.x))

    def log(self, right: np.ndarray) -> np.ndarray:
        """The logarithm, at a distance `right` to the right of the rightmost pole; real or complex."""
        z = right[..., None] + self._offsets
        return np.sum(self.count * _log_ratio(self.x, z), -1)

    def log_at(self, right: float) -> float:
        """The same for one real number."""
        return float(self.log(np.array([right]))[0])

    def log_derivative(self, right: float, order: int) -> float:
        """The derivative of the logarithm, of order 1, 2 or 3, on the real axis."""
        z = right + self._offsets
        if order == 1:
            return float(np.sum(self.count * (digamma(z) - np.log(self.x))))
        return float(np.sum(self.count * polygamma(order - 1, z)))

    @property
    def _offsets(self) -> np.ndarray:
        """From the rightmost pole to each one, exactly 0 for itself: a contour may pass very close to it."""
        return self.rightmost_pole - (self.shift - self.x)


def log_mellin_barnes(gammas: Gammas, rate: float) -> float:
    """`log (1 / 2 pi i) int gammas(s) exp(-rate s) ds`, on a contour to the right of all poles.

    The contour is a hyperbola that leaves the saddle point on the real axis along the path of steepest descent and
    opens to the left, where Gamma functions decay. There the trapezoidal rule converges geometrically.
    """
    pole = gammas.rightmost_pole
    saddle = _saddle(gammas, rate)
    second, third = gammas.log_derivative(saddle, 2), gammas.log_derivative(saddle, 3)
    width = second**-0.5
    bend = -third * width**3 / 3
    top = gammas.log_at(saddle) - rate * saddle

    def integrand(v: np.ndarray) -> np.ndarray:
        right = saddle + width * (1j * np.sinh(v) - bend * (np.cosh(v) - 1))
        slope = width * (1j * np.cosh(v) - bend * np.sinh(v))
        exponent = gammas.log(right) - rate * right - top
        return np.imag(np.exp(np.where(exponent.real < _NEGLIGIBLE, -np.inf, exponent)) * slope)

    rounding = _ROUNDING * (abs(top) + abs(rate * saddle))
    if rounding > _LOST:  # the saddle is so far out that its own Gaussian is all there is
        return top - rate * pole + math.log(width / math.sqrt(2 * math.pi))
    return top - rate * pole + math.log(_half_line(integrand, _AGREED + rounding) / math.pi)


def _half_line(integrand: Callable[[np.ndarray], np.ndarray], agreed: float) -> float:
    """The integral over `v > 0` of a function that has a maximum of order 1 near 0 and decays, by trapezoids."""
    step, end = _FIRST_STEP, _end(integrand)
    total = step * (0.5 * integrand(np.zeros(1))[0] + np.sum(integrand(np.arange(step, end, step))))
    for _ in range(_HALVINGS):
        step /= 2
        finer = total / 2 + step * np.sum(integrand(np.arange(step, end, 2 * step)))
        if abs(finer - total) <= agreed * abs(finer):
            return float(finer)
        total = finer
    raise ArithmeticError(
        "A Mellin-Barnes integral did not converge: the targets or widths are too extreme for float64. Rescale y, or "
        "use fewer, wider layers."
    )


def _end(integrand: Callable[[np.ndarray], np.ndarray]) -> float:
    """Where the integrand has become negligible for the first time; far behind, Gamma functions lose their digits."""
    v = np.arange(0, _FARTHEST, _FIRST_STEP)
    return float(v[np.argmax(integrand(v) == 0)]) + _FIRST_STEP


def _saddle(gammas: Gammas, rate: float) -> float:
    """The minimum of the integrand on the real axis, as a distance from the rightmost pole: it is convex there."""

    def slope(logarithm: float) -> float:
        return gammas.log_derivative(math.exp(logarithm), 1) - rate

    low, high = -1.0, 1.0
    while slope(low) > 0:
        low *= 2
        _within_range(low)
    while slope(high) < 0:
        high *= 2
        _within_range(high)
    return math.exp(root(slope, low, high))


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a continuous function changes its sign."""
    return float(scipy.optimize.root_scalar(function, bracket=(low, high), method="brentq", xtol=1e-15).root)


def _within_range(logarithm: float) -> None:
    if abs(logarithm) > 300:
        raise ArithmeticError(
            "The saddle point of a Mellin-Barnes integral is out of the range of float64: the targets are too large or "
            "too small for these widths. Rescale y or the variance."
        )


def _log_ratio(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """`log Gamma(z) - log Gamma(x) - (z - x) log x`, without cancellation where both are large."""
    far = (x >= _FAR) & (np.real(z) >= _FAR)
    away = np.where(far, z, 2 * _FAR)
    base = np.where(far, x, 2 * _FAR)
    change = away - base
    stirling = (away - 0.5) * _log1p(change / base) - change + _remainder(away) - _remainder(base)
    near = np.where(far, 1.0, z)
    direct = loggamma(near) - loggamma(x) - (near - x) * np.log(x)
    return np.where(far, stirling, direct)


def _remainder(z: np.ndarray) -> np.ndarray:
    inverse = 1 / z
    return inverse * np.polynomial.polynomial.polyval(inverse * inverse, _STIRLING)


def _log1p(z: np.ndarray) -> np.ndarray:
    """`log(1 + z)` of real and complex numbers; NumPy's own rounds small complex ones to the precision of 1."""
    if not np.iscomplexobj(z):
        return np.log1p(z)
    x, y = np.real(z), np.imag(z)
    return np.log1p(x * (2 + x) + y * y) / 2 + 1j * np.arctan2(y, 1 + x)
