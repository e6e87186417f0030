"""A kernel matrix of many rows that is multiplied with and never whole.

One triangle of float32 tiles is kept while it fits into memory; else tiles are computed for each product.
"""

import abc
import itertools
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int
from threadpoolctl import ThreadpoolController

from .._checks import InputError, whole
from ._inputs import budget, human, require
from ._matrix import Progress, Size, Tile, lower_twice, tiles

TILE = 2048  # rows of a tile: its bytes are a small part of any memory, and its product is long beside a call
_STRIP = 256  # rows of a tile that are multiplied at once: as many as the cache of a core holds
Place = slice | Int[np.ndarray, " _"]


@runtime_checkable
class Reader(Protocol):
    """A kernel as a function of rows. Estimators have theirs, networks one that `everwide.operator` makes."""

    def cross(self, x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
        """Of some rows with others; if they are the same array, one triangle is enough to compute."""
        ...

    def diagonal(self, x: np.ndarray) -> np.ndarray:
        """Of every row with itself."""
        ...


class AbstractBlocks(abc.ABC):
    """Where entries of a symmetric matrix come from: a kernel of rows, a matrix, a file."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Rows."""

    @abc.abstractmethod
    def block(self, rows: Place, columns: Place) -> Float[np.ndarray, "r c"]:
        """Some rows with some columns; the same ones on both sides need not be symmetric to the last digit."""

    @abc.abstractmethod
    def diagonal(self) -> Float[np.ndarray, " n"]:
        """In float64."""

    @abc.abstractmethod
    def twins(self) -> int:
        """How many rows are copies of an earlier one, as far as that can be seen."""


@dataclass(frozen=True)
class RowBlocks(AbstractBlocks):
    """The kernel of rows `x` as a reader computes it; `stored`: its lower triangle, where that lies on a disk."""

    reader: Reader
    x: np.ndarray
    stored: Any = None

    def __len__(self) -> int:
        return len(self.x)

    def block(self, rows: Place, columns: Place) -> Float[np.ndarray, "r c"]:
        if self.stored is not None and _is_below(rows, columns):
            return self._from_disk(rows, columns)
        left = self.x[rows]
        return self.reader.cross(left, left if rows is columns else self.x[columns])

    def _from_disk(self, rows: Place, columns: Place) -> Float[np.ndarray, "r c"]:
        try:
            return self.stored[rows, columns]
        except ValueError as fault:
            raise InputError(
                f"The tile of rows {rows} and columns {columns} in the store is damaged ({fault}). Call everwide.gram "
                "or everwide.operator with the store again, which mends it."
            ) from None

    def diagonal(self) -> Float[np.ndarray, " n"]:
        return np.asarray(self.reader.diagonal(self.x), np.float64)

    def twins(self) -> int:
        flat = np.ascontiguousarray(self.x.reshape(len(self.x), -1)) + 0.0  # no zero is negative
        seen = {row.tobytes() for row in flat}
        return len(flat) - len(seen)


@dataclass(frozen=True)
class MatrixBlocks(AbstractBlocks):
    """A symmetric matrix that is there already, in memory or mapped from a file."""

    matrix: Any

    def __len__(self) -> int:
        return len(self.matrix)

    def block(self, rows: Place, columns: Place) -> Float[np.ndarray, "r c"]:
        return self.matrix[rows][:, columns]

    def diagonal(self) -> Float[np.ndarray, " n"]:
        return np.array(np.diagonal(self.matrix), np.float64)

    def twins(self) -> int:
        return 0


class KernelOperator:
    """A symmetric kernel matrix as something to multiply with; made by `everwide.operator`, or from a `Reader`.

    The first product computes the tiles of one triangle, and keeps them as float32 if all of them fit into `memory`.
    An interrupt loses none that are done. Where they do not fit, products may be computed `elsewhere`.
    """

    dtype = np.dtype(np.float32)

    def __init__(
        self,
        blocks: AbstractBlocks,
        *,
        memory: int | None = None,
        tile: int | None = None,
        progress: Callable[[Progress], None] | None = None,
        elsewhere: Callable[[np.ndarray], np.ndarray] | None = None,
    ):
        self.blocks, self._progress, self.elsewhere = blocks, progress, elsewhere
        n = len(blocks)
        size = min(whole(tile, "tile") if tile else TILE, n)
        self.places = list(tiles(n, n, Size(size, size), symmetric=True))
        self.bytes = 4 * sum((t.rows.stop - t.rows.start) * (t.cols.stop - t.cols.start) for t in self.places)
        self.memory = budget(memory)
        self.keeps = self.bytes <= self.memory
        self._kept: dict[int, np.ndarray] = {}
        self._exact: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """`(n, n)`."""
        return len(self.blocks), len(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def done(self) -> float:
        """The share of the triangle that is kept already."""
        return len(self._kept) / len(self.places)

    def diagonal(self) -> Float[np.ndarray, " n"]:
        """In float64."""
        if self._exact is None:
            self._exact = self.blocks.diagonal()
        return self._exact

    def block(self, rows: Place, columns: Place) -> Float[np.ndarray, "r c"]:
        """Entries, computed when they are asked for."""
        return np.asarray(self.blocks.block(rows, columns))

    def among(self, rows: Int[np.ndarray, " m"], *, exact: bool = True) -> Float[np.ndarray, "m m"]:
        """Of few rows with themselves: symmetric, in float64, and if `exact` computed in it, where rows are known."""
        if exact and isinstance(self.blocks, RowBlocks):
            some = self.blocks.x[rows].astype(np.float64)
            values = np.asarray(self.blocks.reader.cross(some, some), np.float64)
        else:
            values = np.asarray(self.block(rows, rows), np.float64)
        values = (values + values.T) / 2
        np.fill_diagonal(values, self.diagonal()[rows])
        return values

    def tiles(self, *, keep: bool = True) -> Iterator[tuple[Tile, Float[np.ndarray, "r c"]]]:
        """The lower triangle, tile by tile; those on the diagonal are whole and symmetric."""
        begin, news = time.perf_counter(), len(self.places) - len(self._kept)
        fresh = 0
        for index, place in enumerate(self.places):
            values = self._kept.get(index)
            if values is None:
                values = self._computed(place)
                fresh += 1
                if self.keeps and keep:
                    self._kept[index] = values
                if self._progress is not None:
                    self._progress(Progress(fresh, news, time.perf_counter() - begin))
            yield place, values

    def _computed(self, place: Tile) -> Float[np.ndarray, "r c"]:
        values = np.asarray(self.blocks.block(place.rows, place.cols), np.float32)
        if place.rows != place.cols:
            return np.ascontiguousarray(values)
        values = lower_twice(values, values.T)
        np.fill_diagonal(values, self.diagonal()[place.rows])
        return values

    def __matmul__(self, v: np.ndarray) -> np.ndarray:
        """The product with a vector or with columns: in float64 for float64, else float32 within a tile."""
        columns = v[:, None] if v.ndim == 1 else v
        if len(columns) != len(self):
            raise InputError(f"A kernel of {len(self)} rows cannot be multiplied with an array of shape {v.shape}.")
        dtype = np.float64 if columns.dtype == np.float64 else np.float32
        right = np.ascontiguousarray(columns, dtype)
        out = self._product(right) if self.keeps or self.elsewhere is None else self.elsewhere(right)
        out = out.astype(dtype, copy=False)
        return out[:, 0] if v.ndim == 1 else out

    def _product(self, right: np.ndarray) -> Float[np.ndarray, "n k"]:
        return multiplied(self.tiles(), right, _add)

    def dense(self, dtype: type = np.float32) -> Float[np.ndarray, "n n"]:
        """The whole matrix, in the order of Fortran, if it fits into memory."""
        n = len(self)
        needed = np.dtype(dtype).itemsize * n * n
        way_out = "Use a solver that keeps less, such as everwide.spectral.ConjugateGradients."
        require(needed, None, f"The kernel of {n} rows as one matrix", way_out)
        matrix = np.empty((n, n), dtype, order="F")
        for place, values in self.tiles(keep=False):
            matrix[place.rows, place.cols] = values
            matrix[place.cols, place.rows] = values.T
        return matrix

    def predict(
        self, new: np.ndarray, coefficients: Float[np.ndarray, "m k"], rows: Any = None
    ) -> Float[np.ndarray, "new k"]:
        """`k(new, X) a` in bounded memory; `rows`: those that the coefficients belong to, None for all.

        Args:
            new: Examples, as those of the kernel.
            coefficients: `a`, `(m, k)`.
            rows: `(m,)`, such as `solution.centres`.

        Returns:
            `(new, k)`, in float64.

        """
        if not isinstance(self.blocks, RowBlocks):
            raise InputError("This kernel is a matrix: it knows no other rows. Multiply theirs with the coefficients.")
        old = self.blocks.x if rows is None else self.blocks.x[rows]
        new = new.astype(old.dtype, copy=False) if new.dtype.kind == "f" else new  # as precise as the kernel, no more
        predicted = np.zeros((len(new), coefficients.shape[1]))
        for place in tiles(len(new), len(old), Size(TILE, TILE), symmetric=False):
            values = np.asarray(self.blocks.reader.cross(new[place.rows], old[place.cols]), np.float64)
            predicted[place.rows] += values @ coefficients[place.cols]
        return predicted

    def refuse_twins(self, ridge: float) -> None:
        """Raise where the matrix is known to be singular: copies of rows, and no ridge."""
        if ridge == 0 and (twins := self.blocks.twins()):
            raise InputError(
                f"ridge=0, and {twins} of {len(self)} rows are copies of earlier ones: the kernel is singular. Give a "
                f"ridge above 0 (1e-6 of the mean diagonal is {1e-6 * float(self.diagonal().mean()):.2g}), or fold "
                "copies into one row with their mean target and weights=."
            )

    def __repr__(self) -> str:
        stored = isinstance(self.blocks, RowBlocks) and self.blocks.stored is not None
        again = f"tiles {'read' if stored else 'computed'} for each product"
        how = f"one triangle, {human(self.bytes)}" if self.keeps else again
        return f"KernelOperator({len(self)} rows, {how})"


def multiplied(
    pairs: Iterable[tuple[Tile, Any]], right: np.ndarray, add: Callable[[np.ndarray, Tile, Any, np.ndarray], None]
) -> Float[np.ndarray, "n k"]:
    """Tiles go round some threads, each with its own sum, so that the order of all sums is always the same.

    Each thread multiplies alone: threads of the BLAS within small products would mostly wait for each other.
    """
    sums = [np.zeros(right.shape) for _ in range(_threads())]
    with _blas().limit(limits=1, user_api="blas"), ExitStack() as stack:
        pools = [stack.enter_context(ThreadPoolExecutor(1)) for _ in sums]
        waiting: deque[Future[None]] = deque()
        for index, (place, values) in enumerate(pairs):
            turn = index % len(pools)
            waiting.append(pools[turn].submit(add, sums[turn], place, values, right))
            if len(waiting) > 2 * len(pools):  # tiles that are not kept must not pile up
                waiting.popleft().result()
        for one in waiting:
            one.result()
    return sum(sums[1:], start=sums[0])


def side_by_side(work: Callable[[slice], Any], n: int) -> list[Any]:
    """What is made of each part of `n` rows, one part a thread; each thread multiplies alone."""
    many = _threads()
    edges = [n * part // many for part in range(many + 1)]
    with _blas().limit(limits=1, user_api="blas"), ThreadPoolExecutor(many) as pool:
        return list(pool.map(work, (slice(*ends) for ends in itertools.pairwise(edges))))


def _is_below(rows: Place, columns: Place) -> bool:
    """Whether a block lies in the lower triangle, or on the diagonal."""
    if not (isinstance(rows, slice) and isinstance(columns, slice)):
        return False
    return rows == columns or (rows.start or 0) >= (math.inf if columns.stop is None else columns.stop)


def _add(out: np.ndarray, place: Tile, values: np.ndarray, right: np.ndarray) -> None:
    """Strips are multiplied from both sides while they are in a cache: tiles come from memory once."""
    for start in range(place.rows.start, place.rows.stop, _STRIP):
        rows = slice(start, min(start + _STRIP, place.rows.stop))
        strip = values[rows.start - place.rows.start : rows.stop - place.rows.start].astype(right.dtype, copy=False)
        out[rows] += strip @ right[place.cols]
        if place.rows != place.cols:
            out[place.cols] += strip.T @ right[rows]


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def _threads() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def as_operator(kernel: Any) -> KernelOperator:
    """A matrix as an operator, which is cheap; an operator as it is."""
    return kernel if isinstance(kernel, KernelOperator) else KernelOperator(MatrixBlocks(kernel))
