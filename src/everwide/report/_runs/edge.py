"""Curvature against the edge of stability, and the layers in which it lies."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._words import count, number, percent
from .._page import BLUE, GREY, ORANGE, Fact, Figure, Section, Text
from .records import LINES, Series, by_group, draw, named, over_steps, scaled, series

_SHOWN = 5  # layers with a colour of their own
_NEAR = 0.8  # of the edge: from there on it is near


@dataclass(frozen=True, eq=False)
class Edge:
    """Sharpness, as the optimizer sees it, and the edge of its rate.

    - `sharpness`: preconditioned, where that was recorded (`preconditioned`); `plain`: not preconditioned.
    - `ratio`: of sharpness to edge; `over_since`: the step from which it is above 1, to the end of the log.
    - `shares`: of the sharpest direction that lie in each layer. `rate`: of the optimizer.
    """

    sharpness: Series
    plain: Series
    edge: Series
    ratio: Series
    preconditioned: bool
    over_since: int | None
    shares: dict[str, Series]
    rate: Series


def edge(run: Any) -> Edge | None:
    """What the log says about curvature."""
    seen, plain = series(run, "curvature", "preconditioned"), series(run, "curvature", "sharpness")
    adaptive = len(seen.steps) > 0
    sharpness = seen if adaptive else plain
    if not len(sharpness.steps):
        return None
    ratio = series(run, "curvature", "ratio")
    return Edge(
        sharpness,
        plain,
        series(run, "curvature", "edge"),
        ratio,
        adaptive and run.facts.get("optimizer") == "adam",
        _since(ratio),
        by_group(run, "curvature"),
        series(run, "vitals", "rate"),
    )


def _since(ratio: Series) -> int | None:
    below = np.flatnonzero(ratio.values <= 1)
    first = int(below[-1]) + 1 if len(below) else 0
    return int(ratio.steps[first]) if first < len(ratio.steps) else None


def _text(run: Any, result: Edge) -> Text:
    facts = [] if not len(result.ratio.steps) else [_ratio(result)]
    meaning = f"The largest curvature of the loss on the probe, up to step {count(result.sharpness.steps[-1])}"
    meaning += ", as Adam sees it: scaled by its second moments." if result.preconditioned else "."
    facts.append(Fact("Sharpness", number(result.sharpness.now), meaning))
    if len(result.rate.steps):
        told = f"Of the optimizer, at step {count(result.rate.steps[-1])}. It began with "
        facts.append(Fact("Rate", number(result.rate.last), told + f"{number(result.rate.values[0])}."))
    if result.shares:
        name, share = max(((name, line.now) for name, line in result.shares.items()), key=lambda pair: pair[1])
        meaning = f"{percent(share, 0)} of the sharpest direction lie in it."
        facts.append(Fact("Layer with most curvature", name, meaning))
    note = (
        "Sharpness comes from few products with the Hessian, so it is a lower bound of the largest eigenvalue on the "
        "rows that were looked at. These numbers are medians of the last five looks."
    )
    return Text(tuple(facts), notes=(note,))


def _ratio(result: Edge) -> Fact:
    now = result.ratio.now
    if now > 1:
        meaning = "Above 1, steps along the sharpest direction overshoot, each farther, until curvature or rate fall."
        if result.over_since is not None:
            meaning += f" It has been above 1 since step {count(result.over_since)}."
    elif now > _NEAR:
        meaning = (
            "Training is just below the edge, where it often goes by itself. At this curvature, a rate "
            f"{number(1 / now, 3)} times as large would cross it."
        )
    elif now > 0:
        meaning = (
            f"Steps along the sharpest direction are stable: at this curvature, the edge is at {number(1 / now, 2)} "
            "times the rate. Curvature often grows while the rate is small."
        )
    else:
        meaning = "No upward curvature was seen: there is no edge to cross."
    return Fact(f"Sharpness over the edge, at step {count(result.ratio.steps[-1])}", number(now), meaning)


def _draw(figure: Any, result: Edge) -> None:
    panels = figure.subplots(2 if result.shares else 1, 1, sharex=True, squeeze=False)[:, 0]
    top = panels[0]
    draw(top, result.sharpness, color=BLUE, label="sharpness")
    draw(top, result.edge, color=ORANGE, style="--", label="edge")
    scaled(top, (result.sharpness.values, result.edge.values))
    top.set(ylabel="curvature")
    figure.legend(loc="outside upper left", ncols=2)
    if result.shares:
        _stack(figure, panels[1], result)
    over_steps(panels[-1])


def _stack(figure: Any, ax: Any, result: Edge) -> None:
    """Shares of layers above each other; small ones together, in grey."""
    steps = np.unique(np.concatenate([line.steps for line in result.shares.values()]))
    at = {name: np.interp(steps, line.steps, line.values) for name, line in result.shares.items()}
    order = sorted(at, key=lambda name: -float(np.mean(at[name])))
    shown, rest = order[:_SHOWN], order[_SHOWN:]
    heights = [100 * at[name] for name in shown]
    heights += [100 * np.sum([at[name] for name in rest], axis=0)] if rest else []
    colors = [*LINES[: len(shown)], (GREY, "-")][: len(heights)]
    polygons = ax.stackplot(steps, *heights, colors=[color for color, _ in colors])
    for polygon, (_, style) in zip(polygons, colors, strict=True):
        polygon.set_alpha(0.75 if style == "-" else 0.4)
    ax.set(ylabel="share, %", ylim=(0, 100))
    named(figure, polygons, [*shown, "others"], "outside lower left")


def _tile(result: Edge) -> Fact:
    if len(result.ratio.steps):
        seen = f"at step {count(result.ratio.steps[-1])}; above 1 steps overshoot"
        return Fact("sharpness over the edge", number(result.ratio.now), seen)
    return Fact("sharpness", number(result.sharpness.now), "the largest curvature that was seen")


SECTION = Section(
    "edge",
    "Rate and curvature",
    "Is the rate too large for the curvature, and which layer is to blame?",
    measure=edge,
    describe=_text,
    figure=Figure(_draw, 4.2, "Sharpness and the edge of the rate; the layers in which the sharpest direction lies."),
    tile=_tile,
)
