"""Losses over time, and what is left of curvature and errors at every rate."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._report import blank_figure
from ._claims import EDGE, Swept
from ._sweep import SHOWN, End

_SHOWN_MULTIPLES = (1.0, 1.5, 2.645, 3.042, 3.498, 6.118)


def draw(swept: Sequence[Swept]) -> Any:
    """Four panels."""
    figure = blank_figure(11.0, 8.0)
    first, second, third, fourth = figure.subplots(2, 2).ravel()
    widest = [one for one in swept if one.width == swept[-1].width]
    _losses(first, next((one for one in widest if one.kind.activation == "relu"), widest[0]))
    _curvatures(second, widest)
    _limits(third, swept)
    _errors(fourth, widest)
    return figure


def _losses(ax: Any, one: Swept) -> None:
    for multiple in _SHOWN_MULTIPLES:
        place = int(np.argmin(np.abs(one.multiples - multiple)))
        ax.plot(range(SHOWN), one.runs.losses[0, place], label=f"{one.multiples[place]:.3g}/lambda")
    ax.set(yscale="log", ylim=(1e-2, 1e3), xlabel="step", ylabel="loss / first loss", title=f"{one.kind}, {one.width}")
    ax.legend(fontsize="small")


def _curvatures(ax: Any, widest: Sequence[Swept]) -> None:
    for one in widest:
        alive = np.where(np.isin(one.runs.ends(), (End.LEARNED, End.SLOW)), one.runs.curvature_end, np.nan)
        ratios = alive / one.runs.curvature
        told = np.isfinite(ratios).any(0)
        ax.plot(one.multiples[told], np.nanmedian(ratios[:, told], 0), marker="o", markersize=3, label=str(one.kind))
    grid = np.geomspace(1, swept_to(widest), 50)
    ax.plot(grid, EDGE / grid, "k--", label="2 / rate")
    ax.set(xscale="log", yscale="log", xlabel="rate, 1/lambda", ylabel="lambda at the end / lambda")
    ax.set_title(f"curvature, width {widest[0].width}")
    ax.legend(fontsize="small")


def swept_to(widest: Sequence[Swept]) -> float:
    """The largest rate at which something still learned."""
    return max(
        float(one.multiples[np.isin(one.runs.ends(), (End.LEARNED, End.SLOW)).any(0)].max(initial=EDGE))
        for one in widest
    )


def _limits(ax: Any, swept: Sequence[Swept]) -> None:
    kinds = list(dict.fromkeys(one.kind for one in swept))
    widths = list(dict.fromkeys(one.width for one in swept))
    for one in swept:
        place = kinds.index(one.kind) + 0.15 * (widths.index(one.width) - (len(widths) - 1) / 2)
        limits = one.limits()
        style = {"linestyle": "", "marker": "o", "markersize": 4, "alpha": 0.6, "color": f"C{widths.index(one.width)}"}
        ax.plot(
            np.full(len(limits), place), limits, label=f"width {one.width}" if one.kind == kinds[0] else None, **style
        )
    for level in (EDGE, 4.0, 12.0):
        ax.axhline(level, color="black", linewidth=0.6, linestyle=":")
    ax.set_xticks(range(len(kinds)), [str(kind) for kind in kinds], fontsize="small")
    ax.set(yscale="log", ylabel="limit, 1/lambda", title="where training fails (lines: 2, 4, 12)")
    ax.legend(fontsize="small")


def _errors(ax: Any, widest: Sequence[Swept]) -> None:
    for one in widest:
        learned = np.where(one.runs.ends() == End.LEARNED, one.runs.test, np.nan)
        told = np.isfinite(learned).any(0)
        ax.plot(one.multiples[told], np.nanmean(learned[:, told], 0), marker="o", markersize=3, label=str(one.kind))
    ax.axvline(EDGE, color="black", linewidth=0.6, linestyle=":")
    ax.set(xscale="log", xlabel="rate, 1/lambda", ylabel="test rows on the wrong side")
    ax.set_title("at the same training loss")
    ax.legend(fontsize="small")
