"""A trunk as arrays for the compiled loops: see `_compiled_loops` for planes and lanes."""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from .._window import Slide
from ..gaussian import arccos_coefficients
from ._trunk import Pooling, Trunk

# The columns of `Plan.geometry`, for each step and axis.
SIZE, OUT, WINDOW, STRIDE, DILATION, LOW, WRAPS = range(7)
# The columns of `Plan.numbers`, for each step.
GAIN, SHIFT, TRAINED, TRAINED_SHIFT, ODD, EVEN = range(6)
# The columns of `Plan.boxes`: the places of a plane in memory, those of them that are sites, and its offset.
BEGIN, END, FIRST, STOP, OFFSET = range(5)


class Plan(NamedTuple):
    """A trunk as data.

    A step is a window sum, an affine map and an activation. Pools end segments of steps. Levels are the places before
    each step and after the last one of each segment.
    """

    geometry: np.ndarray  # (steps, 2, 7)
    numbers: np.ndarray  # (steps, 6)
    starts: np.ndarray  # (segments + 1,) the first step of each segment
    begins: np.ndarray  # (steps + 1,) where the sites of each step begin in the statistics of an example
    planes: np.ndarray  # (segments, 2) how many offsets each axis has
    boxes: np.ndarray  # (2, levels, offsets, 5)
    covers: np.ndarray  # (pools, 2, sites, most) the windows over each site; -1 after the last
    weights: np.ndarray  # (pools, 2, sites, most) the weight of the site in each of them
    slots: np.ndarray  # (pools, 2, windows) where the store keeps each offset, modulo the size; -1 if nobody reads it
    kept: np.ndarray  # (pools, 2) how many offsets the store keeps
    arccos: Any  # even and odd coefficients of arccos(1 - m) / sqrt(m)
    two_over_pi: Any


class Work(NamedTuple):
    """Buffers of one thread."""

    planes: np.ndarray  # before and after a step, in turn; of each the NNGP and the tangent kernel
    rows: np.ndarray  # sums over the rows of the window; over the window, of the NNGP and of the tangent kernel
    totals: np.ndarray  # float64; the NNGP and the tangent kernel
    store: np.ndarray  # the planes between two segments, one store read, one written; of each the two kernels
    x: np.ndarray  # channels, sites, lanes: the left example in all lanes
    stats: np.ndarray  # standard deviations before each activation: steps, sites, lanes; then 1 / them


def offsets(trunk: Trunk, axis: int) -> list[list[list[int]]]:
    """Offsets of the planes that somebody reads along an axis: for each segment a list for each level.

    A static pass from the last layer to the first. Lists of one segment belong together, entry by entry.
    """
    size = trunk.steps[-1].sites[axis]
    last = len(trunk.segments) - 1
    first = 0 if trunk.wraps(last, axis) else 1 - size
    after = list(range(first, size)) if trunk.all_pairs else [0]
    segments = []
    for segment in range(last, -1, -1):
        levels = [sorted(set(after), key=lambda d: (d != 0, d))]  # statistics come from the plane without offset
        for step in trunk.segments[segment][::-1]:
            slide = step.slides[axis]  # both sites move by the stride, and so does their offset
            moved = [d * slide.stride for d in levels[-1]]
            levels.append([d % slide.size for d in moved] if trunk.wraps(segment, axis) else moved)
        segments.append(levels[::-1])
        if segment:
            after = _below(trunk.poolings[segment - 1], axis, _both_signs(trunk, segment, axis, levels[-1]))
            below = trunk.poolings[segment - 1].slides[axis].size
            after = [d % below for d in after] if trunk.wraps(segment - 1, axis) else after
    return segments[::-1]


def _both_signs(trunk: Trunk, segment: int, axis: int, differences: list[int]) -> list[int]:
    """Offsets before a segment as plain differences of sites; those that are padding alone are left out."""
    size = trunk.segments[segment][0].slides[axis].size
    if trunk.wraps(segment, axis):
        differences = [d for residue in differences for d in (residue, residue - size)]
    return [d for d in differences if abs(d) < size]


def _below(pooling: Pooling, axis: int, above: list[int]) -> list[int]:
    """Offsets between the sites of two windows whose own offset is in `above`."""
    slide = pooling.slides[axis]
    around = (-slide.size, 0, slide.size) if slide.circular else (0,)
    inside = range(1 - slide.window, slide.window)
    near = (d * slide.stride + e + turn for d in above for e in inside for turn in around)
    return [d for d in near if abs(d) < slide.size]


def boxes(trunk: Trunk, axis: int) -> list[list[list[tuple[int, ...]]]]:
    """`Plan.boxes` of one axis, for each segment and level."""
    segments = []
    for segment, levels in enumerate(offsets(trunk, axis)):
        wraps, steps = trunk.wraps(segment, axis), trunk.segments[segment]
        out = steps[-1].slides[axis].out
        inside = [_extent(d, out, wraps) for d in levels[-1]]
        here = [[(*sites, *sites, d) for sites, d in zip(inside, levels[-1], strict=True)]]
        for step, before in zip(steps[::-1], levels[-2::-1], strict=True):
            slide = step.slides[axis]
            reads = [_reads(slide, *sites) for sites in inside]
            inside = [_extent(d, slide.size, wraps) for d in before]
            kept_sites = [_common(*both) for both in zip(reads, inside, strict=True)]
            here.append([(*a, *b, d) for a, b, d in zip(reads, kept_sites, before, strict=True)])
        segments.append(here[::-1])
    return segments


def _extent(offset: int, size: int, wraps: bool) -> tuple[int, int]:
    """The left sites of a plane."""
    return (0, size) if wraps else (max(0, offset), min(size, size + offset))


def _reads(slide: Slide, first: int, stop: int) -> tuple[int, int]:
    """Places that windows read, from the first output to the last."""
    begin = first * slide.stride - slide.low
    return begin, begin + (stop - 1 - first) * slide.stride + slide.reach


def _common(places: tuple[int, int], sites: tuple[int, int]) -> tuple[int, int]:
    first = min(max(places[0], sites[0]), places[1])
    return first, max(first, min(places[1], sites[1]))


@functools.lru_cache(maxsize=64)
def plan_for(trunk: Trunk, dtype: str) -> Plan:
    """The trunk as arrays."""
    by_axis = [offsets(trunk, axis) for axis in range(2)]
    arccos = tuple(np.dtype(dtype).type(c) for c in arccos_coefficients(dtype))
    return Plan(
        np.array(_geometry(trunk), np.int64),
        np.array([(*step.affine, *step.slopes) for step in trunk.steps], dtype),
        np.cumsum([0, *(len(segment) for segment in trunk.segments)]),
        np.cumsum([0, *(math.prod(step.sites) for step in trunk.steps)]),
        np.array([[len(levels[-1]) for levels in both] for both in zip(*by_axis, strict=True)]),
        _padded([boxes(trunk, axis) for axis in range(2)]),
        *_pool_tables(trunk, dtype),
        (arccos[0::2], arccos[1::2]),
        np.dtype(dtype).type(2 / math.pi),
    )


def _geometry(trunk: Trunk) -> list[list[tuple[int, ...]]]:
    """`Plan.geometry`: in the order of the names of its columns."""
    columns = []
    for i, segment in enumerate(trunk.segments):
        around = trunk.wraps(i, 0), trunk.wraps(i, 1)
        for step in segment:
            both = zip(step.slides, around, strict=True)
            columns.append([(s.size, s.out, s.window, s.stride, s.dilation, s.low, int(w)) for s, w in both])
    return columns


def _pool_tables(trunk: Trunk, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`covers`, `weights`, `slots` and `kept` of the plan, from the matrices of the pools."""
    pools = len(trunk.poolings)
    matrices = [[pooling.matrix(axis).T for axis in range(2)] for pooling in trunk.poolings]  # (sites, windows)
    every = [m for both in matrices for m in both]
    sites, windows = (max((m.shape[i] for m in every), default=0) for i in range(2))
    most = max((int((m != 0).sum(1).max()) for m in every), default=0)
    covers, weights = np.full((pools, 2, sites, most), -1), np.zeros((pools, 2, sites, most), dtype)
    slots = np.full((pools, 2, windows), -1)
    for i, both in enumerate(matrices):
        for axis, matrix in enumerate(both):
            for site, row in enumerate(matrix):
                over = np.flatnonzero(row)
                covers[i, axis, site, : len(over)], weights[i, axis, site, : len(over)] = over, row[over]
            residues = kept(trunk, i, axis)
            slots[i, axis, residues] = np.arange(len(residues))
    return covers, weights, slots, slots.max(2, initial=-1) + 1


def kept(trunk: Trunk, pool: int, axis: int) -> list[int]:
    """Offsets after a pool that the next segment reads, modulo the size of the axis."""
    out = trunk.poolings[pool].slides[axis].out
    return sorted({d % out for d in _both_signs(trunk, pool + 1, axis, offsets(trunk, axis)[pool + 1][0])})


def _padded(axes: list[list[list[list[tuple[int, ...]]]]]) -> np.ndarray:
    """`(2, levels of all segments, offsets, 5)` from lists of different lengths, filled up at the end."""
    levels = [[level for segment in axis for level in segment] for axis in axes]
    most = max(len(level) for axis in levels for level in axis)
    out = np.zeros((2, len(levels[0]), most, 5), np.int64)
    for axis, i in np.ndindex(*out.shape[:2]):
        out[axis, i, : len(levels[axis][i])] = levels[axis][i]
    return out


def buffers(trunk: Trunk, channels: int, dtype: np.dtype, lanes: int) -> Work:
    """Space for one thread."""
    frames = [tuple((s.out - 1) * s.stride + s.reach for s in step.slides) for step in trunk.steps]
    grids = [*frames, *(step.sites for step in trunk.steps)]
    plane, width = max(math.prod(grid) for grid in grids), max(grid[1] for grid in grids)

    def place(i, axis):
        return len(kept(trunk, i, axis)) * trunk.poolings[i].slides[axis].out

    stores = [place(i, 0) * place(i, 1) for i in range(len(trunk.poolings))]
    return Work(
        planes=np.zeros(4 * plane * lanes, dtype),
        rows=np.zeros(3 * width * lanes, dtype),
        totals=np.zeros(2 * trunk.steps[-1].sites[1] * lanes),
        store=np.zeros(4 * max(stores, default=0) * lanes, dtype),
        x=np.zeros(channels * math.prod(s.size for s in trunk.steps[0].slides) * lanes, dtype),
        stats=np.zeros(2 * sum(math.prod(step.sites) for step in trunk.steps) * lanes, dtype),
    )


def pairs_of_sites(trunk: Trunk) -> int:
    """Pairs of sites, counted once for every step, that one pair of examples goes through."""
    plan = plan_for(trunk, "float32")
    length = plan.boxes[..., STOP] - plan.boxes[..., FIRST]  # zero where the table is filled up
    after = [
        step + segment + 1
        for segment in range(len(trunk.segments))
        for step in range(*plan.starts[segment : segment + 2])
    ]
    return int((length[0, after].sum(1) * length[1, after].sum(1)).sum())
