"""The size of the arguments at which a function bends, so that all that is looked at can be looked at around it."""

import math

import numpy as np

from .._host import HostFunction

_OCTAVES = 100  # on each side of 1
_BENT = 0.05  # change, from one half octave to the next, of the logarithmic slope
_GAP = 6  # half octaves: what bends again so soon belongs together
_KNOWN = 1e-9  # of a difference, relative to what is subtracted
_HUGE = 1e120


def own_scale(fn: HostFunction) -> float:
    """A power of 16 such that `s(scale x)` bends first where `x` is of order 1; 1 for powers, which bend nowhere.

    On each side `|s(x) - s(0)|` is compared with powers of `x`. Of all places where it is none the group nearest to 1
    counts, from its lower end on: a sine goes on bending forever, and far below 1 there may be nothing but rounding.
    """
    halves = np.arange(-2 * _OCTAVES, 2 * _OCTAVES + 1)
    places = 2.0 ** (halves / 2)
    at_zero = float(fn(np.zeros(1))[0])
    found = np.flatnonzero(_bends(fn, places, at_zero) | _bends(fn, -places, at_zero)) + 1
    if not len(found):
        return 1.0
    groups = np.split(found, np.flatnonzero(np.diff(found) > _GAP) + 1)
    nearest = min(groups, key=lambda group: np.min(np.abs(halves[group])))
    first = float(places[nearest[0]])
    return 16.0 ** round(math.log(4 * first, 16))


def rescaled(fn: HostFunction, scale: float) -> HostFunction:
    """`s(scale x)`, a function of `x`."""
    if scale == 1:
        return fn
    return HostFunction(fn.name, lambda x: fn(scale * x), tuple(kink / scale for kink in fn.kinks))


def _bends(fn: HostFunction, places: np.ndarray, at_zero: float) -> np.ndarray:
    values = fn(places)
    with np.errstate(all="ignore"):
        away = np.abs(values - at_zero)
        known = (away > _KNOWN * np.abs(at_zero)) & (away > 1 / _HUGE) & (away < _HUGE)
        slopes = np.diff(np.log2(np.where(known, away, 1.0))) * 2
        bends = np.abs(np.diff(slopes)) > _BENT
    return bends & known[:-2] & known[1:-1] & known[2:]
