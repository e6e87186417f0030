"""The figures of a report, from the numbers of its parts. No text of the data is ever drawn."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ._study._section import Section
from ._study._validation import NETWORK
from ._svg import BLUE, GREEN, GREY, INK, MUTED, ORANGE, drawn
from ._words import number

_LONG, _RAISED = 1e5, str.maketrans("0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
Numbers = Mapping[str, Any]


class Picture(NamedTuple):
    """A drawing, and the words under it."""

    svg: str
    caption: str


def figure(section: Section) -> Picture | None:
    """The figure of a part, if it has one."""
    if section.key not in _FIGURES or not section.numbers:
        return None
    draw, height, caption = _FIGURES[section.key]
    svg = drawn(section.key, caption, lambda page: draw(page, section.numbers), height)
    return Picture(svg, caption)


def _accuracy(page: Any, numbers: Numbers) -> None:
    classes = numbers["measure"] == "accuracy"
    scores, scale = numbers["scores"], 100.0 if classes else 1.0
    names = sorted(scores, key=lambda name: scores[name]["value"], reverse=classes)
    ax = page.subplots()
    for place, name in enumerate(reversed(names)):
        value, low, high = (scale * scores[name][part] for part in ("value", "low", "high"))
        colour = BLUE if name == NETWORK else GREY
        ax.plot([low, high], [place, place], color=colour, linewidth=5, alpha=0.35, solid_capstyle="round")
        ax.plot(value, place, "o", color=colour, markersize=7)
    ax.set_yticks(range(len(names)), list(reversed(names)))
    ax.tick_params(axis="y", labelcolor=INK, length=0)
    ax.set(xlabel="accuracy, %" if classes else "root mean square error", ylim=(-0.6, len(names) - 0.4))
    ax.grid(axis="y", visible=False)


def _calibration(page: Any, numbers: Numbers) -> None:
    ax = page.subplots()
    classes = "said" in numbers
    across, up = (numbers["said"], numbers["was"]) if classes else (numbers["levels"], numbers["covered"])
    low = max(0.0, min(float(np.min(across)), float(np.min(up))) - 0.05)
    ax.plot([100 * low, 100], [100 * low, 100], "--", color=GREY, linewidth=1, label="honest")
    if classes:
        sizes = np.asarray(numbers["rows_in_bin"], float)
        error = 196 * np.sqrt(np.maximum(up * (1 - up), 1e-4) / sizes)
        ax.errorbar(100 * across, 100 * up, error, fmt="none", ecolor=BLUE, alpha=0.35, linewidth=4)
    ax.plot(100 * across, 100 * up, "o-", color=BLUE, label="this network")
    words = ("how sure it said it was, %", "how often it was right, %") if classes else ("should hold, %", "held, %")
    ax.set(xlabel=words[0], ylabel=words[1], xlim=(100 * low, 101), ylim=(100 * low, 101))
    ax.legend(loc="upper left")


def _forecast(page: Any, numbers: Numbers) -> None:
    ax, classes = page.subplots(), "accuracy" in numbers
    rows, unit = numbers["n"], numbers["unit"]
    if classes:
        middle, low, high = (100 * numbers[name] for name in ("accuracy", "accuracy_low", "accuracy_high"))
        measured = 100 * (1 - numbers["measured"])
    else:
        middle, low, high = (unit * np.sqrt(numbers[name]) for name in ("error", "low", "high"))
        measured = unit * np.sqrt(numbers["measured"])
    ax.fill_between(rows, low, high, color=BLUE, alpha=0.18, linewidth=0, label="90 % interval")
    ax.plot(rows, middle, color=BLUE, label="forecast")
    ax.plot(numbers["measured_sizes"], measured, "o", color=INK, markersize=3.5, label="measured")
    ax.axvline(numbers["rows"], color=ORANGE, linewidth=1.2, label="your rows")
    ax.axvline(numbers["trusted_to"], color=GREY, linewidth=1.2, linestyle=":", label="trusted to here")
    ax.set(xscale="log", xlabel="rows to learn from", ylabel="accuracy, %" if classes else "root mean square error")
    ax.set_xlim(rows[0], rows[-1])
    _plainly(ax.xaxis)
    if classes:
        ax.set_ylim(top=min(100.5, ax.get_ylim()[1]))
    page.legend(loc="outside upper left", ncols=3)


def _modes(page: Any, numbers: Numbers) -> None:
    above, below = page.subplots(2, 1, sharex=True)
    values = np.asarray(numbers["eigenvalues"])
    order = np.arange(1, len(values) + 1)
    seen = slice(0, max(1, int(numbers["rank"])))
    above.plot(order[seen], values[seen], color=ORANGE)
    above.set(yscale="log", ylabel="eigenvalue")
    below.fill_between(order, 100 * numbers["target_power"], color=BLUE, alpha=0.15, linewidth=0)
    below.plot(order, 100 * numbers["target_power"], color=BLUE, label="of the target")
    below.plot(order, 100 * numbers["kernel_power"], color=ORANGE, linewidth=1.2, label="of the kernel")
    below.axvline(numbers["effective_dimension"], color=GREY, linestyle=":", linewidth=1.2, label="effective modes")
    below.set(xscale="log", xlabel="mode, strongest first", ylabel="carried so far, %", ylim=(0, 103))
    below.set_xlim(1, max(2, len(values)))
    page.legend(loc="outside upper left", ncols=3)
    _plainly(above.yaxis, below.xaxis)


def _training(page: Any, numbers: Numbers) -> None:
    ax = page.subplots()
    steps = np.asarray(numbers["steps"])
    shown = np.maximum(numbers["train"], 1e-4)
    ax.plot(steps, shown, color=ORANGE, label="training rows")
    ax.plot(steps, numbers["held"], color=BLUE, label="held-out rows")
    ax.plot(numbers["best_steps"], numbers["best_held_out_error"], "o", color=BLUE, markersize=6, label="lowest")
    ax.set(xscale="log", yscale="log", xlabel="steps of gradient descent", ylabel="error (1: nothing learned)")
    ax.set_ylim(bottom=max(5e-4, min(shown.min(), numbers["best_held_out_error"]) / 2))
    ax.legend(loc="lower left")
    _plainly(ax.xaxis, ax.yaxis)


def _phase(page: Any, numbers: Numbers) -> None:
    ax = page.subplots()
    line, here, point = np.asarray(numbers["line"]), (numbers["C_w"], numbers["C_b"]), numbers["critical"]
    right = 2 * max(here[0], point.get("C_w", 0.0), 0.5)
    top = 2 * max(here[1], point.get("C_b", 0.0), 0.1)
    inside = line[(line[:, 0] <= right) & (line[:, 1] <= top)] if len(line) else line
    if len(inside) > 1 and np.ptp(inside[:, 1]) > 0:
        ax.plot(inside[:, 0], inside[:, 1], color=GREEN, label="critical line")
        _sides(ax, "ordered", "chaotic")
    elif "C_w" in point:
        ax.axvline(point["C_w"], color=GREEN, linewidth=1.2)
        _sides(ax, "ordered", "signals grow")
    if "C_w" in point:
        ax.plot(point["C_w"], point["C_b"], "D", color=GREEN, markersize=8, label="critical point", clip_on=False)
    ax.plot(*here, "o", color=BLUE, markersize=9, label="this network", clip_on=False)
    ax.set(xlabel="variance of weights", ylabel="variance of biases", xlim=(0, right), ylim=(-0.02 * top, top))
    page.legend(loc="outside upper left", ncols=3)


def _sides(ax: Any, left: str, right: str) -> None:
    ax.text(0.03, 0.93, left, transform=ax.transAxes, color=MUTED, va="top")
    ax.text(0.97, 0.93, right, transform=ax.transAxes, color=MUTED, ha="right", va="top")


def _width(page: Any, numbers: Numbers) -> None:
    ax = page.subplots()
    steps = np.asarray(numbers["steps"])
    ax.plot(steps, numbers["loss_infinite"], "--", color=INK, linewidth=1.4, label="infinite width, predicted")
    ax.plot(steps, numbers["loss_finite"], color=BLUE, label="width 256, trained")
    ax.set(xscale="symlog", yscale="log", xlabel="steps of gradient descent", ylabel="training error")
    ax.set_xlim(0, steps[-1])
    ax.legend(loc="lower left")
    _plainly(ax.xaxis, ax.yaxis)


def _tick(value: float) -> str:
    """A number, or a power of ten where that is shorter."""
    if value < _LONG:
        return number(value, 2)
    power = round(math.log10(value))
    return "10" + str(power).translate(_RAISED) if math.isclose(value, 10.0**power) else ""


def _plainly(*axes: Any) -> None:
    """Ticks of logarithmic axes as numbers, without those between."""
    for axis in axes:
        axis.set_major_formatter(lambda value, _: _tick(value))
        axis.set_minor_formatter(lambda value, _: "")


_FIGURES = {
    "accuracy": (_accuracy, 2.1, "Dots are cross-validated scores, bars their 95\u202f% intervals."),
    "calibration": (_calibration, 3.2, "On the dashed line it is as good as it says; below, it is too sure."),
    "forecast": (_forecast, 3.1, "The forecast beyond your rows, with the interval that should hold the truth."),
    "modes": (_modes, 4.0, "Above, how strong each mode is; below, how much of the target the modes carry so far."),
    "training": (_training, 3.1, "Predicted, not run: the error on training rows, and on rows that were held out."),
    "phase": (_phase, 2.9, "Left of the critical line depth blurs rows together, right of it depth scatters them."),
    "width": (_width, 2.9, "If the lines lie on each other, the theory speaks for the network that you will train."),
}
