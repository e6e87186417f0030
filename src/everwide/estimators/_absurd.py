"""Targets absurdly far beyond all others: slips of a keyboard, wrong units, numbers that stand for "unknown"."""

import numpy as np
from jaxtyping import Bool, Float

from ._scaling import TARGET_FENCE, Fences

_MOST = 0.1  # of all rows
_FEWEST = 20  # rows, of which fewer tell nothing
_GAP = 5.0  # how many times as far from the middle as the farthest of the others
_GAUSSIAN = 0.6745  # half of a Gaussian's values are within so many standard deviations
_ASKED = 200  # of them, about, are asked who their neighbour is
_TOLD = 0.3  # of them beside another one: then columns tell of them


def absurd(
    x: Float[np.ndarray, "n *shape"], targets: Float[np.ndarray, "n k"], weights: Float[np.ndarray, " n"]
) -> Bool[np.ndarray, "n k"]:
    """Which targets are: alone far outside, or several beyond a gap where columns do not tell of them."""
    outside = Fences.of(targets, weights, far=TARGET_FENCE).beyond(targets)
    beyond = np.stack([_beyond_gap(column) for column in targets.T], axis=1)
    if x.ndim == 2 and beyond.any():
        beyond &= ~np.array([told(x, column) for column in beyond.T])
    return outside | beyond


def _beyond_gap(y: Float[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Few values, far away from the middle, with nothing between them and all others."""
    apart = np.abs(y - np.median(y))
    near = np.sort(apart)
    first, unit = int(np.ceil((1 - _MOST) * len(y))), float(np.median(apart)) / _GAUSSIAN
    jumps = np.flatnonzero((near[first:] > _GAP * near[first - 1 : -1]) & (near[first:] > TARGET_FENCE * unit))
    if len(y) < _FEWEST or not len(jumps) or not unit:
        return np.zeros(len(y), bool)
    return apart >= near[first + jumps[0]]


def told(x: Float[np.ndarray, "n d"], marked: Bool[np.ndarray, " n"]) -> bool:
    """Whether marked rows lie beside each other: then they are rare, not wrong."""
    with np.errstate(over="ignore", invalid="ignore"):
        size = x.std(0)
        z = (x - x.mean(0)) / np.where(size > 0, size, 1.0)
    rows, beside = np.flatnonzero(marked), 0
    rows = rows[:: max(len(rows) // _ASKED, 1)]  # of very many, some
    for row in rows:
        apart = np.sum((z - z[row]) ** 2, axis=1)
        apart[row] = np.inf
        beside += bool(marked[np.argmin(apart)])
    return beside > _TOLD * len(rows)
