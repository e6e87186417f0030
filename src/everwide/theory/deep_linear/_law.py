"""The law of a product of random matrices, by a contour integral."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import digamma, log1p, loggamma, polygamma

from ..._checks import InputError, positive, whole
from ..._checks import hidden_widths as all_hidden
from .._host import falling_bracket, root_between, trapezoids

# Stirling's series of log Gamma, in odd powers of 1/z; from `_FAR` on it is exact to rounding.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_FAR = 16.0
_NEGLIGIBLE = -50.0  # exponents below the largest one that do not count
_FIRST_STEP, _FARTHEST = 0.25, 30.0
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
        scale = np.log(self.x) if order == 1 else 0.0
        return float(np.sum(self.count * (polygamma(order - 1, z) - scale)))

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
    steps = _steps(integrand)
    fault = (
        "A Mellin-Barnes integral did not converge: the targets or widths are too extreme for float64. Rescale y, or "
        "use fewer, wider layers."
    )
    area = trapezoids(integrand, steps * _FIRST_STEP, steps, _AGREED + rounding, fault)
    return top - rate * pole + math.log(area / math.pi)


def _steps(integrand: Callable[[np.ndarray], np.ndarray]) -> int:
    """After which the integrand is negligible for the first time; far behind, Gamma functions lose their digits."""
    return int(np.argmax(integrand(np.arange(0, _FARTHEST, _FIRST_STEP)) == 0)) + 1


def _saddle(gammas: Gammas, rate: float) -> float:
    """The minimum of the integrand on the real axis, as a distance from the rightmost pole: it is convex there."""

    def fall(logarithm: float) -> float:
        if abs(logarithm) > 300:
            raise ArithmeticError(
                "The saddle point of a Mellin-Barnes integral is out of the range of float64: the targets are too "
                "large or too small for these widths. Rescale y or w_std."
            )
        return rate - gammas.log_derivative(math.exp(logarithm), 1)

    return math.exp(root_between(fall, *falling_bracket(fall, 0.0)))


def _log_ratio(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """`log Gamma(z) - log Gamma(x) - (z - x) log x`, without cancellation where both are large."""
    far = (x >= _FAR) & (np.real(z) >= _FAR)
    away = np.where(far, z, 2 * _FAR)
    base = np.where(far, x, 2 * _FAR)
    change = away - base
    stirling = (away - 0.5) * log1p(change / base) - change + _remainder(away) - _remainder(base)
    near = np.where(far, 1.0, z)
    direct = loggamma(near) - loggamma(x) - (near - x) * np.log(x)
    return np.where(far, stirling, direct)


def _remainder(z: np.ndarray) -> np.ndarray:
    inverse = 1 / z
    return inverse * np.polynomial.polynomial.polyval(inverse * inverse, _STIRLING)


@dataclass(frozen=True)
class ScaleLaw:
    """The law of `prod_l (variance / n_l) chi^2(n_l)`: the squared size of a product of random matrices."""

    widths: tuple[int, ...]
    variance: float = 1.0

    @property
    def mean(self) -> float:
        """The mean: the variance to the power of the number of layers."""
        return self.variance ** len(self.widths)

    @property
    def log_mean(self) -> float:
        """The mean of the logarithm."""
        n = np.array(self.widths, float)
        return float(np.sum(digamma(n / 2) - np.log(n / 2))) + len(n) * math.log(self.variance)

    @property
    def log_variance(self) -> float:
        """The variance of the logarithm, which is nearly Gaussian: about `2 sum 1 / n_l`."""
        return float(np.sum(polygamma(1, np.array(self.widths, float) / 2)))

    def log_moment(self, order: float) -> float:
        """`log E[S^order]`; infinite unless `order > -min(widths) / 2`."""
        if not self.widths:
            return 0.0
        if math.isnan(order) or order == math.inf:
            raise InputError(f"log_moment(order={order!r}): expected a finite number.")
        gammas = self.gammas(0.0)
        right = order - gammas.rightmost_pole
        if right <= 0:
            return math.inf
        return gammas.log_at(right) + order * len(self.widths) * math.log(self.variance)

    def logpdf(self, value: Any) -> np.ndarray:
        """The log density at positive numbers."""
        values = np.asarray(value, np.float64)
        if not self.widths:
            raise InputError("A product of no factors is the constant 1, and has no density.")
        if not (np.isfinite(values) & (values > 0)).all():
            raise InputError(f"ScaleLaw.logpdf({value!r}): expected finite numbers above 0.")
        scale = len(self.widths) * math.log(self.variance)
        gammas = self.gammas(0.0)
        logs = np.log(values)
        density = [log_mellin_barnes(gammas, log - scale) - log for log in logs.ravel().tolist()]
        return np.array(density).reshape(values.shape)

    def sample(self, n: int, seed: int = 0) -> np.ndarray:
        """Independent draws."""
        rng, logs = np.random.default_rng(seed), np.zeros(whole(n, "n"))
        for width in self.widths:
            logs += np.log(rng.chisquare(width, n) * (self.variance / width))
        return np.exp(logs)

    def log_tilted(self, power: float, rate: float) -> float:
        """`log E[S^-power exp(-rate / S)]`, for `rate` 0 or more."""
        if rate == 0:
            return self.log_moment(-power)
        if not self.widths:
            return -rate
        inner = self.gammas(power)
        gammas = Gammas(np.append(1.0, inner.x), np.append(1.0, inner.shift), np.append(1.0, inner.count))
        scale = len(self.widths) * math.log(self.variance)
        return log_mellin_barnes(gammas, math.log(rate) - scale) - power * scale

    def gammas(self, shift: float) -> Gammas:
        """The Mellin transform `E[S^(s - shift)]` as a function of `s`, for variance 1."""
        widths, count = np.unique(np.array(self.widths, float), return_counts=True)
        return Gammas(widths / 2, np.full(len(widths), float(shift)), count.astype(float))


def prior_norm(inputs: int, hidden_widths: Sequence[int], w_std: float = 1.0) -> ScaleLaw:
    """The law of `|theta|^2` of a random deep linear network `f(x) = theta . x`, exact at every width.

    The logarithm of `|theta|` has a mean near `-L / (2 n)` and a variance near `L / (2 n)` for `L` layers of width `n`:
    depth and width do not commute.

    Args:
        inputs: the dimension of `x`.
        hidden_widths: one for each hidden layer.
        w_std: weights have variance `w_std^2 / fan_in`.

    Returns:
        The law of a product of chi-squared variables: `mean`, `log_mean`, `log_variance`, `log_moment(order)`,
        `logpdf(value)`, `sample(n, seed)`.

    >>> from everwide.theory import deep_linear
    >>> shallow, deep = (deep_linear.prior_norm(100, [100] * hidden) for hidden in (1, 99))
    >>> round(shallow.log_variance / 4, 4), round(deep.log_variance / 4, 4)
    (0.0101, 0.505)

    Hanin and Nica, "Products of many large random matrices and gradients in deep neural networks" (2020).
    """
    return ScaleLaw((whole(inputs, "inputs"), *all_hidden(hidden_widths)), positive(w_std, "w_std") ** 2)
