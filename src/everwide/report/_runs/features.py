"""What the network makes of its features: how far the tangent kernel moves, and neural collapse."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._words import count, number, percent
from .._page import BLUE, GREEN, Fact, Figure, Grid, Section, Text
from .records import LINES, Series, draw, finite, over_steps, scaled, series

_STILL = 0.1  # change of a kernel: what is less is little
# What the distances are called in the literature, and what they are.
_COLLAPSE = {
    "within": ("NC1", "variance within classes over that between them"),
    "norms": ("NC2, lengths", "how far the centres of classes are from equal lengths"),
    "angles": ("NC2, angles", "how far they are from the angles of a simplex"),
    "duality": ("NC3", "how far the last layer is from the centres"),
    "centres": ("NC4", "share of rows whose class is not that of the nearest centre"),
}
_NUMBERED = {"nc1": "within", "nc2": "angles", "nc3": "duality", "nc4": "centres"}


@dataclass(frozen=True, eq=False)
class Kernel:
    """`velocity`: change of the tangent kernel since the first look, from 0 to 1. `alignment`: with the targets."""

    velocity: Series
    alignment: Series


def kernel(run: Any) -> Kernel | None:
    """What the log says about the tangent kernel."""
    change, alignment = series(run, "kernel", "velocity"), series(run, "kernel", "alignment")
    compared = len(change.steps) > 1  # the first look has nothing to be compared with
    velocity = Series(change.steps, np.maximum(change.values, 0)) if compared else Series(np.zeros(0), np.zeros(0))
    return Kernel(velocity, alignment) if compared or len(alignment.steps) else None


def _text(run: Any, result: Kernel) -> Text:
    facts = []
    if len(result.velocity.steps):
        change = result.velocity.last
        how = "That is little: so far the network learns much as a fixed kernel does."
        if change >= _STILL:
            how = "Features move: this is not the training of a fixed kernel."
        meaning = f"How far it is, at step {count(result.velocity.steps[-1])}, from that of the first look. {how}"
        facts.append(Fact("The tangent kernel changed by", percent(change, 0), meaning))
    if len(result.alignment.steps):
        first, last = float(result.alignment.values[0]), result.alignment.last
        meaning = f"Of the tangent kernel with that of the targets, from 0 to 1; it began with {number(first, 2)}."
        facts.append(Fact("Alignment", number(last, 2), meaning))
    return Text(tuple(facts), notes=("The tangent kernel is that of a few rows of the probe.",))


def _draw(figure: Any, result: Kernel) -> None:
    ax = figure.subplots()
    for line, label, color in ((result.velocity, "change", BLUE), (result.alignment, "alignment", GREEN)):
        if len(line.steps):
            draw(ax, line, color=color, label=label)
    ax.set(ylabel="of the tangent kernel")
    ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    over_steps(ax)
    figure.legend(loc="outside upper left", ncols=2)


def _tile(result: Kernel) -> Fact | None:
    if not len(result.velocity.steps):
        return None
    seen = f"up to step {count(result.velocity.steps[-1])}; little is lazy"
    return Fact("the kernel changed by", percent(result.velocity.last, 0), seen)


KERNEL = Section(
    "kernel",
    "Lazy, or learning features",
    "Does the network stay near its first kernel?",
    measure=kernel,
    describe=_text,
    figure=Figure(_draw, 2.8, "The tangent kernel over the steps: 0 is no change since the first look."),
    tile=_tile,
)


@dataclass(frozen=True, eq=False)
class Collapse:
    """Distances from neural collapse over the steps, by their names in `everwide.diagnosis.neural_collapse`."""

    distances: dict[str, Series]


def collapse(run: Any) -> Collapse | None:
    """What the log says about neural collapse."""
    names = dict.fromkeys(name for record in run.of("collapse") for name in record if finite(record[name]) is not None)
    lines = {_NUMBERED.get(name, name): series(run, "collapse", name) for name in names if name != "step"}
    known = {name: line for name, line in lines.items() if name in _COLLAPSE}
    return Collapse(known) if known else None


def _collapse_text(run: Any, result: Collapse) -> Text:
    facts = ()
    if "within" in result.distances:
        line = result.distances["within"]
        meaning = (
            f"Variance within classes over that between them; it was {number(line.values[0])} at the first look. At 0 "
            "the features of a class are one point."
        )
        facts = (Fact("Within classes (NC1)", number(line.last), meaning),)
    rows = tuple(
        (_COLLAPSE[name][0], number(line.values[0]), number(line.last), _COLLAPSE[name][1])
        for name, line in result.distances.items()
    )
    return Text(facts, grids=(Grid("Distances from collapse", ("", "first", "last", "what it is"), rows),))


def _draw_collapse(figure: Any, result: Collapse) -> None:
    ax = figure.subplots()
    for (color, style), (name, line) in zip(LINES, result.distances.items(), strict=False):
        draw(ax, line, color=color, style=style, label=_COLLAPSE[name][0])
    scaled(ax, [line.values for line in result.distances.values()])
    ax.set(ylabel="distance from collapse")
    over_steps(ax)
    figure.legend(loc="outside upper left", ncols=3)


COLLAPSE = Section(
    "collapse",
    "Neural collapse",
    "Do the features of a class become one point?",
    measure=collapse,
    describe=_collapse_text,
    figure=Figure(_draw_collapse, 3.0, "Distances from neural collapse over the steps: 0 is collapsed."),
)
