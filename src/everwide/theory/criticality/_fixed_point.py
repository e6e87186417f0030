"""Where variances and correlations settle in a deep network."""

import math

import numpy as np

from .._response import Response
from ._critical_init import root_between
from ._point import CriticalPoint, Kind

_SMALLEST, _LARGEST, _LOOKS = 1e-10, 1e4, 240  # variances that are looked at, on each side of 1
_SAME = 1e-12
_TERMS = 256
_STEPS = 200


class VarianceMap:
    """`K' = C_b + C_w E[s^2]` for one activation, and where it leads a signal of variance 1."""

    def __init__(self, moments: Response, vanishes: bool, point: CriticalPoint):
        self.moments = moments
        self._vanishes = vanishes
        self._point = point
        self.largest = moments.largest_variance(_LARGEST)
        below, above = np.geomspace(_SMALLEST, 1.0, _LOOKS), np.geomspace(1.0, max(self.largest, 1.0 + _SAME), _LOOKS)
        self._looks = np.concatenate([below, above[1:]]) if self.largest > 1 else below
        self._start = _LOOKS - 1
        self._second = moments.at(self._looks).second

    def fixed_point(self, weight: float, bias: float) -> float:
        """The variance that is reached from 1; infinite if variances grow beyond all that was looked at."""
        if self._is_critical(weight, bias):  # two solutions have met there, so that no sign changes
            return self._point.K_star
        ahead = bias + weight * self._second - self._looks
        if abs(ahead[self._start]) <= _SAME:
            return 1.0
        if ahead[self._start] > 0:
            turned = np.flatnonzero(ahead[self._start :] <= 0)
            return self._between(weight, bias, self._start + int(turned[0]) - 1) if len(turned) else math.inf
        turned = np.flatnonzero(ahead[: self._start] >= 0)
        if len(turned):
            return self._between(weight, bias, int(turned[-1]))
        at_zero = 0.0 if self._vanishes else float(self.moments.function(np.zeros(1))[0])
        return bias + weight * at_zero**2

    def _between(self, weight: float, bias: float, place: int) -> float:
        def ahead(k):
            return bias + weight * self.moments.at_one(k).second - k

        low, high = (float(k) for k in self._looks[place : place + 2])
        return root_between(ahead, low, high)

    def _is_critical(self, weight: float, bias: float) -> bool:
        if self._point.numbers is None or self._point.kind is Kind.SCALE_INVARIANT:
            return False
        return math.isclose(weight, self._point.C_w, rel_tol=_SAME) and math.isclose(
            bias, self._point.C_b, rel_tol=_SAME
        )


def settled_correlation(moments: Response, variance: float, weight: float, bias: float) -> tuple[float, float]:
    """The correlation to which different inputs come in the chaotic phase, and the susceptibility there.

    `c' = (C_b + C_w sum a_n^2 c^n) / K` over the Hermite coefficients of the activation: convex, so that Newton's steps
    from zero rise to the only solution below 1.
    """
    squares = _squared_coefficients(moments, variance) * (weight / variance)
    orders = np.arange(len(squares))
    share = bias / variance
    c, slope = 0.0, 0.0
    for _ in range(_STEPS):
        powers = c**orders
        slope = float(np.sum(orders[1:] * squares[1:] * powers[:-1]))
        ahead = share + float(squares @ powers) - c
        if slope >= 1 or ahead <= 1e-15:
            break
        c = min(c + ahead / (1 - slope), 1.0)
    return c, slope


def _squared_coefficients(moments: Response, variance: float) -> np.ndarray:
    """`a_n^2` of `s(sqrt(K) x) = sum a_n h_n(x)`; the last one stands for all that follow."""
    nodes = moments.nodes(variance)
    x = nodes.places / math.sqrt(variance)
    near = np.abs(x) < 12
    x, values = x[near], nodes.values[near]
    values = values * nodes.weights[near] * np.exp(-x * x / 2) / math.sqrt(2 * math.pi * variance)
    before, now, out = np.zeros_like(x), np.ones_like(x), np.empty(_TERMS)
    for n in range(_TERMS - 1):
        out[n] = (values @ now) ** 2
        before, now = now, (x * now - math.sqrt(n) * before) / math.sqrt(n + 1)
    out[-1] = max(0.0, moments.at_one(variance).second - out[:-1].sum())
    return out
