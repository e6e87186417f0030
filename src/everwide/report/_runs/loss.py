"""How training went: loss and accuracy of the probe, events, rows that stay surprising."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._words import count, listed, number, percent, several
from .._page import BLUE, GREEN, GREY, Fact, Figure, Grid, Section, Text
from .records import Series, draw, finite, mark, over_steps, scaled, series

_STAYS = 0.9  # of the looks of the second half, in which a row is among the most surprising ones
_LOOKS = 3  # fewer say nothing about what stays
_LISTED = 40  # events in the table, at the most


@dataclass(frozen=True, eq=False)
class Event:
    """What happened at a step, with its figures."""

    step: int
    name: str
    figures: dict[str, float]


@dataclass(frozen=True, eq=False)
class Losses:
    """Of the probe, and, where the training loop told them, of its batches (`told`: means between two looks).

    - `broken_since`: the step from which the loss of the probe is not finite, to the end of the log.
    - `surprising`: rows of the probe, counted from 0, whose losses stay among the largest, of no more rows than are
      classified wrongly.
    """

    value: Series
    told: Series
    accuracy: Series
    events: tuple[Event, ...]
    broken_since: int | None
    surprising: tuple[int, ...]


def losses(run: Any) -> Losses | None:
    """What the log says about losses."""
    vitals = run.of("vitals")
    events = tuple(_event(record) for record in run.of("event"))
    if not vitals and not events:
        return None
    told = [{"step": v["step"], "mean": v["told"].get("mean")} for v in vitals if isinstance(v.get("told"), dict)]
    pairs = [(float(t["step"]), mean) for t in told if (mean := finite(t["mean"])) is not None]
    steps, means = np.array(pairs, float).reshape(-1, 2).T
    return Losses(
        series(run, "vitals", "value"),
        Series(steps, means),
        series(run, "vitals", "accuracy"),
        events,
        _broken(vitals),
        _surprising(vitals, run.facts.get("rows")),
    )


def _event(record: dict[str, Any]) -> Event:
    given = record.get("figures")
    figures = given if isinstance(given, dict) else {}
    known = {str(name): value for name, one in figures.items() if (value := finite(one)) is not None}
    return Event(record["step"], str(record.get("name", "event")), known)


def _broken(vitals: list[dict[str, Any]]) -> int | None:
    since = None
    for record in reversed(vitals):
        if "value" not in record or finite(record["value"]) is not None:
            break
        since = record["step"]
    return since


def _surprising(vitals: list[dict[str, Any]], n: Any) -> tuple[int, ...]:
    later = [v for v in vitals[len(vitals) // 2 :] if isinstance(v.get("surprising"), list)]
    wrong = [(finite(v.get("accuracy")), v["surprising"]) for v in later]
    first = [
        rows[: max(0, round((1 - share) * n))] for share, rows in wrong if share is not None and isinstance(n, int)
    ]
    if len(first) < _LOOKS:
        return ()
    which, times = np.unique([row for rows in first for row in rows if isinstance(row, int)], return_counts=True)
    return tuple(int(row) for row in which[times >= _STAYS * len(first)])


def _text(run: Any, result: Losses) -> Text:
    facts = []
    if len(result.value.steps):
        facts.append(_progress(run, result.value))
    if len(result.accuracy.steps):
        best = result.accuracy.values.max()
        meaning = f"Share of the rows of the probe that are classified rightly; the largest was {percent(best)}."
        facts.append(Fact("Accuracy on the probe", percent(result.accuracy.last), meaning))
    if result.surprising:
        meaning = (
            f"Rows {listed([count(row) for row in result.surprising], 10)} of the probe, counted from 0, keep the "
            "largest losses, while some are classified wrongly. Look at them: wrong labels do that, as do rare rows."
        )
        facts.append(Fact("Rows that stay surprising", count(len(result.surprising)), meaning))
    broken = result.broken_since
    warnings = () if broken is None else (f"The loss of the probe is not finite from step {count(broken)} on.",)
    return Text(tuple(facts), warnings, grids=_grids(result.events))


def _progress(run: Any, value: Series) -> Fact:
    rows = run.facts.get("rows")
    of = f"{several(rows, 'row')} of the probe" if isinstance(rows, int) else "the rows of the probe"
    lowest = int(np.argmin(value.values))
    meaning = f"The mean over {of}. It was {number(value.values[0])} at step {count(value.steps[0])}"
    if value.values[lowest] < value.last:
        meaning += f" and lowest, {number(value.values[lowest])}, at step {count(value.steps[lowest])}"
    return Fact("Loss on the probe", number(value.last), meaning + ".")


def _grids(events: tuple[Event, ...]) -> tuple[Grid, ...]:
    if not events:
        return ()
    rows = tuple((count(event.step), event.name, _said(event) or "-") for event in events[-_LISTED:])
    left = len(events) - len(rows)
    caption = several(len(events), "event") + (f", the last {len(rows)} of them" if left else "")
    return (Grid(caption, ("step", "what happened", "figures"), rows),)


def _said(event: Event) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in event.figures.items())


def _draw(figure: Any, result: Losses) -> None:
    panels = figure.subplots(2 if len(result.accuracy.steps) else 1, 1, sharex=True, squeeze=False)[:, 0]
    top, bottom = panels[0], panels[-1]
    if len(result.told.steps):
        draw(top, result.told, color=GREY, label="batches, mean")
    draw(top, result.value, color=BLUE, label="probe")
    scaled(top, (result.value.values, result.told.values))
    top.set(ylabel="loss")
    if len(result.accuracy.steps):
        draw(bottom, result.accuracy._replace(values=100 * result.accuracy.values), color=GREEN, label="accuracy")
        bottom.set(ylabel="accuracy, %")
    for ax in panels:
        mark(ax, [event.step for event in result.events], label="events" if ax is top else None)
    over_steps(bottom)
    figure.legend(loc="outside upper left", ncols=4)


def _tile(result: Losses) -> Fact:
    if len(result.value.steps):
        return Fact("loss on the probe", number(result.value.last), f"at step {count(result.value.steps[-1])}")
    return Fact("events", count(len(result.events)), "and no loss was recorded")


SECTION = Section(
    "loss",
    "How training went",
    "Does the loss fall, and what happened on the way?",
    measure=losses,
    describe=_text,
    figure=Figure(_draw, 3.6, "The course of training. Events, if there were any, are dashed lines, and listed below."),
    tile=_tile,
)
