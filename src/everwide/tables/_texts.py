"""A column of texts by its distinct values: whatever is asked of it is asked once of each."""

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

ENOUGH_NUMBERS = 0.9  # of a column's values: the rest are slips of the pen
DATE = re.compile(r"\d{4}[-/]\d{2}[-/]\d{2}([T ].*)?")
AMBIGUOUS_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}( .*)?")
_LOOKED_AT = 100


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
