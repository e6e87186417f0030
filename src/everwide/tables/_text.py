"""Comma- and tab-separated text, in whatever encoding, as a data frame."""

import csv
import warnings
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ._table import TableError, listed_names, unique_names

MOST_COLUMNS = 20_000
_SAMPLE = 1 << 16  # bytes that are looked at before the file is read
_MORE_MISSING = ["?"]  # beside what pandas takes as missing


class Framed(NamedTuple):
    """Columns of a file under unique, printable names, and notes on how they were read."""

    frame: pd.DataFrame
    notes: tuple[str, ...]


class _Header(NamedTuple):
    names: tuple[str, ...]
    present: bool
    notes: tuple[str, ...]


def read_text(path: Path) -> Framed:
    """A .csv or .tsv file; UTF-8, UTF-16 with its mark, or else Latin-1."""
    with path.open("rb") as file:
        start = file.read(_SAMPLE)
    if not start.strip(b"\xef\xbb\xbf \t\r\n"):
        raise TableError(f"{path.name} is empty: expected a line of column names, and rows below it.")
    wide = start[:2] in (b"\xff\xfe", b"\xfe\xff")
    if b"\0" in start and not wide:
        raise TableError(f"{path.name} is not text: it holds zero bytes. Save it as CSV in UTF-8.")
    try:
        return _read(path, "utf-16" if wide else "utf-8-sig", start)
    except UnicodeError:
        if wide:
            raise TableError(f"{path.name} is not text in UTF-16, as it begins. Save it as CSV in UTF-8.") from None
    frame, notes = _read(path, "latin-1", start)
    return Framed(frame, (*notes, "The file is not UTF-8 and was read as Latin-1: letters with accents may be wrong."))


def _read(path: Path, encoding: str, start: bytes) -> Framed:
    with path.open(encoding=encoding, newline="") as file:
        first = next((line for line in file if line.strip()), "")
    separator = "\t" if path.suffix.lower() == ".tsv" else max(",;\t|", key=first.count)
    header = _header(path, encoding, separator)
    sample = start.decode("latin-1")
    comma = separator == ";" and "." not in sample and "," in sample
    frame = _rows(path, encoding, separator, header, decimal="," if comma else ".")
    if not len(frame):
        raise TableError(f"{path.name} holds column names only: expected rows below them.")
    notes = (*header.notes, *(("Numbers were read with a decimal comma.",) if comma else ()))
    return Framed(frame, notes)


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


def _rows(path: Path, encoding: str, separator: str, header: _Header, decimal: str) -> pd.DataFrame:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # fields without a column would be lost
            return pd.read_csv(
                path,
                sep=separator,
                header=0 if header.present else None,
                names=list(header.names),
                index_col=False,
                encoding=encoding,
                compression=None,
                decimal=decimal,
                skipinitialspace=True,
                na_values=_MORE_MISSING,
                low_memory=False,  # one type for a column, not one for each stretch of rows
            )
    except pd.errors.ParserWarning:
        raise TableError(
            f"Rows of {path.name} have more fields than its {len(header.names)} column names. Name all columns."
        ) from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as fault:
        reason = str(fault).strip().removeprefix("Error tokenizing data. ").removeprefix("C error: ")
        raise TableError(f"{path.name} cannot be read as a table: {reason}. Mend or quote that line.") from None
