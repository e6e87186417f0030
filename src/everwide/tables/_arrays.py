"""Arrays in .npz and .npy files. Pickles, which could run code, are refused."""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .._engine import MemoryBudgetError, require
from ._plans import LARGEST
from ._table import MOST_COLUMNS, TableError, listed_names, printable

_INPUTS = ("x", "data", "images", "inputs", "features", "x_train")
_TARGETS = ("y", "target", "targets", "labels", "label", "y_train")
_CHANNELS = (1, 3, 4)


def load(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file; that of an .npy file has no name."""
    try:
        with path.open("rb") as file:
            packed = _is_packed(file, path.name)
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


def _is_packed(file: BinaryIO, name: str) -> bool:
    """Whether it is an .npz file; its arrays are counted before they are unpacked."""
    start = file.read(6)
    file.seek(0)
    if start == b"\x93NUMPY":
        return False
    if not start.startswith(b"PK"):  # numpy would take it for a pickle
        raise TableError(f"{name} is not a file of numpy: expected what numpy.save or numpy.savez writes.")
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(part.file_size for part in archive.infolist())
    file.seek(0)
    require(2 * unpacked, None, f"Unpacking {name}", "Save fewer rows.")
    return True


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
