"""The variances at which deep signals are kept."""

import enum
import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...signal import ArchitectureError
from .._host import Activation, TooRoughError, host_function, root_between
from .._response import Response, response
from ._susceptibility import origin, own_scale, rescaled


class Kind(enum.StrEnum):
    """How an activation can be critical."""

    SCALE_INVARIANT = "scale-invariant"
    ZERO = "K*=0"
    HALF_STABLE = "half-stable"
    NONE = "none"


class Numbers(NamedTuple):
    """Where a critical point is (see `CriticalPoint`)."""

    K_star: float
    C_w: float
    C_b: float
    a1: float
    b1: float
    depth_scale: float


@dataclass(frozen=True)
class CriticalPoint:
    """Variances at which a network of this activation keeps signals and their angles: see `critical_init`."""

    name: str
    kind: Kind
    reason: str
    numbers: Numbers | None

    def __getattr__(self, name: str) -> float:
        if name not in Numbers._fields:
            raise AttributeError(name)
        if self.numbers is None:
            raise ArchitectureError(f"{self.name} has no critical point: {self.reason}")
        return getattr(self.numbers, name)

    def __repr__(self) -> str:
        if self.numbers is None:
            return f"CriticalPoint({self.name}, kind='{self.kind}', reason={self.reason!r})"
        listed = ", ".join(f"{key}={value:.9g}" for key, value in self.numbers._asdict().items())
        return f"CriticalPoint({self.name}, kind='{self.kind}', {listed})"


_SMALLEST, _LARGEST, _LOOKS = 1e-4, 1e4, 161  # variances, in squares of the function's own scale
_EQUAL = 1e-9
_FLAT = 1e-7  # below, an expansion at one side of zero cannot tell a1 from rounding
_FAR = 1024.0  # in its own scale, up to which a scale-invariant function must be one


def critical_init(activation: Activation) -> CriticalPoint:
    """The variances of weights and biases at which deep networks of this activation keep their signals.

    Three conditions: `K_star = C_b + C_w E[s^2]` over a Gaussian of variance `K_star`, and both susceptibilities are 1.
    Where they have no solution the result says so; nothing is raised. Computed in float64 whatever precision JAX runs
    in.

    Args:
        activation: a layer such as `Gelu()`, or any function of numpy or JAX arrays, element by element. Its kinks are
            found, and the size of the arguments at which it bends: variances are looked at around the square of that.
            What is no such function raises `ArchitectureError`.

    Returns:
        `kind`: "scale-invariant" (two slopes: every variance is kept), "K*=0" (variances fall as a power of the depth,
        not exponentially), "half-stable" (kept, and approached from one side only) or "none", with the `reason`; the
        numbers then raise `ArchitectureError`.
        `K_star`: the variance that is kept; 1 where all are. `C_w`, `C_b`: variances of weights (times the fan-in) and
        of biases: `Dense(w_std=C_w**0.5, b_std=C_b**0.5)`.
        `a1`, `b1`: how variances and angles leave the point. With `d = K - K_star`, `d' = d - a1 d^2` and
        `chi_perpendicular = 1 - b1 d`, to leading order. For "K*=0" variances fall as `1 / (a1 depth)` and what is
        perpendicular as `depth^(-b1/a1)`; both are infinite where a kink at zero makes them fall faster.
        `depth_scale`: layers after which a deviation `d` as large as `K_star` (as 1 for "K*=0") has halved, to leading
        order; infinite where nothing changes.

    >>> import everwide as ew, numpy as np
    >>> from everwide.theory.criticality import critical_init
    >>> point = critical_init(ew.Gelu())
    >>> print(point.kind, round(point.K_star, 6), round(point.C_w, 6), round(point.C_b, 6))
    half-stable 3.561553 1.983058 0.172922
    >>> critical_init(np.tanh)
    CriticalPoint(tanh, kind='K*=0', K_star=0, C_w=1, C_b=0, a1=2, b1=2, depth_scale=0.5)
    >>> critical_init(ew.activations.Softplus()).kind.value
    'none'

    Poole et al., "Exponential expressivity in deep neural networks through transient chaos" (2016); Roberts, Yaida,
    Hanin, "The principles of deep learning theory" (2022), chapter 5.
    """
    function = host_function(activation)
    scale = own_scale(function)
    moments = response(activation) if scale == 1 else Response(rescaled(function, scale))
    try:
        return _point(moments, scale)
    except TooRoughError as fault:
        return CriticalPoint(function.name, Kind.NONE, f"none that could be found. {fault}", None)


def _point(moments: Response, scale: float) -> CriticalPoint:
    """From `s(scale x)`, whose variances are those of `s` over the squared scale."""
    place = scale * moments.jump(_FAR)
    if math.isfinite(place):
        reason = f"it jumps at {place:.4g}, so that E[s'^2], and with it chi_perpendicular, is infinite."
        return CriticalPoint(moments.name, Kind.NONE, reason, None)
    rules = {Kind.SCALE_INVARIANT: _scale_invariant, Kind.ZERO: _at_zero, Kind.HALF_STABLE: _half_stable}
    reasons = []
    for kind, rule in rules.items():
        answer = rule(moments, scale)
        if isinstance(answer, Numbers):
            return CriticalPoint(moments.name, kind, "", answer)
        reasons += [answer] if answer else []
    return CriticalPoint(moments.name, Kind.NONE, " And ".join(reasons), None)


def _scale_invariant(moments: Response, scale: float) -> Numbers | str:
    """Two slopes: `C_w = 2 / (a+^2 + a-^2)` keeps every variance. That others have none needs no reason."""
    pieces = moments.pieces(_FAR)
    z, right, left = pieces.nodes, *moments.function(np.array([1.0, -1.0])) * np.array([1.0, -1.0])
    size, lines = max(abs(right), abs(left)), np.where(z > 0, right, left) * z
    if pieces.overflow < _FAR or not size or np.any(np.abs(pieces.values - lines) > 1e-11 * size * np.abs(z)):
        return ""
    return Numbers(1.0, float(2 * scale**2 / (right**2 + left**2)), 0.0, 0.0, 0.0, math.inf)


def _at_zero(moments: Response, scale: float) -> Numbers | str:
    """The point `K* = 0`, or why it is none."""
    zero, size = origin(moments.function), max(1e-300, float(np.max(np.abs(moments.pieces(1.0).values))))
    if not zero.vanishes:
        return f"K* = 0 needs s(0) = 0, but s(0) = {zero.value:.6g}."
    if not 1e-12 * size**2 < zero.first < math.inf:
        what = "s'(0) = 0" if zero.first < math.inf else "s is not differentiable there, from either side"
        return f"K* = 0 needs a slope at zero, but {what}: no C_w keeps small signals."
    weight = 1 / zero.first
    a1, b1 = -weight * zero.second / scale**2, -weight * zero.second_slope / scale**2
    if zero.middle:  # K' = K - law K^1.5, which is stronger than every a1
        law = -weight * zero.middle / scale
        a1 = b1 = math.copysign(math.inf, law)
        depth = 2 * (math.sqrt(2) - 1) / abs(law)
    elif abs(a1) * scale**2 > _FLAT:
        depth = 1 / abs(a1)
    else:  # linear, up to corrections that are smaller than every power
        looks = np.geomspace(_SMALLEST, 1.0, 41)
        grows = bool(np.any(weight * moments.at(looks).second / looks > 1 + _EQUAL))
        a1, b1, depth = (-math.inf, -math.inf, 0.0) if grows else (0.0, 0.0, math.inf)
    if a1 < 0:
        return f"K* = 0 is unstable: small variances grow with depth (a1 = {a1:.6g} is negative)."
    return Numbers(0.0, weight * scale**2, 0.0, a1, b1, depth)


def _half_stable(moments: Response, scale: float) -> Numbers | str:
    """The variance at which both susceptibilities agree, or why there is none."""
    unit = scale**2
    looks = np.geomspace(_SMALLEST, moments.largest_variance(_LARGEST), _LOOKS)
    at = moments.at(looks)
    known = at.slope * looks > 1e-13 * at.second  # others are rounding
    if not known.any():
        return "both susceptibilities vanish: the function is constant."
    looks, ahead = looks[known], at.growth[known] / at.slope[known] - 1
    if np.all(np.abs(ahead) <= _EQUAL):
        return "chi_parallel = chi_perpendicular at every K, but K* = C_b + C_w E[s^2] then needs a negative C_b."
    decided = np.flatnonzero(np.abs(ahead) > _EQUAL)
    crossings = [(i, j) for i, j in itertools.pairwise(decided) if ahead[i] * ahead[j] < 0]
    refused = ""
    for i, j in crossings:
        variance = _agreement(moments, float(looks[i]), float(looks[j]))
        numbers = _tuned(moments, variance, unit)
        if numbers.C_b >= 0:
            return numbers
        refused += f" At K = {numbers.K_star:.6g}, where they agree, C_b = {numbers.C_b:.6g} would be negative."
    if refused:
        return "chi_parallel = chi_perpendicular = 1 cannot be had:" + refused
    side = "below" if ahead[decided[0]] < 0 else "above"
    return (
        f"chi_parallel stays {side} chi_perpendicular for all K that were looked at (from {looks[0] * unit:.1g} to "
        f"{looks[-1] * unit:.1g}, around where the function bends): not both can be 1 there."
    )


def _agreement(moments: Response, low: float, high: float) -> float:
    def ahead(log_k: float) -> float:
        at = moments.at_one(math.exp(log_k))
        return at.growth / at.slope - 1

    return math.exp(root_between(ahead, math.log(low), math.log(high)))


def _tuned(moments: Response, variance: float, unit: float) -> Numbers:
    at = moments.at_one(variance)
    weight = 1 / at.slope
    a1, b1 = -weight * at.bend / 2, -weight * at.slope_growth
    bias = variance - weight * at.second
    bias = 0.0 if abs(bias) < 1e-12 * variance else bias
    depth = 1 / (abs(a1) * variance) if a1 else math.inf
    return Numbers(variance * unit, weight * unit, bias * unit, a1 / unit, b1 / unit, depth)


_LEAST, _EACH_SIDE = 1e-10, 240  # variances that are looked at, on each side of 1
_SAME = 1e-12
_TERMS = 255
_STEPS = 200


class VarianceMap:
    """`K' = C_b + C_w E[s^2]` for one activation, and where it leads a signal of variance 1."""

    def __init__(self, moments: Response, point: CriticalPoint):
        self.moments = moments
        self._point = point
        self._zero = origin(moments.function)
        self.largest = moments.largest_variance(_LARGEST)
        above = np.geomspace(1.0, self.largest, _EACH_SIDE)[1:] if self.largest > 1 else []
        self._looks = np.concatenate([np.geomspace(_LEAST, 1.0, _EACH_SIDE), above])
        self._second = moments.at(self._looks).second

    def fixed_point(self, weight: float, bias: float) -> float:
        """The variance that is reached from 1; infinite if variances grow beyond all that was looked at."""
        if self._is_critical(weight, bias):  # two solutions have met there, so that no sign changes
            return self._point.K_star
        ahead, start = bias + weight * self._second - self._looks, _EACH_SIDE - 1
        if abs(ahead[start]) <= _SAME:
            return 1.0
        if ahead[start] > 0:
            turned = np.flatnonzero(ahead[start:] <= 0)
            return self._between(weight, bias, start + int(turned[0]) - 1) if len(turned) else math.inf
        turned = np.flatnonzero(ahead[:start] >= 0)
        if len(turned):
            return self._between(weight, bias, int(turned[-1]))
        return bias + weight * (0.0 if self._zero.vanishes else self._zero.value**2)

    def _between(self, weight: float, bias: float, place: int) -> float:
        def ahead(k):
            return bias + weight * self.moments.at_one(k).second - k

        low, high = (float(k) for k in self._looks[place : place + 2])
        return root_between(ahead, low, high)

    def _is_critical(self, weight: float, bias: float) -> bool:
        if self._point.numbers is None or self._point.kind is Kind.SCALE_INVARIANT:
            return False
        return np.allclose((weight, bias), (self._point.C_w, self._point.C_b), rtol=_SAME, atol=0)


def settled_correlation(moments: Response, variance: float, weight: float, bias: float) -> tuple[float, float]:
    """The correlation to which different inputs come in the chaotic phase, and the susceptibility there.

    `c' = (C_b + C_w sum a_n^2 c^n) / K` over the Hermite coefficients of the activation: convex, so that Newton's steps
    from zero rise to the only solution below 1.
    """
    rule = moments.rule(math.sqrt(variance))
    squares = rule.hermite(_TERMS) ** 2
    rest = max(0.0, float(rule.mass @ rule.values**2 - squares.sum()))  # the last one stands for all that follow
    terms = weight * np.append(squares, rest)
    terms[0] += bias
    law = np.polynomial.Polynomial(terms / variance)
    slope_of, c, slope = law.deriv(), 0.0, 0.0
    for _ in range(_STEPS):
        slope, ahead = float(slope_of(c)), float(law(c)) - c
        if slope >= 1 or ahead <= 1e-15:
            break
        c = min(c + ahead / (1 - slope), 1.0)
    return c, slope
