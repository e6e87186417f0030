"""A tile of a store, computed and written: where, is not known here."""

import abc
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._checks import InputError
from .._engine import Field, Rows, Tile, fill
from ..kernel import AbstractKernelFunction
from ._files import Files, StoredRows, stored_rows, versions


class AbstractTask(abc.ABC):
    """Work on a store that falls into pieces; data, not a closure, so that it can be sent elsewhere."""

    @abc.abstractmethod
    def __call__(self, item: Any) -> Any:
        """One piece, wherever this is; what it returns is small."""

    @abc.abstractmethod
    def here(self, items: Sequence[Any], devices: Sequence[Any]) -> Iterator[Any]:
        """All pieces, in this process."""

    @abc.abstractmethod
    def elsewhere(self) -> AbstractContextManager["AbstractTask"]:
        """The same for workers that see the folder of the store only."""


@dataclass(frozen=True)
class Work(AbstractTask):
    """All that it takes to compute tiles and to write them."""

    files: Files
    kernel: AbstractKernelFunction
    left: Rows | StoredRows
    right: Rows | StoredRows | None  # `None` where the matrix is symmetric

    def __call__(self, item: Tile) -> Tile:
        expected, here = self.files.header.versions, versions()
        if here != expected:
            raise InputError(
                f"A worker has {here}, the store was begun with {expected}. Install the same versions there."
            )
        return item if self.files.present(item) else self.write(item, self.compute(item))

    def here(self, items: Sequence[Tile], devices: Sequence[Any]) -> Iterator[Tile]:
        """One tile is written while the next is computed; what somebody else has written meanwhile is not."""
        writing = deque[Future[Tile]]()
        with ThreadPoolExecutor(1) as pool:
            for tile in items:
                if self.files.present(tile):
                    yield tile
                    continue
                writing.append(pool.submit(self.write, tile, self.compute(tile, devices)))
                if len(writing) > 1:
                    yield writing.popleft().result()
            while writing:
                yield writing.popleft().result()

    def elsewhere(self) -> AbstractContextManager["Work"]:
        """Rows go into the store, too."""
        files, size = self.files, self.files.header.tile
        assert isinstance(self.left, Rows)
        left = stored_rows(files.path / "rows", self.left, size.rows)
        if self.right is None:
            return nullcontext(replace(self, left=left))
        assert isinstance(self.right, Rows)
        right = stored_rows(files.path / "columns", self.right, size.cols)
        return nullcontext(replace(self, left=left, right=right))

    def compute(self, tile: Tile, devices: Sequence[Any] = ()) -> dict[Field, np.ndarray]:
        """The numbers of a tile; one on the diagonal is symmetric, and exact there."""
        header = self.files.header
        left = self.left.part(tile.rows)
        itself = self.right is None and tile.rows == tile.cols
        right = None if itself else (self.left if self.right is None else self.right).part(tile.cols)
        shape = (len(left), len(left if right is None else right), *header.shape[2:])
        out: dict[Any, np.ndarray] = {name: np.empty(shape, header.dtype) for name in header.kernels}
        fill(self.kernel, left, right, out, size=header.piece, devices=devices)
        return out

    def write(self, tile: Tile, values: dict[Field, np.ndarray]) -> Tile:
        """Into the store."""
        self.files.put(tile, values, self.kernel.pairs)
        return tile

    def bytes(self) -> int:
        """Of memory that one tile takes, about: its numbers, those that are being written, and what computes them."""
        header = self.files.header
        chunk = header.nbytes(header.tiles()[:1])
        return 3 * chunk + 2 * self.kernel.tile_bytes(*header.piece, np.dtype(header.dtype).itemsize)
