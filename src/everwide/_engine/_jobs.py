"""How tiles of a kernel matrix are computed."""

from collections.abc import Iterable, Iterator
from typing import Literal

import equinox as eqx
import jax
import numpy as np

from .._compile import trusted_jit
from ..kernel import AbstractHostKernelFunction, AbstractKernelFunction, Block, Inputs
from ._inputs import Rows
from ._tiles import Size, Tile, Values, finished

Field = Literal["nngp", "ntk"]


class Job(eqx.Module):
    """All that a worker needs to compute tiles; data, not a closure."""

    kernel: AbstractKernelFunction
    read: tuple[Field, ...] = eqx.field(static=True)

    def __call__(self, x1: Inputs, x2: Inputs) -> Values:
        """The fields of one tile; only what is read leaves the compiled function, so XLA computes nothing else."""
        if isinstance(self.kernel, AbstractHostKernelFunction):
            return self.fields(self.kernel.block(x1, x2))
        return _block_with_itself(self, x1) if x1 is x2 else _block(self, x1, x2)

    def fields(self, block: Block) -> Values:
        """What is read of a block."""
        return {field: getattr(block, field) for field in self.read}


@trusted_jit
def _block(job: Job, x1: Inputs, x2: Inputs) -> Values:
    return job.fields(job.kernel.block(x1, x2))


@trusted_jit
def _block_with_itself(job: Job, x: Inputs) -> Values:
    return job.fields(job.kernel.block(x, x))  # the same object, so that the kernel need not care for the diagonal


def computed(
    job: Job, x1: Rows, x2: Rows, todo: Iterable[Tile], size: Size
) -> Iterator[tuple[Tile, dict[str, np.ndarray]]]:
    """Finished tiles of at most `size`, a few in flight: one is written while the next is computed."""
    with jax.enable_x64(True):
        left = _blocks(x1, size.rows)
        right = left if x1 is x2 else _blocks(x2, size.cols)

    def started() -> Iterator[tuple[Tile, Values]]:
        for tile in todo:
            with jax.enable_x64(True):  # not around the yield: the setting belongs to the caller
                values = job(left[tile.rows.start], right[tile.cols.start])
            yield tile, values

    return finished(started())


def _blocks(x: Rows, size: int) -> dict[int, Inputs]:
    return {i: x.cut(i, size) for i in range(0, len(x), size)}
