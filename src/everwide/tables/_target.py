"""The column that is to be learned: classes or numbers."""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types

from .._checks import complex_fault
from ._columns import is_number
from ._dates import date_forms
from ._numerals import numerals
from ._plans import LARGEST
from ._table import TableError, listed_names, printable, unique_names
from ._texts import ENOUGH, texts_of

TASKS = CLASSIFICATION, REGRESSION = "classification", "regression"
MOST_WHOLE_CLASSES = 20
_GUESSED = "The target has {} whole numbers, taken as classes. For counts: --task regression, task='regression'."
_ROWS_FOR_A_CLASS = 5  # at least, on average: whole numbers with more values are numbers


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


def read_target(column: pd.Series, name: str, source: str, task: str | None = None, *, enough: bool = True) -> Target:
    """As the task says; without one, text, truth values and whole numbers with few values are classes.

    `enough`: there must be targets to learn from; a pool that waits for labels may have one class, or none.
    """
    if task not in (None, *TASKS):
        raise TableError(f"task={task!r}: expected {' or '.join(map(repr, TASKS))}, or None to tell from the values.")
    what = f"The target {printable(name)!r} of {source}"
    column = column.reset_index(drop=True)
    if is_date(column):
        raise TableError(f"{what} holds dates: expected numbers or classes. Choose another column as target.")
    numeric = types.is_numeric_dtype(column.dtype) and not types.is_bool_dtype(column.dtype)
    if types.is_complex_dtype(column.dtype):
        raise TableError(complex_fault(what, column.dtype))
    if types.is_bool_dtype(column.dtype) and task == REGRESSION:
        column, numeric = column.astype(np.float64), True
    target = (_numbers if numeric else _texts)(column, what, task, enough)
    return target._replace(notes=(*_lost(target.kept), *target.notes)) if enough else target


def is_date(column: pd.Series) -> bool:
    """Whether a column holds dates, in any form."""
    if types.is_datetime64_any_dtype(column.dtype):
        return True
    return not is_number(column.dtype) and texts_of(column).look_like(*date_forms())


def _lost(kept: np.ndarray) -> tuple[str, ...]:
    lost = int(len(kept) - kept.sum())
    have = "rows have" if lost != 1 else "row has"
    return (f"{lost} {have} no target, and nothing is learned from {'them' if lost != 1 else 'it'}.",) * (lost > 0)


def _numbers(column: pd.Series, what: str, task: str | None, enough: bool) -> Target:
    values = column.to_numpy(np.float64, na_value=np.nan)
    kept, far = np.abs(values) <= LARGEST, int((np.abs(values) > LARGEST).sum())
    values = values[kept]
    if enough:
        _enough(values, what, f" {far} beyond {LARGEST:g} cannot be used: rescale them." if far else "")
    levels, codes = np.unique(values, return_inverse=True)
    whole = bool(np.all(levels == np.floor(levels)))
    few = whole and len(levels) <= MOST_WHOLE_CLASSES and len(values) >= _ROWS_FOR_A_CLASS * len(levels)
    if task == CLASSIFICATION or (few and task is None):
        names = [f"{level:.0f}" if whole else f"{level:.17g}" for level in levels]
        target = _classes(codes, names, kept, what, enough)
        guessed = task is None and len(levels) > 2
        return target._replace(notes=(*target.notes, *(_GUESSED.format(len(levels)),) * guessed))
    if len(levels) == 1 and enough:
        raise TableError(f"{what} holds only {levels[0]:g}: there is nothing to learn. Choose another column.")
    return Target(values, kept, None, (f"Of these, {far} had numbers beyond {LARGEST:g}.",) * (far > 0))


def _texts(column: pd.Series, what: str, task: str | None, enough: bool) -> Target:
    texts = texts_of(column)
    kept = texts.codes >= 0
    if enough:
        _enough(texts.codes[kept], what)
    numbers = numerals(texts.levels, texts.counts).values
    known = ~np.isnan(numbers)
    numeric = kept.any() and texts.share(known) >= ENOUGH
    if task == REGRESSION and kept.any() and not numeric:
        raise TableError(f"{what} holds text, such as {printable(texts.levels[0])!r}: expected numbers for {task}.")
    if (numeric or not kept.any()) and (
        task == REGRESSION or (task is None and len(texts.levels) > MOST_WHOLE_CLASSES)
    ):
        target = _numbers(pd.Series(texts.spread(numbers)), what, task, enough)
        lost = int((~known[texts.codes[kept]]).sum())
        return target._replace(notes=(*target.notes, *(f"Of these, {lost} had texts among numbers.",) * (lost > 0)))
    return _classes(texts.codes[kept], texts.levels, kept, what, enough)


def _enough(values: np.ndarray, what: str, why: str = "") -> None:
    if len(values) < 2:
        count = "no value" if not len(values) else "one value only"
        raise TableError(f"{what} has {count}: expected two rows or more.{why} Choose another column, or add rows.")


def _classes(codes: np.ndarray, levels: list[str], kept: np.ndarray, what: str, enough: bool) -> Target:
    if len(levels) == 1 and enough:
        raise TableError(
            f"{what} has one class only, {printable(levels[0])!r}: there is nothing to learn. Choose another column."
        )
    if 2 * len(levels) > len(codes) and enough:
        raise TableError(
            f"{what} holds {len(levels)} different texts or classes in {len(codes)} rows: they look like names of "
            "rows. Choose another column as target."
        )
    counts = np.bincount(codes, minlength=len(levels))
    single = [level for level, count in zip(levels, counts, strict=True) if count == 1]
    notes = (f"Classes with one row only: {listed_names(single)}.",) if single else ()
    return Target(codes.astype(np.int64), kept, unique_names(levels), notes)
