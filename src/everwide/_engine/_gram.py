"""A kernel matrix, tile by tile. Knows nothing about networks."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np

from .._compile import trusted_jit
from ..kernel import AbstractHostKernelFunction, AbstractKernelFunction, Block, Inputs
from ..signal import Pairs
from ._inputs import Rows
from ._memory import require
from ._tiles import AbstractBackend, Field, InProcess, Job, Size, Tile, tiles

_LARGEST_DIAGONAL = 8192
_CACHE_LINE = 64  # bytes


class Progress(NamedTuple):
    """How far a long computation is.

    >>> import everwide as ew, numpy as np
    >>> k = ew.gram(ew.Dense(), np.eye(3), progress=lambda p: print(p.done, "of", p.total))
    1 of 1
    """

    done: int
    total: int
    seconds: float


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
    backend: AbstractBackend | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Write the requested kernels between `x1` and `x2` into `out`; `x2=None` means symmetric."""
    symmetric, other = x2 is None, x1 if x2 is None else x2
    job = Job(kernel, tuple(out))
    todo = list(tiles(len(x1), len(other), size, symmetric=symmetric))
    start = time.perf_counter()
    for done, (tile, found) in enumerate((backend or InProcess()).run(job, x1, other, todo, size), start=1):
        for matrix, values in zip(out.values(), found, strict=True):
            write(matrix, tile, values, kernel.pairs if symmetric else None)
        if progress is not None:
            progress(Progress(done, len(todo), time.perf_counter() - start))
    if symmetric:
        exact = diagonal(kernel, x1)
        for field, matrix in out.items():
            index = np.arange(len(x1))
            matrix[index, index] = getattr(exact, field)  # the cross formula cancels where both inputs coincide


def write(matrix: np.ndarray, tile: Tile, values: np.ndarray, pairs: Pairs | None) -> None:
    """Write a tile, and its mirror image where the matrix is symmetric: then `pairs` says which sites follow."""
    if pairs is None:
        matrix[tile.rows, tile.cols] = values
        return
    flipped = _transposed(values, pairs)
    if tile.rows == tile.cols:
        lower = np.tri(len(values), dtype=bool).reshape(*values.shape[:2], *(1,) * (values.ndim - 2))
        matrix[tile.rows, tile.cols] = np.where(lower, values, flipped)
        return
    matrix[tile.rows, tile.cols] = values
    _copy(flipped, matrix[tile.cols, tile.rows])


def _copy(transposed: np.ndarray, out: np.ndarray) -> None:
    """Strips of one line of the cache: four times as fast as one transposed assignment."""
    width = max(_CACHE_LINE // out.itemsize, 1)
    for start in range(0, out.shape[1], width):
        out[:, start : start + width] = transposed[:, start : start + width]


def _transposed(values: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Swap the two examples, and with them the sites of both; shared sites stay."""
    if pairs is not Pairs.ALL_SITES:
        return values.swapaxes(0, 1)
    half = 2 + (values.ndim - 2) // 2
    return values.transpose(1, 0, *range(half, values.ndim), *range(2, half))


def diagonal(kernel: AbstractKernelFunction, x: Rows) -> Gram:
    """Both kernels of every example with itself, a stretch of rows at a time.

    There are few of these numbers and much depends on them, so they are computed in float64 whatever the data are.
    """
    dtype, x = x.x.dtype, replace(x, x=x.x.astype(np.float64))
    size = fitted(len(x), min(_LARGEST_DIAGONAL, kernel.examples_per_tile(8) ** 2))
    parts = []
    for start in range(0, len(x), size):
        with jax.enable_x64(True):
            inputs = x.cut(start, size)
            host = isinstance(kernel, AbstractHostKernelFunction)
            found = kernel.diagonal(inputs) if host else _diagonal(kernel, inputs)
        keep = min(size, len(x) - start)
        parts.append((np.asarray(found.nngp)[:keep], np.asarray(found.ntk)[:keep]))
    nngp, ntk = zip(*parts, strict=True)
    return Gram(np.concatenate(nngp).astype(dtype), np.concatenate(ntk).astype(dtype))


@trusted_jit
def _diagonal(kernel: AbstractKernelFunction, x: Inputs) -> Block:
    return kernel.diagonal(x)


def fitted(n: int, most: int) -> int:
    """Examples in a tile, at most `most`, for `n` of them: little padding, and few different shapes to compile."""
    ladder = [step << k for k in range(most.bit_length()) for step in (2, 3)]
    sizes = sorted({1, most, *(size for size in ladder if size <= most)})
    cost = lambda size: -(-n // size) * size * (1 + 16 / size)  # a tile costs a little, whatever its size
    return min(sizes, key=lambda size: (cost(size), -size))


def plan_memory(
    kernel: AbstractKernelFunction,
    shape: tuple[int, ...],
    dtype: np.dtype,
    fields: int,
    size: Size,
    limit: int | None,
) -> None:
    """Raise before a result or a tile is allocated that cannot fit."""
    result = int(np.prod([float(s) for s in shape])) * dtype.itemsize * fields
    tile = kernel.tile_bytes(size.rows, size.cols, dtype.itemsize)
    require(
        result + 2 * tile,
        limit,
        f"{fields} kernel matri{'x' if fields == 1 else 'ces'} of shape {shape} in {dtype} "
        f"with tiles of {size.rows} x {size.cols} examples",
        "Ask for one kernel only (everwide.ntk or everwide.nngp), pass float32 data or fewer rows, "
        "or give out= an array on disk (numpy.memmap).",
    )
