"""A kernel matrix, tile by tile: cut, computed a few at a time, written with their mirror images. The only such loop.

Knows nothing about networks.
"""

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import numpy as np

from ..kernel import AbstractHostKernelFunction, AbstractKernelFunction, Block, Inputs
from ..signal import Pairs
from ._inputs import Rows, require
from ._jit import trusted_jit

T = TypeVar("T")


class Remembered(Generic[T]):
    """The last `most` results by their keys; threads may ask at the same time, and then get the same object."""

    def __init__(self, most: int):
        self._most, self._results, self._lock = most, dict[Hashable, T](), threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result for this key, made where it is not known. Nobody waits while it is made."""
        with self._lock:
            if key in self._results:
                return self._results[key]
        result = make()
        with self._lock:
            while key not in self._results and len(self._results) >= self._most:
                self._results.pop(next(iter(self._results)))
            return self._results.setdefault(key, result)


_CACHE_LINE = 64  # bytes
_LARGEST_DIAGONAL = 8192
Field = Literal["nngp", "ntk"]
_FIELDS: tuple[Field, ...] = ("nngp", "ntk")
Values = dict[str, Any]  # of one tile, by the name of the matrix; arrays of JAX or numpy


class Progress(NamedTuple):
    """How far a long computation is.

    >>> import everwide as ew, numpy as np
    >>> k = ew.gram(ew.Dense(), np.eye(3), progress=lambda p: print(p.done, "of", p.total))
    1 of 1
    """

    done: int
    total: int
    seconds: float

    @property
    def left(self) -> float:
        """Seconds that are left, if it goes on at this speed."""
        return self.seconds * (self.total - self.done) / max(self.done, 1)


class Size(NamedTuple):
    """Rows and columns of a whole tile; the last ones may be ragged."""

    rows: int
    cols: int


class Tile(NamedTuple):
    """Rows and columns of a matrix, and some of the sites that follow; without `sites`, all of them."""

    rows: slice
    cols: slice
    sites: tuple[slice, ...] = ()

    def place(self) -> tuple[slice, ...]:
        """Where it is in the matrix."""
        return (self.rows, self.cols, *self.sites)

    def mirrored(self, pairs: Pairs) -> "Tile":
        """Its image in a symmetric matrix: sites of both examples swap too, shared ones stay."""
        half = len(self.sites) // 2 if pairs is Pairs.ALL_SITES else 0
        return Tile(self.cols, self.rows, (*self.sites[half:], *self.sites[:half]))


def tiles(n1: int, n2: int, size: Size, *, symmetric: bool) -> Iterator[Tile]:
    """Cover an `(n1, n2)` matrix; only the lower triangle when `symmetric`."""
    for i in range(0, n1, size.rows):
        for j in range(0, i + 1 if symmetric else n2, size.cols):
            yield Tile(slice(i, min(i + size.rows, n1)), slice(j, min(j + size.cols, n2)))


def fitted(n: int, most: int) -> int:
    """Examples in a tile, at most `most`, for `n` of them: little padding, and few different shapes to compile."""
    ladder = [step << k for k in range(most.bit_length()) for step in (2, 3)]
    sizes = sorted({1, most, *(size for size in ladder if size <= most)})
    # a tile costs a little, whatever its size
    return min(sizes, key=lambda size: (-(-n // size) * size * (1 + 16 / size), -size))


def finished(
    started: Iterable[tuple[Tile, Values]],
    in_flight: int = 2,
    *,
    arrange: Callable[[np.ndarray], np.ndarray] = lambda array: array,
) -> Iterator[tuple[Tile, dict[str, np.ndarray]]]:
    """Tiles on the host, without their padding.

    Taking one from `started` starts it, and so many are under way: one is written while the next is computed.
    `arrange` gives a view with rows and columns in front.
    """
    running: deque[tuple[Tile, Values]] = deque()
    for one in started:
        running.append(one)
        if len(running) >= in_flight:
            yield _landed(*running.popleft(), arrange)
    while running:
        yield _landed(*running.popleft(), arrange)


def _landed(tile: Tile, values: Values, arrange: Callable) -> tuple[Tile, dict[str, np.ndarray]]:
    cut = tuple(slice(part.stop - part.start) for part in tile.place())
    return tile, {name: arrange(np.asarray(array))[cut] for name, array in values.items()}


def collect(
    tiles: Iterable[tuple[Tile, dict[str, np.ndarray]]],
    out: Mapping[Any, np.ndarray],
    pairs: Pairs | None,
    *,
    total: int,
    progress: Callable[[Progress], None] | None = None,
    balanced: bool = False,
    add: bool = False,
) -> None:
    """Write finished tiles into the matrices `out`, and say how far it is. The rest is as in `write`."""
    start = time.perf_counter()
    for done, (tile, values) in enumerate(tiles, start=1):
        for name, array in values.items():
            write(out[name], tile, array, pairs, balanced=balanced, add=add)
        if progress is not None:
            progress(Progress(done, total, time.perf_counter() - start))


def write(
    matrix: np.ndarray,
    tile: Tile,
    values: np.ndarray,
    pairs: Pairs | None,
    *,
    balanced: bool = False,
    add: bool = False,
) -> None:
    """Write a tile (or `add` it), and its image where the matrix is symmetric: then `pairs` says which sites follow.

    A tile on the diagonal is its own image: its lower half is written twice, unless it is `balanced` already.
    """
    if pairs is not None:
        twin, flipped = tile.mirrored(pairs), transposed(values.conj(), pairs)  # real numbers stay as they are
        if twin != tile:
            _copy(matrix[twin.place()], flipped, add)
        elif not balanced:
            values = lower_twice(values, flipped)
    matrix[tile.place()] = matrix[tile.place()] + values if add else values


def lower_twice(values: np.ndarray, flipped: np.ndarray) -> np.ndarray:
    """A symmetric tile: its lower half, and the same seen in the mirror."""
    whole = np.empty(values.shape, values.dtype)
    _copy(whole, flipped, add=False)
    lower = np.tri(len(values), dtype=bool).reshape(*values.shape[:2], *(1,) * (values.ndim - 2))
    np.copyto(whole, values, where=lower)
    return whole


def transposed(values: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Swap the two examples, and with them the sites of both; shared sites stay."""
    if pairs is not Pairs.ALL_SITES:
        return values.swapaxes(0, 1)
    half = 2 + (values.ndim - 2) // 2
    return values.transpose(1, 0, *range(half, values.ndim), *range(2, half))


def _copy(out: np.ndarray, image: np.ndarray, add: bool) -> None:
    """Strips of one line of the cache: four times as fast as one transposed assignment."""
    width = max(_CACHE_LINE // out.itemsize, 1)
    for start in range(0, out.shape[1], width):
        strip = slice(start, start + width)
        if add:
            out[:, strip] += image[:, strip]
        else:
            out[:, strip] = image[:, strip]


class Job(eqx.Module):
    """All that a worker needs to compute tiles; data, not a closure."""

    kernel: AbstractKernelFunction
    read: tuple[Field, ...] = eqx.field(static=True)

    def __call__(self, x1: Inputs, x2: Inputs) -> Values:
        """The fields of one tile. With sites, only what is read leaves the compiled function, and is computed.

        Without sites both kernels do: what leaves is kept and not computed again, so that one takes as long as both;
        read alone, a kernel of ten layers took half as long again.
        """
        if isinstance(self.kernel, AbstractHostKernelFunction):
            return self.fields(self.kernel.block(x1, x2))
        job = Job(self.kernel, _FIELDS) if np.ndim(x1.x) == 2 else self
        values = _block_with_itself(job, x1) if x1 is x2 else _block(job, x1, x2)
        return {field: values[field] for field in self.read}

    def fields(self, block: Block) -> Values:
        """What is read of a block."""
        return {field: getattr(block, field) for field in self.read}


@functools.partial(trusted_jit, wide=True)
def _block(job: Job, x1: Inputs, x2: Inputs) -> Values:
    return job.fields(job.kernel.block(x1, x2))


@functools.partial(trusted_jit, wide=True)
def _block_with_itself(job: Job, x: Inputs) -> Values:
    return job.fields(job.kernel.block(x, x))  # the same object, so that the kernel need not care for the diagonal


def computed(
    job: Job, x1: Rows, x2: Rows, todo: Iterable[Tile], size: Size, devices: Sequence[Any] = ()
) -> Iterator[tuple[Tile, dict[str, np.ndarray]]]:
    """Finished tiles of at most `size`, a few in flight: one is written while the next is computed.

    `devices` take turns; without them everything is where JAX puts it.
    """
    places = list(devices) or [None]
    with jax.enable_x64(True):
        left = [_blocks(x1, size.rows, place) for place in places]
        right = left if x1 is x2 else [_blocks(x2, size.cols, place) for place in places]

    def started() -> Iterator[tuple[Tile, Values]]:
        for tile, rows, cols in zip(todo, cycle(left), cycle(right), strict=False):
            with jax.enable_x64(True):  # not around the yield: the setting belongs to the caller
                values = job(rows[tile.rows.start], cols[tile.cols.start])
            yield tile, values

    return finished(started(), in_flight=2 * len(places))


def _blocks(x: Rows, size: int, place: Any) -> dict[int, Inputs]:
    cut = {i: x.cut(i, size) for i in range(0, len(x), size)}
    return cut if place is None else jax.device_put(cut, place)


@dataclass(frozen=True, eq=False)
class Gram:
    """Kernel matrices `(n1, n2)` as numpy arrays; sites that the network leaves follow. A pair of matrices.

    `error`: their standard errors, where layers are sampled; `None` where all is exact.

    >>> import everwide as ew, numpy as np
    >>> nngp, ntk = ew.gram(ew.Dense(), np.eye(3))
    """

    nngp: Any  # arrays of numpy, or of zarr in a store
    ntk: Any
    error: "Gram | None" = None

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.nngp, self.ntk))

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> np.ndarray:
        return (self.nngp, self.ntk)[index]


def fill(
    kernel: AbstractKernelFunction,
    x1: Rows,
    x2: Rows | None,
    out: dict[Field, np.ndarray],
    *,
    size: Size,
    progress: Callable[[Progress], None] | None = None,
    devices: Sequence[Any] = (),
) -> None:
    """Write the requested kernels between `x1` and `x2` into `out`; `x2=None` means symmetric."""
    symmetric, other = x2 is None, x1 if x2 is None else x2
    todo = list(tiles(len(x1), len(other), size, symmetric=symmetric))
    done = computed(Job(kernel.quick(), tuple(out)), x1, other, todo, size, devices)
    if kernel.quick() is not kernel:
        done = _completed(done, Job(kernel, tuple(out)), x1, other, size, symmetric=symmetric)
    collect(done, out, kernel.pairs if symmetric else None, total=len(todo), progress=progress)
    if symmetric:
        exact, index = diagonal(kernel, x1), np.arange(len(x1))
        for field, matrix in out.items():
            matrix[index, index] = getattr(exact, field)  # the cross formula cancels where both inputs coincide


def _completed(
    done: Iterator[tuple[Tile, dict[str, np.ndarray]]], job: Job, x1: Rows, x2: Rows, size: Size, *, symmetric: bool
) -> Iterator[tuple[Tile, dict[str, np.ndarray]]]:
    """Tiles in which a number is missing are computed by the slower job; the diagonal is computed elsewhere.

    Where it is infinite, or that times a speed of 0, float32 is not enough. Rows with sites know no such numbers.
    """
    for tile, values in done:
        own = symmetric and tile.rows == tile.cols
        if any(_is_lost(array, own) for array in values.values()):
            yield tile, _again(job, x1.part(tile.rows), None if own else x2.part(tile.cols), size, x1.x.ndim == 2)
        else:
            yield tile, values


def _is_lost(array: np.ndarray, own: bool) -> bool:
    """Whether something is not finite, off the diagonal where it is an `own` one."""
    lost = ~np.isfinite(array)
    if own:
        lost[np.diag_indices(len(array))] = False
    return bool(lost.any())


def _again(job: Job, x1: Rows, x2: Rows | None, size: Size, wide: bool) -> dict[str, np.ndarray]:
    """One tile of these rows; what is too large for the matrix is infinite there."""
    left, right = (replace(x, x=x.x.astype(np.float64)) if wide else x for x in (x1, x1 if x2 is None else x2))
    whole = Tile(slice(0, len(left)), slice(0, len(right)))
    ((_, values),) = computed(job, left, left if x2 is None else right, [whole], size)
    with np.errstate(over="ignore"):
        return {name: array.astype(x1.x.dtype, copy=False) for name, array in values.items()}


def diagonal(kernel: AbstractKernelFunction, x: Rows) -> Gram:
    """Both kernels of every example with itself, a stretch of rows at a time.

    There are few of these numbers and much depends on them, so they are computed in float64 whatever the data are.
    """
    dtype, host = x.x.dtype, isinstance(kernel, AbstractHostKernelFunction)
    if host:
        x = replace(x, x=x.x.astype(np.float64))
    size = fitted(len(x), min(_LARGEST_DIAGONAL, kernel.examples_per_tile(8) ** 2))
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
    return kernel.diagonal(replace(x, x=x.x.astype(np.float64)))  # here it is fused with what reads it: no copy


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
        "or let it grow on disk: out=everwide.scale.Store(path).",
    )
