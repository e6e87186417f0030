"""A kernel matrix on disk: a zarr group, a chunk for each tile, a checksum in each. Only this file knows zarr.

A chunk is written beside its place and moved there, so it is there whole or not at all; whatever happens to it later,
its checksum tells. `zarr.json` of the group says what the matrices are of.
"""

import enum
import json
import math
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from .._checks import InputError
from .._engine import Rows, Size, Tile, tiles, transposed
from ..signal import Pairs

_FORMAT = 1
_STALE = 3600.0  # seconds, after which nobody is still writing a file
_LIBRARIES = ("everwide", "jax", "jaxlib")


def versions() -> dict[str, str]:
    """Of what computes tiles: others may round in another way."""

    def one(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "sources"

    return {name: one(name) for name in _LIBRARIES}


class State(enum.Enum):
    """Of a tile in a store."""

    WHOLE = "whole"
    MISSING = "missing"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class Header:
    """What a store is of, and how it is cut: written once, when it is made."""

    kernel: str  # fingerprints
    rows: str
    columns: str  # "" where the matrix is symmetric
    kernels: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    versions: dict[str, str]
    triangle: bool  # only the lower one is kept
    tile: Size
    piece: Size  # of what is computed at once: another one would round in another way

    @property
    def symmetric(self) -> bool:
        """Rows with themselves."""
        return not self.columns

    def tiles(self) -> list[Tile]:
        """All that have to be computed."""
        return list(tiles(self.shape[0], self.shape[1], self.tile, symmetric=self.symmetric))

    def nbytes(self, todo: Iterable[Tile]) -> int:
        """Of these tiles on disk, with their images."""
        chunk = self.tile.rows * self.tile.cols * math.prod(self.shape[2:]) * np.dtype(self.dtype).itemsize
        images = self.symmetric and not self.triangle
        return len(self.kernels) * chunk * sum(2 if images and tile.rows != tile.cols else 1 for tile in todo)

    def strangeness(self, other: "Header") -> str:
        """In which ways `other` is the kernel of something else; empty if it is not."""
        words = {
            "kernel": "another network",
            "rows": "other rows",
            "columns": "other columns",
            "kernels": f"{' and '.join(other.kernels)} instead of {' and '.join(self.kernels)}",
            "shape": f"shape {other.shape} instead of {self.shape}",
            "dtype": f"{other.dtype} instead of {self.dtype}",
            "versions": f"{_told(other.versions)} instead of {_told(self.versions)}",
            "triangle": "one triangle only" if other.triangle else "both triangles",
        }
        return ", ".join(text for name, text in words.items() if getattr(self, name) != getattr(other, name))


def _told(known: dict[str, str]) -> str:
    return " ".join(f"{name} {number}" for name, number in known.items())


@dataclass(frozen=True)
class Files:
    """The matrices of one store; data only, so that workers elsewhere can have it too."""

    path: Path
    header: Header

    def arrays(self, mode: str = "r") -> dict[str, Any]:
        """One `zarr.Array` a kernel."""
        group = _zarr().open_group(self.path, mode=mode, use_consolidated=False)
        return {name: group[name] for name in self.header.kernels}

    def put(self, tile: Tile, values: dict[Any, np.ndarray], pairs: Pairs) -> None:
        """Write a tile, and its image where the matrix is symmetric."""
        image = self.header.symmetric and not self.header.triangle and tile.rows != tile.cols
        for name, array in self.arrays("r+").items():
            array[tile.place()] = values[name]
            if image:
                array[tile.mirrored(pairs).place()] = transposed(values[name], pairs)

    def present(self, tile: Tile) -> bool:
        """Whether all chunks of a tile are there, whatever is in them."""
        return all(file.is_file() for file, _, _ in self._places(tile))

    def state(self, tile: Tile) -> State:
        """Whether a tile is there; every chunk of it is read, and its checksum compared."""
        if not self.present(tile):
            return State.MISSING
        arrays = self.arrays()
        try:
            for _, name, place in self._places(tile):
                arrays[name][place]
        except (ValueError, RuntimeError, OSError):  # a checksum, a length, a sector
            return State.DAMAGED
        return State.WHOLE

    def drop(self, tile: Tile) -> None:
        """Remove its chunks."""
        for file, _, _ in self._places(tile):
            file.unlink(missing_ok=True)

    def _places(self, tile: Tile) -> Iterator[tuple[Path, str, tuple[slice, ...]]]:
        """File, array and place of a tile's chunks: its own, and those of its image."""
        size, rest = self.header.tile, ["0"] * (len(self.header.shape) - 2)
        images = self.header.symmetric and not self.header.triangle and tile.rows != tile.cols
        for name in self.header.kernels:
            for rows, cols in [(tile.rows, tile.cols), *([(tile.cols, tile.rows)] if images else [])]:
                index = [str(rows.start // size.rows), str(cols.start // size.cols), *rest]
                yield self.path.joinpath(name, "c", *index), name, (rows, cols)


def opened(path: Path, header: Header) -> tuple[Files, bool]:
    """The store at this place, made where there is none; and whether it was there before."""
    if (known := header_of(path)) is None:
        _remove_stale(path.parent.glob(f".{path.name}.*.new"))
        if _made(path, header):
            return Files(path, header), False
        known = header_of(path)  # somebody else was faster
        assert known is not None
    if strange := header.strangeness(known):
        raise InputError(
            f"The store {str(path)!r} holds the kernel of something else: {strange}. Name another folder, or delete "
            "this one."
        )
    _remove_stale(path.glob("*/c/**/*.partial"))  # of writers that were killed
    return Files(path, known), True


def kept(path: Path) -> Files:
    """The store at this place, as it is."""
    header = header_of(path)
    if header is None:
        raise InputError(f"There is no store at {str(path)!r}. Fill one: everwide.gram(net, x, out=Store(path)).")
    return Files(path, header)


def header_of(path: Path) -> Header | None:
    """Of the store at this place; `None` where there is nothing at all."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return None
    try:
        kept = json.loads((path / "zarr.json").read_text())["attributes"]["everwide"]
        if kept.pop("format") != _FORMAT:
            raise InputError(
                f"The store {str(path)!r} was written by another version of everwide. Name another folder."
            )
        return Header(**{field.name: _plain(kept[field.name], field.type) for field in fields(Header)})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
        if isinstance(fault, InputError):
            raise
        raise InputError(
            f"{str(path)!r} is there and no store of everwide. Name a new folder, or an empty one."
        ) from None


def _plain(value: Any, kind: Any) -> Any:
    """From JSON, which has lists only."""
    if kind is Size:
        return Size(*value)
    return tuple(value) if isinstance(value, list) else value


def _made(path: Path, header: Header) -> bool:
    """Make an empty store under another name and move it here; false where somebody else was faster."""
    zarr = _zarr()
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.parent / f".{path.name}.{uuid.uuid4().hex}.new"
    try:
        attributes = {"everwide": {"format": _FORMAT, **asdict(header)}}
        group = zarr.create_group(beside, zarr_format=3, attributes=attributes)
        sites = tuple(f"site {i}" for i in range(len(header.shape) - 2))
        chunks, names = (*header.tile, *header.shape[2:]), ("row", "column", *sites)
        for name in header.kernels:  # NaN where a tile is not there
            _array(group, name, header.shape, chunks, header.dtype, math.nan, names)
        _consolidate(beside, header.kernels)
        beside.rename(path)
        return True
    except OSError:
        if header_of(path) is None:
            raise
        return False
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _consolidate(path: Path, names: tuple[str, ...]) -> None:
    """What xarray looks for, written by hand: zarr would warn, and warnings cannot be silenced in one thread alone."""
    group, inside = path / "zarr.json", {name: json.loads((path / name / "zarr.json").read_text()) for name in names}
    known = json.loads(group.read_text())
    known["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": inside}
    group.write_text(json.dumps(known, indent=2))


def _array(
    group: Any,
    name: str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: Any,
    absent: float,
    axes: tuple[str, ...] | None = None,
) -> None:
    """A new array with checksums, not compressed: kernels hardly are smaller when they are."""
    from zarr.codecs import Crc32cCodec

    group.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        fill_value=absent,
        filters=None,
        compressors=[Crc32cCodec()],
        dimension_names=axes,
    )


def _zarr() -> Any:
    try:
        import zarr
    except ImportError as fault:
        raise ImportError("A store needs zarr 3: pip install 'everwide[store]'.", name="zarr") from fault
    return zarr


def _remove_stale(files: Iterable[Path]) -> None:
    for file in files:
        try:
            if time.time() - file.stat().st_mtime > _STALE:
                shutil.rmtree(file) if file.is_dir() else file.unlink()
        except OSError:  # somebody else removed it
            continue


@dataclass(frozen=True)
class StoredRows:
    """Rows that lie in a store, for workers that have the store and nothing else."""

    path: Path

    def part(self, rows: slice) -> Rows:
        """Read some of them, checksums compared."""
        group = _zarr().open_group(self.path, mode="r", use_consolidated=False)
        parts = {name: array[rows] for name, array in group.arrays()}
        graph = parts.get("graph")
        if "senders" in parts:
            graph = (parts["senders"], parts["receivers"], parts["weights"])
        return Rows(parts["x"], parts.get("mask"), graph)


def stored_rows(path: Path, rows: Rows, size: int) -> StoredRows:
    """Lay rows into a store; those that are there are compared, and mended."""
    zarr, arrays = _zarr(), _named(rows)
    if not path.exists():
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
        group = zarr.create_group(beside, zarr_format=3)
        for name, array in arrays.items():
            chunks = (min(size, len(array)), *array.shape[1:])
            _array(group, name, array.shape, chunks, array.dtype, 0)
        try:
            beside.rename(path)
        except OSError:  # somebody else was faster
            shutil.rmtree(beside, ignore_errors=True)
    group = zarr.open_group(path, mode="r+", use_consolidated=False)
    for name, array in arrays.items():
        for start in range(0, len(array), size):
            _mend(path / name, group[name], array, slice(start, min(start + size, len(array))))
    return StoredRows(path)


def _mend(folder: Path, kept: Any, array: np.ndarray, rows: slice) -> None:
    """Write these rows unless they are there."""
    file = folder.joinpath("c", str(rows.start // kept.chunks[0]), *["0"] * (array.ndim - 1))
    try:
        if file.is_file() and np.array_equal(kept[rows], array[rows], equal_nan=array.dtype.kind == "f"):
            return
    except (ValueError, RuntimeError, OSError):
        file.unlink(missing_ok=True)
    kept[rows] = array[rows]


def _named(rows: Rows) -> dict[str, np.ndarray]:
    arrays = {"x": rows.x, "mask": rows.mask}
    if isinstance(rows.graph, tuple):
        arrays |= dict(zip(("senders", "receivers", "weights"), rows.graph, strict=True))
    else:
        arrays["graph"] = rows.graph
    return {name: np.asarray(array) for name, array in arrays.items() if array is not None}
