"""The network that was chosen, and its plan."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ..._problem import Problem
from ..._walk import explain, walk
from ..._words import count, number
from .._page import Fact, Grid, Section, Text

_SMALL = 1e-6  # ridges, over the kernel's mean diagonal, that hold nothing back
_LONG = 1e6  # times of training, over the kernel's mean diagonal, that are as good as endless


@dataclass(frozen=True, eq=False)
class Architecture:
    """The choice of the estimator, the plan of `everwide.explain`, and the network as equinox prints it."""

    choice: dict[str, Any]
    plan: dict[str, Any]
    layers_with_weights: int
    network: str


def architecture(problem: Problem) -> Architecture:
    """What was chosen, or asked for, and what it computes."""
    plan = explain(problem.net, problem.x.shape[1:])
    weights = [visit for visit in walk(problem.net) if visit.layer.weights()]
    numbers = jax.tree.map(lambda leaf: float(leaf) if np.ndim(leaf) == 0 else leaf, problem.net)
    return Architecture(problem.estimator.choice_.to_dict(), plan.to_dict(), len(weights), repr(numbers))


def _text(problem: Problem, result: Architecture) -> Text:
    plan = result.plan
    side = plan["tile_examples"]
    facts = (
        Fact("Network", problem.network, _why(problem)),
        Fact(
            "Layers with weights",
            count(result.layers_with_weights),
            "Repeated layers count once. Build a finite copy with net.init(key, shape, width=256).",
        ),
        _held_back(problem),
        Fact(
            "Memory of a tile",
            f"{number(plan['tile_peak_bytes'] / 1e6)} MB",
            f"For kernels of {side} by {side} rows at a time; nothing larger is held beside the matrix itself.",
        ),
    )
    return Text(facts, notes=(*_frozen_note(problem), *columns_note(problem)), grids=(_grid(plan),))


def _why(problem: Problem) -> str:
    if problem.asked != "auto":
        return "You asked for it. Without a network, depth and activation are chosen from the rows."
    return (
        f"The best of {count(problem.estimator.choice_.tried)} that were tried, by the error of every row learned from "
        "all others. Pass your own to compare."
    )


def _frozen_note(problem: Problem) -> tuple[str, ...]:
    """Kernels with frozen layers are often the better kernels, and nobody trains such networks."""
    if not problem.estimator.choice_.frozen:
        return ()
    return (
        "This kernel has frozen layers because it predicts better so, each row from all others. A network that you "
        "train moves all of its layers, and is another one.",
    )


def columns_note(problem: Problem) -> tuple[str, ...]:
    """Of whom the page speaks, and why the first layer reads more numbers than there are columns."""
    if not problem.adds:
        return ()
    columns, reads = problem.table.x.shape[1], problem.x.shape[1]
    zeros = f", and {reads - 2 * columns} zeros, which change nothing" if reads > 2 * columns else ""
    return (
        "How good it is, how sure, and which columns matter is said of several networks, added. All else on this page "
        "is of this single one, which theory can read.",
        f"It is shown every one of the {count(columns)} columns twice, scaled and by its ranks{zeros}.",
    )


def _held_back(problem: Problem) -> Fact:
    """The ridge, or the time at which training stops: an estimator has one of them."""
    choice = problem.estimator.choice_
    if _LONG < choice.relative_time < np.inf:
        meaning = "Stopping earlier was tried, and was no better."
        return Fact("Training", "to the end", meaning)
    if np.isfinite(choice.relative_time):
        meaning = "Of gradient flow, over the kernel's mean diagonal. Stopping early keeps noise from being learned."
        return Fact("Stops at time", number(choice.relative_time), meaning)
    if choice.relative_ridge < _SMALL:
        meaning = "Of the kernel's mean diagonal, as good as none: larger ones were tried, and were no better."
        return Fact("Ridge", number(choice.relative_ridge), meaning)
    meaning = "Of the kernel's mean diagonal: it keeps noise from being learned. 0 would fit every row exactly."
    return Fact("Ridge", number(choice.relative_ridge), meaning)


def _grid(plan: dict[str, Any]) -> Grid:
    rows = tuple(
        (
            "\u2003" * step["depth"] + step["layer"],
            _sizes(step["input"]),
            _sizes(step["output"]),
            f"{number(step['tile_bytes'] / 1e3)} kB",
        )
        for step in plan["steps"]
    )
    return Grid("The plan: what goes in and out of every layer", ("layer", "reads", "writes", "tile"), rows)


def _sizes(shape: list[int | None]) -> str:
    return " \u00d7 ".join("width" if size is None else str(size) for size in shape)


SECTION = Section(
    "architecture",
    "The network",
    "Which network is this report about, and what does it compute?",
    measure=architecture,
    describe=_text,
)
