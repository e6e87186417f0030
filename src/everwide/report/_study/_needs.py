"""What more rows would bring."""

import math
import warnings
from typing import NamedTuple

import numpy as np

from ...forecasting import Forecast, ForecastWarning, forecast
from .._words import count, number, percent
from ._problem import Problem
from ._section import Fact, Grid, Section

KEY, TITLE = "forecast", "What more data would bring"
QUESTION = "Is it worth labelling more rows, and how many?"
_GOOD_GAIN, _POOR_GAIN = 0.15, 0.05  # of the squared error, from twice the rows

_FAR = 10  # times what is trusted


class _Look(NamedTuple):
    """A forecast, and its places for the rows that there are and for twice as many."""

    found: Forecast
    now: int
    twice: int
    unit: float

    def value(self, place: int) -> str:
        if self.found.accuracy is not None:
            return percent(float(self.found.accuracy[place]))
        return number(self.unit * math.sqrt(float(self.found.error[place])))


def needs(problem: Problem) -> Section:
    """`theory.forecast` from the rows with kernels, and the rows needed for some targets."""
    classes, rows = problem.classes is not None, len(problem.table.x)
    unit = 1.0 if classes else float(problem.labels.std())
    target = problem.labels.astype(np.int64) if classes else problem.y[:, 0]
    grid = np.geomspace(len(problem.rows) / 16, max(20 * len(problem.rows), 2 * rows), 40).astype(int)
    sizes = np.unique(np.concatenate([grid, [rows, 2 * rows]]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForecastWarning)  # `trusted_to` is on the page
        found = forecast(problem.kernel.ntk, None, target, sizes, task=problem.table.task, seed=problem.seed)
        at = _Look(found, int(np.searchsorted(sizes, rows)), int(np.searchsorted(sizes, 2 * rows)), unit)
        wanted = _targets(found, at.now)
        needed = [found.samples_needed(one) for one in wanted]
    numbers = {
        "pilot_rows": found.rows,
        "rows": rows,
        "n": found.n,
        "error": found.error,
        "low": found.low,
        "high": found.high,
        **_accuracies(found),
        "measured_sizes": found.measured.sizes,
        "measured": np.mean(found.measured.wrong if classes else found.measured.errors, axis=0),
        "noise": found.noise,
        "tail": found.tail,
        "trusted_to": found.trusted_to,
        "targets": wanted if classes else [unit * math.sqrt(one) for one in wanted],
        "rows_needed": needed,
        "unit": unit,
    }
    facts = (_now(at), _twice(at), _halved(needed[0], rows, found.trusted_to))
    notes = (
        f"From a pilot of {count(found.rows)} rows; trusted to {count(found.trusted_to)}. The band should hold the "
        "truth with 90\u202f% probability; where targets are noisy and rows few, more rows bring less than it says.",
    )
    grids = (_table(wanted, needed, found.trusted_to, classes, unit),)
    return Section(KEY, TITLE, QUESTION, numbers, facts, notes=notes, grids=grids)


def _accuracies(found: Forecast) -> dict[str, np.ndarray]:
    if found.accuracy is None or found.accuracy_low is None or found.accuracy_high is None:
        return {}
    return {"accuracy": found.accuracy, "accuracy_low": found.accuracy_low, "accuracy_high": found.accuracy_high}


def _targets(found: Forecast, now: int) -> list[float]:
    """Half of today's wrong answers, then a quarter, then a tenth; of the root mean square error somewhat less."""
    if found.accuracy is not None:
        wrong = max(1 - float(found.accuracy[now]), 1e-4)
        return [1 - wrong * share for share in (0.5, 0.25, 0.1)]
    return [float(found.error[now]) * share**2 for share in (0.9, 0.75, 0.5)]


def _now(at: _Look) -> Fact:
    what = "Accuracy" if at.found.accuracy is not None else "Root mean square error"
    meaning = "The forecast for a network that learns from every row of the table; the next ones compare with it."
    return Fact(f"{what} with all {count(at.found.n[at.now])} rows", at.value(at.now), meaning)


def _twice(at: _Look) -> Fact:
    gain = 1 - float(at.found.error[at.twice] / at.found.error[at.now])
    worth = "A fair gain, if rows are cheap."
    if gain > _GOOD_GAIN:
        worth = "That is a good price: label more."
    if gain < _POOR_GAIN:
        worth = "Little is gained: look for better inputs first."
    meaning = f"Twice the data takes {percent(max(gain, 0.0), 0)} off the squared error. {worth}"
    return Fact(f"With twice as many ({count(at.found.n[at.twice])})", at.value(at.twice), meaning)


def _halved(needed: float, rows: int, trusted: int) -> Fact:
    label = "Rows for the next goal"
    if not math.isfinite(needed):
        return Fact(label, "out of reach", "More rows of this kind will not do it: noise, or missing inputs, are left.")
    doubt = " That is beyond what the pilot can promise: label some, and ask again." if needed > trusted else ""
    meaning = f"What the first goal of the table below takes. You have {count(rows)} now.{doubt}"
    return Fact(label, about(needed, trusted), meaning)


def about(needed: float, trusted: int) -> str:
    """Rows, to three digits; far beyond what is trusted there is no saying how many."""
    return f"over {number(_FAR * trusted)}" if needed > _FAR * trusted else number(needed)


def _table(wanted: list[float], needed: list[float], trusted: int, classes: bool, unit: float) -> Grid:
    shown = [percent(one, 2) if classes else number(unit * math.sqrt(one)) for one in wanted]
    reach = ["out of reach" if not math.isfinite(n) else about(n, trusted) for n in needed]
    sure = ["no" if not n <= trusted else "yes" for n in needed]
    columns = ("accuracy" if classes else "RMSE", "rows needed", "within what is trusted")
    return Grid("Goals, and the rows they need", columns, tuple(zip(shown, reach, sure, strict=True)))
