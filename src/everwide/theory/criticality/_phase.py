"""Ordered or chaotic: what depth does to the difference of two inputs, for all variances of weights and biases."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..._checks import InputError, at_least_zero
from ..._words import axes
from ...signal import ArchitectureError
from .._host import Activation, Response, response, root_between
from ._critical_init import LARGEST, CriticalPoint, Kind, critical_init, origin

_CRITICAL = 1e-8
_ON_LINE = 240
_LEAST, _EACH_SIDE = 1e-10, 240  # variances that are looked at, on each side of 1
_SAME = 1e-12
_TERMS = 255
_STEPS = 200
_SMALLEST = 1e-12  # variance: below, signals count as vanishing
Values = int | float | Sequence[int | float] | np.ndarray


class Susceptibilities(NamedTuple):
    """By how much a layer multiplies small changes: see `susceptibilities`."""

    parallel: Float[np.ndarray, "*shape"] | float
    perpendicular: Float[np.ndarray, "*shape"] | float


def susceptibilities(activation: Activation, K: Values, C_w: Values) -> Susceptibilities:  # noqa: N803
    """Both susceptibilities of a layer of weights of variance `C_w / fan_in`, where signals have the variance `K`.

    Below 1 changes die out with depth, above they grow.

    Args:
        activation: a layer such as `Gelu()`, or any function of numpy or JAX arrays, element by element.
        K: a variance, or an array of them. `K = 0` is the limit of small signals.
        C_w: variances of weights, times their fan-in.

    Returns:
        `parallel`: `dK' / dK = C_w E[(z^2 - K) s^2] / 2 K^2` over `z ~ N(0, K)` (no derivative: kinks do no harm);
        `perpendicular`: `C_w E[s'^2]`, the factor of the squared distance of two nearly equal inputs of equal length,
        and of squared gradients on their way back.

    >>> import everwide as ew
    >>> from everwide.theory.criticality import susceptibilities
    >>> [float(round(chi, 9)) for chi in susceptibilities(ew.Relu(), 3.0, 2.0)]
    [1.0, 1.0]
    >>> susceptibilities(ew.Erf(), [0.0, 0.1], 1.0).perpendicular.round(6).tolist()
    [1.27324, 1.076084]

    Poole et al., "Exponential expressivity in deep neural networks through transient chaos" (2016).

    """
    variance, weight = at_least_zero(K, "K"), at_least_zero(C_w, "C_w")
    try:
        variance, weight = np.broadcast_arrays(variance, weight)
    except ValueError as fault:
        raise InputError(
            f"K and C_w have shapes {variance.shape} and {weight.shape}, which do not broadcast."
        ) from fault
    moments = continuous(activation, float(variance.max(initial=1.0)))
    small = variance < _SMALLEST
    at = moments.at(np.where(small, _SMALLEST, variance))
    zero = _at_zero(moments) if small.any() else (0.0, 0.0)
    parallel, perpendicular = np.where(small, zero[0], at.growth), np.where(small, zero[1], at.slope)
    return Susceptibilities((weight * parallel)[()], (weight * perpendicular)[()])


def _at_zero(moments: Response) -> tuple[float, float]:
    """Both, for `C_w = 1` and vanishing variance."""
    zero = origin(moments.function)
    if zero.first == math.inf or not (zero.smooth or zero.vanishes):
        raise ArchitectureError(
            f"{moments.name} has a kink at zero, so that its susceptibilities have no finite limit for vanishing "
            "variance. Pass K above 0."
        )
    return zero.first + zero.value * zero.curvature, zero.first


def continuous(activation: Activation, largest: float) -> Response:
    """The sampled activation; raises if it jumps where Gaussians up to this variance see it."""
    moments = response(activation)
    place = moments.jump(12 * math.sqrt(largest))
    if math.isfinite(place):
        raise ArchitectureError(
            f"{moments.name} jumps at {place:.4g}: E[s'^2] is infinite, and with it a susceptibility. Use a continuous "
            "function, such as erf(b x) with a large b."
        )
    return moments


class _VarianceMap:
    """`K' = C_b + C_w E[s^2]` for one activation, and where it leads a signal of variance 1."""

    def __init__(self, moments: Response, point: CriticalPoint):
        self.moments = moments
        self._point = point
        self._zero = origin(moments.function)
        self.largest = moments.largest_variance(LARGEST)
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


def _settled_correlation(moments: Response, variance: float, weight: float, bias: float) -> tuple[float, float]:
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


@dataclass(frozen=True, eq=False)
class PhaseDiagram:
    """Fixed points and depth scales, a row for each `C_b` and a column for each `C_w`: see `phase_diagram`."""

    name: str
    C_w: Float[np.ndarray, "*columns"]
    C_b: Float[np.ndarray, "*rows"]
    K_star: Float[np.ndarray, "*grid"]
    chi_par: Float[np.ndarray, "*grid"]
    chi_perp: Float[np.ndarray, "*grid"]
    correlation: Float[np.ndarray, "*grid"]
    xi_par: Float[np.ndarray, "*grid"]
    xi_perp: Float[np.ndarray, "*grid"]
    phase: np.ndarray
    line: Float[np.ndarray, "points 2"]

    def plot(self, ax: Any = None) -> Any:
        """Depth scales of correlations as colours, and the critical line, on matplotlib axes, which are returned."""
        if self.C_w.size < 2 or self.C_b.size < 2 or self.C_w.ndim != 1 or self.C_b.ndim != 1:
            raise InputError(
                f"A picture needs at least two values of C_w and of C_b, got arrays of shape {self.C_w.shape} and "
                f"{self.C_b.shape}. Pass C_w=np.linspace(...), C_b=np.linspace(...) to phase_diagram."
            )
        ax = axes(ax, "the fields")
        shown = np.log10(np.clip(self.xi_perp, 0.1, 100.0))
        mesh = ax.pcolormesh(self.C_w, self.C_b, shown, shading="nearest", cmap="viridis")
        ax.figure.colorbar(mesh, ax=ax, label="log10 depth scale of correlations (at most 2)")
        ax.plot(self.line[:, 0], self.line[:, 1], color="white", linewidth=2, label="chi_perp = 1")
        if len(self.line) and np.ptp(self.line[:, 0]) < 1e-6:
            ax.plot(self.line[0, 0], self.line[0, 1], "o", color="white")
        ax.set(xlabel="C_w", ylabel="C_b", title=self.name)
        ax.set(xlim=(self.C_w.min(), self.C_w.max()), ylim=(self.C_b.min(), self.C_b.max()))
        return ax


def phase_diagram(
    activation: Activation,
    *,
    C_w: Values | None = None,  # noqa: N803 - as in the literature
    C_b: Values | None = None,  # noqa: N803
) -> PhaseDiagram:
    """Where a deep network of this activation comes to, for every variance of weights and biases.

    Args:
        activation: a layer such as `Gelu()`, or any function of numpy or JAX arrays, element by element.
        C_w: variances of weights, times their fan-in: a number, or an array. By default 31 from 0.25 to 4.
        C_b: variances of biases. By default 21 from 0 to 1.

    Returns:
        Arrays with a row for each `C_b` and a column for each `C_w`.
        `K_star`: the variance that signals of variance 1 come to; infinite where they grow without end.
        `chi_par`, `chi_perp`: the susceptibilities there (for an infinite `K_star`, at the largest variance looked at).
        `correlation`: to which two different inputs come: 1 in the ordered phase, less in the chaotic one.
        `xi_par`, `xi_perp`: layers over which deviations from `K_star` and from `correlation` fall by `e`,
        `-1 / log chi` with the susceptibility at that correlation. Infinite where nothing falls.
        `phase`: depth makes different inputs equal ("ordered"), parts them ("chaotic"), or neither ("critical"); or
        signals explode ("unbounded").
        `line`: points `(C_w, C_b)` at which `chi_perp = 1`, one for each of many `K_star`.
        `plot(ax)` draws it, on matplotlib axes.

    >>> import everwide as ew
    >>> from everwide.theory.criticality import phase_diagram
    >>> diagram = phase_diagram(ew.activations.Tanh(), C_w=[0.5, 1.0, 2.0], C_b=0.0)
    >>> [str(phase) for phase in diagram.phase]
    ['ordered', 'critical', 'chaotic']
    >>> diagram.xi_perp.round(3).tolist()
    [1.443, inf, 21.724]

    Schoenholz, Gilmer, Ganguli, Sohl-Dickstein, "Deep information propagation" (2017).

    """
    weights = at_least_zero(np.linspace(0.25, 4.0, 31) if C_w is None else C_w, "C_w")
    biases = at_least_zero(np.linspace(0.0, 1.0, 21) if C_b is None else C_b, "C_b")
    moments = continuous(activation, 1.0)
    variances = _VarianceMap(moments, critical_init(activation))
    points = [_settled(variances, float(w), float(b)) for b in biases.ravel() for w in weights.ravel()]
    shape = (*biases.shape, *weights.shape)
    columns = (np.array(column).reshape(shape) for column in zip(*points, strict=True))
    fixed, par, perp, correlation, xi_par, xi_perp, phase = columns
    line = _critical_line(moments, variances.largest)
    return PhaseDiagram(moments.name, weights, biases, fixed, par, perp, correlation, xi_par, xi_perp, phase, line)


def _settled(variances: _VarianceMap, weight: float, bias: float) -> tuple[Any, ...]:
    """The numbers of `PhaseDiagram`, from `K_star` to `xi_perp`, and the phase."""
    moments = variances.moments
    fixed = variances.fixed_point(weight, bias)
    at = moments.at_one(min(fixed, variances.largest)) if fixed > _SMALLEST else None
    par, perp = _at_zero(moments) if at is None else (at.growth, at.slope)
    par, perp = weight * par, weight * perp
    if fixed == math.inf:
        return fixed, par, perp, 1.0, math.inf, math.inf, "unbounded"
    if abs(perp - 1) <= _CRITICAL:
        return fixed, par, perp, 1.0, _length(par), math.inf, "critical"
    if perp < 1:
        return fixed, par, perp, 1.0, _length(par), _length(perp), "ordered"
    correlation, slope = _settled_correlation(moments, fixed, weight, bias)
    return fixed, par, perp, correlation, _length(par), _length(slope), "chaotic"


def _length(susceptibility: float) -> float:
    """`-1 / log chi`; what changes sign from layer to layer falls as fast as its size."""
    size = abs(susceptibility)
    if size == 0:
        return 0.0
    return -1 / math.log(size) if size < 1 - _CRITICAL else math.inf


def _critical_line(moments: Response, largest: float) -> np.ndarray:
    """`chi_perp = 1` fixes `C_w` for every `K_star`, and then `C_b`; negative ones do not exist."""
    variances = np.geomspace(1e-8, largest, _ON_LINE)
    at = moments.at(variances)
    known = at.slope * variances > 1e-13 * at.second
    weight = 1 / at.slope[known]
    bias = variances[known] - weight * at.second[known]
    bias = np.where(np.abs(bias) < 1e-12 * variances[known], 0, bias)
    return np.stack([weight, bias], 1)[bias >= 0]
