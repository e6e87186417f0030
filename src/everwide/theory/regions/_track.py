"""A line on its way through a network: exact values at every point where some unit bends, straight in between."""

from dataclasses import dataclass, replace

import numpy as np

from ..._engine import require
from ._bend import Bend
from ._program import Branches, Program, along

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
    shape, rows = line.track.values.shape[1:], lambda a: a.reshape(len(line.times), -1)
    line = _refined(bend, replace(line, track=Track(rows(line.track.values), rows(line.track.error))))
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
    line = replace(line, track=Track(values, error))
    return _inserted(line, *(np.concatenate(part) for part in zip(*crossings, strict=True))) if crossings else line


def _inserted(
    line: Line, piece: np.ndarray, part: np.ndarray, unsure: np.ndarray, unit: np.ndarray, knot: np.ndarray
) -> Line:
    """A point at the fraction `part` of each `piece`; crossings that rounding cannot tell apart share one."""
    if not len(piece):
        return line
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

        def insert(a, new):
            return np.insert(a, where + 1, new, 0)

        return Track(insert(track.values, between(track.values)), insert(track.error, error))

    times, lengths = _places(line, where, part)
    return Line(
        times,
        lengths,
        np.insert(line.weight, where + 1, 1.0),
        interpolated(line.track),
        tuple(interpolated(other) for other in line.others),
    )


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
    require(
        12 * 8 * points * numbers,
        None,
        f"A line with {points} breakpoints through a layer of {line.track.values[0].size} units",
        "Count on a shorter line, or on several, one after the other.",
    )
