"""What an activation does to small signals, and to small differences."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..._checks import InputError
from ...signal import ArchitectureError
from .._host import Activation, HostFunction, at_least_zero
from .._response import Response, response

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


SMALLEST = 1e-12  # variance: below, signals count as vanishing
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
    variance, weight = at_least_zero("K", K), at_least_zero("C_w", C_w)
    try:
        variance, weight = np.broadcast_arrays(variance, weight)
    except ValueError as fault:
        raise InputError(
            f"K and C_w have shapes {variance.shape} and {weight.shape}, which do not broadcast."
        ) from fault
    moments = continuous(activation, float(variance.max(initial=1.0)))
    small = variance < SMALLEST
    at = moments.at(np.where(small, SMALLEST, variance))
    zero = at_zero(moments) if small.any() else (0.0, 0.0)
    parallel, perpendicular = np.where(small, zero[0], at.growth), np.where(small, zero[1], at.slope)
    return Susceptibilities((weight * parallel)[()], (weight * perpendicular)[()])


def at_zero(moments: Response) -> tuple[float, float]:
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
