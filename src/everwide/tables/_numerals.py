"""Numbers as people write them: money, thousands, percent and units; a column settles what one value leaves open."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ._texts import ENOUGH

_MONEY = r"[A-Z]{0,2}[$€£¥₹]|USD|EUR|GBP|CHF|JPY|INR"
_UNIT = r"[$€£¥₹%‰]|(?:[^\W\d_]|[°µ])(?:[^\W\d_]|[°µ/.]){0,11}[²³23]?"
_MINUS = "-\u2212"
_SPACES = " \u00a0\u2009\u202f'\u2019"  # which part thousands, as marks do
_NUMERAL = re.compile(
    rf"(?P<open>\()?(?P<minus>[{_MINUS}+])?\s*(?P<money>{_MONEY})?\s*(?P<sign>[{_MINUS}+])?"
    rf"(?P<digits>\d+(?:[.,{_SPACES}]\d+)*[.,]?|[.,]\d+)(?P<power>[eE][-+]?\d+)?\s*(?P<unit>{_UNIT})?(?(open)\))"
)


class NumberForm(NamedTuple):
    """How the numbers of a column are written: the decimal mark, and the one unit that they have, or none."""

    mark: str
    unit: str


class Numerals(NamedTuple):
    """Of each level the number, NaN where it is none; their form, `None` where they are plain; units, if several."""

    values: np.ndarray
    form: NumberForm | None
    units: tuple[str, ...]


def numerals(levels: Sequence[str], counts: np.ndarray, form: NumberForm | None = None) -> Numerals:
    """Numbers of texts; their form is settled by all of them (`counts`: of rows), unless it is known."""
    plain = np.asarray(pd.to_numeric(np.array(levels, dtype=object), errors="coerce"), np.float64)
    matches = [_NUMERAL.fullmatch(level) for level in levels]
    other = np.array([match is not None for match in matches], dtype=bool) & np.isnan(plain)
    if form is None and not other.any():
        return Numerals(plain, None, ())
    units = Counter[str]()
    for match, count in zip(matches, counts, strict=True):
        if match is not None and (unit := _unit(match)):
            units[unit] += int(count)
    if form is None:
        written = [match["digits"] for match in matches if match is not None]
        form = NumberForm(_decimal_mark(written), units.most_common(1)[0][0] if units else "")
    several = len(units) > 1 and sum(units.values()) >= ENOUGH * counts.sum()
    read = [np.nan if match is None else _value(match, form) for match in matches]
    lone = np.array([match is None for match in matches])  # such as 1e400, which is no numeral of ours
    return Numerals(np.where(lone, plain, read), form, tuple(units) if several else ())


def _unit(match: re.Match[str]) -> str:
    """Of one number; `Kg` is `kg`, and `rooms` are `room`."""
    unit = (match["money"] or match["unit"] or "").lower().rstrip(".")
    return unit[:-1] if len(unit) > 3 and unit.endswith("s") else unit


def _decimal_mark(written: Sequence[str]) -> str:
    """What most of the numbers say that can be read in one way only; a point, where all can be read in two."""
    votes = Counter[str]()
    bare = lone_points = 0
    for digits in written:
        marks = [sign for sign in digits if sign in ".,"]
        bare += not marks
        if not marks:
            continue
        last, after = marks[-1], len(digits) - 1 - digits.rindex(marks[-1])
        before = digits[: digits.rindex(last)]
        if len(set(marks)) == 2:
            votes[last] += 1
        elif len(marks) > 1:
            votes["," if last == "." else "."] += 1
        elif after != 3 or before in ("", "0") or len(before) > 3:
            votes[last] += 1
        else:
            lone_points += last == "."
    if votes:
        return votes.most_common(1)[0][0]
    return "," if lone_points and bare else "."  # 999 beside 1.234: no fraction is always of three digits, or of none


def _value(match: re.Match[str], form: NumberForm) -> float:
    """NaN for a number of another unit, and for one that is not written in this form."""
    if (_unit(match) or form.unit) != form.unit:
        return np.nan
    whole, _, fraction = match["digits"].partition(form.mark)
    apart = f"[{_SPACES}{',' if form.mark == '.' else '.'}]"
    grouped = re.fullmatch(rf"\d*|\d{{1,3}}(?:{apart}\d{{2,3}})*{apart}\d{{3}}", whole)
    if grouped is None or not re.fullmatch(r"\d*", fraction):
        return np.nan
    size = float(f"{re.sub(apart, '', whole) or 0}.{fraction or 0}{match['power'] or ''}")
    negative = match["open"] or any(sign and sign in _MINUS for sign in match.group("minus", "sign"))
    return -size if negative else size
