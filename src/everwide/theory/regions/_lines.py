"""Linear regions along a line: exact, in float64, without sampling."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._checks import InputError
from ...layers import AbstractLayer
from ._program import program_of
from ._track import EPS, TRUST, Line, Track, run


@dataclass(frozen=True)
class LineRegions:
    """A network along a segment, a piecewise linear function of the time: see `line_regions`."""

    breakpoints: np.ndarray
    values: np.ndarray
    slopes: np.ndarray
    activation_count: int

    @property
    def count(self) -> int:
        """The number of linear pieces of the output."""
        return len(self.breakpoints) + 1


def line_regions(net: AbstractLayer, params: Any, x1: Any, x2: Any) -> LineRegions:
    """The linear pieces of a finite network on the segment from `x1` to `x2`: exact, without sampling.

    Every unit's own breakpoints are computed layer by layer. Breakpoints, and bends, that float64 cannot tell apart are
    one, or none.

    Args:
        net: affine layers and piecewise linear activations; or an activation, with a list of matrices as `params`.
        params: what `net.init` returned; or matrices `(W, b)`, of shapes `(out, in)` and `(out,)`, around it.
        x1: one example, at time 0. In networks of one input it may be minus infinity.
        x2: another, at time 1. In networks of one input it may be infinity. If one of them is, the time is the input.

    Returns:
        `count`: the number of linear pieces; `breakpoints`: the times, ascending, at which the output bends; `values`:
        the output at the first point, there, and at the last; `slopes`: its derivative in the time, on each piece;
        `activation_count`: pieces on which no unit of the network bends, between which the output need not bend.

    >>> import numpy as np
    >>> from everwide.theory import regions
    >>> pieces = regions.line_regions(*regions.sawtooth(2), [0.0], [1.0])
    >>> pieces.count, pieces.breakpoints, pieces.values.ravel()
    (4, array([0.25, 0.5 , 0.75]), array([0., 1., 0., 1., 0.]))
    >>> regions.line_regions(*regions.sawtooth(2), [-np.inf], [np.inf]).breakpoints
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])

    """
    ends = line_ends(x1, x2)
    if np.isfinite(ends).all():
        line = Line(np.array([0.0, 1.0]), np.ones(1), np.ones(2), Track(ends, EPS * np.abs(ends)))
    else:
        line = _unbounded(ends)
    line = run(program_of(net, params), line)
    kept = _bends(line)
    return LineRegions(line.times[kept[1:-1]], *_shape_of(line, kept), len(line.lengths))


def line_ends(x1: Any, x2: Any) -> np.ndarray:
    """Both ends, stacked, in float64."""
    ends = [np.asarray(v, np.float64) for v in (x1, x2)]
    for name, end in zip(("x1", "x2"), ends, strict=True):
        if end.ndim < 1 or not end.size or not (np.isfinite(end).all() or (end.shape == (1,) and not np.isnan(end[0]))):
            raise InputError(
                f"{name} has shape {end.shape}: expected one example (*sites, channels) of finite numbers."
            )
    if ends[0].shape != ends[1].shape:
        raise InputError(f"x1 has shape {ends[0].shape} and x2 {ends[1].shape}: expected two examples of one shape.")
    if np.array_equal(ends[0], ends[1]):
        raise InputError("x1 and x2 are the same point: there is no line between them. Move one of them.")
    return np.stack(ends)


def _unbounded(ends: np.ndarray) -> Line:
    """A line of one input with an end at infinity."""
    low, high = ends.ravel().tolist()
    if not low < high:
        raise InputError(f"x1={low}, x2={high}: expected them in ascending order where one is infinite.")
    middle = 0.0 if low < 0 < high else low if math.isfinite(low) else high if math.isfinite(high) else 0.0
    return _interval(np.array([low, middle, high] if low < middle < high else [low, high]))


def _shape_of(line: Line, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values at the ends of all pieces, and slopes on them; an end at infinity holds a direction."""
    values = line.track.values[kept].copy()
    finite = line.weight[kept] == 1
    lengths = np.diff(line.times[kept]) if finite.all() else np.diff(np.where(finite, line.times[kept], 0.0))
    first, last = -values[0], values[-1].copy()
    with np.errstate(all="ignore"):
        for end, neighbour, slope in ((0, 1, -first), (-1, -2, last)):
            if not finite[end]:
                away = np.where(slope == 0, 0.0, np.sign(slope) * np.inf)
                inside = values[neighbour] if finite[neighbour] else 0.0
                values[end] = np.where(slope == 0, inside, away)
        slopes = np.diff(values, axis=0) / lengths.reshape(-1, *(1,) * (values.ndim - 1))
    if not finite[0]:
        slopes[0] = first
    if not finite[-1]:
        slopes[-1] = last
    return values, slopes


def _interval(times: np.ndarray) -> Line:
    """Infinite ends are directions, away from their neighbours."""
    weight = np.isfinite(times).astype(float)
    values = np.where(weight == 1, times, np.sign(times))
    lengths = np.where(weight[:-1] * weight[1:] == 1, np.diff(values), np.inf)
    return Line(times, lengths, weight, Track(values[:, None], EPS * np.abs(values[:, None])))


def _bends(line: Line) -> np.ndarray:
    """The points at which the output bends, and both ends.

    Points that clearly bend are kept. Each of the others is looked at between the last point kept and its neighbour:
    pieces too short for a slope of their own must not hide that it changes across them.
    """
    values, error = (a.reshape(len(line.times), -1).copy() for a in (line.track.values, line.track.error))
    lengths = line.lengths.copy()
    for end, neighbour, piece in ((0, 1, 0), (-1, -2, -1)):
        if line.weight[end] == 0:  # a point on the ray instead
            values[end] += values[neighbour]
            error[end] += error[neighbour]
            lengths[piece] = 1.0
    slopes = np.diff(values, axis=0) / lengths[:, None]
    noise = TRUST * (error[1:] + error[:-1]) / lengths[:, None]
    bends = np.any(np.abs(np.diff(slopes, axis=0)) > noise[1:] + noise[:-1], 1)
    kept = np.concatenate([[True], bends, [True]])
    start = np.append(0.0, np.cumsum(lengths))
    last = 0
    for i in range(1, len(kept) - 1):
        if not kept[i]:
            before = start[i] - start[last]
            change = (values[i] - values[last]) / before - slopes[i]
            kept[i] = bool(np.any(np.abs(change) > TRUST * (error[last] + error[i]) / before + noise[i]))
        if kept[i]:
            last = i
    return np.flatnonzero(kept)
