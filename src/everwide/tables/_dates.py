"""Dates as people write them, as seconds; and the parts of the calendar that come again."""

import datetime
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

DAY = 86400.0  # seconds
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = rf"(?P<month>(?:{'|'.join(_MONTHS)})[a-z]*)"
_TIME = (
    r"(?:(?:T|,?\s+)(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2}(?:[.,]\d+)?))?"
    r"\s*(?P<half>[ap]\.?m\.?)?\s*(?P<zone>Z|UTC|GMT|[+-]\d{2}:?\d{2})?)?"
)
_FORMS = tuple(
    re.compile(form + _TIME, re.IGNORECASE)
    for form in (
        r"(?P<year>\d{4})(?P<apart>[-/.])(?P<month>\d{1,2})(?P=apart)(?P<day>\d{1,2})",
        r"(?P<first>\d{1,2})(?P<apart>[-/.])(?P<second_part>\d{1,2})(?P=apart)(?P<year>\d{4}|\d{2})",
        rf"(?:[a-z]+,?\s+)?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?[\s.-]*{_MONTH}[\s.,-]*(?P<year>\d{{4}}|\d{{2}})",
        rf"(?:[a-z]+,?\s+)?{_MONTH}[\s.-]*(?P<day>\d{{1,2}})(?:st|nd|rd|th)?[\s,-]+(?P<year>\d{{4}})",
    )
)
_CENTURY = 69  # two digits of a year from here on are of the last century


class Dates(NamedTuple):
    """Seconds of each level since 1970, NaN where it is no date; `day_first` is `None` where nothing settles it."""

    seconds: np.ndarray
    day_first: bool | None


def date_forms() -> tuple[re.Pattern[str], ...]:
    """What a date looks like."""
    return _FORMS


def dates(levels: Sequence[str], day_first: bool | None = None) -> Dates:
    """Days above 12 settle what comes first, for all of them, unless it is known; a column without such has no date.

    Days come first where they are parted by points.
    """
    matches = [next(filter(None, (form.fullmatch(level) for form in _FORMS)), None) for level in levels]
    parts = [match.groupdict() if match else {} for match in matches]
    numeric = [part for part in parts if "first" in part]
    if numeric and day_first is None:
        days = any(int(part["first"]) > 12 for part in numeric)
        months = any(int(part["second_part"]) > 12 for part in numeric)
        days = days or (not months and all(part["apart"] == "." for part in numeric))
        if days == months:
            return Dates(np.full(len(levels), np.nan), None)
        day_first = days
    first = True if day_first is None else day_first
    return Dates(np.array([_seconds(part, first) if part else np.nan for part in parts], np.float64), first)


def _seconds(part: dict[str, str | None], day_first: bool) -> float:
    """NaN for a day or a time that no calendar has."""
    if "first" in part:
        names = ("first", "second_part") if day_first else ("second_part", "first")
        day, month = (int(part[name] or 0) for name in names)
    else:
        day, written = int(part["day"] or 0), str(part["month"])
        month = int(written) if written.isdigit() else 1 + _MONTHS.index(written[:3].lower())
    year = int(part["year"] or 0)
    if len(part["year"] or "") == 2:
        year += 1900 if year >= _CENTURY else 2000
    hour, seconds = int(part["hour"] or 0), float((part["second"] or "0").replace(",", "."))
    if half := part["half"]:
        hour = hour % 12 + 12 * (half[0] in "pP")
    try:
        midnight = datetime.datetime(year, month, day, tzinfo=datetime.UTC).timestamp()
    except ValueError:
        return np.nan
    if hour > 24 or int(part["minute"] or 0) > 59 or seconds >= 61:
        return np.nan
    return midnight + 3600 * hour + 60 * int(part["minute"] or 0) + seconds - _offset(part["zone"])


def _offset(zone: str | None) -> float:
    if zone is None or zone[0] not in "+-":
        return 0.0
    digits = zone[1:].replace(":", "")
    return (1 if zone[0] == "+" else -1) * (3600.0 * int(digits[:2]) + 60.0 * int(digits[2:]))


class Part(NamedTuple):
    """Of the calendar: a period in days, the day since 1970 on which one began, and how many stretches tell it."""

    name: str
    period: float
    start: float
    stretches: int

    def phase(self, seconds: np.ndarray) -> np.ndarray:
        """From 0 to 1."""
        return np.mod(seconds / DAY - self.start, self.period) / self.period

    def recurs(self, seconds: np.ndarray) -> bool:
        """Whether these times cover two periods, and several stretches of it, which come twice on average.

        Within one period a part of the calendar tells no more than the date itself.
        """
        if not len(seconds) or np.ptp(seconds) < 2 * self.period * DAY:
            return False
        stretch = np.floor(self.phase(seconds) * self.stretches)
        period = np.floor((seconds / DAY - self.start) / self.period)
        different = len(np.unique(stretch))
        return 1 < different <= len(np.unique(period * self.stretches + stretch)) / 2


WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WEEK = Part("weekday", 7.0, -3.0, 7)  # the first of January 1970 was a Thursday
CYCLES = (Part("time of day", 1.0, 0.0, 24), Part("time of year", 365.2425, 0.0, 12))
