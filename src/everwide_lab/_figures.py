"""Figures of reproductions. matplotlib is imported when somebody draws."""

from typing import Any

import numpy as np

Losses = dict[str, np.ndarray]


def losses_by_width(widths: tuple[int, ...], losses: Losses) -> Any:
    """Losses `(widths, seeds)`: means as lines, seeds as dots."""
    figure = _figure(6.4, 4.4)
    ax = figure.subplots()
    for name, values in losses.items():
        _line(ax, widths, values, name)
    ax.set(xscale="log", xlabel="width of the MLP blocks", ylabel="test loss, nats a byte")
    _widths_on_axis(ax, widths)
    ax.legend()
    return figure


def gaps_by_time_and_width(comparisons: dict[str, Any], reports: dict[str, str]) -> Any:
    """For each regime (a column): losses over time, gaps over time at the largest width, gaps against the width."""
    figure = _figure(4.2 * len(comparisons), 10.0)
    columns = figure.subplots(3, len(comparisons), squeeze=False).T
    for (name, found), (first, second, third) in zip(comparisons.items(), columns, strict=True):
        _losses_over_time(first, found)
        first.set(title=name, ylabel=reports[name])
        _gaps_over_time(second, found)
        found.plot_gaps(third)
        _widths_on_axis(third, found.widths)
    return figure


def _losses_over_time(ax: Any, found: Any) -> None:
    widest = len(found.widths) - 1
    steps = found.steps
    ax.plot(steps, found.curves.loss_finite[0].mean(0), label=f"width {found.widths[0]}")
    ax.plot(steps, found.curves.loss_finite[widest].mean(0), label=f"width {found.widths[widest]}")
    ax.plot(steps, found.curves.loss_linearized[widest].mean(0), ":", label=f"width {found.widths[widest]}, linearized")
    ax.plot(steps, found.curves.loss_infinite[widest].mean(0), "k--", label="infinite width")
    ax.set(xscale="symlog", yscale="log", xlabel="step")
    ax.legend()


def _gaps_over_time(ax: Any, found: Any) -> None:
    for place in (0, len(found.widths) - 1):
        for name, style in (("gap_infinite", "-"), ("gap_linearized", ":")):
            values = getattr(found.curves, name)[place].mean(0)
            label = f"width {found.widths[place]}, {name.replace('gap_', 'to ')}"
            ax.plot(found.steps[1:], values[1:], style, color=f"C{int(place > 0)}", label=label)
    ax.set(xscale="log", yscale="log", xlabel="step", ylabel="rms gap of test outputs")
    ax.legend()


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as fault:
        raise ImportError("Drawing needs matplotlib: pip install matplotlib. The numbers are in table().") from fault
    return Figure(figsize=(width, height), layout="constrained")  # without pyplot: no window, no state


def _line(ax: Any, widths: tuple[int, ...], values: np.ndarray, name: str) -> None:
    (line,) = ax.plot(widths, values.mean(1), label=name)
    ax.plot(widths, values, linestyle="", marker="o", markersize=3, alpha=0.4, color=line.get_color())


def _widths_on_axis(ax: Any, widths: tuple[int, ...]) -> None:
    ax.set_xticks(widths, [str(width) for width in widths])
    ax.set_xticks([], minor=True)
