"""How one column of a frame becomes features: learned from training rows, and done again to others."""

import abc
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types

from ._dates import CYCLES, DAY, WEEK, WEEKDAYS, Dates, Part, dates
from ._numerals import NumberForm, numerals
from ._table import printable
from ._texts import Texts, texts_of

NEW, LOST = "new", "lost"  # levels that training rows did not have; values, in columns that had them all
MISSING = " is missing"
NUMBER, LEVEL, GAP = "number", "level", "gap"  # kinds of features: the last says where a number is missing


class Features(NamedTuple):
    """Finite numbers `(n, k)`, and what training rows had not told."""

    values: np.ndarray
    surprises: tuple[str, ...] = ()


class AbstractPlan(abc.ABC):
    """One column, or what is left of it."""

    @abc.abstractmethod
    def read(self, column: pd.Series) -> Features:
        """Features of rows."""

    @property
    @abc.abstractmethod
    def suffixes(self) -> tuple[str, ...]:
        """Of the names of its features."""

    @property
    @abc.abstractmethod
    def kinds(self) -> tuple[str, ...]:
        """Of its features: numbers, zeros and ones of a level, or of a gap."""


@dataclass(frozen=True)
class Nothing(AbstractPlan):
    """A column that cannot be used."""

    def read(self, column: pd.Series) -> Features:
        return Features(np.empty((len(column), 0)))

    @property
    def suffixes(self) -> tuple[str, ...]:
        return ()

    @property
    def kinds(self) -> tuple[str, ...]:
        return ()


class Gaps(NamedTuple):
    """What stands where a number is missing; and whether that is shown, because training rows had such gaps."""

    median: float
    shown: bool

    @classmethod
    def of(cls, values: np.ndarray, weights: np.ndarray, shows: bool = True) -> "Gaps":
        """Of training rows, some of which have a value."""
        lost = np.isnan(values)
        return cls(weighted_median(values[~lost], weights[~lost]), bool(shows and lost.any()))

    def fill(self, values: np.ndarray, *more: np.ndarray) -> Features:
        """Numbers, `more` columns, which are 0 where the number is missing, and perhaps where it is."""
        lost = np.isnan(values)
        parts = [np.where(lost, self.median, values), *(np.where(lost, 0.0, part) for part in more)]
        parts += [lost.astype(np.float64)] * self.shown
        return Features(np.column_stack(parts), (LOST,) * bool(lost.any() and not self.shown))


def weighted_median(values: np.ndarray, weights: np.ndarray) -> float:
    """As if a row of weight w were there w times."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    half = below[-1] / 2
    first, second = np.searchsorted(below, half), np.searchsorted(below, half, side="right")
    return float(values[order[first]] / 2 + values[order[min(second, len(order) - 1)]] / 2)


@dataclass(frozen=True)
class AbstractNumber(AbstractPlan):
    """One number a row, and perhaps where it is missing."""

    gaps: Gaps

    @property
    def suffixes(self) -> tuple[str, ...]:
        return ("",) + (MISSING,) * self.gaps.shown

    @property
    def kinds(self) -> tuple[str, ...]:
        return (NUMBER,) + (GAP,) * self.gaps.shown


@dataclass(frozen=True)
class WrittenNumbers(AbstractNumber):
    """Numbers in texts."""

    form: NumberForm | None

    def read(self, column: pd.Series) -> Features:
        texts = texts_of(column)
        return self.gaps.fill(bounded(texts.spread(numerals(texts.levels, texts.counts, self.form).values)))


@dataclass(frozen=True)
class Times(AbstractPlan):
    """Dates, or spans of time, as days since the first; and those parts of the calendar that come again."""

    first: float
    day_first: bool | None
    cycles: tuple[Part, ...]
    weekdays: bool
    gaps: Gaps

    @classmethod
    def of(cls, seconds: np.ndarray, day_first: bool | None, weights: np.ndarray, shows: bool, spans: bool) -> "Times":
        """Of training rows; spans of time have no calendar."""
        there = seconds[~np.isnan(seconds)]
        first = 0.0 if spans else float(there.min())
        cycles = () if spans else tuple(part for part in CYCLES if part.recurs(there))
        gaps = Gaps.of((seconds - first) / DAY, weights, shows)
        return cls(first, day_first, cycles, not spans and WEEK.recurs(there), gaps)

    def read(self, column: pd.Series) -> Features:
        return self.features(seconds_of(column, self.day_first).seconds)

    def features(self, seconds: np.ndarray) -> Features:
        """Of times of rows, in seconds since 1970; NaN where they are missing."""
        angles = [2 * np.pi * part.phase(seconds) for part in self.cycles]
        waves = [wave(angle) for angle in angles for wave in (np.sin, np.cos)]
        day = np.floor(7 * WEEK.phase(seconds))
        week = [(day == number).astype(np.float64) for number in range(7)] * self.weekdays
        return self.gaps.fill((seconds - self.first) / DAY, *waves, *week)

    @property
    def suffixes(self) -> tuple[str, ...]:
        waves = [f": {part.name} ({wave})" for part in self.cycles for wave in ("sin", "cos")]
        week = [f"={day}" for day in WEEKDAYS] * self.weekdays
        return "", *waves, *week, *(MISSING,) * self.gaps.shown

    @property
    def kinds(self) -> tuple[str, ...]:
        numbers = 1 + 2 * len(self.cycles)
        return (NUMBER,) * numbers + (LEVEL,) * 7 * self.weekdays + (GAP,) * self.gaps.shown


@dataclass(frozen=True)
class Levels(AbstractPlan):
    """A category: a column of zeros and ones for each level; of new ones, all are zero.

    `other`: all levels that are not among these share one more.
    """

    places: dict[str, int]
    missing: bool
    other: bool = False

    def read(self, column: pd.Series) -> Features:
        return self.features(texts_of(column))

    def features(self, texts: Texts) -> Features:
        """Of rows by their levels."""
        place = texts.places(self.places)
        values = place[:, None] == np.arange(len(self.places))
        others = [place == -2] * self.other + [place == -1] * self.missing
        surprises = (NEW,) * bool((place == -2).any() and not self.other)
        surprises += (LOST,) * bool((place == -1).any() and not self.missing)
        return Features(np.column_stack([values, *others]).astype(np.float64), surprises)

    @property
    def suffixes(self) -> tuple[str, ...]:
        named = tuple(f"={printable(level, 30)}" for level in self.places)
        return named + (": any other",) * self.other + (MISSING,) * self.missing

    @property
    def kinds(self) -> tuple[str, ...]:
        return (LEVEL,) * (len(self.places) + self.other + self.missing)


@dataclass(frozen=True)
class Ordered(AbstractNumber):
    """A category whose levels have an order: which place in it."""

    places: dict[str, int]

    def read(self, column: pd.Series) -> Features:
        place = texts_of(column).places(self.places)
        features = self.gaps.fill(np.where(place < 0, np.nan, place))
        return features._replace(surprises=(NEW,) if (place == -2).any() else features.surprises)


@dataclass(frozen=True)
class TargetMeans(AbstractPlan):
    """A category of many levels: what the targets were, on average, in training rows of the same level.

    `means`: one row a level, then that of missing values, then the mean of all rows.
    """

    places: dict[str, int]
    means: np.ndarray

    def read(self, column: pd.Series) -> Features:
        place = texts_of(column).places(self.places)
        last = len(self.places)
        at = np.where(place >= 0, place, np.where(place == -1, last, last + 1))
        return Features(self.means[at], (NEW,) * bool((place == -2).any()))

    @property
    def suffixes(self) -> tuple[str, ...]:
        several = self.means.shape[1] > 1
        return tuple(f": mean target{f' {at + 1}' if several else ''}" for at in range(self.means.shape[1]))

    @property
    def kinds(self) -> tuple[str, ...]:
        return (NUMBER,) * self.means.shape[1]


LARGEST = 1e100  # squares and sums of larger numbers overflow


def bounded(values: np.ndarray) -> np.ndarray:
    """Numbers beyond all bounds are missing."""
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) <= LARGEST, values, np.nan)


def seconds_of(column: pd.Series, day_first: bool | None = None) -> Dates:
    """Of dates in any form; of dates with a zone, as a clock shows them there; of spans of time, how long they are."""
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    if types.is_datetime64_any_dtype(column.dtype):
        local = column.dt.tz_localize(None) if column.dt.tz is not None else column
        column = local - pd.Timestamp(0)
    if column.dtype.kind == "m":
        column = column.astype(column.dtype.numpy_dtype) if isinstance(column.dtype, pd.ArrowDtype) else column
        return Dates(column.dt.total_seconds().to_numpy(np.float64, na_value=np.nan), day_first)
    texts = texts_of(column)
    read = dates(texts.levels, day_first)
    return Dates(texts.spread(read.seconds), read.day_first)
