"""Frames as people have them, as numbers for a network: learned from training rows, and done again to others."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from .._checks import InputError, warn
from ._categories import categorical_columns
from ._columns import Ask, is_number, plan_column
from ._numerals import numerals
from ._plans import GAP, LARGEST, LEVEL, LOST, MISSING, NEW, NUMBER, AbstractPlan, weighted_median
from ._table import MOST_COLUMNS, TableError, TableWarning, listed_names, unique_names
from ._texts import texts_of

_COUNTERS = ("id", "index", "row", "no", "nr", "unnamed 1")
SENTENCES = {
    "counter": "Dropped, as they only count the rows: {}.",
    "empty": "Dropped, as they hold no values: {}.",
    "identifier": "Dropped, as texts with more than half as many values as there are rows look like identifiers: {}.",
    "ambiguous": "Dropped, as their dates can be read in two ways (write 2024-12-31): {}.",
    "impossible": "Dropped, as no calendar has their dates: {}.",
    "unreadable": "Dropped, as their values are neither numbers nor text: {}.",
    "units": "Numbers of several units, which are not converted: {}. Write one unit in a column.",
    "numbers": "Numbers were read without their signs of money, thousands, percent or units: {}.",
    "date": "Dates became numbers of days since the earliest: {}.",
    "parts": "Weekdays, times of day and times of year, as far as they come again, became columns too: {}.",
    "levels": "Categories became columns of zeros and ones: {}.",
    "ordered": "Categories in an order became their places in it: {}.",
    "other": "Categories of many values, of which all but the most frequent share one column: {}.",
    "means": "Categories of many values became means of the target in other rows of the same value: {}.",
    "mixed": "Texts among numbers were taken as missing: {}.",
    "infinite": "Infinite values (in files also those beyond 1e100) were taken as missing: {}.",
    "missing": "Missing values were filled with the median of the column: {}.",
    "shown": "Columns of zeros and ones say where values were missing: {}.",
    "constant": "Nothing can be learned from columns that never vary: {}.",
}
_SURPRISES = {
    NEW: "Values that no training row had, in {}: they count as no category at all, or as the mean of all rows.",
    LOST: "Missing or unreadable values in {}, which had none in the training rows: they count as the median, or as no "
    "category at all.",
}


@dataclass(frozen=True)
class Numbers:
    """Columns of numbers, all at once: where they are, what fills gaps, and in which these are shown."""

    places: Int[np.ndarray, " p"]
    medians: Float[np.ndarray, " p"]
    shown: Bool[np.ndarray, " p"]
    largest: float

    def read(self, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """Features `(n, p + shown)`, and in which columns are gaps that training rows did not have."""
        block = number_block(frame, self.places)
        lost = ~(np.abs(block) <= self.largest)
        if not lost.any():
            return np.column_stack([block, np.zeros((len(block), int(self.shown.sum())))]), np.zeros(len(lost.T), bool)
        values = np.where(lost, self.medians, block)
        return np.column_stack([values, lost[:, self.shown]]), lost.any(0) & ~self.shown


def number_block(frame: pd.DataFrame, places: Sequence[int] | np.ndarray) -> np.ndarray:
    """Numbers of columns, NaN where they are missing or no numbers."""
    some = frame.iloc[:, list(places)]
    if all(is_number(dtype) for dtype in some.dtypes):
        return some.to_numpy(np.float64, na_value=np.nan)
    columns = [some.iloc[:, place] for place in range(some.shape[1])]
    return np.column_stack([_as_numbers(column) for column in columns])


def _as_numbers(column: pd.Series) -> np.ndarray:
    if is_number(column.dtype):
        return column.to_numpy(np.float64, na_value=np.nan)
    texts = texts_of(column)
    return texts.spread(numerals(texts.levels, texts.counts).values)


@dataclass(frozen=True, eq=False)
class FrameEncoder:
    """Columns of a frame as features, as training rows had them. Made by `encode_frame`.

    - `names`: of the features. `source`: the place of the column that each of them comes from.
    - `indicator`: which of them are zeros and ones of a category; those of one column share one scale, so that the
      inner product of two rows says whether their levels are equal. `gap`: which say where a number is missing.
    - `notes`: sentences on what was dropped, filled and encoded.
    """

    names: tuple[str, ...]
    source: Int[np.ndarray, " features"]
    indicator: Bool[np.ndarray, " features"]
    gap: Bool[np.ndarray, " features"]
    notes: tuple[str, ...]
    _columns: tuple[str, ...]
    _numbers: Numbers
    _plans: tuple[tuple[int, AbstractPlan], ...]
    _order: Int[np.ndarray, " features"]

    def transform(self, frame: Any) -> Float[np.ndarray, "n features"]:
        """Features of other rows: a level that no training row had is zeros, or the mean of all rows, with a warning.

        >>> import pandas as pd
        >>> from everwide.tables import encode_frame
        >>> encoder, x = encode_frame(pd.DataFrame({"colour": ["red", "blue"] * 2, "size": [1.0, None, 3.0, 5.0]}))
        >>> encoder.transform(pd.DataFrame({"colour": ["blue"], "size": [5.0]})).tolist()
        [[1.0, 0.0, 5.0, 0.0]]
        """
        frame = _framed(frame)
        if frame.shape[1] != len(self._columns):
            raise InputError(
                f"X has {frame.shape[1]} columns, expected {len(self._columns)}: {listed_names(self._columns)}."
            )
        block, lost = self._numbers.read(frame)
        surprises = {LOST: [self._columns[place] for place in self._numbers.places[lost]], NEW: []}
        parts = [block]
        for place, plan in self._plans:
            features = plan.read(frame.iloc[:, place])
            parts.append(features.values)
            for what in features.surprises:
                surprises[what].append(self._columns[place])
        for what, names in surprises.items():
            if names:
                warn(_SURPRISES[what].format(listed_names(names)), TableWarning)
        return np.concatenate(parts, axis=1)[:, self._order]


def encode_frame(
    frame: Any, targets: Any = None, *, categorical_features: Any = "from_dtype", weights: Any = None
) -> tuple[FrameEncoder, Float[np.ndarray, "n features"]]:
    """Numbers for a network from a frame of pandas: categories, dates, texts and missing values too.

    Categories become columns of zeros and ones; those of many levels means of the targets, in other rows of the same
    level; dates days, weekdays and times of day and year; missing values medians, beside a column that says where.

    Args:
        frame: training rows, a frame of pandas or an array `(n, columns)`.
        targets: `(n, k)`, for categories of more than 50 levels (up to 255 where these have four rows on average);
            without them, the most frequent levels are told apart.
        categorical_features: "from_dtype" takes columns of texts (that are no numbers or dates) and of the type
            "category"; or a mask of all columns, or numbers or names of some; or None.
        weights: of rows, for medians and means.

    Returns:
        An encoder with `names`, `source` (the column of each feature), `indicator`, `gap`, `notes` and
        `transform(frame)`; and the features of the training rows, which are their own where means of targets are taken.

    >>> import pandas as pd
    >>> from everwide.tables import encode_frame
    >>> encoder, x = encode_frame(pd.DataFrame({"colour": ["red", "blue"] * 2, "size": [1.0, None, 3.0, 5.0]}))
    >>> encoder.names, encoder.source.tolist()
    (('colour=blue', 'colour=red', 'size', 'size is missing'), [0, 0, 1, 1])
    >>> x[:2].tolist()
    [[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 3.0, 1.0]]
    """
    frame = _framed(frame)
    n = len(frame)
    if not n:
        raise InputError(f"X has no rows: its shape is {frame.shape}.")
    copies = np.ones(n) if weights is None else np.asarray(weights, np.float64)
    y = None if targets is None else np.asarray(targets, np.float64).reshape(n, -1)
    return fit_frame(frame, Ask(y, copies, True, np.finfo(np.float64).max), categorical_features, "X")


class _Feature(NamedTuple):
    source: int
    name: str
    kind: str


def fit_frame(
    frame: pd.DataFrame, ask: Ask, categorical_features: Any, what: str, done: dict[str, list[str]] | None = None
) -> tuple[FrameEncoder, np.ndarray]:
    """An encoder and the features of its training rows; `done`: what has been done to columns before."""
    done = {} if done is None else done
    columns = unique_names([str(name) for name in frame.columns])
    categories = categorical_columns(categorical_features, frame)
    simple = np.array([is_number(dtype) for dtype in frame.dtypes], dtype=bool)
    simple &= True if categories is None else ~categories
    numbers, block = _fit_numbers(frame, np.flatnonzero(simple), columns, ask, done)
    made = [_Feature(place, columns[place], NUMBER) for place in numbers.places.tolist()]
    made += [_Feature(place, f"{columns[place]}{MISSING}", GAP) for place in numbers.places[numbers.shown].tolist()]
    plans, parts = [], [block]
    for place in np.flatnonzero(~simple).tolist():
        category = None if categories is None else bool(categories[place])
        plan, values, did = plan_column(frame.iloc[:, place], columns[place], ask, category)
        plans.append((place, plan))
        parts.append(values)
        ends = zip(plan.suffixes, plan.kinds, strict=True)
        made += [_Feature(place, f"{columns[place]}{end}", kind) for end, kind in ends]
        for key in did:
            done.setdefault(key, []).append(columns[place])
    order = np.argsort([feature.source for feature in made], kind="stable")
    x = np.concatenate(parts, axis=1)[:, order]
    source, names, kinds = zip(*[made[at] for at in order], strict=True) if made else ((), (), ())
    done["constant"] = [columns[place] for place in np.setdiff1d(source, np.array(source)[_vary(x)]).tolist()]
    place_of = {name: place for place, name in enumerate(columns)}
    told = {key: sorted(names, key=lambda name: place_of.get(name, 0)) for key, names in done.items() if names}
    notes = tuple(text.format(listed_names(told[key])) for key, text in SENTENCES.items() if key in told)
    if not made:
        raise TableError(
            " ".join([f"No column of {what} is left to learn from: expected numbers or categories.", *notes])
        )
    kind = np.array(kinds)
    facts = (unique_names(names), np.array(source), kind == LEVEL, kind == GAP, notes)
    return FrameEncoder(*facts, columns, numbers, tuple(plans), order), x


def _vary(x: np.ndarray) -> np.ndarray:
    return (x != x[:1]).any(axis=0)


def _framed(frame: Any) -> pd.DataFrame:
    """Objects that are numbers all the same become numbers."""
    if not isinstance(frame, pd.DataFrame):
        array = np.asarray(frame)
        if array.ndim != 2:
            raise InputError(f"X has shape {array.shape}: expected rows and columns, or a frame of pandas.")
        frame = pd.DataFrame(array)
    return frame.infer_objects()


def _fit_numbers(
    frame: pd.DataFrame, places: np.ndarray, columns: Sequence[str], ask: Ask, done: dict[str, list[str]]
) -> tuple[Numbers, np.ndarray]:
    block = number_block(frame, places)
    lost = np.isnan(block)
    bad = ~(np.abs(block) <= ask.largest)
    empty = bad.all(0)
    shown = np.asarray(bad.any(0) & ~empty & ask.shows)
    which = {"empty": empty, "infinite": (bad & ~lost).any(0) & ~empty, "missing": lost.any(0) & ~empty, "shown": shown}
    for key, chosen in which.items():
        done.setdefault(key, []).extend(columns[int(place)] for place in places[chosen])
    medians = [
        weighted_median(values[~gone], ask.weights[~gone])
        for values, gone in zip(block.T, bad.T, strict=True)
        if not gone.all()
    ]
    numbers = Numbers(places[~empty], np.array(medians, np.float64), shown[~empty], ask.largest)
    return numbers, numbers.read(frame)[0]


class Encoded(NamedTuple):
    """Finite numbers `(n, columns)`, their names, and sentences on how they were made."""

    x: np.ndarray
    names: tuple[str, ...]
    notes: tuple[str, ...]


def encode(frame: pd.DataFrame, source: str) -> Encoded:
    """The inputs of a file: without columns that only count the rows; where pixels are missing, no column says so."""
    counters = [_counts_rows(frame.iloc[:, place]) for place in range(frame.shape[1])]
    dropped = [] if all(counters) else [str(frame.columns[place]) for place in np.flatnonzero(counters)]
    kept = frame if not dropped else frame.loc[:, ~np.array(counters, dtype=bool)]
    shows = not are_pixels([str(name) for name in kept.columns])
    ask = Ask(None, np.ones(len(frame)), shows, LARGEST)
    encoder, x = fit_frame(kept, ask, "from_dtype", source, {"counter": dropped})
    if x.shape[1] > MOST_COLUMNS:
        raise TableError(
            f"{source} has {x.shape[1]} columns after its categories became zeros and ones, at most {MOST_COLUMNS} can "
            "be used. Leave some out."
        )
    return Encoded(x, encoder.names, encoder.notes)


def _counts_rows(column: pd.Series) -> bool:
    if str(column.name).lower() not in _COUNTERS or len(column) < 3 or not is_number(column.dtype):
        return False
    return bool(np.all(np.diff(column.to_numpy(np.float64, na_value=np.nan)) == 1))


def are_pixels(names: Sequence[str]) -> bool:
    """Columns that are called pixels, as many as a square has, are an image."""
    side = math.isqrt(len(names))
    return side >= 4 and side**2 == len(names) and all(re.match(r"pix(el)?\W?_?\d", name.lower()) for name in names)
