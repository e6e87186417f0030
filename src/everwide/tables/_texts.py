"""A column by its distinct values, which are few where rows are many."""

import re
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

ENOUGH = 0.9  # of a column's values are of one form: the rest are slips of the pen
_LOOKED_AT = 100


class Texts(NamedTuple):
    """`levels`: the distinct values, stripped and sorted; `codes`: which one each row has, -1 where it has none."""

    codes: np.ndarray
    levels: list[str]

    @property
    def counts(self) -> np.ndarray:
        """How many rows have each level."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self.levels))

    def share(self, chosen: np.ndarray) -> float:
        """Of the values that are there, how many have one of the chosen levels."""
        there = self.codes[self.codes >= 0]
        return float(chosen[there].mean())

    def spread(self, of_levels: np.ndarray) -> np.ndarray:
        """A number of each level as one of each row, NaN where there is no value."""
        return np.append(of_levels, np.nan)[self.codes]

    def look_like(self, *patterns: re.Pattern[str]) -> bool:
        """Whether nearly all of some rows, evenly spread over the sorted values, are of one of these forms."""
        rows = np.sort(self.codes[self.codes >= 0])
        looked, counts = np.unique(rows[:: max(1, len(rows) // _LOOKED_AT)], return_counts=True)
        levels = (self.levels[at] for at in looked)
        alike = np.array([any(pattern.fullmatch(level) for pattern in patterns) for level in levels], bool)
        return bool(alike.any() and counts @ alike >= ENOUGH * counts.sum())

    def places(self, known: dict[str, int]) -> np.ndarray:
        """Of each row, where its level is among known ones: -1 where it is missing, -2 where it is new."""
        return np.array([*(known.get(level, -2) for level in self.levels), -1])[self.codes]


def texts_of(column: pd.Series) -> Texts:
    """Of a column of any type; empty texts are missing, and 1.0 is 1."""
    try:
        raw, values = pd.factorize(column)
    except TypeError:  # lists and the like cannot be looked up
        raw, values = pd.factorize(column.map(str, na_action="ignore"))
    shown = [written(value) for value in values]
    levels = sorted(set(shown) - {""})
    place = {level: code for code, level in enumerate(levels)} | {"": -1}
    codes = np.array([*(place[text] for text in shown), -1])[raw]
    return Texts(codes, levels)


def written(value: Any) -> str:
    """A value as a level."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()
