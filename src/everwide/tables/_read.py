"""From a file to a table; text is looked at before it is read."""

import csv
import math
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .._engine import require
from ._arrays import fill, inputs_of, load, shaped, target_of
from ._encoder import are_pixels, encode
from ._part import Part, fitting_share, needed_for, part_of_array, part_of_parquet, part_of_text
from ._table import MOST_COLUMNS, Table, TableError, listed_names, printable, unique_names
from ._target import Target, chosen_name, read_target

_SAMPLE = 1 << 16  # bytes that are looked at before the file is read
_MORE_MISSING = ["?"]  # beside what pandas takes as missing


class Framed(NamedTuple):
    """Columns of a file under unique, printable names, and notes on how they were read."""

    frame: pd.DataFrame
    notes: tuple[str, ...]
    part: Part | None = None  # where not all rows fit


class _Header(NamedTuple):
    names: tuple[str, ...]
    present: bool
    notes: tuple[str, ...]


def read_text(path: Path, share: float = 1.0) -> Framed:
    """A share of the rows of a .csv or .tsv file; UTF-8, UTF-16 with its mark, or else Latin-1."""
    with path.open("rb") as file:
        start = file.read(_SAMPLE)
    if not start.strip(b"\xef\xbb\xbf \t\r\n"):
        raise TableError(f"{path.name} is empty: expected a line of column names, and rows below it.")
    wide = start[:2] in (b"\xff\xfe", b"\xfe\xff")
    if b"\0" in start and not wide:
        raise TableError(f"{path.name} is not text: it holds zero bytes. Save it as CSV in UTF-8.")
    try:
        return _read(path, "utf-16" if wide else "utf-8-sig", start, share)
    except UnicodeError:
        if wide:
            raise TableError(f"{path.name} is not text in UTF-16, as it begins. Save it as CSV in UTF-8.") from None
    frame, notes, part = _read(path, "latin-1", start, share)
    latin = "The file is not UTF-8 and was read as Latin-1: letters with accents may be wrong."
    return Framed(frame, (*notes, latin), part)


def _read(path: Path, encoding: str, start: bytes, share: float) -> Framed:
    with path.open(encoding=encoding, newline="") as file:
        first = next((line for line in file if line.strip()), "")
    separator = "\t" if path.suffix.lower() == ".tsv" else max(",;\t|", key=first.count)
    header = _header(path, encoding, separator)
    sample = start.decode("latin-1")
    comma = separator == ";" and "." not in sample and "," in sample
    frame, part = _rows(path, encoding, separator, header, share, decimal="," if comma else ".")
    if not len(frame):
        raise TableError(f"{path.name} holds column names only: expected rows below them.")
    notes = (*header.notes, *(("Numbers were read with a decimal comma.",) if comma else ()))
    return Framed(frame, notes, part)


def _header(path: Path, encoding: str, separator: str) -> _Header:
    with path.open(encoding=encoding, newline="") as file:
        try:
            cells = next((row for row in csv.reader(file, delimiter=separator) if any(c.strip() for c in row)), [])
        except csv.Error as fault:
            raise TableError(f"The first line of {path.name} cannot be read as CSV: {fault}.") from None
    if len(cells) > MOST_COLUMNS:
        raise TableError(f"{path.name} has {len(cells)} columns, at most {MOST_COLUMNS} can be read. Choose some.")
    if _is_data(cells):
        note = "The first line holds numbers, not names: it was read as data, and columns are numbered."
        return _Header(tuple(f"column {number}" for number in range(1, len(cells) + 1)), False, (note,))
    bare = [cell.strip() for cell in cells]
    twice = [name for name, count in Counter(bare).items() if name and count > 1]
    notes = (f"Columns of the same name were numbered: {listed_names(twice)}.",) if twice else ()
    return _Header(unique_names(bare), True, notes)


def _is_data(cells: list[str]) -> bool:
    """Half of the cells or more are numbers, and not just different whole ones, which can be names."""
    values = np.asarray(pd.to_numeric(np.array(cells, dtype=object), errors="coerce"), np.float64)
    numbers = values[np.isfinite(values)].tolist()
    whole = all(number.is_integer() for number in numbers)
    return 2 * len(numbers) >= len(cells) > 0 and not (whole and len(set(numbers)) == len(numbers))


def _rows(
    path: Path, encoding: str, separator: str, header: _Header, share: float, decimal: str
) -> tuple[pd.DataFrame, Part | None]:
    how: dict[str, Any] = {"sep": separator, "names": list(header.names), "index_col": False, "skipinitialspace": True}
    there: dict[str, Any] = {"header": 0 if header.present else None, "encoding": encoding, "compression": None}
    source, part = path, None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # fields without a column would be lost
            if share < 1:
                source, part = part_of_text(path, share, **how, **there)
                there = {"header": None}
            # One type for a column, not one for each stretch of rows: low_memory.
            frame = pd.read_csv(source, decimal=decimal, na_values=_MORE_MISSING, low_memory=False, **how, **there)
            return frame, part
    except pd.errors.ParserWarning:
        raise TableError(
            f"Rows of {path.name} have more fields than its {len(header.names)} column names. Name all columns."
        ) from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as fault:
        reason = str(fault).strip().removeprefix("Error tokenizing data. ").removeprefix("C error: ")
        raise TableError(f"{path.name} cannot be read as a table: {reason}. Mend or quote that line.") from None


_KINDS = (".csv", ".tsv", ".parquet", ".npz", ".npy")


class Raw(NamedTuple):
    """Columns (`frame`), or arrays of an .npz file with more than two axes in some of them."""

    frame: pd.DataFrame | None
    arrays: dict[str, np.ndarray]
    source: str
    notes: tuple[str, ...]
    part: Part | None = None  # where not all rows of the file are here


def read_table(path: str | Path, *, target: str | None = None, task: str | None = None) -> Table:
    r"""Examples and targets from a .csv, .tsv, .parquet, .npz or .npy file, which is never executed.

    Numbers and dates are read as people write them (`$1,234.56`, `12.5%`, `3.2 kg`, `31/01/2021`). Categories become
    columns of zeros and ones, dates days and parts of the calendar, missing values medians and a column that says
    where; columns that look like identifiers are dropped, and rows without a target set apart. `notes` say so. Of
    files that are larger than memory (all but .npz) a random part of the rows is read.

    Args:
        path: of the file. In .npz files examples are under X, data or images, targets under y, target or labels.
        target: the column (or array of an .npz file) to be learned; by default the last column, or the array `y`.
        task: "classification" or "regression". By default text, truth values and whole numbers with few values are
            classes, everything else is numbers; counts need "regression".

    Returns:
        A `Table`; its `rows` say which rows of the file have a target, the others are in `unlabelled`. What cannot be
        used raises `TableError`.

    >>> import pathlib, tempfile
    >>> from everwide.tables import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "fruit.csv"
    ...     _ = file.write_text("weight,colour,kind\n" + "120,red,apple\n9,red,cherry\n" * 5)
    ...     table = read_table(file)
    >>> table.names, table.classes
    (('weight', 'colour=red'), ('apple', 'cherry'))

    """
    raw = raw_file(path, part=True)
    if raw.frame is None:
        return _of_arrays(raw, target, task)
    if raw.frame.shape[1] < 2:
        raise TableError(f"{raw.source} has one column only: expected columns to learn from, and a target.")
    frame = raw.frame.reset_index(drop=True)
    name = chosen_name(list(frame.columns), target, raw.source)
    learned = read_target(frame.pop(name), name, raw.source, task)
    return _numbered(_with_target(encoded_inputs(raw, frame, learned), learned, name), raw.part)


def _numbered(table: Table, part: Part | None) -> Table:
    """Rows by their numbers in the file, where only some of it was read."""
    if part is None:
        return table
    others = None if table.unlabelled is None else _numbered(table.unlabelled, part)
    return replace(table, rows=part.rows if table.rows is None else part.rows[table.rows], unlabelled=others)


def read_inputs(
    path: str | Path, *more: str | Path, target: str | None = None, most_rows: int | None = None
) -> tuple[Table, ...]:
    """Examples without targets, of one file or several that are encoded alike.

    Args:
        path: of the first file.
        *more: of others, with the same columns.
        target: a column that is no input, and left out. By default all columns are inputs; of an .npz file, X.
        most_rows: refuse files with more, before their arrays are unpacked.

    Returns:
        One `Table` for each file, whose `y` is `None`.

    >>> import pathlib, tempfile, numpy as np
    >>> from everwide.tables import read_inputs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(pathlib.Path(folder) / "x.npy", np.eye(3))
    ...     (table,) = read_inputs(pathlib.Path(folder) / "x.npy")
    >>> table.x.shape, table.y
    ((3, 3), None)

    """
    raws = [raw_file(one, most_rows) for one in (path, *more)]
    if any(raw.frame is None for raw in raws):
        return tuple(_inputs_alone(raw, target) for raw in raws)
    frames = [_without(raw, target) for raw in raws]
    for raw, frame in zip(raws, frames, strict=True):
        if list(frame.columns) != list(frames[0].columns):
            raise TableError(f"{raw.source} and {raws[0].source} have different columns: they must agree.")
    encoded = encode(pd.concat(frames, ignore_index=True), " and ".join(dict.fromkeys(raw.source for raw in raws)))
    ends = np.cumsum([len(frame) for frame in frames])[:-1]
    return tuple(
        _inputs(x, encoded.names, raw.source, *raw.notes, *encoded.notes)
        for raw, x in zip(raws, np.split(encoded.x, ends), strict=True)
    )


def raw_file(path: str | Path, most_rows: int | None = None, *, part: bool = False) -> Raw:
    """What a file holds, before anything is made of it. Arrays with too many rows are not unpacked.

    `part`: of a file that does not fit into memory some rows are enough.
    """
    path = Path(path)
    kind, source = path.suffix.lower(), printable(path.name)
    if path.is_dir():
        raise TableError(f"{source!r} is a folder: expected a file.")
    if not path.exists():
        raise TableError(f"There is no file {str(path)!r}.")
    if kind not in _KINDS:
        raise TableError(f"{source} is of an unknown kind: expected a name that ends in {', '.join(_KINDS)}.")
    try:
        needed = needed_for(path)
        if not part or kind == ".npz":
            require(needed, None, f"Reading {source}", "Use fewer rows or columns.")
        share = fitting_share(needed)
        if kind in (".npy", ".npz"):
            return _of_numpy(path, source, most_rows, share)
        frame, notes, some = _parquet(path, part) if kind == ".parquet" else read_text(path, share)
        return Raw(frame, {}, source, (*notes, *([some.note] if some else [])), some)
    except OSError as fault:
        raise TableError(f"{source} cannot be read: {fault.strerror or fault}.") from None


def _parquet(path: Path, part: bool) -> Framed:
    try:
        frame, some = part_of_parquet(path, part=part)
    except ImportError:
        raise TableError(
            f"{path.name}: parquet files need pyarrow. Install it with: pip install 'everwide[parquet]'"
        ) from None
    except (ValueError, OSError) as fault:
        raise TableError(f"{path.name} cannot be read as parquet: {printable(fault, 200)}.") from None
    if frame.shape[1] > MOST_COLUMNS:
        raise TableError(f"{path.name} has {frame.shape[1]} columns, at most {MOST_COLUMNS} can be read. Choose some.")
    if frame.empty:
        raise TableError(f"{path.name} is empty: its shape is {frame.shape}.")
    frame = frame.reset_index(drop=True)
    frame.columns = list(unique_names(list(frame.columns)))
    return Framed(frame, (), some)


def _of_numpy(path: Path, source: str, most_rows: int | None, share: float) -> Raw:
    some = None
    if share < 1:
        mapped, some = part_of_array(path, share)
        arrays = {"": mapped}
    else:
        arrays = load(path, most_rows)
    if not arrays:
        raise TableError(f"{source} holds no arrays: expected X and y (numpy.savez(file, X=..., y=...)).")
    alone = arrays.get("")
    if alone is None or alone.ndim > 2:
        return Raw(None, arrays, source, ())
    if alone.dtype.names:
        frame = pd.DataFrame.from_records(alone)
        frame.columns = list(unique_names(list(frame.columns)))
    else:
        x, _ = shaped(alone, "", source)
        frame = pd.DataFrame(x, columns=list(_names(x)))
    return Raw(frame, {}, source, (some.note,) if some else (), some)


def _of_arrays(raw: Raw, target: str | None, task: str | None) -> Table:
    key, x, name, y = named_arrays(raw, target)
    learned = read_target(pd.Series(y), name, raw.source, task)
    return _with_target(of_array(x, key, raw.source, *learned.notes), learned, name)


def named_arrays(raw: Raw, target: str | None) -> tuple[str, np.ndarray, str, np.ndarray]:
    """Examples and targets of a file of arrays, each after its name."""
    if "" in raw.arrays:
        raise TableError(f"{raw.source} holds images and no targets. Save both: numpy.savez(file, X=..., y=...).")
    name, y = target_of(raw.arrays, target, raw.source)
    key, x = inputs_of(raw.arrays, raw.source, besides=name)
    if x.shape[:1] != y.shape:
        raise TableError(
            f"{printable(key)} and {printable(name)} in {raw.source} have shapes {x.shape} and {y.shape}: expected one "
            "target for each row."
        )
    return key, x, name, y


def encoded_inputs(raw: Raw, frame: pd.DataFrame, learned: Target) -> Table:
    """All rows, alike; without those that hold nothing at all, as below the tables of some programs."""
    used = learned.kept | frame.notna().any(axis=1).to_numpy()
    encoded = encode(frame.loc[used].reset_index(drop=True), raw.source)
    inputs = _inputs(encoded.x, encoded.names, raw.source, *raw.notes, *learned.notes, *encoded.notes)
    return replace(inputs, rows=None if used.all() else np.flatnonzero(used))


def _with_target(inputs: Table, learned: Target, name: str) -> Table:
    """Rows keep the numbers that they have in the file, whatever was set apart before them."""
    kept = learned.kept if inputs.rows is None else learned.kept[inputs.rows]
    known = inputs if kept.all() else inputs.take(np.flatnonzero(kept))
    others = None if kept.all() else inputs.take(np.flatnonzero(~kept))
    return replace(known, y=learned.y, target=name, classes=learned.classes, unlabelled=others)


def _inputs_alone(raw: Raw, target: str | None) -> Table:
    if raw.frame is not None:
        encoded = encode(_without(raw, target), raw.source)
        return _inputs(encoded.x, encoded.names, raw.source, *raw.notes, *encoded.notes)
    key, x = inputs_of(raw.arrays, raw.source)
    return of_array(x, key, raw.source)


def of_array(x: np.ndarray, key: str, source: str, *learned: str) -> Table:
    """Inputs of one array; the notes on the target stand between those on its shape and its values."""
    images, notes = shaped(x, key, source)
    values, filled = _filled(images, key, source)
    return _inputs(values, _names(values), source, *notes, *learned, *filled)


def _inputs(x: np.ndarray, names: tuple[str, ...], source: str, *notes: str) -> Table:
    """A table without targets; columns that are called pixels, as many as a square has, are an image."""
    side = math.isqrt(len(names))
    return Table(x, None, names, "", None, source, notes, (side, side, 1) if are_pixels(names) else None)


def _without(raw: Raw, target: str | None) -> pd.DataFrame:
    assert raw.frame is not None
    if target is None or raw.frame.shape[1] < 2:
        return raw.frame
    return raw.frame.drop(columns=chosen_name(list(raw.frame.columns), target, raw.source))


def _filled(x: np.ndarray, key: str, source: str) -> tuple[np.ndarray, tuple[str, ...]]:
    flat, where = fill(x.reshape(len(x), -1))
    if where["empty"].any():
        raise TableError(
            f"{printable(key) or 'The array'} in {source} has {int(where['empty'].sum())} positions without any finite "
            "value. Leave them out."
        )
    count = int((where["infinite"] | where["missing"]).sum())
    notes = (f"Missing and infinite values at {count} positions were filled with the median there.",) if count else ()
    return flat.reshape(x.shape), notes


def _names(x: np.ndarray) -> tuple[str, ...]:
    return tuple(f"column {number}" for number in range(1, x.shape[1] + 1)) if x.ndim == 2 else ()
