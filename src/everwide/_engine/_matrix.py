"""A kernel matrix, tile by tile. Knows nothing about networks."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from .._compile import trusted_jit
from ..kernel import AbstractHostKernelFunction, AbstractKernelFunction, Block, Inputs
from ._inputs import Rows
from ._jobs import Field, Job, computed
from ._memory import require
from ._tiles import Progress, Size, collect, fitted, tiles

_LARGEST_DIAGONAL = 8192


class Gram(NamedTuple):
    """Kernel matrices `(n1, n2)` as numpy arrays; sites that the network leaves follow.

    >>> import everwide as ew, numpy as np
    >>> nngp, ntk = ew.gram(ew.Dense(), np.eye(3))
    """

    nngp: np.ndarray
    ntk: np.ndarray


def fill(
    kernel: AbstractKernelFunction,
    x1: Rows,
    x2: Rows | None,
    out: dict[Field, np.ndarray],
    *,
    size: Size,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Write the requested kernels between `x1` and `x2` into `out`; `x2=None` means symmetric."""
    symmetric, other = x2 is None, x1 if x2 is None else x2
    todo = list(tiles(len(x1), len(other), size, symmetric=symmetric))
    done = computed(Job(kernel, tuple(out)), x1, other, todo, size)
    collect(done, out, kernel.pairs if symmetric else None, total=len(todo), progress=progress)
    if symmetric:
        exact, index = diagonal(kernel, x1), np.arange(len(x1))
        for field, matrix in out.items():
            matrix[index, index] = getattr(exact, field)  # the cross formula cancels where both inputs coincide


def diagonal(kernel: AbstractKernelFunction, x: Rows) -> Gram:
    """Both kernels of every example with itself, a stretch of rows at a time.

    There are few of these numbers and much depends on them, so they are computed in float64 whatever the data are.
    """
    dtype, x = x.x.dtype, replace(x, x=x.x.astype(np.float64))
    size = fitted(len(x), min(_LARGEST_DIAGONAL, kernel.examples_per_tile(8) ** 2))
    host = isinstance(kernel, AbstractHostKernelFunction)
    parts = []
    for start in range(0, len(x), size):
        with jax.enable_x64(True):
            inputs = x.cut(start, size)
            block = kernel.diagonal(inputs) if host else _diagonal(kernel, inputs)
        keep = min(size, len(x) - start)
        parts.append((np.asarray(block.nngp)[:keep], np.asarray(block.ntk)[:keep]))
    nngp, ntk = zip(*parts, strict=True)
    return Gram(np.concatenate(nngp).astype(dtype), np.concatenate(ntk).astype(dtype))


@trusted_jit
def _diagonal(kernel: AbstractKernelFunction, x: Inputs) -> Block:
    return kernel.diagonal(x)


def plan_memory(
    kernel: AbstractKernelFunction,
    shape: tuple[int, ...],
    dtype: np.dtype,
    fields: int,
    size: Size,
    memory: int | None,
) -> None:
    """Raise before a result or a tile is allocated that cannot fit."""
    result = int(np.prod([float(s) for s in shape])) * dtype.itemsize * fields
    tile = kernel.tile_bytes(size.rows, size.cols, dtype.itemsize)
    require(
        result + 2 * tile,
        memory,
        f"{fields} kernel matri{'x' if fields == 1 else 'ces'} of shape {shape} in {dtype} "
        f"with tiles of {size.rows} x {size.cols} examples",
        "Ask for one kernel only (everwide.ntk or everwide.nngp), pass float32 data or fewer rows, "
        "or give out= an array on disk (numpy.memmap).",
    )
