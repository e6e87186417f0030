"""What watching has cost."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._words import number, percent
from .._page import BLUE, ORANGE, Fact, Figure, Section, Text
from .records import Series, draw, finite, over_steps, series


@dataclass(frozen=True, eq=False)
class Cost:
    """`share`: of the time of the run that went into measuring. `seconds`, `spent`, `compiling`: at the last look."""

    share: Series
    seconds: float
    spent: float
    compiling: float | None
    budget: float | None


def cost(run: Any) -> Cost | None:
    """What the log says about its own cost."""
    spent, seconds, compiling = (series(run, "vitals", name) for name in ("cost", "seconds", "compiling"))
    steps, one, other = np.intersect1d(spent.steps, seconds.steps, return_indices=True)
    taken, whole = spent.values[one], seconds.values[other]
    known = whole > 0
    if not known.any():
        return None
    return Cost(
        Series(steps[known], taken[known] / whole[known]),
        float(whole[known][-1]),
        float(taken[known][-1]),
        compiling.last if len(compiling.steps) else None,
        finite(run.facts.get("budget")),
    )


def _text(run: Any, result: Cost) -> Text:
    share, budget = result.share.last, result.budget
    meaning = f"{number(result.spent)} s of the {number(result.seconds)} s of the run went into measuring"
    if budget is not None:
        meaning += f"; the budget is {percent(budget)}"
    meaning += "." if not result.compiling else f". Compiling took {number(result.compiling)} s more, once."
    return Text((Fact("Share of the time", percent(share, 2), meaning),))


def _draw(figure: Any, result: Cost) -> None:
    ax = figure.subplots()
    draw(ax, result.share._replace(values=100 * result.share.values), color=BLUE, label="the doctor's share")
    if result.budget is not None:
        ax.axhline(100 * result.budget, color=ORANGE, linestyle="--", linewidth=1.4, label="budget")
    ax.set(ylabel="of the time, %")
    ax.set_ylim(bottom=0)
    over_steps(ax)
    figure.legend(loc="outside upper left", ncols=2)


SECTION = Section(
    "cost",
    "What watching costs",
    "How much time did the doctor take?",
    measure=cost,
    describe=_text,
    figure=Figure(_draw, 2.4, "The share of the run's time that went into measuring."),
)
