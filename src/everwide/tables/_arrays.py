"""Arrays in .npz and .npy files. Pickles, which could run code, are refused."""

import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from .._engine import MemoryBudgetError, require
from ._plans import LARGEST
from ._table import MOST_COLUMNS, TableError, listed_names, printable

_INPUTS = ("x", "data", "images", "inputs", "features", "x_train")
_TARGETS = ("y", "target", "targets", "labels", "label", "y_train")
_CHANNELS = (1, 3, 4)


def load(path: Path, most_rows: int | None = None) -> dict[str, np.ndarray]:
    """The arrays of a file; that of an .npy file has no name."""
    try:
        with path.open("rb") as file:
            packed = _is_packed(file, path.name, most_rows)
            loaded = np.load(file, allow_pickle=False)
            return {name: loaded[name] for name in loaded.files} if packed else {"": loaded}
    except (TableError, MemoryBudgetError):
        raise
    except MemoryError:
        raise TableError(f"{path.name} holds arrays that do not fit into memory. Save fewer rows.") from None
    except (ValueError, EOFError, SyntaxError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as fault:
        if "object arrays" in str(fault).lower():
            raise TableError(
                f"{path.name} holds Python objects, which are not loaded, as they can run code. Save numbers or text "
                "(numpy.asarray(values, dtype=float))."
            ) from None
        raise TableError(f"{path.name} cannot be read as arrays of numpy: {printable(fault, 200)}.") from None


def _is_packed(file: BinaryIO, name: str, most_rows: int | None) -> bool:
    """Whether it is an .npz file; its arrays are looked at and counted before they are unpacked."""
    start = file.read(6)
    file.seek(0)
    if start == b"\x93NUMPY":
        return False
    if not start.startswith(b"PK"):  # numpy would take it for a pickle
        raise TableError(f"{name} is not a file of numpy: expected what numpy.save or numpy.savez writes.")
    with zipfile.ZipFile(file) as archive:
        packed = [
            _Packed(part.filename.removesuffix(".npy"), part.file_size, _shape(archive, part.filename))
            for part in archive.infolist()
        ]
    file.seek(0)
    largest = max((math.prod(part.shape) for part in packed), default=0)
    needed = 2 * sum(part.size for part in packed) + 8 * largest  # numbers become float64
    require(needed, None, f"Unpacking {name}", "Save fewer rows.")
    for part in packed:
        if len(packed) == 1 or part.name.lower() in _INPUTS:
            _refuse_shape(part, name, most_rows)
    return True


class _Packed(NamedTuple):
    """An array of an .npz file, before it is unpacked."""

    name: str
    size: int
    shape: tuple[int, ...]


def _shape(archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    """From the first bytes of an array; empty where these tell nothing, and numpy will say why."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        with archive.open(name) as part:
            reader = readers.get(np.lib.format.read_magic(part))
            return () if reader is None else reader(part)[0]
    except (ValueError, EOFError, SyntaxError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError):
        return ()


def _refuse_shape(packed: _Packed, source: str, most_rows: int | None) -> None:
    """Gigabytes that nobody could use are not unpacked."""
    rows, *rest = packed.shape or (0,)
    what = f"{printable(packed.name)} in {source}"
    if math.prod(rest) > MOST_COLUMNS:
        raise TableError(f"{what} has {math.prod(rest)} numbers in a row, at most {MOST_COLUMNS} can be used.")
    if most_rows is not None and rows > most_rows:
        raise MemoryBudgetError(
            f"{what} has {rows} rows: their kernel matrix does not fit into memory, at most {most_rows} rows do. Use "
            "fewer rows, or keep the kernel on disk (--store)."
        )


def inputs_of(arrays: Mapping[str, np.ndarray], source: str, besides: str | None = None) -> tuple[str, np.ndarray]:
    """The array of examples, under one of the usual names, or the only one there is."""
    key = _usual(arrays, _INPUTS)
    others = [name for name in arrays if name != besides]
    if key is None and len(others) != 1:
        held = listed_names(list(arrays)) or "nothing"
        raise TableError(
            f"{source} has no array X (or data, images): it holds {held}. Save numpy.savez(file, X=..., y=...)."
        )
    key = others[0] if key is None else key
    return key, arrays[key]


def target_of(arrays: Mapping[str, np.ndarray], wanted: str | None, source: str) -> tuple[str, np.ndarray]:
    """The array of targets: that of the wanted name, or of a usual one; rows of indicators become classes."""
    key = _usual(arrays, _TARGETS) if wanted is None else next((name for name in arrays if name == wanted), None)
    if key is None:
        what = "no array y (or target, labels)" if wanted is None else f"no array {printable(wanted)!r}"
        raise TableError(f"{source} has {what}: it holds {listed_names(list(arrays))}. Name one with --target.")
    return key, _one_column(arrays[key], key, source)


def _usual(arrays: Mapping[str, np.ndarray], names: tuple[str, ...]) -> str | None:
    keys = {key.lower(): key for key in arrays}
    return next((keys[name] for name in names if name in keys), None)


def _one_column(y: np.ndarray, key: str, source: str) -> np.ndarray:
    if y.ndim == 2 and y.shape[1] == 1:
        return y[:, 0]
    if y.ndim == 2 and y.dtype.kind in "biuf" and y.shape[1] > 1 and _is_indicator(y):
        return np.argmax(y, axis=1)
    if y.ndim != 1:
        raise TableError(
            f"{printable(key)} in {source} has shape {y.shape}: expected one target a row, or rows with a single 1."
        )
    return y


def _is_indicator(y: np.ndarray) -> bool:
    return bool(np.isin(y, (0, 1)).all() and (y.sum(axis=1) == 1).all())


def shaped(x: np.ndarray, key: str, source: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Examples in float64, `(n, columns)` or `(n, height, width, channels)`, with notes; a copy."""
    what = f"{printable(key)} in {source}" if key else source
    if x.dtype.kind not in "biuf":
        raise TableError(f"{what} holds {x.dtype}: expected real numbers. Encode text as numbers, or save a .csv.")
    if x.ndim not in (1, 2, 3, 4) or 0 in x.shape:
        raise TableError(
            f"{what} has shape {x.shape}: expected (rows, columns), or (rows, height, width, channels) for images."
        )
    if np.prod(x.shape[1:], dtype=float) > MOST_COLUMNS:
        raise TableError(f"{what} has {np.prod(x.shape[1:])} numbers in a row, at most {MOST_COLUMNS} can be used.")
    x = np.array(x, np.float64)
    if x.ndim == 1:
        return x[:, None], ()
    if x.ndim == 3:
        return x[..., None], (f"{printable(key) or 'The array'} was read as images of one channel.",)
    if x.ndim == 4 and x.shape[1] in _CHANNELS and x.shape[3] not in _CHANNELS and x.shape[2] == x.shape[3]:
        return np.moveaxis(x, 1, -1), ("The channels of the images came first, and were moved to the end.",)
    return x, ()


def fill(x: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """Medians of columns where numbers are missing or beyond all bounds; and in which columns they were."""
    lost = np.isnan(x)
    infinite = ~lost & ~(np.abs(x) <= LARGEST)
    empty = (lost | infinite).all(axis=0)
    where = {"empty": empty, "infinite": infinite.any(axis=0) & ~empty, "missing": lost.any(axis=0) & ~empty}
    bad = (lost | infinite) & ~empty
    for column in np.flatnonzero(bad.any(axis=0)):
        rows = bad[:, column]
        x[rows, column] = np.median(x[~rows, column])
    return x, where
