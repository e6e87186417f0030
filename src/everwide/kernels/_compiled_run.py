"""The threads that run the compiled loops. Imports numba: see `_compiled_loops`."""

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ._compiled_loops import run, threads
from ._compiled_plan import Work, buffers, plan_for
from ._trunk import Trunk

_CHUNKS = 8  # of work for each thread, so that one that is slow does not hold up the others


class Rows(NamedTuple):
    """A batch in blocks of lanes, with what belongs to single examples."""

    channels: int
    lanes: int
    x: np.ndarray  # blocks, channels, sites, lanes
    stats: np.ndarray  # blocks, standard deviations and 1 / them, steps, sites, lanes
    own: np.ndarray  # (2, examples) both kernels of each example with itself, after the trunk


def lanes_for(examples: int, itemsize: int) -> int:
    """Whole vectors of numbers, enough of them to make rows long, and few lanes left empty."""
    vector = 32 // itemsize
    blocks = -(-examples // (4 * vector))
    return max(1, -(-examples // (max(1, blocks) * vector))) * vector


def rows(trunk: Trunk, x: np.ndarray, lanes: int, *, full: bool) -> Rows:
    """Prepare a batch `(n, *sites, channels)`. Without `full`, `own` is not computed to its end."""
    plan = plan_for(trunk, x.dtype.name)
    n, channels, blocks = len(x), x.shape[-1], -(-len(x) // lanes)
    filled = np.zeros((blocks * lanes, math.prod(x.shape[1:-1]), channels), x.dtype)
    filled[:n] = x.reshape(filled[:n].shape)
    laid = filled.reshape(blocks, lanes, *filled.shape[1:]).transpose(0, 3, 2, 1).reshape(-1)
    stats, sums = np.zeros(blocks * 2 * plan.begins[-1] * lanes, x.dtype), np.zeros((blocks, 1, 2, lanes))

    def own(units, work):
        return run(plan, units, laid, stats, laid, stats, channels, True, full, sums, work, lanes)

    units = np.array([(block, block, block + 1) for block in range(blocks)], np.int64).reshape(-1, 3)
    _in_threads(own, units, lambda: buffers(trunk, channels, x.dtype, lanes))
    return Rows(channels, lanes, laid, stats, sums.transpose(2, 0, 1, 3).reshape(2, -1)[:, :n] * trunk.factor)


def cross(trunk: Trunk, first: Rows, second: Rows) -> np.ndarray:
    """`(2, n1, n2)`: both kernels after the trunk. Half of the work where `first is second`."""
    dtype, lanes, symmetric = first.x.dtype, second.lanes, first is second
    plan, channels = plan_for(trunk, dtype.name), first.channels
    n1, n2 = first.own.shape[1], second.own.shape[1]
    blocks = -(-n2 // lanes)
    sums = np.zeros((n1, blocks, 2, lanes))
    sides = first.x, first.stats, second.x, second.stats

    def pairs(units, work):
        return run(plan, units, *sides, channels, False, True, sums, work, lanes)

    units = _units(n1, blocks, lanes, symmetric=symmetric)
    _in_threads(pairs, units, lambda: buffers(trunk, channels, dtype, lanes))
    both = sums.transpose(2, 0, 1, 3).reshape(2, n1, -1)[..., :n2] * trunk.factor
    return np.tril(both) + np.tril(both, -1).transpose(0, 2, 1) if symmetric else both


def tile_bytes(trunk: Trunk, channels: int, n1: int, n2: int, itemsize: int) -> int:
    """Bytes of all arrays of a tile: examples laid out, their statistics, the sums, and buffers for every thread."""
    lanes, dtype = lanes_for(max(n1, n2), itemsize), np.dtype(f"f{itemsize}")
    work = buffers(trunk, channels, dtype, lanes)
    per_example = (2 * work.x.nbytes + work.stats.nbytes) // lanes
    sums = 4 * (n1 + lanes) * (n2 + lanes) * 8
    return (n1 + n2 + 2 * lanes) * per_example + sums + threads() * sum(array.nbytes for array in work)


def _units(examples: int, blocks: int, lanes: int, *, symmetric: bool) -> np.ndarray:
    """Pieces of work `(example, first block, last block + 1)`; up to the diagonal where `symmetric`."""
    parts = min(blocks, -(-_CHUNKS * threads() // max(1, examples)))
    edges = [blocks * part // parts for part in range(parts + 1)]
    units = []
    for example in range(examples):
        stop = example // lanes + 1 if symmetric else blocks
        units.extend((example, a, min(b, stop)) for a, b in itertools.pairwise(edges) if a < stop)
    return np.array(units, np.int64).reshape(-1, 3)


def _in_threads(run: Callable[[np.ndarray, Work], None], units: np.ndarray, make: Callable[[], Work]) -> None:
    """Each thread has buffers of its own, and takes the next chunk of units when it is done with one."""
    many = min(threads(), len(units))
    chunks, lock = iter(np.array_split(units, max(1, min(len(units), _CHUNKS * many)))), threading.Lock()

    def remaining() -> Iterator[np.ndarray]:
        while True:
            with lock:
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    def worker() -> None:
        work = make()
        for chunk in remaining():
            run(chunk, work)

    if many <= 1:
        worker()
        return
    with ThreadPoolExecutor(many) as pool:
        for done in [pool.submit(worker) for _ in range(many)]:
            done.result()
