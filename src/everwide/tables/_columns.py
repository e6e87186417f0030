"""Columns of a data frame as numbers that a network can read; those of text by their distinct values."""

import difflib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types

from ._table import MOST_COLUMNS, TableError, listed_names, printable, unique_names

MOST_LEVELS = 50
_LARGEST = 1e100  # squares and sums of larger numbers overflow
_COUNTERS = ("id", "index", "row", "no", "nr", "unnamed 1")
_DAY = 86400  # seconds
ENOUGH_NUMBERS = 0.9  # of a column's values: the rest are slips of the pen
DATE = re.compile(r"\d{4}[-/]\d{2}[-/]\d{2}([T ].*)?")
AMBIGUOUS_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}( .*)?")
_LOOKED_AT = 100

_SENTENCES = {
    "counter": "Dropped, as they only count the rows: {}.",
    "empty": "Dropped, as they hold no values: {}.",
    "identifier": f"Dropped, as texts with more than {MOST_LEVELS} values, or more than half as many as there are "
    "rows, look like identifiers: {}.",
    "ambiguous": "Dropped, as their dates can be read in two ways (write 2024-12-31): {}.",
    "unreadable": "Dropped, as their values are neither numbers nor text: {}.",
    "date": "Dates became numbers of days since the earliest: {}.",
    "levels": "Categories became columns of zeros and ones: {}.",
    "unknown": "Rows without a category have zeros in all columns of it: {}.",
    "mixed": "Texts among numbers were taken as missing: {}.",
    "infinite": "Infinite values, and those beyond 1e100, were taken as missing: {}.",
    "missing": "Missing values were filled with the median of the column: {}.",
}


class Texts(NamedTuple):
    """`levels`: the distinct values, stripped and sorted; `codes`: which one each row has, -1 where it has none."""

    codes: np.ndarray
    levels: list[str]

    def share(self, chosen: np.ndarray) -> float:
        """Of the values that are there, how many have one of the chosen levels."""
        there = self.codes[self.codes >= 0]
        return float(chosen[there].mean())

    def numbers(self) -> np.ndarray:
        """The level as a number, NaN where it is none."""
        return np.asarray(pd.to_numeric(np.array(self.levels, dtype=object), errors="coerce"), np.float64)

    def spread(self, of_levels: np.ndarray) -> np.ndarray:
        """A number of each level as a column of rows, `(n, 1)`, NaN where there is no value."""
        return np.append(of_levels, np.nan)[self.codes][:, None]

    def look_like(self, pattern: re.Pattern[str]) -> bool:
        """Whether nearly all of some values are of that form."""
        some = self.levels[:: max(1, len(self.levels) // _LOOKED_AT)]
        return sum(pattern.fullmatch(level) is not None for level in some) >= max(1, ENOUGH_NUMBERS * len(some))


def texts_of(column: pd.Series) -> Texts:
    """Of a column of any type; empty texts are missing."""
    try:
        raw, values = pd.factorize(column)
    except TypeError:  # lists and the like cannot be looked up
        raw, values = pd.factorize(column.map(str, na_action="ignore"))
    stripped = [str(value).strip() for value in values]
    levels = sorted(set(stripped) - {""})
    place = {level: code for code, level in enumerate(levels)} | {"": -1}
    codes = np.array([*(place[text] for text in stripped), -1])[raw]
    return Texts(codes, levels)


class Encoded(NamedTuple):
    """Finite numbers `(n, columns)`, their names, and sentences on how they were made."""

    x: np.ndarray
    names: tuple[str, ...]
    notes: tuple[str, ...]


class Column(NamedTuple):
    """One column as numbers `(n, k)`, with NaN where they are missing; `suffixes` of its name; what was done."""

    values: np.ndarray
    suffixes: tuple[str, ...]
    done: tuple[str, ...]


def encode(frame: pd.DataFrame, source: str) -> Encoded:
    """Numbers stay, categories become indicators, dates days; what is missing gets the median."""
    simple = [is_number(dtype) for dtype in frame.dtypes]
    block = frame.loc[:, simple].to_numpy(np.float64, na_value=np.nan)
    done: dict[str, list[str]] = {}
    parts, names, places = [block], [str(name) for name in frame.columns[simple]], list(np.flatnonzero(simple))
    for place in np.flatnonzero(~np.array(simple, dtype=bool)):
        name = str(frame.columns[place])
        column = read_column(frame.iloc[:, place])
        parts.append(column.values)
        names += [f"{name}{suffix}" for suffix in column.suffixes]
        places += [place] * len(column.suffixes)
        for what in column.done:
            done.setdefault(what, []).append(name)
    order = np.argsort(places, kind="stable")
    if len(order) > MOST_COLUMNS:
        raise TableError(
            f"{source} has {len(order)} columns after its categories became zeros and ones, at most {MOST_COLUMNS} can "
            "be used. Leave some out."
        )
    x, names = np.concatenate(parts, axis=1)[:, order], [names[i] for i in order]
    return _finished(x, names, done, source)


def _finished(x: np.ndarray, names: list[str], done: dict[str, list[str]], source: str) -> Encoded:
    x, where = fill(x)
    counts = np.array([_counts_rows(x[:, i], name) for i, name in enumerate(names)], dtype=bool)
    where["counter"] = counts & (len(names) > 1)
    for what, which in where.items():
        done.setdefault(what, []).extend(name for name, chosen in zip(names, which, strict=True) if chosen)
    keep = ~(where["counter"] | where["empty"])
    notes = tuple(text.format(listed_names(done[what])) for what, text in _SENTENCES.items() if done.get(what))
    if not keep.any():
        told = f" {' '.join(notes)}" if notes else ""
        raise TableError(f"No column of {source} is left to learn from: expected numbers or categories.{told}")
    return Encoded(x[:, keep], unique_names([name for name, kept in zip(names, keep, strict=True) if kept]), notes)


def fill(x: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """Medians of columns where numbers are missing or beyond all bounds; and in which columns they were."""
    lost = np.isnan(x)
    infinite = ~lost & ~(np.abs(x) <= _LARGEST)
    empty = (lost | infinite).all(axis=0)
    where = {"empty": empty, "infinite": infinite.any(axis=0) & ~empty, "missing": lost.any(axis=0) & ~empty}
    bad = (lost | infinite) & ~empty
    for column in np.flatnonzero(bad.any(axis=0)):
        rows = bad[:, column]
        x[rows, column] = np.median(x[~rows, column])
    return x, where


def _counts_rows(values: np.ndarray, name: str) -> bool:
    return name.lower() in _COUNTERS and len(values) > 2 and bool(np.all(np.diff(values) == 1))


def is_number(dtype: Any) -> bool:
    return types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype)


def read_column(column: pd.Series) -> Column:
    """A column that is not of numbers: dates, numbers written as text, categories, or nothing that can be used."""
    if types.is_datetime64_any_dtype(column.dtype):
        return _days(column - column.min())
    if types.is_timedelta64_dtype(column.dtype):
        return _days(column)
    if types.is_complex_dtype(column.dtype):
        return _dropped(column, "unreadable")
    texts = texts_of(column)
    if not len(texts.levels):
        return _dropped(column, "empty")
    numbers = texts.numbers()
    share = texts.share(~np.isnan(numbers))
    if share >= ENOUGH_NUMBERS:
        return Column(texts.spread(numbers), ("",), ("mixed",) * (share < 1))
    if texts.look_like(DATE):
        written = [level.replace("/", "-") for level in texts.levels]
        days = pd.Series(pd.to_datetime(written, format="ISO8601", errors="coerce", utc=True))
        return Column(texts.spread(((days - days.min()).dt.total_seconds() / _DAY).to_numpy()), ("",), ("date",))
    if texts.look_like(AMBIGUOUS_DATE):
        return _dropped(column, "ambiguous")
    return _levels(texts)


def is_date(column: pd.Series) -> bool:
    """Whether a column holds dates, in any form."""
    if types.is_datetime64_any_dtype(column.dtype):
        return True
    if is_number(column.dtype):
        return False
    texts = texts_of(column)
    return texts.look_like(DATE) or texts.look_like(AMBIGUOUS_DATE)


def _days(spans: pd.Series) -> Column:
    return Column((spans.dt.total_seconds() / _DAY).to_numpy(np.float64)[:, None], ("",), ("date",))


def _dropped(column: pd.Series | np.ndarray, why: str) -> Column:
    return Column(np.empty((len(column), 0)), (), (why,))


def _levels(texts: Texts) -> Column:
    if len(texts.levels) > MOST_LEVELS or 2 * len(texts.levels) > len(texts.codes):
        return _dropped(texts.codes, "identifier")
    values = (texts.codes[:, None] == np.arange(len(texts.levels))).astype(np.float64)
    suffixes = tuple(f"={printable(level, 30)}" for level in texts.levels)
    return Column(values, suffixes, ("levels", "unknown") if (texts.codes < 0).any() else ("levels",))


TASKS = CLASSIFICATION, REGRESSION = "classification", "regression"
MOST_WHOLE_CLASSES = 20
_GUESSED = "The target has {} whole numbers, taken as classes. For counts: --task regression, task='regression'."
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
        raise TableError(f"{what} holds complex numbers: expected real numbers or classes.")
    if types.is_bool_dtype(column.dtype) and task == REGRESSION:
        column, numeric = column.astype(np.float64), True
    target = (_numbers if numeric else _texts)(column, what, task, enough)
    return target._replace(notes=(*_lost(target.kept), *target.notes)) if enough else target


def _lost(kept: np.ndarray) -> tuple[str, ...]:
    lost = int(len(kept) - kept.sum())
    have = "rows have" if lost != 1 else "row has"
    return (f"{lost} {have} no target, and nothing is learned from {'them' if lost != 1 else 'it'}.",) * (lost > 0)


def _numbers(column: pd.Series, what: str, task: str | None, enough: bool) -> Target:
    values = column.to_numpy(np.float64, na_value=np.nan)
    kept, far = np.abs(values) <= _LARGEST, int((np.abs(values) > _LARGEST).sum())
    values = values[kept]
    if enough:
        _enough(values, what, f" {far} beyond {_LARGEST:g} cannot be used: rescale them." if far else "")
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
    return Target(values, kept, None, (f"Of these, {far} had numbers beyond {_LARGEST:g}.",) * (far > 0))


def _texts(column: pd.Series, what: str, task: str | None, enough: bool) -> Target:
    texts = texts_of(column)
    kept = texts.codes >= 0
    if enough:
        _enough(texts.codes[kept], what)
    numbers = texts.numbers()
    known = ~np.isnan(numbers)
    numeric = kept.any() and texts.share(known) >= ENOUGH_NUMBERS
    if task == REGRESSION and kept.any() and not numeric:
        raise TableError(f"{what} holds text, such as {printable(texts.levels[0])!r}: expected numbers for {task}.")
    if (numeric or not kept.any()) and (
        task == REGRESSION or (task is None and len(texts.levels) > MOST_WHOLE_CLASSES)
    ):
        target = _numbers(pd.Series(texts.spread(numbers)[:, 0]), what, task, enough)
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
