"""A column of targets: numbers, or classes."""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types

from ._columns import ENOUGH_NUMBERS, is_date, texts_of
from ._table import TableError, listed_names, printable, unique_names

MOST_WHOLE_CLASSES = 20
_ROWS_FOR_A_CLASS = 5  # at least, on average: whole numbers with more values are numbers
_LARGEST = 1e100


class Target(NamedTuple):
    """Codes of `classes`, or numbers (`classes` is `None`), of the rows `kept`; the others have no target."""

    y: np.ndarray
    kept: np.ndarray
    classes: tuple[str, ...] | None
    notes: tuple[str, ...]


def chosen_name(names: Sequence[str], wanted: str | None, source: str) -> str:
    """The column of that name, or the last one."""
    if wanted is None:
        return names[-1]
    by_name = {name: name for name in names} | {printable(name): name for name in names}
    for candidate in (wanted, wanted.strip(), printable(wanted)):
        if candidate in by_name:
            return by_name[candidate]
    near = difflib.get_close_matches(printable(wanted), names, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"It has {listed_names(names)}."
    raise TableError(f"{source} has no column {printable(wanted)!r}. {hint}")


def read_target(column: pd.Series, name: str, source: str) -> Target:
    """Text, truth values and whole numbers with few values are classes, everything else is numbers."""
    what = f"The target {printable(name)!r} of {source}"
    column = column.reset_index(drop=True)
    if is_date(column):
        raise TableError(f"{what} holds dates: expected numbers or classes. Choose another column as target.")
    numeric = types.is_numeric_dtype(column.dtype) and not types.is_bool_dtype(column.dtype)
    if types.is_complex_dtype(column.dtype):
        raise TableError(f"{what} holds complex numbers: expected real numbers or classes.")
    target = _numbers(column, what) if numeric else _texts(column, what)
    return target._replace(notes=(*_lost(target.kept), *target.notes))


def _lost(kept: np.ndarray) -> tuple[str, ...]:
    lost = int(len(kept) - kept.sum())
    return (f"{lost} row{'s' * (lost != 1)} without a target {'were' if lost != 1 else 'was'} dropped.",) * (lost > 0)


def _numbers(column: pd.Series, what: str) -> Target:
    values = column.to_numpy(np.float64, na_value=np.nan)
    kept, far = np.abs(values) <= _LARGEST, int((np.abs(values) > _LARGEST).sum())
    values = values[kept]
    _enough(values, what, f" {far} beyond {_LARGEST:g} cannot be used: rescale them." if far else "")
    levels, codes = np.unique(values, return_inverse=True)
    whole = bool(np.all(levels == np.floor(levels)))
    if whole and len(levels) <= MOST_WHOLE_CLASSES and len(values) >= _ROWS_FOR_A_CLASS * len(levels):
        return _classes(codes, [f"{level:.0f}" for level in levels], kept, what)
    if len(levels) == 1:
        raise TableError(f"{what} holds only {levels[0]:g}: there is nothing to learn. Choose another column.")
    return Target(values, kept, None, (f"Of these, {far} had numbers beyond {_LARGEST:g}.",) * (far > 0))


def _texts(column: pd.Series, what: str) -> Target:
    texts = texts_of(column)
    kept = texts.codes >= 0
    _enough(texts.codes[kept], what)
    numbers = texts.numbers()
    known = ~np.isnan(numbers)
    if len(texts.levels) > MOST_WHOLE_CLASSES and texts.share(known) >= ENOUGH_NUMBERS:
        target = _numbers(pd.Series(texts.spread(numbers)[:, 0]), what)
        lost = int((~known[texts.codes[kept]]).sum())
        return target._replace(notes=(*target.notes, *(f"Of these, {lost} had texts among numbers.",) * (lost > 0)))
    return _classes(texts.codes[kept], texts.levels, kept, what)


def _enough(values: np.ndarray, what: str, why: str = "") -> None:
    if len(values) < 2:
        count = "no value" if not len(values) else "one value only"
        raise TableError(f"{what} has {count}: expected two rows or more.{why} Choose another column, or add rows.")


def _classes(codes: np.ndarray, levels: list[str], kept: np.ndarray, what: str) -> Target:
    if len(levels) == 1:
        raise TableError(
            f"{what} has one class only, {printable(levels[0])!r}: there is nothing to learn. Choose another column."
        )
    if 2 * len(levels) > len(codes):
        raise TableError(
            f"{what} holds {len(levels)} different texts or classes in {len(codes)} rows: they look like names of "
            "rows. Choose another column as target."
        )
    counts = np.bincount(codes, minlength=len(levels))
    single = [level for level, count in zip(levels, counts, strict=True) if count == 1]
    notes = (f"Classes with one row only: {listed_names(single)}.",) if single else ()
    return Target(codes.astype(np.int64), kept, unique_names(levels), notes)
