"""What more rows would bring."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..._problem import Problem
from ..._words import count, number, percent
from ...forecasting import ForecastWarning
from .._page import BLUE, GREY, INK, ORANGE, Fact, Figure, Grid, Section, Text, plain_ticks

_GOOD_GAIN, _POOR_GAIN = 0.15, 0.05  # of the squared error, from twice the rows
_FAR = 10  # times what is trusted
_SQUARES = ("error", "low", "high", "noise", "tail")
_AS_THEY_ARE = ("n", "accuracy", "accuracy_low", "accuracy_high", "trusted_to")
Curve = Float[np.ndarray, " sizes"]


@dataclass(frozen=True, eq=False)
class Forecast:
    """The forecast of `everwide.forecasting` by rows `n`, and the rows needed for some targets.

    Every error of numbers is a mean square, in units of the target squared; of classes, that of their indicators.

    - `error`, `low`, `high`, `noise`, `tail`: mean squared errors. `accuracy`...: for classes.
    - `n_now`: rows of the table, at the place `now` of `n`; twice as many at `twice`. `n_pilot`: with kernels.
    - `measured`: mean squared errors, or shares of wrong classes, at `measured_sizes`.
    - `targets`: mean squared errors, or accuracies; `n_needed`: rows for them.
    """

    n_pilot: int
    n_now: int
    n: Int[np.ndarray, " sizes"]
    now: int
    twice: int
    error: Curve
    low: Curve
    high: Curve
    accuracy: Curve | None
    accuracy_low: Curve | None
    accuracy_high: Curve | None
    measured_sizes: np.ndarray
    measured: np.ndarray
    noise: float
    tail: float
    trusted_to: int
    targets: list[float]
    n_needed: list[float]

    @property
    def settled(self) -> bool:
        """Whether less than one row of the table would be wrong: no goal beyond that can be measured with them."""
        return self.accuracy is not None and (1 - float(self.accuracy[self.now])) * self.n_now < 1

    def score(self, place: int) -> str:
        """Accuracy, or root mean square error, at that place of `n`."""
        if self.accuracy is not None:
            return percent(float(self.accuracy[place]))
        return number(math.sqrt(float(self.error[place])))


def forecast(problem: Problem) -> Forecast:
    """`everwide.forecasting.forecast` from the rows with kernels."""
    classes, n, pilot, square = problem.classes is not None, problem.table.n, len(problem.rows), problem.unit**2
    grid = np.geomspace(pilot / 16, max(20 * pilot, 2 * n), 40).astype(int)
    sizes = np.unique(np.concatenate([grid, [n, 2 * n]]))
    now, twice = int(np.searchsorted(sizes, n)), int(np.searchsorted(sizes, 2 * n))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForecastWarning)  # `trusted_to` is on the page
        curve = problem.forecast(sizes)
        targets = _targets(curve, now)
        needed = [curve.samples_needed(one) for one in targets]
    return Forecast(
        n_pilot=pilot,
        n_now=n,
        now=now,
        twice=twice,
        measured_sizes=curve.measured.sizes,
        measured=np.mean(curve.measured.wrong if classes else square * curve.measured.errors, axis=0),
        targets=targets if classes else [square * one for one in targets],
        n_needed=needed,
        **{name: square * getattr(curve, name) for name in _SQUARES},
        **{name: getattr(curve, name) for name in _AS_THEY_ARE},
    )


def _targets(curve: Any, now: int) -> list[float]:
    """Half of today's wrong answers, then a quarter, then a tenth; of the root mean square error somewhat less."""
    if curve.accuracy is not None:
        wrong = max(1 - float(curve.accuracy[now]), 1e-4)
        return [1 - wrong * share for share in (0.5, 0.25, 0.1)]
    return [float(curve.error[now]) * share**2 for share in (0.9, 0.75, 0.5)]


def _text(problem: Problem, result: Forecast) -> Text:
    note = (
        f"From a pilot of {count(result.n_pilot)} rows; trusted to {count(result.trusted_to)}. The band should hold "
        "the truth with 90\u202f% probability; where targets are noisy and rows few, more rows bring less than it "
        f"says. All of it is of an infinitely wide network; {_others(problem)}"
    )
    return Text((_now(result), _twice(result), _next_goal(result)), notes=(note,), grids=(_grid(result),))


def _others(problem: Problem) -> str:
    """Where the same is said of trained networks."""
    if problem.quick:
        return "of trained ones: everwide forecast --of network, or a report that is not quick."
    return "of trained ones at the end of this page."


def _now(result: Forecast) -> Fact:
    what = "Accuracy" if result.accuracy is not None else "Root mean square error"
    meaning = "The forecast for an infinitely wide network that learns from every row of the table."
    return Fact(f"{what} with all {count(result.n_now)} rows", result.score(result.now), meaning)


def _twice(result: Forecast) -> Fact:
    label, gain = f"With twice as many ({count(2 * result.n_now)})", _gain(result)
    if result.settled:
        return Fact(label, result.score(result.twice), "Less than one of your rows would be wrong already.")
    worth = "A fair gain, if rows are cheap."
    if gain > _GOOD_GAIN:
        worth = "That is a good price: label more."
    if gain < _POOR_GAIN:
        worth = "Little is gained by this network: look for better inputs first, or at a trained one."
    meaning = f"Twice the data takes {percent(max(gain, 0.0), 0)} off the squared error. {worth}"
    return Fact(label, result.score(result.twice), meaning)


def _gain(result: Forecast) -> float:
    return 1 - float(result.error[result.twice] / result.error[result.now])


def _next_goal(result: Forecast) -> Fact:
    label, needed = "Rows for the next goal", result.n_needed[0]
    if result.settled:
        return Fact(label, "enough", "Your rows are too few to measure what more of them would bring.")
    if not math.isfinite(needed):
        meaning = (
            "More rows of this kind will not do it for an infinitely wide network. One that is trained may differ."
        )
        return Fact(label, "out of reach", meaning)
    beyond = " That is beyond what the pilot can promise: label some, and ask again."
    doubt = beyond if needed > result.trusted_to else ""
    meaning = f"What the first goal of the table below takes. You have {count(result.n_now)} now.{doubt}"
    return Fact(label, _about(needed, result.trusted_to), meaning)


def _about(needed: float, trusted: int) -> str:
    """Rows, to three digits; far beyond what is trusted there is no saying how many."""
    if not math.isfinite(needed):
        return "out of reach"
    return f"over {number(_FAR * trusted)}" if needed > _FAR * trusted else number(needed)


def _grid(result: Forecast) -> Grid:
    classes = result.accuracy is not None
    rows = tuple(
        (
            percent(target, 2) if classes else number(math.sqrt(target)),
            _about(needed, result.trusted_to),
            "yes" if needed <= result.trusted_to else "no",
        )
        for target, needed in zip(result.targets, result.n_needed, strict=True)
    )
    columns = ("accuracy" if classes else "RMSE", "rows needed", "within what is trusted")
    return Grid("Goals, and the rows they need", columns, rows)


def _draw(figure: Any, result: Forecast) -> None:
    ax, classes = figure.subplots(), result.accuracy is not None
    if classes:
        middle, low, high = (100 * np.asarray(c) for c in (result.accuracy, result.accuracy_low, result.accuracy_high))
        measured = 100 * (1 - result.measured)
    else:
        middle, low, high = (np.sqrt(c) for c in (result.error, result.low, result.high))
        measured = np.sqrt(result.measured)
    ax.fill_between(result.n, low, high, color=BLUE, alpha=0.18, linewidth=0, label="90 % interval")
    ax.plot(result.n, middle, color=BLUE, label="forecast")
    ax.plot(result.measured_sizes, measured, "o", color=INK, markersize=3.5, label="measured")
    ax.axvline(result.n_now, color=ORANGE, linewidth=1.2, label="your rows")
    ax.axvline(result.trusted_to, color=GREY, linewidth=1.2, linestyle=":", label="trusted to here")
    ax.set(xscale="log", xlabel="rows to learn from", ylabel="accuracy, %" if classes else "root mean square error")
    ax.set_xlim(result.n[0], result.n[-1])
    plain_ticks(ax.xaxis)
    if classes:
        ax.set_ylim(top=min(100.5, ax.get_ylim()[1]))
    figure.legend(loc="outside upper left", ncols=3)


def tile(result: Forecast) -> Fact:
    """The first goal; it is marked where the forecast is not trusted so far."""
    needed, goal = result.n_needed[0], result.targets[0]
    if result.settled:
        return Fact("rows needed", "enough", f"less than one of {count(result.n_now)} would be wrong")
    aim = f"for an error of {number(math.sqrt(goal))}" if result.accuracy is None else f"for {percent(goal)} accuracy"
    if not math.isfinite(needed):
        return Fact("rows needed", "no number", f"{aim}: an infinitely wide network does not get there")
    value, note = _about(needed, result.trusted_to), f"{aim}; there are {count(result.n_now)} now"
    if needed <= result.trusted_to:
        return Fact("rows needed", value, note)
    return Fact("rows needed, a guess", value, f"{note}, and the forecast is trusted to {count(result.trusted_to)}")


SECTION = Section(
    "forecast",
    "What more data would bring",
    "Is it worth labelling more rows, and how many?",
    measure=forecast,
    describe=_text,
    figure=Figure(_draw, 3.1, "The forecast beyond your rows, with the interval that should hold the truth."),
    tile=tile,
)
