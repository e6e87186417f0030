"""Tiles of matrices: cut, computed a few at a time, written with their mirror images. The only such loop."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..signal import Pairs

_CACHE_LINE = 64  # bytes
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
        twin, flipped = tile.mirrored(pairs), transposed(values, pairs)
        if twin != tile:
            _copy(matrix[twin.place()], flipped, add)
        elif not balanced:
            lower = np.tri(len(values), dtype=bool).reshape(*values.shape[:2], *(1,) * (values.ndim - 2))
            values = np.where(lower, values, flipped)
    matrix[tile.place()] = matrix[tile.place()] + values if add else values


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
