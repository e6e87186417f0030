"""Kernels from tangents, at once or block by block."""

import itertools
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np
from jax import Array

from .._engine import Progress, available_memory, require
from ._factors import AbstractTangents
from ._forms import Job, Outputs
from ._results import finished, shape, write
from ._schedule import Block, Fit, Size, blocks, count, fit, largest, pairs
from ._worker import Batches, Worker
from ._workspace import compiled_own_tile, compiled_tile

Tiles = Iterator[tuple[Block, Block, dict[str, Array]]]
Report = Callable[[Progress], None] | None


def kernels(
    tangents: AbstractTangents, batches: Batches, job: Job, *, dtype: np.dtype, memory: int | None, progress: Report
) -> dict[str, np.ndarray]:
    """The kernel of every group of leaves, in the dtype of the parameters."""
    worker = Worker(tangents, batches, job)
    names, same = sorted({group for _, group in job.groups}), batches.x2 is None
    n1, n2 = batches.sizes()
    wanted = shape(n1, n2, worker.k, job.outputs)
    room = _room(wanted, len(names), dtype, memory)
    if worker.whole_fits(room):
        tiles = _whole(worker, progress)
    else:
        tiles = _tiles(
            worker, fit(largest(max(n1, n2), worker.k), room, lambda size: worker.cost(size, room)), progress
        )
    matrices = {name: np.zeros(wanted, dtype) for name in names}
    for row, column, values_of in tiles:
        for name, values in values_of.items():
            write(matrices[name], row, column, np.asarray(values), job.outputs, same=same)
    return {name: finished(matrix, worker.k, job.outputs) for name, matrix in matrices.items()}


def _room(wanted: tuple[int, ...], kernels: int, dtype: np.dtype, memory: int | None) -> int:
    """Bytes that are left beside the results."""
    budget = _free() // 2 if memory is None else memory
    result = int(np.prod([float(n) for n in wanted])) * dtype.itemsize * kernels
    require(
        result,
        budget,
        f"{kernels} kernel{'s' if kernels > 1 else ''} of shape {wanted} in {dtype}",
        'Ask for outputs="trace" or "diagonal", pass fewer examples, or use ntk_operator, which forms no matrix.',
    )
    return budget - result


def _free() -> int:
    """Bytes on the host and, where it has its own, on the device."""
    found = jax.local_devices()[0].memory_stats() or {}
    device = found.get("bytes_limit", 1 << 62) - found.get("bytes_in_use", 0)
    return min(available_memory(), device)


def _whole(worker: Worker, progress: Report) -> Tiles:
    """One tile."""
    start, size = time.perf_counter(), Size(worker.batches.sizes()[0], worker.k)
    block = Block(slice(0, size.examples), slice(0, size.outputs))
    yield block, block, worker.whole()
    if progress is not None:
        progress(Progress(1, 1, time.perf_counter() - start))


def _tiles(worker: Worker, found: Fit, progress: Report) -> Tiles:
    """All tiles. The next one is under way while one is written."""
    n1, n2 = worker.batches.sizes()
    same, size, outputs = worker.batches.x2 is None, found.size, worker.job.outputs
    parts = blocks(worker.k, size.outputs)
    all_of = lambda n, parts: [Block(e, o) for e, o in itertools.product(blocks(n, size.examples), parts)]
    rounds = [parts] if outputs is Outputs.FULL else [[part] for part in parts]  # only `full` pairs different outputs
    make = lambda block, is_column: worker.make(block, is_column, size)
    total = sum(count(len(all_of(n1, r)), None if same else len(all_of(n2, r))) for r in rounds)
    strips = worker.strips(size) if same else 1
    of_one, of_two = compiled_own_tile(), compiled_tile()
    start, done, waiting = time.perf_counter(), 0, None
    for r in rounds:
        for row, column, a, b in pairs(all_of(n1, r), None if same else all_of(n2, r), found.held, make):
            own = same and row == column
            tiles = of_one(a, outputs, size.examples, strips) if own else of_two(a, b, outputs)
            del a, b  # before other blocks are made
            if waiting is not None:
                yield waiting
            waiting, done = (row, column, tiles), done + 1
            if progress is not None:
                progress(Progress(done, total, time.perf_counter() - start))
    if waiting is not None:
        yield waiting
