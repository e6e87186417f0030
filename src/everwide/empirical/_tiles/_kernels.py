"""Kernels from tangents, at once or block by block."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from jax import Array

from ..._engine import Progress, Tile, budget, collect, finished, require
from ...signal import Pairs
from .._batches import Batches
from .._factors import AbstractTangents, Job, Outputs
from ._programs import compiled_own_tile, compiled_tile
from ._schedule import Block, Fit, blocks, count, fit, largest, pairs
from ._worker import Worker

Round = tuple[list[Block], list[Block] | None]  # rows, and columns unless they are the rows


def kernels(
    tangents: AbstractTangents,
    batches: Batches,
    job: Job,
    *,
    dtype: np.dtype,
    memory: int | None,
    progress: Callable[[Progress], None] | None,
) -> dict[str, np.ndarray]:
    """The kernel of every group of leaves, in the dtype of the parameters."""
    worker, names = Worker(tangents, batches, job), sorted({group for _, group in job.groups})
    (n1, n2), k = batches.sizes(), worker.k
    shape = {Outputs.FULL: (n1, k, n2, k), Outputs.DIAGONAL: (n1, n2, k)}.get(job.outputs, (n1, n2))
    room = _room(shape, len(names), dtype, memory)
    if worker.whole_fits(room):
        block = Block(slice(0, n1), slice(0, k))
        rounds, started = [([block], None)], iter([(_tile(block, block, job.outputs), worker.whole())])
    else:
        chosen = fit(largest(max(n1, n2), k), room, lambda size: worker.cost(size, room))
        rounds = _rounds(worker, chosen)
        started = _started(worker, chosen, rounds)
    matrices = {name: _examples_first(np.zeros(shape, dtype), job.outputs) for name in names}
    collect(
        finished(started, arrange=lambda array: _examples_first(array, job.outputs)),
        matrices,
        None if batches.x2 is not None else Pairs.ALL_SITES if job.outputs is Outputs.FULL else Pairs.SAME_SITE,
        total=sum(count(len(rows), None if columns is None else len(columns)) for rows, columns in rounds),
        progress=progress,
        balanced=True,
        add=len(rounds) > 1,
    )
    return {n: np.divide(m, k, out=m) if job.outputs is Outputs.TRACE else m for n, m in matrices.items()}


def _room(shape: tuple[int, ...], kernels: int, dtype: np.dtype, memory: int | None) -> int:
    """Bytes that are left beside the results."""
    have = budget(memory)
    result = int(np.prod([float(n) for n in shape])) * dtype.itemsize * kernels
    require(
        result,
        have,
        f"{kernels} kernel{'s' if kernels > 1 else ''} of shape {shape} in {dtype}",
        'Ask for outputs="trace" or "diagonal", pass fewer examples, or use ntk_operator, which forms no matrix.',
    )
    return have - result


def _rounds(worker: Worker, chosen: Fit) -> list[Round]:
    """What is paired with what: only `full` pairs different outputs."""
    size, (n1, n2) = chosen.size, worker.batches.sizes()
    parts = blocks(worker.k, size.outputs)

    def every(n: int, parts: list[slice]) -> list[Block]:
        return [Block(e, o) for e, o in itertools.product(blocks(n, size.examples), parts)]

    rounds = [parts] if worker.job.outputs is Outputs.FULL else [[part] for part in parts]
    return [(every(n1, r), None if worker.batches.x2 is None else every(n2, r)) for r in rounds]


def _started(worker: Worker, chosen: Fit, rounds: list[Round]) -> Iterator[tuple[Tile, dict[str, Array]]]:
    """All tiles, as soon as they are under way."""
    size, outputs = chosen.size, worker.job.outputs
    strips = worker.strips(size) if worker.batches.x2 is None else 1
    for rows, columns in rounds:
        for row, column, a, b in pairs(rows, columns, chosen.held, lambda *which: worker.make(size, *which)):
            if columns is None and row == column:
                values = compiled_own_tile()(a, outputs, size.examples, strips)
            else:
                values = compiled_tile()(a, b, outputs)
            del a, b  # before other blocks are made
            yield _tile(row, column, outputs), values


def _tile(row: Block, column: Block, outputs: Outputs) -> Tile:
    """Where the kernel of two blocks is: outputs are sites."""
    sites = {Outputs.FULL: (row.outputs, column.outputs), Outputs.DIAGONAL: (row.outputs,)}.get(outputs, ())
    return Tile(row.examples, column.examples, sites)


def _examples_first(array: np.ndarray, outputs: Outputs) -> np.ndarray:
    """A view; in memory, a full kernel is `(n1, k, n2, k)`."""
    return array.transpose(0, 2, 1, 3) if outputs is Outputs.FULL else array
