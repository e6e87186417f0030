"""Layer by layer: gradients, updates and weights, units that are dead."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._words import listed, number, percent, several
from .._page import Fact, Figure, Grid, Section, Text
from .records import LINES, Series, by_group, draw_layers, finite, over_steps, scaled

_DEAD = 0.01  # of the units of a layer: fewer are not worth a line


@dataclass(frozen=True, eq=False)
class Layers:
    """Figures of each layer over the steps.

    - `sizes`: numbers in it. `rms`: root mean square of its weights. `gradient`, `update`: norms.
    - `relative`: norm of the update over that of the weights. `dead`: share of units whose gradient is 0.
    """

    sizes: dict[str, int]
    rms: dict[str, Series]
    gradient: dict[str, Series]
    update: dict[str, Series]
    relative: dict[str, Series]
    dead: dict[str, Series]

    @property
    def names(self) -> list[str]:
        """Of all layers, as the model has them."""
        return list(dict.fromkeys([*self.sizes, *self.gradient, *self.update, *self.rms]))


def layers(run: Any) -> Layers | None:
    """What the log says about layers."""
    rms, gradient, update, dead = (by_group(run, "vitals", name) for name in ("rms", "gradient", "update", "dead"))
    if not (rms or gradient or update):
        return None
    given = run.facts.get("groups")
    known = given if isinstance(given, dict) else {}
    sizes = {name: int(size) for name, one in known.items() if (size := finite(one)) is not None and size > 0}
    both = [name for name in sizes if name in update and name in rms]
    relative = {name: _relative(update[name], rms[name], sizes[name]) for name in both}
    return Layers(sizes, rms, gradient, update, {name: one for name, one in relative.items() if len(one.steps)}, dead)


def _relative(update: Series, rms: Series, size: int) -> Series:
    """The update in units of the weights, at the steps of both."""
    steps, at, where = np.intersect1d(update.steps, rms.steps, return_indices=True)
    norms = rms.values[where] * math.sqrt(size)
    known = norms > 0
    return Series(steps[known], update.values[at][known] / norms[known])


def _text(run: Any, result: Layers) -> Text:
    facts, still = [], [name for name, line in result.update.items() if not line.values.any()]
    if result.relative:
        now = {name: line.now for name, line in result.relative.items()}
        fastest, slowest = max(now, key=lambda name: now[name]), min(now, key=lambda name: now[name])
        meaning = f"A step changes {fastest} by {percent(now[fastest], 2)} of its weights"
        meaning += f", and {slowest}, the slowest layer, by {percent(now[slowest], 2)}." if len(now) > 1 else "."
        facts.append(Fact("Fastest layer", fastest, meaning))
    if still:
        meaning = "Weights that did not move at any look: they are not trained, or no gradient reaches them."
        facts.append(Fact("Layers that stand still", listed(still, 3), meaning))
    dead = {name: line.last for name, line in result.dead.items() if line.last >= _DEAD}
    if dead:
        most = max(dead, key=lambda name: dead[name])
        meaning = f"{percent(dead[most], 0)} of its units had no gradient on the probe at the last look"
        others = len(dead) - 1
        meaning += f"; {several(others, 'more layer has', 'more layers have')} such units, too." if others else "."
        facts.append(Fact("Most dead units", most, meaning))
    return Text(tuple(facts), grids=(_grid(result),))


def _grid(result: Layers) -> Grid:
    columns = ("layer", "parameters", "weights, rms", "gradient", "update / weights", "dead units")
    rows = tuple(
        (
            name,
            number(result.sizes[name], 8) if name in result.sizes else "-",
            *(_cell(lines, name, number) for lines in (result.rms, result.gradient, result.relative)),
            _cell(result.dead, name, lambda share: percent(share, 0)),
        )
        for name in result.names
    )
    return Grid("Layers at the last look", columns, rows)


def _cell(lines: dict[str, Series], name: str, shown: Callable[[float], str]) -> str:
    return shown(lines[name].last) if name in lines else "-"


def _draw(figure: Any, result: Layers) -> None:
    kinds = {"update / weights": result.relative, "gradient": result.gradient, "weights, rms": result.rms}
    drawn = {label: lines for label, lines in kinds.items() if lines}
    panels = figure.subplots(len(drawn), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (label, lines) in zip(panels, drawn.items(), strict=True):
        scaled(ax, [line.values for line in lines.values()])
        ax.set(ylabel=label)
    draw_layers(figure, dict(zip(panels, drawn.values(), strict=True)), _shown(result))
    over_steps(panels[-1])


def _shown(result: Layers) -> list[str]:
    """Layers that get a colour: all, or those that move fastest and slowest."""
    names, room = result.names, len(LINES)
    if len(names) <= room:
        return names
    pace = {name: result.relative[name].now if name in result.relative else 0.0 for name in names}
    order = sorted(names, key=lambda name: pace[name])
    kept = {*order[: room // 2], *order[-(room // 2) :]}
    return [name for name in names if name in kept]


SECTION = Section(
    "layers",
    "Layer by layer",
    "Does every layer learn, and at the same pace?",
    measure=layers,
    describe=_text,
    figure=Figure(
        _draw, 5.4, "The norm of a step over that of the weights, the norm of the gradient, and the weights."
    ),
)
