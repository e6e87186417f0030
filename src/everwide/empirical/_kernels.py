"""Kernels from tangents, block by block."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..engine import Progress
from ..engine._memory import available_memory, require
from ._factors import AbstractTangents
from ._forms import Job, Outputs, Ready, decide, ready
from ._results import finished, shape, write
from ._schedule import Block, Bytes, Fit, Size, blocks, count, fit, largest, pairs, splits
from ._workspace import compiled_ready, compiled_tile, estimated, measured, recipe_for

_FAR = 4  # an estimate this far below the budget needs no proof


@dataclass(frozen=True)
class Batches:
    """Examples on the host, leading axis first; without `x2`, `x1` is paired with itself."""

    x1: Any
    x2: Any = None

    def sizes(self) -> tuple[int, int]:
        """Examples on both sides."""
        n1 = len(jax.tree.leaves(self.x1)[0])
        return n1, n1 if self.x2 is None else len(jax.tree.leaves(self.x2)[0])


@dataclass(frozen=True)
class Worker:
    """Makes the factors of blocks."""

    tangents: AbstractTangents
    batches: Batches
    job: Job

    @property
    def k(self) -> int:
        """Outputs of a kernel: their sum is one."""
        return 1 if self.job.outputs is Outputs.SUM else self.tangents.outputs

    def make(self, block: Block, is_column: bool, size: Size) -> Ready:
        """The factors of a block, padded to `size`."""
        x = _cut(self.batches.x2 if is_column else self.batches.x1, block.examples, size.examples)
        cotangents = self.cotangents(block.outputs, size.outputs)
        if not self.tangents.traceable:
            parts = self.tangents.factors(x, cotangents)
            return ready(parts, decide(parts, self.job))
        arrays, structure = jax.tree.flatten(self.tangents)
        recipe = recipe_for(self.tangents, self.batches.x1, self.job, size.outputs)
        return jax.block_until_ready(compiled_ready(structure, recipe)(arrays, x, cotangents))  # one at a time

    def cotangents(self, outputs: slice, size: int) -> Array:
        """Rows of the identity, or one row of ones."""
        if self.job.outputs is Outputs.SUM:
            return jnp.ones((1, self.tangents.outputs), jnp.float32)
        rows = np.arange(outputs.start, outputs.start + size)
        return jnp.asarray(rows[:, None] == np.arange(self.tangents.outputs), jnp.float32)

    def largest(self) -> Size:
        """The size of blocks that works best, were there memory enough."""
        n1, n2 = self.batches.sizes()
        if self.batches.x2 is not None:
            return largest(max(n1, n2), self.k, 1)
        whole = largest(n1, self.k, 1)
        numbers = estimated(self.tangents, self.batches.x1, self.job, whole).kept / 4 / whole.examples
        outputs = self.k if self.job.outputs is Outputs.FULL else 1
        return largest(n1, self.k, splits(numbers * n1 * n1 * outputs))

    def cost(self, size: Size, room: int) -> Bytes:
        """Bytes of blocks of that size."""
        guess = estimated(self.tangents, self.batches.x1, self.job, size)
        near = guess.of(2) <= room < _FAR * guess.of(2)
        return measured(self.tangents, self.batches.x1, self.job, size, guess) if near else guess


def kernels(
    tangents: AbstractTangents,
    batches: Batches,
    job: Job,
    *,
    dtype: np.dtype | None,
    memory: int | None,
    progress: Callable[[Progress], None] | None,
) -> dict[str, np.ndarray]:
    """The kernel of every group of leaves; `dtype` is theirs, or that of the factors."""
    worker = Worker(tangents, batches, job)
    names, same = sorted({group for _, group in job.groups}), batches.x2 is None
    wanted = shape(*batches.sizes(), worker.k, job.outputs)
    dtype = np.dtype(np.float64) if dtype is None else dtype
    room = _room(wanted, len(names), dtype, memory)
    found = fit(worker.largest(), room, lambda size: worker.cost(size, room))
    matrices = {name: np.zeros(wanted, dtype) for name in names}
    for row, column, tiles in _tiles(worker, found, progress):
        for name, values in tiles.items():
            write(matrices[name], row, column, np.asarray(values), job.outputs, same=same)
    return {name: finished(matrix, worker.k, job.outputs) for name, matrix in matrices.items()}


def _room(wanted: tuple[int, ...], kernels: int, dtype: np.dtype, memory: int | None) -> int:
    """Bytes that are left beside the results."""
    budget = available_memory() // 2 if memory is None else memory
    result = int(np.prod([float(n) for n in wanted])) * dtype.itemsize * kernels
    require(
        result,
        budget,
        f"{kernels} kernel{'s' if kernels > 1 else ''} of shape {wanted} in {dtype}",
        'Ask for outputs="trace" or "diagonal", pass fewer examples, or use ntk_operator, which forms no matrix.',
    )
    return budget - result


def _tiles(
    worker: Worker, found: Fit, progress: Callable[[Progress], None] | None
) -> Iterator[tuple[Block, Block, dict[str, Array]]]:
    """All tiles. The next one is under way while one is written."""
    n1, n2 = worker.batches.sizes()
    same, size, full = worker.batches.x2 is None, found.size, worker.job.outputs is Outputs.FULL
    parts = blocks(worker.k, size.outputs)
    all_of = lambda n, parts: [Block(e, o) for e, o in itertools.product(blocks(n, size.examples), parts)]
    rounds = [parts] if full else [[part] for part in parts]  # only `full` pairs different outputs
    make = lambda block, is_column: worker.make(block, is_column, size)
    total = sum(count(len(all_of(n1, r)), None if same else len(all_of(n2, r))) for r in rounds)
    start, done, waiting = time.perf_counter(), 0, None
    for r in rounds:
        for row, column, a, b in pairs(all_of(n1, r), None if same else all_of(n2, r), found.held, make):
            tiles = compiled_tile(a, b, outputs=worker.job.outputs)
            del a, b  # before other blocks are made
            if waiting is not None:
                yield waiting
            waiting, done = (row, column, tiles), done + 1
            if progress is not None:
                progress(Progress(done, total, time.perf_counter() - start))
    if waiting is not None:
        yield waiting


def _cut(x: Any, part: slice, size: int) -> Any:
    """Some examples; a ragged end repeats its last one, so that shapes never change."""
    index = np.minimum(np.arange(part.start, part.start + size), part.stop - 1)
    whole = part.stop - part.start == size
    return jax.tree.map(lambda a: jnp.asarray(a[part] if whole else a[index]), x)
