"""A kernel matrix on disk that loses nothing: what is there is kept, what is missing or damaged is computed."""

import errno
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._checks import InputError, warn, whole
from .._engine import Field, Progress, Rows, Size, Tile, fitted, human, require
from .._fingerprint import fingerprint
from ..kernel import AbstractHostKernelFunction, AbstractKernelFunction
from ._backends import HERE, AbstractBackend
from ._files import Files, Header, State, header_of, opened, versions
from ._work import Work

_LARGEST_TILE = 2048
_MOST_TILES = 512  # along a side
_WORK = 2 << 30  # bytes of temporaries that a tile may pass through: seconds, on one core
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_READERS = 4  # threads that compare checksums
_NAMED = 3  # damaged tiles that a sentence lists


@dataclass(frozen=True)
class Store:
    """A folder for kernel matrices that are larger than memory, or that took long to compute.

    `everwide.gram(net, x, out=Store("run"))` writes tile by tile, each with a checksum; after a crash, `kill -9` or a
    full disk the same call goes on with the tiles that are missing, and computes damaged ones again. The folder
    remembers network, data, dtype and versions, and refuses others. Several processes may fill one store.

    It is a zarr group with the arrays `nngp` and `ntk`: `zarr.open_group("run")["ntk"]`,
    `dask.array.from_zarr("run", component="ntk")` and `xarray.open_zarr("run")` read it. What is not computed yet is
    NaN. Needs the extra `store`.

    Args:
        path: Of the folder, which is made.
        resume: Go on with a store that is there; if not, it is refused.
        triangle: Keep the lower triangle of a symmetric matrix only: half the bytes, and NaN above.
        notice: Called with sentences on what was there; by default only damaged tiles are spoken of, in a warning.

    >>> import everwide as ew, numpy as np, tempfile
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     k = ew.gram(net, np.eye(3), out=ew.scale.Store(f"{folder}/run"))
    ...     k.ntk[:2, :2].shape
    (2, 2)
    """

    path: str | Path
    resume: bool = True
    triangle: bool = False
    notice: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        if "://" in str(self.path):
            raise InputError(f"Store({str(self.path)!r}): expected a folder on a disk. Copy it there when it is whole.")

    @property
    def folder(self) -> Path:
        """Where it is."""
        return Path(self.path).expanduser().absolute()

    def fill(
        self,
        kernel: AbstractKernelFunction,
        x1: Rows,
        x2: Rows | None,
        names: tuple[Field, ...],
        *,
        tile: int | None,
        memory: int | None,
        backend: AbstractBackend | None,
        progress: Callable[[Progress], None] | None,
    ) -> dict[Field, Any]:
        """Compute what is missing; returns `zarr` arrays by their names. `everwide.gram` calls it."""
        wanted = self._header(kernel, x1, x2, names, tile)
        self._check(Work(Files(self.folder, header_of(self.folder) or wanted), kernel, x1, x2), memory)
        files, there = opened(self.folder, wanted)
        if tile is not None and there and files.header.tile != _cut(files.header.shape, tile):
            raise InputError(
                f"tile={tile}: the store {str(self.path)!r} has tiles of {files.header.tile.rows} x "
                f"{files.header.tile.cols} examples. Leave tile= out."
            )
        everything = files.header.tiles()
        todo = self._missing(files, everything) if there else everything
        self._check_disk(files.header.nbytes(todo))
        work = Work(files, kernel, x1, x2)
        self._run(HERE if backend is None else backend, work, todo, len(everything), progress)
        return files.arrays()  # pyright: ignore[reportReturnType]

    def _header(
        self, kernel: AbstractKernelFunction, x1: Rows, x2: Rows | None, names: tuple[Field, ...], tile: int | None
    ) -> Header:
        dtype, shape = x1.x.dtype, (len(x1), len(x1 if x2 is None else x2), *kernel.site_shape())
        most = kernel.examples_per_tile(dtype.itemsize)
        size = _examples(kernel, max(shape[:2]), dtype.itemsize) if tile is None else whole(tile, "tile")
        wanted = _cut(shape, size)
        return Header(
            kernel=fingerprint(kernel),
            rows=_of_rows(x1),
            columns="" if x2 is None else _of_rows(x2),
            kernels=names,
            shape=shape,
            dtype=dtype.name,
            versions=versions(),
            triangle=self.triangle and x2 is None,
            tile=wanted,
            piece=Size(*(min(most, size) for size in wanted)),
        )

    def _missing(self, files: Files, everything: list[Tile]) -> list[Tile]:
        """The tiles that are not there, or damaged; sentences about what is."""
        with ThreadPoolExecutor(_READERS) as pool:
            states = list(pool.map(files.state, everything))
        damaged = [tile for tile, state in zip(everything, states, strict=True) if state is State.DAMAGED]
        todo = [tile for tile, state in zip(everything, states, strict=True) if state is not State.WHOLE]
        count, total = len(everything) - len(todo), len(everything)
        if not self.resume and len(todo) < total:
            raise InputError(
                f"The store {str(self.path)!r} holds {count} of {total} tiles of this kernel already. Go on with "
                "resume=True (--resume), or name another folder."
            )
        if self.notice is not None:
            self.notice(f"{self.path} holds {count} of {total} tiles, whole; {len(todo)} to go.")
        if damaged:
            some = ", ".join(f"{t.rows.start}:{t.rows.stop} x {t.cols.start}:{t.cols.stop}" for t in damaged[:_NAMED])
            more = f" and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
            text = f"Damaged tiles in {self.path} are computed again: rows x columns {some}{more}."
            warn(text, UserWarning) if self.notice is None else self.notice(text)
        for tile in damaged:
            files.drop(tile)
        begin = os.getpid() % max(1, len(todo))  # another process that fills this store is likely to be elsewhere
        return todo[begin:] + todo[:begin]

    def _check(self, work: Work, memory: int | None) -> None:
        """Before there is a folder, which would remember what was refused."""
        require(work.bytes(), memory, "A tile of the store", "Pass a smaller tile=, or more memory=.")
        if header_of(self.folder) is None:
            self._check_disk(work.files.header.nbytes(work.files.header.tiles()))

    def _check_disk(self, needed: int) -> None:
        there = next(folder for folder in (self.folder, *self.folder.parents) if folder.exists())
        free = shutil.disk_usage(there).free
        if needed > free:
            raise InputError(
                f"The tiles that {str(self.path)!r} lacks take {human(needed)}, {human(free)} are free there. Make "
                "room, or keep less: one triangle (Store(path, triangle=True)), one kernel (everwide.ntk), float32."
            )

    def _run(
        self,
        backend: AbstractBackend,
        work: Work,
        todo: list[Tile],
        total: int,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        start, done = time.perf_counter(), total - len(todo)
        try:
            if progress is not None:
                progress(Progress(done, total, 0.0))
            for _ in backend.run(work, todo) if todo else ():
                done += 1
                if progress is not None:
                    progress(Progress(done, total, time.perf_counter() - start))
        except KeyboardInterrupt as stop:
            stop.add_note(f"{done} of {total} tiles are kept in {self.path}. Run the same again to go on.")
            raise
        except OSError as fault:
            if fault.errno not in _FULL:
                raise
            why = "ends files at a limit (ulimit -f)" if fault.errno == errno.EFBIG else "is full"
            message = (
                f"The disk of {self.path} {why}: {done} of {total} tiles are kept. Make room and run the same again"
            )
            raise OSError(fault.errno, message) from None


def _of_rows(rows: Rows) -> str:
    return fingerprint(rows.x, rows.mask, rows.graph)


def _cut(shape: tuple[int, ...], most: int) -> Size:
    """Square where the matrix is."""
    return Size(fitted(shape[0], most), fitted(shape[1], most))


def _examples(kernel: AbstractKernelFunction, n: int, itemsize: int) -> int:
    """In a tile: a second of work or so, so that writing costs little, and a crash does; but no millions of files."""
    size, patient = kernel.examples_per_tile(itemsize), isinstance(kernel, AbstractHostKernelFunction)

    def short(size: int) -> bool:
        """Tiles of compiled loops take seconds already."""
        return not patient and size <= _LARGEST_TILE and kernel.tile_bytes(size, size, itemsize) <= _WORK

    while short(2 * size) or size * _MOST_TILES < n:
        size *= 2
    return size
