"""A tile of a store, computed and written: where, is not known here."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._checks import InputError
from .._engine import Field, Rows, Tile, fill
from ..kernel import AbstractKernelFunction
from ._files import Files, StoredRows, stored_rows, versions


@dataclass(frozen=True)
class Work:
    """All that it takes to compute tiles and to write them; data, not a closure, so that it can be sent elsewhere."""

    files: Files
    kernel: AbstractKernelFunction
    left: Rows | StoredRows
    right: Rows | StoredRows | None  # `None` where the matrix is symmetric

    def compute(self, tile: Tile, devices: Sequence[Any] = ()) -> dict[Field, np.ndarray]:
        """The numbers of a tile; one on the diagonal is symmetric, and exact there."""
        header = self.files.header
        left = self.left.part(tile.rows)
        itself = self.right is None and tile.rows == tile.cols
        right = None if itself else (self.left if self.right is None else self.right).part(tile.cols)
        shape = (len(left), len(left if right is None else right), *header.shape[2:])
        out: dict[Field, np.ndarray] = {name: np.empty(shape, header.dtype) for name in header.kernels}  # pyright: ignore[reportAssignmentType]
        fill(self.kernel, left, right, out, size=header.piece, devices=devices)
        return out

    def write(self, tile: Tile, values: dict[Field, np.ndarray]) -> Tile:
        """Into the store."""
        self.files.put(tile, values, self.kernel.pairs)
        return tile

    def elsewhere(self) -> "Work":
        """The same for workers that see the files only: rows go into the store, too."""
        files, size = self.files, self.files.header.tile
        assert isinstance(self.left, Rows)
        left = stored_rows(files.path / "rows", self.left, size.rows)
        if self.right is None:
            return replace(self, left=left)
        assert isinstance(self.right, Rows)
        return replace(self, left=left, right=stored_rows(files.path / "columns", self.right, size.cols))

    def bytes(self) -> int:
        """Of memory that one tile takes, about: its numbers, those that are being written, and what computes them."""
        header = self.files.header
        chunk = header.nbytes(header.tiles()[:1])
        return 3 * chunk + 2 * self.kernel.tile_bytes(*header.piece, np.dtype(header.dtype).itemsize)


def done_by_worker(work: Work, tile: Tile) -> Tile:
    """What a worker elsewhere does."""
    expected, here = work.files.header.versions, versions()
    if here != expected:
        raise InputError(f"A worker has {here}, the store was begun with {expected}. Install the same versions there.")
    return work.write(tile, work.compute(tile))
