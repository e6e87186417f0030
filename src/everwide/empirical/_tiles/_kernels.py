"""Kernels tile by tile: the worker, and the loop."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..._engine import Batches, Progress, Tile, budget, collect, finished, require
from ...signal import Pairs
from .._factors import AbstractTangents, Job, Outputs, Ready, decide, ready
from .._trace import JaxTangents
from ._programs import (
    Block,
    Bytes,
    Fit,
    Size,
    at_once,
    blocks,
    compiled_own_tile,
    compiled_ready,
    compiled_tile,
    compiled_whole,
    estimated,
    fit,
    largest,
    measured,
    pairs,
    recipe_for,
    strips_of,
    whole_bytes,
)

_FAR = 4  # an estimate this far below the budget needs no proof


@dataclass(frozen=True)
class Worker:
    """Makes the factors of blocks, and knows what they need."""

    tangents: AbstractTangents
    batches: Batches
    job: Job
    columns: JaxTangents | None = None  # of another function, whose parts correspond

    @property
    def k(self) -> int:
        """Outputs of a kernel: their sum is one."""
        return 1 if self.job.outputs is Outputs.SUM else self.tangents.outputs

    def make(self, size: Size, block: Block, is_column: bool) -> Ready:
        """The factors of a block, padded to `size`."""
        x = _cut(self.batches.x2 if is_column else self.batches.x1, block.examples, size.examples)
        rows = range(block.outputs.start, block.outputs.start + size.outputs)
        cotangents = self.job.outputs.cotangents(rows, self.tangents.outputs)
        if not isinstance(self.tangents, JaxTangents):
            parts = self.tangents.factors(x, cotangents)
            return ready(parts, decide(parts, self.job))
        side = self.tangents if self.columns is None or not is_column else self.columns
        fn = compiled_ready(side.plan, recipe_for(self.tangents.plan, self.job, size.outputs))
        return jax.block_until_ready(fn(side.leaves, jax.tree.leaves(x), cotangents))  # one at a time

    def whole(self) -> dict[str, Array]:
        """The kernels of all examples with themselves, at once."""
        assert isinstance(self.tangents, JaxTangents)
        size, plan = self.everything(), self.tangents.plan
        recipe = recipe_for(plan, self.job, self.k)
        fn = compiled_whole(plan, recipe, self.job.outputs, size.examples, self.strips(size))
        x = [jnp.asarray(a) for a in jax.tree.leaves(self.batches.x1)]
        return fn(self.tangents.leaves, x, self.job.outputs.cotangents(range(self.k), plan.outputs))

    def whole_fits(self, room: int) -> bool:
        """Whether there is code for that, and it stays within `room` bytes."""
        size = self.everything()
        if self.batches.x2 is not None or not isinstance(self.tangents, JaxTangents) or not at_once(*size):
            return False
        guess = estimated(self.tangents, self.job, size).of(1)
        if _FAR * guess <= room or guess > room:
            return guess <= room
        return whole_bytes(self.tangents.plan, self.job, size, self.strips(size)) <= room

    def strips(self, size: Size) -> int:
        """Strips of a symmetric tile of that size."""
        numbers = estimated(self.tangents, self.job, size).kept / 4
        rows = size.examples * (size.outputs if self.job.outputs is Outputs.FULL else 1)
        return strips_of(rows, numbers * rows)

    def cost(self, size: Size, room: int) -> Bytes:
        """Bytes of blocks of that size."""
        sides = (self.tangents,) if self.columns is None else (self.tangents, self.columns)
        guess = max((estimated(side, self.job, size) for side in sides), key=lambda need: need.of(2))
        near = guess.of(2) <= room < _FAR * guess.of(2) and self.columns is None
        if not near or not isinstance(self.tangents, JaxTangents):
            return guess
        return measured(self.tangents.plan, self.job, size, guess)

    def everything(self) -> Size:
        """All examples of `x1`, and all outputs."""
        return Size(self.batches.sizes()[0], self.k)


def _cut(x: Any, part: slice, size: int) -> Any:
    """Some examples; a ragged end repeats its last one, so that shapes never change."""
    index = np.minimum(np.arange(part.start, part.start + size), part.stop - 1)
    whole = part.stop - part.start == size
    return jax.tree.map(lambda a: jnp.asarray(a[part] if whole else a[index]), x)


Round = tuple[list[Block], list[Block] | None]  # rows, and columns unless they are the rows


def kernels(
    tangents: AbstractTangents,
    batches: Batches,
    job: Job,
    *,
    dtype: np.dtype,
    memory: int | None,
    progress: Callable[[Progress], None] | None = None,
    columns: JaxTangents | None = None,
) -> dict[str, np.ndarray]:
    """The kernel of every group of leaves, in the dtype of the parameters; `columns`: see `paired`."""
    worker, names = Worker(tangents, batches, job, columns), sorted({group for _, group in job.groups})
    (n1, n2), k = batches.sizes(), worker.k
    shape = job.outputs.shape(n1, n2, k)
    room = _room(shape, len(names), dtype, memory)
    if worker.whole_fits(room):
        block = Block(slice(0, n1), slice(0, k))
        rounds, started = [([block], None)], iter([(_tile(block, block, job.outputs), worker.whole())])
    else:
        chosen = fit(largest(max(n1, n2), k), room, lambda size: worker.cost(size, room))
        rounds = _rounds(worker, chosen)
        started = _started(worker, chosen, rounds)
    matrices = {name: job.outputs.examples_first(np.zeros(shape, dtype)) for name in names}
    collect(
        finished(started, arrange=job.outputs.examples_first),
        matrices,
        None if batches.x2 is not None else Pairs.ALL_SITES if job.outputs is Outputs.FULL else Pairs.SAME_SITE,
        total=sum(math.comb(len(r) + 1, 2) if c is None else len(r) * len(c) for r, c in rounds),
        progress=progress,
        balanced=True,
        add=len(rounds) > 1,
    )
    return {n: np.divide(m, k, out=m) if job.outputs is Outputs.TRACE else m for n, m in matrices.items()}


def centre(kernel: np.ndarray, outputs: Outputs, *, symmetric: bool) -> None:
    """In place: of Jacobians relative to their mean over the examples, on both sides. Symmetry stays bitwise."""
    wide = np.promote_types(kernel.dtype, np.float64)
    rows = kernel.mean(1, dtype=wide)
    mirror = rows.conj().swapaxes(1, 2) if outputs is Outputs.FULL else rows.conj()
    columns = mirror if symmetric else kernel.mean(0, dtype=wide)
    mean = (rows.mean(0) + columns.mean(0)) / 2
    for i, row in enumerate(rows):  # one at a time: no copy of the kernel
        kernel[i] -= ((row + columns) - mean).astype(kernel.dtype)


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
                values = compiled_own_tile(a, outputs, size.examples, strips)
            else:
                values = compiled_tile(a, b, outputs)
            del a, b  # before other blocks are made
            yield _tile(row, column, outputs), values


def _tile(row: Block, column: Block, outputs: Outputs) -> Tile:
    """Where the kernel of two blocks is: outputs are sites."""
    sites = {Outputs.FULL: (row.outputs, column.outputs), Outputs.DIAGONAL: (row.outputs,)}.get(outputs, ())
    return Tile(row.examples, column.examples, sites)
