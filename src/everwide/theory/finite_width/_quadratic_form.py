"""Tail probabilities of quadratic forms of Gaussian vectors, to all digits.

`Q = sum_i lam_i sum_{e <= copies} (g_ie + m_ie)^2` has the logarithmic moment generating function
`C(s) = sum_i b_i s / (1 - 2 lam_i s) - copies/2 log(1 - 2 lam_i s)`, `b_i = lam_i sum_e m_ie^2`, and
`P(Q > q) = 1/(2 pi i) int exp(C(s) - q s) ds / s` along any path that crosses the real axis between 0 and
`1 / (2 lam_max)`. Through the saddle point, along a parabola that opens to the right, the integrand neither cancels nor
oscillates and falls like a Gaussian, so that the trapezoidal rule converges faster than any power: nodes are doubled
until it has.
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Complex, Float

_TOLERANCE = 1e-11  # relative change between two rules, the second of which is far better than that
_FIRST, _LAST = 32, 2**17  # nodes
_REACH = 45.0  # the logarithm by which the integrand has fallen at the end


class QuadraticForm(NamedTuple):
    """`lam`: weights, at least 0 and not all 0; `shift`: `b` above, at least 0; `copies` of each."""

    lam: Float[np.ndarray, " n"]
    shift: Float[np.ndarray, " n"]
    copies: int

    def log_mgf(self, s: Complex[np.ndarray, " k"]) -> Complex[np.ndarray, " k"]:
        """`C(s)`, off the cut from `1 / (2 lam_max)` to infinity."""
        rest = 1 - 2 * np.multiply.outer(s, self.lam)
        return s * ((1 / rest) @ self.shift) - self.copies / 2 * np.log(rest).sum(-1)

    def derivative(self, s: float, order: int) -> float:
        """The first, second or third derivative of `C` at a real point."""
        rest = 1 - 2 * self.lam * s
        ratio = 2 * self.lam / rest
        shifted = self.shift / rest**2 * ratio ** (order - 1)  # times order!: d^k/ds^k of s / (1 - 2 lam s)
        central = self.copies / 2 * ratio**order  # times (order - 1)!
        return float(math.factorial(order) * shifted.sum() + math.factorial(order - 1) * central.sum())

    @property
    def least(self) -> float:
        """What is never undercut: the part that is not random."""
        return float(self.shift[self.lam == 0].sum())

    def log_survival(self, q: float) -> float:
        """`log P(Q > q)`."""
        if q <= self.least:
            return 0.0
        if q < self.derivative(0.0, 1):  # below the mean, where the other tail is the smaller one
            return math.log1p(-math.exp(min(self._log_tail(q, self._saddle_below(q)), 0.0)))
        return min(self._log_tail(q, self._saddle_above(q)), 0.0)

    def _log_tail(self, q: float, saddle: float) -> float:
        """The logarithm of the integral through a saddle point: of `P(Q > q)` right of 0, of `P(Q < q)` left of it."""
        bend = self.derivative(saddle, 3) / (6 * self.derivative(saddle, 2))  # of steepest descent without the 1 / s
        path = _Path(self, q, saddle, bend, 0.0)
        path = path._replace(height=float(np.real(path.log_integrand(np.zeros(1))[0])))
        while path.rises():
            path = path._replace(bend=path.bend / 2)  # straight up, nothing ever rises above the saddle point
        tolerance = _TOLERANCE + 1e-14 * (abs(path.height) + abs(q * saddle))  # what rounding does to an exponent
        end, nodes = path.end(), _FIRST
        found = end / nodes * path.sum(np.linspace(0, end, nodes + 1)[1:], first=True)
        while nodes < _LAST:
            between = end / nodes * path.sum((np.arange(nodes) + 0.5) * (end / nodes))
            previous, found, nodes = found, (found + between) / 2, 2 * nodes
            if abs(found - previous) <= tolerance * abs(found):
                return path.height + math.log(found)
        raise ArithmeticError(f"The tail probability at {q:.6g} has not converged. This should not happen: report it.")

    def _saddle_above(self, q: float) -> float:
        """Where `C(s) - q s - log s` is smallest between 0 and the first pole."""
        pole = 1 / (2 * float(self.lam.max()))
        slope = lambda s: self.derivative(s, 1) - q - 1 / s
        low, gap = pole / 2, pole / 2
        while slope(low) > 0:
            low /= 2
        while slope(pole - gap) < 0:
            gap /= 2
        return float(scipy.optimize.brentq(slope, low, pole - gap, rtol=1e-10))  # pyright: ignore[reportArgumentType]

    def _saddle_below(self, q: float) -> float:
        """Where `C(s) - q s - log(-s)` is smallest left of 0."""
        slope = lambda s: self.derivative(s, 1) - q - 1 / s
        low = high = -1 / (2 * float(self.lam.max()))
        while slope(low) > 0:
            low *= 2
        while slope(high) < 0:
            high /= 2
        return float(scipy.optimize.brentq(slope, low, high, rtol=1e-10)) if low < high else low  # pyright: ignore[reportArgumentType]


class _Path(NamedTuple):
    """The parabola `saddle + i y + bend y^2`; `height` is the logarithm of the integrand at the saddle point."""

    form: QuadraticForm
    q: float
    saddle: float
    bend: float
    height: float

    def log_integrand(self, y: Float[np.ndarray, " k"]) -> Complex[np.ndarray, " k"]:
        s = self.saddle + self.bend * y**2 + 1j * y
        return self.form.log_mgf(s) - self.q * s - np.log(s * math.copysign(1.0, self.saddle))

    def end(self) -> float:
        """Where the integrand is nothing beside its largest value, by doubling."""
        step = self.form.derivative(self.saddle, 2) ** -0.5
        while float(np.real(self.log_integrand(np.array([step]))[0])) > self.height - _REACH:
            step *= 2
        return step

    def rises(self) -> bool:
        """The path has come too near to a pole and climbs again."""
        places = self.end() * np.linspace(0, 1, 2 * _FIRST + 1) ** 2
        return bool(np.real(self.log_integrand(places)).max() > self.height + 1)

    def sum(self, y: Float[np.ndarray, " k"], first: bool = False) -> float:
        """Of the integrand, in units of `exp(height)`, at `y` and `-y`, and half of that at 0."""
        values = np.exp(self.log_integrand(y) - self.height) * (1j + 2 * self.bend * y)
        return (float(np.imag(values).sum()) + 0.5 * first) / math.pi
