"""The noise of batches."""

import math
from dataclasses import dataclass
from typing import Any

from ..._words import count, number
from .._page import BLUE, ORANGE, Fact, Figure, Section, Text
from .records import Series, draw, finite, over_steps, scaled, series


@dataclass(frozen=True, eq=False)
class Noise:
    """`scale`: rows of a batch at which noise and signal of its gradient are equal. `batch_size`: where it is known."""

    scale: Series
    batch_size: float | None


def noise(run: Any) -> Noise | None:
    """What the log says about noise."""
    every, sizes = series(run, "noise", "scale"), series(run, "noise", "batch_size")
    scale = Series(every.steps[every.values > 0], every.values[every.values > 0])
    told = sizes.last if len(sizes.steps) else finite(run.facts.get("batch_size"))
    return Noise(scale, told if told is not None and told > 0 else None) if len(scale.steps) else None


def _text(run: Any, result: Noise) -> Text:
    now, size = result.scale.now, result.batch_size
    meaning = "A batch of that many rows has as much noise as signal in its gradient."
    if size is not None:
        meaning += (
            f" Yours have {count(size)}: the noise of their gradients is {number(math.sqrt(now / size), 2)} times as "
            "large as the signal."
        )
    note = "Told from parts of the probe, and itself noisy: the median of the last five looks that could tell."
    return Text((Fact(f"Noise scale, at step {count(result.scale.steps[-1])}", _rows(now), meaning),), notes=(note,))


def _rows(scale: float) -> str:
    return f"{number(scale, 2)} rows"


def _draw(figure: Any, result: Noise) -> None:
    ax = figure.subplots()
    draw(ax, result.scale, color=BLUE, label="noise scale")
    if result.batch_size is not None:
        ax.axhline(result.batch_size, color=ORANGE, linestyle="--", linewidth=1.4, label="batch size")
    scaled(ax, (result.scale.values,))
    ax.set(ylabel="rows")
    over_steps(ax)
    figure.legend(loc="outside upper left", ncols=2)


def _tile(result: Noise) -> Fact:
    beside = "" if result.batch_size is None else f"; batches have {count(result.batch_size)}"
    return Fact("noise scale", _rows(result.scale.now), f"where noise and signal are equal{beside}")


SECTION = Section(
    "noise",
    "Noise of batches",
    "Are batches large enough?",
    measure=noise,
    describe=_text,
    figure=Figure(_draw, 2.8, "The batch at which noise and signal of a gradient are equal, and the one that is used."),
    tile=_tile,
)
