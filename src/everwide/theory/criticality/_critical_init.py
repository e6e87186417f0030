"""The variances at which deep signals are kept, from what an activation does to small ones and to larger ones."""

import enum
import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...signal import ArchitectureError
from .._host import Activation, HostFunction, Response, TooRoughError, host_function, response, root_between

_DEGREE = 32
_HALVINGS = {True: 12, False: 30}  # of the size at which it bends; far below, no kink can be seen from both sides
_RESOLVED = 1e-13
_MEETS = 1e-9  # relative: by which a series may miss the value at zero
_NOISE = 4e-16  # coefficients below are rounding, and derivatives would make much of them
_ZERO = 1e-8  # relative to the squared slopes, over the width: below, the term of K^1.5 is not there
_OCTAVES = 100  # on each side of 1
_BENT = 0.05  # change, from one half octave to the next, of the logarithmic slope
_GAP = 6  # half octaves: what bends again so soon belongs together
_KNOWN = 1e-9  # of a difference, relative to what is subtracted
_HUGE = 1e120
_SMALLEST, LARGEST, _LOOKS = 1e-4, 1e4, 161  # variances, in squares of the function's own scale
_EQUAL = 1e-9
_FLAT = 1e-7  # below, an expansion at one side of zero cannot tell a1 from rounding
_FAR = 1024.0  # in its own scale, up to which a scale-invariant function must be one


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
    looks = np.geomspace(_SMALLEST, moments.largest_variance(LARGEST), _LOOKS)
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


class Origin(NamedTuple):
    """`s(0)`, and how moments begin.

    `E[s^2] = first K + middle K^1.5 + second K^2 ...`, where `s(0) = 0`, and
    `E[s'^2] = first + middle K^0.5 + second_slope K ...`.

    `curvature` is `s''(0)` where the function is smooth; `smooth` says whether it is. `first` is infinite where the
    function has no slopes at zero.
    """

    value: float
    first: float
    middle: float
    second: float
    second_slope: float
    curvature: float
    smooth: bool

    @property
    def vanishes(self) -> bool:
        """Whether `s(0) = 0`, up to rounding."""
        return abs(self.value) <= (1e-12 * math.sqrt(self.first) if self.first < math.inf else 0.0)


def origin(fn: HostFunction) -> Origin:
    """The expansion at zero, by interpolation: no derivative of the function is asked for."""
    value = float(fn(np.zeros(1))[0])
    widest = own_scale(fn)
    around = _derivatives(fn, value, widest, both=True)
    if around is not None:
        right, left = around, (around[0] * np.array([1.0, -1.0, 1.0, -1.0]), around[1])
    else:
        right = _derivatives(fn, value, widest, both=False)
        left = _derivatives(HostFunction(fn.name, lambda x: fn(-x), ()), value, widest, both=False)
    if right is None or left is None:
        return Origin(value, math.inf, 0.0, 0.0, 0.0, 0.0, False)
    _, p1, p2, p3 = np.stack([right[0], left[0]]).T
    cubes, fourths, squares = p1 * p2, p2**2 / 4 + p1 * p3 / 3, p2**2 + p1 * p3
    width = min(right[1], left[1])
    cubic = float(cubes.sum()) if abs(cubes.sum()) * width > _ZERO * (p1**2).sum() else 0.0
    return Origin(
        value,
        float((p1**2).sum() / 2),
        math.sqrt(2 / math.pi) * cubic,
        float(1.5 * fourths.sum()),
        float(squares.sum() / 2),
        float(p2[0]),
        around is not None,
    )


def _derivatives(fn: HostFunction, value: float, widest: float, *, both: bool) -> tuple[np.ndarray, float] | None:
    """Value and three derivatives at zero, or at its right side, and the distance up to which they were read off.

    `None` where the function is not smooth.
    """
    # Coefficients by discrete orthogonality, with angles that are exact: a least-squares fit adds rounding of its own.
    size, odd = _DEGREE + 1, 2 * np.arange(_DEGREE + 1) + 1
    cosines = np.cos(np.pi / (2 * size) * (np.outer(np.arange(size), odd) % (4 * size)))
    t, weights = cosines[1], cosines * (2 - (np.arange(size) == 0))[:, None] / size
    place, share = (0.0, 1.0) if both else (-1.0, 0.5)
    for halving in range(_HALVINGS[both]):
        width = widest / 2**halving
        values = fn(width * (t if both else (1 + t) / 2))
        most = np.max(np.abs(values))
        series = weights @ values
        resolved = np.max(np.abs(series[-3:])) <= _RESOLVED * most
        # all places may lie on a plateau that begins next to zero
        if resolved and abs(np.polynomial.chebyshev.chebval(place, series) - value) <= _MEETS * most:
            series = np.where(np.abs(series) > _NOISE * most, series, 0)
            der = [np.polynomial.chebyshev.chebval(place, np.polynomial.chebyshev.chebder(series, m)) for m in range(4)]
            return np.array(der) / (share * width) ** np.arange(4), width
    return None


def own_scale(fn: HostFunction) -> float:
    """A power of 16 such that `s(scale x)` bends first where `x` is of order 1; 1 for powers, which bend nowhere.

    On each side `|s(x) - s(0)|` is compared with powers of `x`. Of all places where it is none the group nearest to 1
    counts, from its lower end on: a sine goes on bending forever, and far below 1 there may be nothing but rounding.
    """
    halves = np.arange(-2 * _OCTAVES, 2 * _OCTAVES + 1)
    places = 2.0 ** (halves / 2)
    at_zero = float(fn(np.zeros(1))[0])
    bent = np.flatnonzero(_bends(fn, places, at_zero) | _bends(fn, -places, at_zero)) + 1
    if not len(bent):
        return 1.0
    groups = np.split(bent, np.flatnonzero(np.diff(bent) > _GAP) + 1)
    nearest = min(groups, key=lambda group: np.min(np.abs(halves[group])))
    first = float(places[nearest[0]])
    return 16.0 ** round(math.log(4 * first, 16))


def rescaled(fn: HostFunction, scale: float) -> HostFunction:
    """`s(scale x)`, a function of `x`."""
    return HostFunction(fn.name, lambda x: fn(scale * x), tuple(kink / scale for kink in fn.kinks))


def _bends(fn: HostFunction, places: np.ndarray, at_zero: float) -> np.ndarray:
    values = fn(places)
    with np.errstate(all="ignore"):
        away = np.abs(values - at_zero)
        known = (away > _KNOWN * np.abs(at_zero)) & (away > 1 / _HUGE) & (away < _HUGE)
        slopes = np.diff(np.log2(np.where(known, away, 1.0))) * 2
        bends = np.abs(np.diff(slopes)) > _BENT
    return bends & known[:-2] & known[1:-1] & known[2:]
