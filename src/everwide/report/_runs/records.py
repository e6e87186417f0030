"""What was recorded of a run, as series of numbers; how they are drawn over the steps."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..._words import count
from .._page import BLUE, GREEN, GREY, ORANGE, plain_ticks

_WIDE = 20.0  # largest over smallest: from there on an axis is logarithmic
_FEW = 40  # points of a line that are marked one by one
_EVENTS = 40  # lines at events, at the most
_MOST = 1e100  # what is larger has left all scales, and is as good as infinite
_LABEL = 20  # letters of a name in a drawing
LAST = 5  # looks whose median stands for now
LINES = ((BLUE, "-"), (ORANGE, "-"), (GREEN, "-"), (BLUE, "--"), (ORANGE, "--"), (GREEN, "--"))


class Series(NamedTuple):
    """One figure over the steps, where it was recorded."""

    steps: Float[np.ndarray, " looks"]
    values: Float[np.ndarray, " looks"]

    @property
    def last(self) -> float:
        """The last value."""
        return float(self.values[-1])

    @property
    def now(self) -> float:
        """The median of the last looks: single ones are noisy."""
        return float(np.median(self.values[-LAST:]))


def series(run: Any, kind: str, name: str) -> Series:
    """A figure of all records of one kind."""
    return _collected(run.of(kind), lambda record: record.get(name))


def by_group(run: Any, kind: str, name: str | None = None) -> dict[str, Series]:
    """A figure of each layer: `groups[layer][name]`, or `groups[layer]` itself."""
    records = [record for record in run.of(kind) if isinstance(record.get("groups"), Mapping)]
    layers = dict.fromkeys(layer for record in records for layer in record["groups"])
    figures = {layer: _collected(records, lambda record, layer=layer: _inside(record, layer, name)) for layer in layers}
    return {layer: figure for layer, figure in figures.items() if len(figure.steps)}


def _inside(record: Mapping[str, Any], layer: str, name: str | None) -> Any:
    value = record["groups"].get(layer)
    return value.get(name) if name is not None and isinstance(value, Mapping) else value


def _collected(records: Iterable[Mapping[str, Any]], pick: Callable[[Mapping[str, Any]], Any]) -> Series:
    pairs = [(record["step"], value) for record in records if (value := finite(pick(record))) is not None]
    steps, values = np.array(pairs, float).reshape(-1, 2).T
    return Series(steps, values)


def finite(value: Any) -> float | None:
    """A number, or `None` for whatever else a log may hold, and for what no drawing has room for."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) <= _MOST else None


def draw(ax: Any, line: Series, *, color: str = BLUE, style: str = "-", label: str | None = None) -> None:
    """A line over the steps; single looks are marked where there are few."""
    marker = "o" if len(line.steps) < _FEW else None
    ax.plot(line.steps, line.values, style, color=color, label=label, marker=marker, markersize=2.5)


def draw_layers(figure: Any, panels: Mapping[Any, Mapping[str, Series]], shown: list[str]) -> None:
    """Lines of layers on several axes, those of `shown` by name, the others thin and grey."""
    for ax, lines in panels.items():
        for name in lines.keys() - set(shown):
            ax.plot(*lines[name], color=GREY, linewidth=0.5, alpha=0.6)
        for (color, style), name in zip(LINES, shown, strict=False):
            if name in lines:
                draw(ax, lines[name], color=color, style=style)
    top = figure.axes[0]
    handles = [top.plot([], [], style, color=color)[0] for (color, style), _ in zip(LINES, shown, strict=False)]
    if any(lines.keys() - set(shown) for lines in panels.values()):
        handles += top.plot([], [], color=GREY, linewidth=0.5)
    named(figure, handles, [*shown, "others"], "outside upper left")


def named(figure: Any, handles: list[Any], names: list[str], loc: str) -> None:
    """A legend of layers. Names are set afterwards: matplotlib would leave out those that begin with an underscore."""
    legend = figure.legend(handles, [str(at) for at in range(len(handles))], loc=loc, ncols=3)
    for text, name in zip(legend.get_texts(), names, strict=False):
        text.set_text(short(name))


def short(name: str) -> str:
    """The end of a name, by which layers differ."""
    return name if len(name) <= _LABEL else "\u2026" + name[1 - _LABEL :]


def scaled(ax: Any, values: Iterable[np.ndarray]) -> None:
    """A logarithmic axis, where all values are positive or 0 and far apart."""
    together = np.concatenate([np.zeros(0), *values])
    positive = together[together > 0]
    if len(positive) and (together >= 0).all() and positive.max() > _WIDE * positive.min():
        ax.set_yscale("log", nonpositive="mask")
        plain_ticks(ax.yaxis)


def over_steps(ax: Any) -> None:
    """The axis of steps, with whole numbers."""
    from_zero = ax.get_xlim()[1]
    ax.set(xlabel="steps", xlim=(0, max(from_zero, 1.0)))
    ax.xaxis.set_major_formatter(lambda value, _: count(value) if value == round(value) else "")


def mark(ax: Any, events: Iterable[float], *, label: str | None = None) -> None:
    """Dashed lines at these steps."""
    for at, step in enumerate(sorted(set(events))[:_EVENTS]):
        ax.axvline(step, color=ORANGE, linewidth=1, linestyle=(0, (3, 3)), label=label if at == 0 else None)
