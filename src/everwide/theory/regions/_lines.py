"""Linear regions along a line."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._checks import InputError
from ..._engine import require
from ...layers import AbstractLayer
from ._law import Bend
from ._program import Branches, Program, along, program_of

EPS = float(np.finfo(np.float64).eps)
TRUST = 64  # times the estimated rounding: what is closer cannot be told apart


@dataclass(frozen=True)
class Track:
    """The values of one layer at all points, `(points, *shape)`, and an estimate of their rounding."""

    values: np.ndarray
    error: np.ndarray


@dataclass(frozen=True)
class Line:
    """Points on a line in ascending order, and what the network makes of them.

    - `weight`: the homogeneous coordinate of the points: 1, or 0 for an end at infinity, whose values are directions.
    - `times`, `lengths`: where the points are, and how far apart. Lengths of pieces keep digits that times lose.
    - `others`: values of other branches at the same points.
    """

    times: np.ndarray
    lengths: np.ndarray
    weight: np.ndarray
    track: Track
    others: tuple[Track, ...] = ()


def run(program: Program, line: Line) -> Line:
    """The whole program, step by step."""
    for step in program:
        if isinstance(step, Bend):
            line = _bent(step, line)
        elif isinstance(step, Branches):
            line = _branched(step, line)
        else:
            track = line.track
            values = step(track.values, line.weight)
            line = replace(line, track=Track(values, step.error(track.values, track.error, values)))
    return line


def _branched(step: Branches, line: Line) -> Line:
    """One branch after the other; what the others hold rides along, so that all see all points."""
    outside = line.others
    line = replace(line, others=(*outside, line.track))
    for program in step.programs:
        origin = line.others[len(outside)]
        done = run(program, replace(line, track=origin))
        line = replace(done, others=(*done.others, done.track))
    parts = line.others[len(outside) + 1 :]
    joined = Track(step.join([part.values for part in parts]), step.join([part.error for part in parts]))
    return replace(line, track=joined, others=line.others[: len(outside)])


def _bent(bend: Bend, line: Line) -> Line:
    """Add a point wherever a unit passes a knot, then bend."""
    points, *shape = line.track.values.shape
    flat = Track(*(part.reshape(points, -1) for part in (line.track.values, line.track.error)))
    line = _refined(bend, replace(line, track=flat))
    values, weight = line.track.values, line.weight[:, None]
    error = np.abs(bend.slopes)[bend.piece(values, weight)] * line.track.error
    return replace(line, track=Track(bend(values, weight).reshape(-1, *shape), error.reshape(-1, *shape)))


def _refined(bend: Bend, line: Line) -> Line:
    values, error = line.track.values, line.track.error
    crossings = []
    for knot in bend.knots:
        level = knot * line.weight[:, None]
        away = values - level
        at_knot = np.abs(away) <= TRUST * error
        values, away = np.where(at_knot, level, values), np.where(at_knot, 0.0, away)
        piece, unit = np.nonzero(away[:-1] * np.sign(away[1:]) < 0)
        before, after = away[piece, unit], away[piece + 1, unit]
        span = np.abs(before - after)
        unsure = EPS + np.maximum(error[piece, unit], error[piece + 1, unit]) / span
        crossings.append((piece, np.abs(before) / span, unsure, unit, np.full(len(unit), knot)))
    return _inserted(replace(line, track=Track(values, error)), crossings)


def _inserted(line: Line, crossings: list[tuple[np.ndarray, ...]]) -> Line:
    """A point at the fraction `part` of each `piece`; crossings that rounding cannot tell apart share one."""
    if not any(len(crossing[0]) for crossing in crossings):
        return line
    piece, part, unsure, unit, knot = (np.concatenate(column) for column in zip(*crossings, strict=True))
    order = np.lexsort((part, piece))
    piece, part, unsure, unit, knot = (a[order] for a in (piece, part, unsure, unit, knot))
    apart = (np.diff(piece) > 0) | (np.diff(part) > TRUST * (unsure[1:] + unsure[:-1]))
    group = np.append(0, np.cumsum(apart))
    _fits(len(line.times) + int(group[-1]) + 1, line)
    surest = np.lexsort((unsure, group))[np.append(True, apart)]  # the order keeps groups together
    where, fraction = piece[surest], part[surest]
    line = _with_points(line, where, fraction)
    values = line.track.values  # fresh: exactly on their knots, units of one group stay together from here on
    values[(where + 1 + np.arange(len(where)))[group], unit] = knot
    return line


def _with_points(line: Line, where: np.ndarray, part: np.ndarray) -> Line:
    """Interpolate everything at fractions of pieces, sorted, without merging any."""
    weight = (1 - part) * line.weight[where] + part * line.weight[where + 1]
    finite = (line.weight[where] == 1) & (line.weight[where + 1] == 1)
    divisor = np.where(finite, 1.0, weight)

    def interpolated(track: Track) -> Track:
        share, whole = along(part, track.values.ndim), along(divisor, track.values.ndim)

        def between(a):
            return ((1 - share) * a[where] + share * a[where + 1]) / whole

        error = between(track.error + EPS * np.abs(track.values))
        values = np.insert(track.values, where + 1, between(track.values), 0)
        return Track(values, np.insert(track.error, where + 1, error, 0))

    times, lengths = _places(line, where, part)
    others = tuple(interpolated(other) for other in line.others)
    return Line(times, lengths, np.insert(line.weight, where + 1, 1.0), interpolated(line.track), others)


def _places(line: Line, where: np.ndarray, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times and lengths with the new points; a piece without end is measured from its finite end."""
    backwards, forwards = line.weight[where] == 0, line.weight[where + 1] == 0
    whole = line.lengths[where]
    offset = np.where(backwards, (part - 1) / part, np.where(forwards, part / (1 - part), part * whole))
    times = line.times[where + backwards] + offset
    first = np.diff(where, prepend=-1) > 0
    last = np.append(first[1:], True)
    before = np.where(first, np.where(backwards, np.inf, offset), np.diff(offset, prepend=0.0))
    after = np.where(backwards, -offset, np.where(forwards, np.inf, (1 - part) * whole))
    lengths = np.insert(line.lengths, where, before)
    lengths[(where + 1 + np.arange(len(where)))[last]] = after[last]
    return np.insert(line.times, where + 1, times), lengths


def _fits(points: int, line: Line) -> None:
    numbers = line.track.values[0].size + sum(other.values[0].size for other in line.others)
    what = f"A line with {points} breakpoints through a layer of {line.track.values[0].size} units"
    require(12 * 8 * points * numbers, None, what, "Count on a shorter line, or on several, one after the other.")


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
    """A line of one input with an end at infinity: infinite ends are directions, away from their neighbours."""
    low, high = ends.ravel().tolist()
    if not low < high:
        raise InputError(f"x1={low}, x2={high}: expected them in ascending order where one is infinite.")
    middle = 0.0 if low < 0 < high else low if math.isfinite(low) else high if math.isfinite(high) else 0.0
    times = np.array([low, middle, high] if low < middle < high else [low, high])
    weight = np.isfinite(times).astype(float)
    values = np.where(weight == 1, times, np.sign(times))
    lengths = np.where(weight[:-1] * weight[1:] == 1, np.diff(values), np.inf)
    return Line(times, lengths, weight, Track(values[:, None], EPS * np.abs(values[:, None])))


def _shape_of(line: Line, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values at the ends of all pieces, and slopes on them; an end at infinity holds a direction."""
    values = line.track.values[kept].copy()
    finite = line.weight[kept] == 1
    lengths = np.diff(np.where(finite, line.times[kept], 0.0))
    away = {end: values[end].copy() for end in (0, -1)}
    with np.errstate(all="ignore"):
        slopes = np.diff(values, axis=0) / along(lengths, values.ndim)
        for end, neighbour, sign in ((0, 1, -1), (-1, -2, 1)):
            if not finite[end]:
                slopes[end] = sign * away[end]
                inside = values[neighbour] if finite[neighbour] else 0.0
                values[end] = np.where(away[end] == 0, inside, np.sign(away[end]) * np.inf)
    return values, slopes


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
