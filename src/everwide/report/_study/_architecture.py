"""The network that was chosen, and its plan."""

import jax
import numpy as np

from ...kernels import explain
from .._words import count, number
from ._problem import Problem
from ._section import Fact, Grid, Section

KEY, TITLE = "architecture", "The network"
QUESTION = "Which network is this report about, and what does it compute?"


def architecture(problem: Problem) -> Section:
    """The choice of the estimator, and `everwide.explain`."""
    plan = explain(problem.net, problem.x.shape[1:])
    choice, steps = problem.estimator.choice_, plan.to_dict()
    weights = [step for step in plan.steps if step.name.partition(" ")[0] in _WEIGHTS]
    facts = (
        Fact("Network", str(choice).splitlines()[0], _why(problem)),
        Fact(
            "Layers with weights",
            count(len(weights)),
            "Repeated layers count once. Build a finite copy with net.init(key, shape, width=256).",
        ),
        _held_back(problem),
        Fact(
            "Memory of a tile",
            f"{number(steps['tile_peak_bytes'] / 1e6)} MB",
            f"For kernels of {plan.examples} by {plan.examples} rows at a time; nothing larger is held beside the "
            "matrix itself.",
        ),
    )
    numbers = {"choice": choice.to_dict(), "plan": steps, "network": _printed(problem)}
    return Section(KEY, TITLE, QUESTION, numbers, facts, notes=_shown(problem), grids=(_plan_table(steps),))


_LONG = 1e6  # times of training, over the kernel's mean diagonal, that are as good as endless
_WEIGHTS = ("Dense", "Conv", "ConvLocal", "ConvTranspose", "SelfAttention", "Aggregate")


def _why(problem: Problem) -> str:
    if problem.asked != "auto":
        return "You asked for it. Without a network, depth and activation are chosen from the rows."
    return (
        f"The best of {count(problem.estimator.choice_.tried)} that were tried, by the error of every row learned from "
        "all others. Pass your own to compare."
    )


def _shown(problem: Problem) -> tuple[str, ...]:
    """Why the first layer reads more numbers than there are columns."""
    if problem.asked != "auto" or problem.table.x.ndim != 2:
        return ()
    columns, reads = problem.table.x.shape[1], problem.x.shape[1]
    zeros = f", and {reads - 2 * columns} zeros, which change nothing" if reads > 2 * columns else ""
    return (f"The network is shown every one of the {count(columns)} columns twice, scaled and by its ranks{zeros}.",)


def _held_back(problem: Problem) -> Fact:
    """The ridge, or the time at which training stops: an estimator has one of them."""
    choice = problem.estimator.choice_
    if _LONG < choice.relative_time < np.inf:
        meaning = "Stopping earlier was tried, and brought nothing: there is little noise to be kept from."
        return Fact("Training", "to the end", meaning)
    if np.isfinite(choice.relative_time):
        meaning = "Of gradient flow, over the kernel's mean diagonal. Stopping early keeps noise from being learned."
        return Fact("Stops at time", number(choice.relative_time), meaning)
    meaning = "Of the kernel's mean diagonal: it keeps noise from being learned. 0 would fit every row exactly."
    return Fact("Ridge", number(choice.relative_ridge), meaning)


def _printed(problem: Problem) -> str:
    """As equinox prints it, with numbers in place of arrays."""
    leaves = jax.tree.map(lambda leaf: float(leaf) if np.ndim(leaf) == 0 else leaf, problem.net)
    return repr(leaves)


def _plan_table(steps: dict) -> Grid:
    shape = lambda sizes: " \u00d7 ".join("width" if size is None else str(size) for size in sizes)
    rows = tuple(
        (
            "\u2003" * step["depth"] + step["layer"],
            shape(step["input"]),
            shape(step["output"]),
            f"{number(step['tile_bytes'] / 1e3)} kB",
        )
        for step in steps["steps"]
    )
    return Grid("The plan: what goes in and out of every layer", ("layer", "reads", "writes", "tile"), rows)
