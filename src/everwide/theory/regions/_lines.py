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
    """A network along a segment: a piecewise linear function of the time, from 0 to 1. Make it with `line_regions`.

    - `breakpoints`: the times, ascending, at which the output bends. `values`: the output at 0, there, and at 1.
    - `activation_count`: pieces on which no unit of the network bends; the output need not bend between them.

    >>> from everwide.theory import regions
    >>> regions = regions.line_regions(*regions.sawtooth(2), [0.0], [1.0])
    >>> regions.breakpoints, regions.values.ravel()
    (array([0.25, 0.5 , 0.75]), array([0., 1., 0., 1., 0.]))
    """

    breakpoints: np.ndarray
    values: np.ndarray
    activation_count: int

    @property
    def count(self) -> int:
        """The number of linear pieces of the output."""
        return len(self.breakpoints) + 1

    @property
    def slopes(self) -> np.ndarray:
        """The derivative of the output in the time, on each piece."""
        lengths = np.diff(self.breakpoints, prepend=0.0, append=1.0)
        return np.diff(self.values, axis=0) / lengths.reshape(-1, *(1,) * (self.values.ndim - 1))


def line_regions(net: AbstractLayer, params: Any, p: Any, q: Any) -> LineRegions:
    """The linear pieces of a finite network on the segment from `p` to `q`: exact, without sampling.

    - `net`, `params`: a network of affine layers and piecewise linear activations, with what `net.init` returned; or
      an activation with a list of matrices `(W, b)`, of shapes `(out, in)` and `(out,)`, that it acts between.
    - `p`, `q`: two examples.

    Every unit's own breakpoints are computed layer by layer. Breakpoints, and bends, that float64 cannot tell apart are
    one, or none.

    >>> import everwide as ew, numpy as np

    >>> from everwide.theory import regions
    >>> tent = [(np.array([[1.0], [1.0]]), np.array([0.0, -0.5])), (np.array([[2.0, -4.0]]), np.zeros(1))]
    >>> regions.line_regions(ew.Relu(), tent, [-1.0], [1.0]).breakpoints
    array([0.5 , 0.75])
    """
    ends = [np.asarray(v, np.float64) for v in (p, q)]
    for name, end in zip("pq", ends, strict=True):
        if end.ndim < 1 or not np.isfinite(end).all():
            raise InputError(
                f"{name} has shape {end.shape}: expected one example (*sites, channels) of finite numbers."
            )
    if ends[0].shape != ends[1].shape:
        raise InputError(f"p has shape {ends[0].shape} and q {ends[1].shape}: expected two examples of one shape.")
    if np.array_equal(ends[0], ends[1]):
        raise InputError("p and q are the same point: there is no line between them. Move one of them.")
    values = np.stack(ends)
    track = Track(values, EPS * np.abs(values))
    line = run(program_of(net, params), Line(np.array([0.0, 1.0]), np.ones(1), np.ones(2), track))
    kept = _bends(line)
    inside = kept[1:-1]
    return LineRegions(line.times[inside], line.track.values[kept], len(line.lengths))


def count_regions_line(net: AbstractLayer, params: Any, p: Any, q: Any) -> int:
    """The number of linear pieces of a finite network on the segment from `p` to `q`. Arguments as in `line_regions`.

    >>> import everwide as ew, jax

    >>> from everwide.theory import regions
    >>> net = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.5), ew.Relu(), ew.Dense(1))
    >>> params = net.init(jax.random.key(0), (2,), width=8)
    >>> 1 <= regions.count_regions_line(net, params, [-1.0, 0.0], [1.0, 0.5]) <= 9
    True
    """
    return line_regions(net, params, p, q).count


def breakpoints_1d(net: AbstractLayer, params: Any, low: float = -math.inf, high: float = math.inf) -> np.ndarray:
    """All points of an interval, or of the whole line, at which a network of one input bends, ascending.

    One hidden layer bends at `-b / w` of each of its units. Arguments as in `line_regions`.

    >>> from everwide.theory import regions
    >>> regions.breakpoints_1d(*regions.sawtooth(2))
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    if not low < high:
        raise InputError(f"low={low!r}, high={high!r}: expected an interval, low below high.")
    middle = 0.0 if low < 0 < high else low if math.isfinite(low) else high if math.isfinite(high) else 0.0
    times = [low, middle, high] if low < middle < high else [low, high]
    line = run(program_of(net, params), _interval(np.array(times)))
    return line.times[_bends(line)[1:-1]]


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
