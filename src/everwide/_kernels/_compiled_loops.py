"""The compiled loops of spatial kernels. This module imports numba: import it only where it is about to run.

**Planes.** A convolution moves both sites of a pair together, and an activation looks at one pair at a time. So the
pairs of sites `(p, q)` with one offset `p - q` form a plane that goes through the layers on its own, like a small
image; only pooling lets planes meet. A plane fits in the first levels of cache where all pairs of sites do not, and
strides leave out the planes that nobody reads.

**Lanes.** A unit of work is one example on the left and a block of examples on the right, one in each lane. Lanes lie
last in memory, so that inner loops run over whole rows of a plane: `columns * lanes` contiguous numbers.

A plane has a place for every left site `p`; the right site is `p - offset`. Along an axis that wraps around (circular
padding) offsets and sites are taken modulo the size of the axis. An image is a grid of rows and columns; a sequence is
a grid of one row.

All arrays are flat and are addressed by numbers: views of arrays cost more than the arithmetic of a short row, both to
compile and to run. Addresses inside a loop are unsigned, because a signed index may count from the end, and that check
keeps a loop from being vectorized. `int64(0)` instead of `0`, because functions are compiled anew for every constant.
"""

import inspect

import numpy as np
from numba import config, int64, njit, uint64
from numba.extending import overload

from ..gaussian import SNAP
from ._compiled_plan import (
    BEGIN,
    DILATION,
    END,
    EVEN,
    FIRST,
    GAIN,
    LOW,
    ODD,
    OFFSET,
    OUT,
    SHIFT,
    SIZE,
    STOP,
    STRIDE,
    TRAINED,
    TRAINED_SHIFT,
    WINDOW,
    WRAPS,
)


def threads() -> int:
    """As many as numba would use: the processors of this process, or `NUMBA_NUM_THREADS`."""
    return config.NUMBA_NUM_THREADS  # pyright: ignore[reportAttributeAccessIssue] - set when numba is imported


def _compiled(function):
    """Compiled when first called, without the interpreter's lock; kept on disk where some place can be written."""
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "nsz"}}
    function = inspect.unwrap(function)  # run-time type checkers wrap every function
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:
        return njit(**options)(function)


def polynomial(coefficients, m):
    """Horner's rule, constant first; unrolled when compiled, because a loop would keep rows from being vectorized."""
    raise NotImplementedError("only compiled code calls this")


@overload(polynomial)
def _(coefficients, m):
    if len(coefficients) == 1:
        return lambda coefficients, m: coefficients[0]
    return lambda coefficients, m: polynomial(coefficients[1:], m) * m + coefficients[0]


@_compiled
def copy(out, o, a, i, n):
    """`out[o:] = a[i:]`, `n` numbers."""
    o, i = uint64(o), uint64(i)
    for m in range(uint64(n)):
        out[o + m] = a[i + m]


@_compiled
def clear(out, o, n):
    """`out[o:] = 0`, `n` numbers."""
    o, zero = uint64(o), out.dtype.type(0)
    for m in range(uint64(n)):
        out[o + m] = zero


@_compiled
def add(out, o, a, i, n, weight):
    """`out[o:] += weight a[i:]`, `n` numbers, in the precision of `out`."""
    o, i = uint64(o), uint64(i)
    for m in range(uint64(n)):
        out[o + m] += weight * a[i + m]


@_compiled
def add_products(out, o, a, i, b, j, n, weight):
    """`out[o:] += weight a[i:] b[j:]`, `n` numbers."""
    o, i, j = uint64(o), uint64(i), uint64(j)
    for m in range(uint64(n)):
        out[o + m] += weight * (a[i + m] * b[j + m])


@_compiled
def sum_taps(out, o, a, i, n, gap, taps):
    """`out[o:] = sum_t a[i + t gap:]`, `n` numbers."""
    o, n, i, j, k = uint64(o), uint64(n), uint64(i), uint64(i + gap), uint64(i + 2 * gap)
    if taps == 3:
        for m in range(n):
            out[o + m] = a[i + m] + a[j + m] + a[k + m]
        return
    for m in range(n):
        out[o + m] = a[i + m]
    for tap in range(1, taps):
        j = i + uint64(tap * gap)
        for m in range(n):
            out[o + m] += a[j + m]


@_compiled
def curved_row(planes, out, size, n, rows, sums, width, stats1, p, stats2, q, half, numbers, step, arccos, two_over_pi):
    """Affine map and activation of `n` numbers: `everwide.gaussian.two_slope`, number by number.

    Tangent kernels lie `size` after the NNGP in planes and `width` after it in rows; inverse standard deviations lie
    `half` after the standard deviations.
    """
    gain, shift, odd, even = numbers[step, GAIN], numbers[step, SHIFT], numbers[step, ODD], numbers[step, EVEN]
    trained, trained_shift = numbers[step, TRAINED], numbers[step, TRAINED_SHIFT]
    zero, one = numbers.dtype.type(0), numbers.dtype.type(1)
    parallel = one - numbers.dtype.type(SNAP) * numbers.dtype.type(2.0**-23 if numbers.itemsize == 4 else 2.0**-52)
    nngp, ntk, sums, tangents = uint64(out), uint64(out + size), uint64(sums), uint64(sums + width)
    std1, std2, inverse1, inverse2 = uint64(p), uint64(q), uint64(p + half), uint64(q + half)
    for m in range(uint64(n)):
        total = rows[sums + m]
        cov = gain * total + shift
        tangent = gain * rows[tangents + m] + (trained * total + trained_shift)
        correlation = abs(cov * stats1[inverse1 + m] * stats2[inverse2 + m])
        rest = one - (correlation if correlation < parallel else one)
        square = rest * rest
        root = np.sqrt(rest)
        # two short chains of dependent operations instead of a long one
        theta = root * (polynomial(arccos[0], square) + rest * polynomial(arccos[1], square))
        sine = root * np.sqrt(one + (one - rest))
        folded = rest - two_over_pi * (sine - theta * (one - rest))
        agree = one - two_over_pi * theta
        planes[nngp + m] = odd * cov + even * (stats1[std1 + m] * stats2[std2 + m] * (one - folded))
        planes[ntk + m] = tangent * (odd + even * (-agree if cov < zero else agree))


@_compiled
def straight_row(planes, out, size, n, rows, sums, width, numbers, step):
    """Affine map alone; with the activation where both sides are the same number, whatever its slopes."""
    gain, shift, factor = numbers[step, GAIN], numbers[step, SHIFT], numbers[step, ODD] + numbers[step, EVEN]
    trained, trained_shift = numbers[step, TRAINED], numbers[step, TRAINED_SHIFT]
    nngp, ntk, sums, tangents = uint64(out), uint64(out + size), uint64(sums), uint64(sums + width)
    for m in range(uint64(n)):
        total = rows[sums + m]
        planes[nngp + m] = factor * (gain * total + shift)
        planes[ntk + m] = factor * (gain * rows[tangents + m] + (trained * total + trained_shift))


@_compiled
def record(stats, p, half, n, rows, sums, numbers, step):
    """Standard deviations before the activation, and their inverses: 0 for 0."""
    gain, shift = numbers[step, GAIN], numbers[step, SHIFT]
    zero, one = numbers.dtype.type(0), numbers.dtype.type(1)
    std, inverse, sums = uint64(p), uint64(p + half), uint64(sums)
    for m in range(uint64(n)):
        variance = gain * rows[sums + m] + shift
        root = np.sqrt(variance if variance > zero else zero)
        stats[std + m] = root
        stats[inverse + m] = one / root if root > zero else zero


@_compiled
def surround(planes, base, rows, columns, geometry, lanes):
    """Padding around the sites of a plane: zeros, or the other side of the circle."""
    pitch = (columns[END] - columns[BEGIN]) * lanes
    for y in range(rows[FIRST], rows[STOP]):
        for x in range(columns[BEGIN], columns[END]):
            if columns[FIRST] <= x < columns[STOP]:
                continue
            cell = base + (y - rows[BEGIN]) * pitch + (x - columns[BEGIN]) * lanes
            if geometry[1, WRAPS]:
                copy(planes, cell, planes, cell + (x % geometry[1, SIZE] - x) * lanes, lanes)
            else:
                clear(planes, cell, lanes)
    for y in range(rows[BEGIN], rows[END]):
        line = base + (y - rows[BEGIN]) * pitch
        if rows[FIRST] <= y < rows[STOP]:
            continue
        if geometry[0, WRAPS]:
            copy(planes, line, planes, line + (y % geometry[0, SIZE] - y) * pitch, pitch)
        else:
            clear(planes, line, pitch)


@_compiled
def pieces(columns, offset, width):
    """A row of left sites in two pieces `(first, stop, first right site)`: on a circle, right sites start anew at 0."""
    middle = max(columns[FIRST], min(offset, columns[STOP]))  # elsewhere the first piece is empty
    return (columns[FIRST], middle, columns[FIRST] - offset + width), (middle, columns[STOP], middle - offset)


@_compiled
def load_inputs(planes, rows, columns, geometry, x1, base1, x2, base2, channels, lanes):
    """Second moments of the inputs, averaged over the channels."""
    height, width = geometry[0, SIZE], geometry[1, SIZE]
    share, pitch = x1.dtype.type(1) / x1.dtype.type(channels), columns[END] - columns[BEGIN]
    for y in range(rows[FIRST], rows[STOP]):
        other = (y - rows[OFFSET]) % height
        for first, stop, right in pieces(columns, columns[OFFSET], width):
            n, out = (stop - first) * lanes, ((y - rows[BEGIN]) * pitch + first - columns[BEGIN]) * lanes
            clear(planes, out, n)
            for c in range(channels):
                p = base1 + ((c * height + y) * width + first) * lanes
                q = base2 + ((c * height + other) * width + right) * lanes
                add_products(planes, out, x1, p, x2, q, n, share)


@_compiled
def load_stored(planes, kind_size, rows, columns, geometry, store, half, slot, lanes):
    """A plane of both kernels that a pool has stored."""
    height, width = geometry[0, SIZE], geometry[1, SIZE]
    pitch, n = columns[END] - columns[BEGIN], (columns[STOP] - columns[FIRST]) * lanes
    for y in range(rows[FIRST], rows[STOP]):
        out = ((y - rows[BEGIN]) * pitch + columns[FIRST] - columns[BEGIN]) * lanes
        place = ((slot * height + y) * width + columns[FIRST]) * lanes
        copy(planes, out, store, place, n)
        copy(planes, out + kind_size, store, place + half, n)


@_compiled
def window_row(rows, out, planes, base, geometry, y, above, beside, first, n, lanes):
    """Sums over the window along output row `y`, `n` numbers from column `first` on."""
    pitch, stride = (beside[END] - beside[BEGIN]) * lanes, geometry[1, STRIDE]
    top = base + (y * geometry[0, STRIDE] - geometry[0, LOW] - above[BEGIN]) * pitch
    sum_taps(rows, int64(0), planes, top, pitch, geometry[0, DILATION] * pitch, geometry[0, WINDOW])
    left = (first * stride - geometry[1, LOW] - beside[BEGIN]) * lanes
    run = n if stride == 1 else lanes
    for m in range(0, n, run):
        sum_taps(rows, out + m, rows, left + m * stride, run, geometry[1, DILATION] * lanes, geometry[1, WINDOW])


@_compiled
def step_plane(plan, step, boxes, exact, planes, source, target, rows, stats1, base1, stats2, base2, lanes):
    """One step of one plane; `exact` where both sides are the same example and the same site."""
    above, beside, below, columns = boxes
    geometry, numbers = plan.geometry[step], plan.numbers
    size, width, half = planes.size // 4, rows.size // 3, plan.begins[-1] * lanes
    n, pitch = (columns[STOP] - columns[FIRST]) * lanes, (columns[END] - columns[BEGIN]) * lanes
    curved = numbers[step, EVEN] != 0 and not exact
    if step == 0:  # nothing before it is trained
        clear(rows, 2 * width, n)
    for y in range(below[FIRST], below[STOP]):
        for kind in range(2 if step else 1):
            start = source + kind * size
            window_row(rows, (1 + kind) * width, planes, start, geometry, y, above, beside, columns[FIRST], n, lanes)
        out = target + (y - below[BEGIN]) * pitch + (columns[FIRST] - columns[BEGIN]) * lanes
        mine = plan.begins[step] + y * geometry[1, OUT]
        other = plan.begins[step] + (y - below[OFFSET]) % geometry[0, OUT] * geometry[1, OUT]
        if exact:
            record(stats1, base1 + (mine + columns[FIRST]) * lanes, half, n, rows, width, numbers, step)
        if not curved:
            straight_row(planes, out, size, n, rows, width, width, numbers, step)
            continue
        for first, stop, right in pieces(columns, columns[OFFSET], geometry[1, OUT]):
            m = (first - columns[FIRST]) * lanes
            curved_row(
                planes, out + m, size, (stop - first) * lanes, rows, width + m, width,
                stats1, base1 + (mine + first) * lanes, stats2, base2 + (other + right) * lanes, half,
                numbers, step, plan.arccos, plan.two_over_pi,
            )  # fmt: skip


@_compiled
def pool_row(plan, pool, planes, here, begin, end, offset, store, into, weight, lanes):
    """Add a row of a plane, from `here` on, to the row of each stored plane that begins at `into`."""
    last = plan.starts[pool + 1]
    size, out = plan.geometry[last - 1, 1, OUT], plan.geometry[last, 1, SIZE]
    grid, most = plan.geometry[last, 0, SIZE] * out * lanes, plan.covers.shape[3]
    for x in range(begin, end):
        other = (x - offset) % size
        for pair in range(most * most):
            a, b = pair // most, pair % most
            p, q = plan.covers[pool, 1, x, a], plan.covers[pool, 1, other, b]
            slot = plan.slots[pool, 1, (p - q) % out]
            if p >= 0 and q >= 0 and slot >= 0:
                share = weight * plan.weights[pool, 1, x, a] * plan.weights[pool, 1, other, b]
                add(store, into + slot * grid + p * lanes, planes, here + (x - begin) * lanes, lanes, share)


@_compiled
def pool_plane(plan, pool, planes, base, rows, columns, store, into, lanes):
    """Add a plane to a store: each pair of sites to every pair of windows over them."""
    last, most = plan.starts[pool + 1], plan.covers.shape[3]
    size, out, width = plan.geometry[last - 1, 0, OUT], plan.geometry[last, 0, SIZE], plan.geometry[last, 1, SIZE]
    begin, end, offset = columns[BEGIN], columns[END], columns[OFFSET]
    for y in range(rows[BEGIN], rows[END]):
        other, here = (y - rows[OFFSET]) % size, base + (y - rows[BEGIN]) * (end - begin) * lanes
        for pair in range(most * most):
            a, b = pair // most, pair % most
            p, q = plan.covers[pool, 0, y, a], plan.covers[pool, 0, other, b]
            slot = plan.slots[pool, 0, (p - q) % out]
            if p >= 0 and q >= 0 and slot >= 0:
                weight = plan.weights[pool, 0, y, a] * plan.weights[pool, 0, other, b]
                place = into + (slot * plan.kept[pool, 1] * out + p) * width * lanes
                pool_row(plan, pool, planes, here, begin, end, offset, store, place, weight, lanes)


@_compiled
def run_plane(plan, segment, i, j, x1, stats1, block1, x2, stats2, block2, channels, exact, work, lanes):
    """Take one plane through a segment, and add it to what comes after."""
    start, end, planes = plan.starts[segment], plan.starts[segment + 1], work.planes
    size, half, geometry = planes.size // 4, work.store.size // 4, plan.geometry[start]
    rows, columns = plan.boxes[0, start + segment, i], plan.boxes[1, start + segment, j]
    if segment == 0:
        image = channels * geometry[0, SIZE] * geometry[1, SIZE] * lanes
        load_inputs(planes, rows, columns, geometry, x1, block1 * image, x2, block2 * image, channels, lanes)
    else:
        slots, read = plan.slots[segment - 1], (segment - 1) % 2 * 2 * half
        slot = slots[0, rows[OFFSET] % geometry[0, SIZE]] * plan.kept[segment - 1, 1]
        slot += slots[1, columns[OFFSET] % geometry[1, SIZE]]
        load_stored(planes, size, rows, columns, geometry, work.store[read:], half, slot, lanes)
    source, known = int64(0), 2 * plan.begins[-1] * lanes
    for step in range(start, end):
        above, beside = rows, columns
        for kind in range(2 if step else 1):
            surround(planes, source + kind * size, above, beside, plan.geometry[step], lanes)
        rows, columns = plan.boxes[0, step + segment + 1, i], plan.boxes[1, step + segment + 1, j]
        boxes, target = (above, beside, rows, columns), 2 * size - source
        step_plane(
            plan, step, boxes, exact, planes, source, target, work.rows,
            stats1, block1 * known, stats2, block2 * known, lanes,
        )  # fmt: skip
        source = target
    finish(plan, segment, planes, source, rows, columns, work, lanes)


@_compiled
def finish(plan, segment, planes, source, rows, columns, work, lanes):
    """Add a plane to the store of the pool that follows, or to the totals."""
    size, n = planes.size // 4, (columns[END] - columns[BEGIN]) * lanes
    for kind in range(2):
        base = source + kind * size
        if segment + 2 < plan.starts.size:
            into = (segment % 2 * 2 + kind) * (work.store.size // 4)
            pool_plane(plan, segment, planes, base, rows, columns, work.store, into, lanes)
            continue
        for y in range(rows[END] - rows[BEGIN]):
            add(work.totals, kind * (work.totals.size // 2), planes, base + y * n, n, 1.0)


@_compiled
def spread(out, a, unit, lanes):
    """One example of a batch in blocks of lanes, in all lanes of a block."""
    base = unit // lanes * out.size + unit % lanes
    for m in range(0, out.size, lanes):
        for v in range(lanes):
            out[m + v] = a[base + m]


@_compiled
def run(plan, units, x1, stats1, x2, stats2, channels, own, full, results, work, lanes):
    """Run units `(left, first, stop)`: an example of `x1` with the blocks `first:stop` of `x2`.

    With `own`, the block `left` of `x1` with itself: `stats1` is found, and the sums too if `full`. Sums over the
    tracked pairs of sites are added to `results` (left, blocks or 1, 2, lanes).
    """
    segments, half = plan.starts.size - 1, work.totals.size // 2
    for u in range(len(units)):
        left = units[u, 0]
        if not own:
            spread(work.x, x1, left, lanes)
            spread(work.stats, stats1, left, lanes)
        image, known, block = (x1, stats1, left) if own else (work.x, work.stats, int64(0))
        for right in range(units[u, 1], units[u, 2]):
            clear(work.totals, int64(0), work.totals.size)
            for segment in range(segments):
                last = segment == segments - 1
                if not last:
                    clear(work.store, segment % 2 * (work.store.size // 2), work.store.size // 2)
                many = plan.planes[segment, 0] * plan.planes[segment, 1]
                # the first plane has no offset: statistics are found before others need them
                for plane in range(1 if own and last and not full else many):
                    i, j = plane // plan.planes[segment, 1], plane % plan.planes[segment, 1]
                    exact = own and plane == 0
                    run_plane(
                        plan, segment, i, j, image, known, block, x2, stats2, right, channels, exact, work, lanes
                    )  # fmt: skip
            for m in range(half):
                results[left, 0 if own else right, 0, m % lanes] += work.totals[m]
                results[left, 0 if own else right, 1, m % lanes] += work.totals[half + m]
