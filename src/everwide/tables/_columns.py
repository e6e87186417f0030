"""What a column of a frame holds: numbers or dates in texts, categories, or nothing that can be used."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types

from .._checks import InputError
from ._categories import Planned, plan_levels
from ._dates import date_forms, dates
from ._numerals import NumberForm, numerals
from ._plans import LARGEST, Gaps, Nothing, Ordered, Times, WrittenNumbers, bounded, seconds_of
from ._table import printable
from ._texts import ENOUGH, Texts, texts_of, written


class Ask(NamedTuple):
    """What training rows are read for: targets `(n, k)`, or none; weights; whether it is shown what is missing.

    `largest`: numbers beyond are missing.
    """

    targets: np.ndarray | None
    weights: np.ndarray
    shows: bool
    largest: float


def is_number(dtype: Any) -> bool:
    return types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype)


def plan_column(column: pd.Series, name: str, ask: Ask, category: bool | None) -> Planned:
    """Of a column that is not of numbers, or is a category all the same; `None`: its type says it."""
    spans = column.dtype.kind == "m"
    if column.isna().all():
        return _dropped(len(column), "empty")
    if category:
        return _levels(texts_of(column), ask)
    if types.is_datetime64_any_dtype(column.dtype) or isinstance(column.dtype, pd.PeriodDtype) or spans:
        return _times(seconds_of(column).seconds, None, ask, spans)
    if types.is_complex_dtype(column.dtype):
        return _dropped(len(column), "unreadable")
    texts = texts_of(column)
    if not texts.levels:
        return _dropped(len(column), "empty")
    if isinstance(column.dtype, pd.CategoricalDtype) and category is None:
        return _ordered(texts, column.dtype, ask) if column.dtype.ordered else _levels(texts, ask)
    return _plan_texts(texts, name, ask, category)


def _levels(texts: Texts, ask: Ask) -> Planned:
    if not texts.levels:
        return _dropped(len(texts.codes), "empty")
    return plan_levels(texts, ask.targets, ask.weights, ask.shows)


def _ordered(texts: Texts, dtype: pd.CategoricalDtype, ask: Ask) -> Planned:
    """Levels that no row has keep their places: the order is the user's."""
    places = {written(level): place for place, level in enumerate(dtype.categories)}
    values = texts.places(places).astype(np.float64)
    gaps = Gaps.of(np.where(values < 0, np.nan, values), ask.weights, ask.shows)
    lost = ("missing",) * bool((values < 0).any()) + ("shown",) * gaps.shown
    return Planned(Ordered(gaps, places), gaps.fill(np.where(values < 0, np.nan, values)).values, ("ordered", *lost))


def _plan_texts(texts: Texts, name: str, ask: Ask, category: bool | None) -> Planned:
    """Numbers written as text, dates, categories, or nothing that can be used."""
    read = numerals(texts.levels, texts.counts)
    share = texts.share(~np.isnan(read.values))
    said = ("units",) * bool(read.units)
    if share >= ENOUGH:
        values = texts.spread(read.values)
        done = said + ("numbers",) * (read.form is not None) + ("mixed",) * (share < 1)
        done += ("infinite",) * bool((np.abs(values) > LARGEST).any()) + ("missing",) * bool(np.isnan(values).any())
        return _numbers(bounded(values), read.form, ask, done)
    if texts.look_like(*date_forms()):
        when = dates(texts.levels)
        return _times(texts.spread(when.seconds), when.day_first, ask, spans=False)
    if category is not None:
        raise InputError(
            f"The column {printable(name)!r} of X holds texts, such as {printable(texts.levels[0])!r}, and is not "
            "among categorical_features. Name it there, or leave categorical_features='from_dtype'."
        )
    if 2 * len(texts.levels) > len(texts.codes):
        return _dropped(len(texts.codes), "identifier", *said)
    planned = _levels(texts, ask)
    return planned._replace(done=planned.done + said)


def _numbers(values: np.ndarray, form: NumberForm | None, ask: Ask, done: tuple[str, ...]) -> Planned:
    if np.isnan(values).all():
        return _dropped(len(values), "empty")
    plan = WrittenNumbers(Gaps.of(values, ask.weights, ask.shows), form)
    return Planned(plan, plan.gaps.fill(values).values, done + ("shown",) * plan.gaps.shown)


def _times(seconds: np.ndarray, day_first: bool | None, ask: Ask, spans: bool) -> Planned:
    lost = np.isnan(seconds)
    if lost.all():
        return _dropped(len(seconds), "ambiguous" if day_first is None else "impossible")
    plan = Times.of(seconds, day_first, ask.weights, ask.shows, spans)
    done = ("date",) + ("parts",) * bool(plan.cycles or plan.weekdays)
    done += ("missing",) * bool(lost.any()) + ("shown",) * plan.gaps.shown
    return Planned(plan, plan.features(seconds).values, done)


def _dropped(n: int, *why: str) -> Planned:
    return Planned(Nothing(), np.empty((n, 0)), why)
