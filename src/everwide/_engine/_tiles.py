"""Tiles of a kernel matrix, and the backends that run them."""

import abc
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import numpy as np

from .._compile import trusted_jit
from ..kernel import AbstractHostKernelFunction, AbstractKernelFunction, Inputs
from ._inputs import Rows

Field = Literal["nngp", "ntk"]


class Tile(NamedTuple):
    """Rows and columns of a kernel matrix."""

    rows: slice
    cols: slice


class Size(NamedTuple):
    """Rows and columns of a whole tile; the last ones may be ragged."""

    rows: int
    cols: int


def tiles(n1: int, n2: int, size: Size, *, symmetric: bool) -> Iterator[Tile]:
    """Cover an `(n1, n2)` matrix; only the lower triangle when `symmetric`."""
    for i in range(0, n1, size.rows):
        for j in range(0, i + 1 if symmetric else n2, size.cols):
            yield Tile(slice(i, min(i + size.rows, n1)), slice(j, min(j + size.cols, n2)))


class Job(eqx.Module):
    """All that a worker needs to compute tiles; data, not a closure."""

    kernel: AbstractKernelFunction
    read: tuple[Field, ...] = eqx.field(static=True)

    def __call__(self, x1: Inputs, x2: Inputs) -> tuple[jax.Array | np.ndarray, ...]:
        """The fields of one tile; only what is read leaves the compiled function, so XLA computes nothing else."""
        if isinstance(self.kernel, AbstractHostKernelFunction):
            block = self.kernel.block(x1, x2)
            return tuple(getattr(block, field) for field in self.read)
        return _block_with_itself(self, x1) if x1 is x2 else _block(self, x1, x2)


@trusted_jit
def _block(job: Job, x1: Inputs, x2: Inputs) -> tuple[jax.Array, ...]:
    block = job.kernel.block(x1, x2)
    return tuple(getattr(block, field) for field in job.read)


@trusted_jit
def _block_with_itself(job: Job, x: Inputs) -> tuple[jax.Array, ...]:
    block = job.kernel.block(x, x)  # the same object, so that the kernel need not care for the diagonal
    return tuple(getattr(block, field) for field in job.read)


class AbstractBackend(eqx.Module):
    """Where tiles are computed."""

    @abc.abstractmethod
    def run(
        self, job: Job, x1: Rows, x2: Rows, todo: Iterable[Tile], size: Size
    ) -> Iterator[tuple[Tile, tuple[np.ndarray, ...]]]:
        """Yield finished tiles of at most `size`, in any order."""


class InProcess(AbstractBackend):
    """In this process, a few tiles in flight: one is written while the next is computed."""

    in_flight: int = 2

    def run(
        self, job: Job, x1: Rows, x2: Rows, todo: Iterable[Tile], size: Size
    ) -> Iterator[tuple[Tile, tuple[np.ndarray, ...]]]:
        with jax.enable_x64(True):
            left = _blocks(x1, size.rows)
            right = left if x1 is x2 else _blocks(x2, size.cols)
        running: deque[tuple[Tile, tuple]] = deque()
        for tile in todo:
            with jax.enable_x64(True):  # not around the yield: the setting belongs to the caller
                running.append((tile, job(left[tile.rows.start], right[tile.cols.start])))
            if len(running) >= self.in_flight:
                yield _finished(*running.popleft())
        while running:
            yield _finished(*running.popleft())


def _blocks(x: Rows, size: int) -> dict[int, Inputs]:
    return {i: x.cut(i, size) for i in range(0, len(x), size)}


def _finished(tile: Tile, fields: tuple) -> tuple[Tile, tuple[np.ndarray, ...]]:
    rows, cols = tile.rows.stop - tile.rows.start, tile.cols.stop - tile.cols.start
    return tile, tuple(np.asarray(field)[:rows, :cols] for field in fields)
