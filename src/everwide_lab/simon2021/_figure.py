"""Predictions as lines, measurements as marks."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._figures import _figure
from ._kernel import KERNEL, Measured

_MARKS = ("o", "^", "s", "D", "v", "P")


def predicted_and_measured(rows: Sequence[Measured]) -> Any:
    """For each domain (a column): learnabilities above, errors below, against the number of examples."""
    domains = list(dict.fromkeys(row.domain for row in rows))
    figure = _figure(3.6 * len(domains), 7.0)
    axes = figure.subplots(2, len(domains), squeeze=False)
    for domain, (upper, lower) in zip(domains, axes.T, strict=True):
        mine = [row for row in rows if row.domain == domain]
        _draw(upper, mine, "learnability")
        _draw(lower, mine, "error")
        upper.set(title=domain, xscale="log")
        lower.set(xscale="log", yscale="log", ylim=(1e-4, 6), xlabel="training examples")
    axes[0][0].set_ylabel("learnability")
    axes[1][0].set_ylabel("test error / power of the target")
    _legend(axes[0][0], list(dict.fromkeys(row.width for row in rows)))
    return figure


def _draw(ax: Any, rows: list[Measured], quantity: str) -> None:
    widths = list(dict.fromkeys(row.width for row in rows))
    for number, target in enumerate(dict.fromkeys(row.target for row in rows)):
        mine = [row for row in rows if row.target == target]
        line = [row for row in mine if row.width == KERNEL]
        predicted = [getattr(row, f"predicted_{quantity}") for row in line]
        ax.plot([row.n for row in line], predicted, color=f"C{number}", label=target)
        for place, width in enumerate(widths):
            chosen = [row for row in mine if row.width == width]
            values = [getattr(row, quantity) for row in chosen]
            means, errors = [np.mean(v) for v in values], [np.std(v) / len(v) ** 0.5 for v in values]
            filled = f"C{number}" if width == KERNEL else "none"
            style = {"linestyle": "", "marker": _MARKS[place % len(_MARKS)], "markersize": 5, "color": f"C{number}"}
            ax.errorbar([row.n for row in chosen], means, errors, markerfacecolor=filled, elinewidth=0.8, **style)
    if quantity == "error":
        ax.legend(fontsize="small")


def _legend(ax: Any, widths: list[str]) -> None:
    """What the marks mean."""
    for place, width in enumerate(widths):
        name = "exact kernel" if width == KERNEL else f"width {width}"
        filled = "black" if width == KERNEL else "none"
        mark = {"marker": _MARKS[place % len(_MARKS)], "color": "black", "markerfacecolor": filled}
        ax.plot([], [], linestyle="", label=name, **mark)
    ax.plot([], [], color="black", label="predicted")
    handles, labels = ax.get_legend_handles_labels()
    kept = [(h, name) for h, name in zip(handles, labels, strict=True) if not name.startswith(("level", "0-4"))]
    ax.legend(*zip(*kept, strict=True), fontsize="small")
