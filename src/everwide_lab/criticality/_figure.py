"""The figure of the reproduction. matplotlib is imported when somebody draws."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._report import blank_figure
from ._experiments import GRADIENT, LENGTH, TRAINED, VARIANCE_LENGTH, Measured


def draw(rows: Sequence[Measured], diagrams: Sequence[Any], curves: dict[str, dict[str, Any]], tanh_a1: float) -> Any:
    """Phase diagrams with the measured points, predictions against measurements, and paths of variances."""
    figure = blank_figure(18.0, 9.0)
    axes = figure.subplots(2, 4).ravel()
    for ax, diagram in zip(axes[:2], diagrams, strict=True):
        diagram.plot(ax)
        points = {(row.C_w, row.C_b) for row in rows if row.activation == diagram.name and row.experiment == LENGTH}
        ax.plot(*np.array(sorted(points)).T, "r.", label="measured")
    _agreement(axes[2], rows, (LENGTH, VARIANCE_LENGTH), "layers")
    _agreement(axes[3], rows, (GRADIENT,), "factor in a layer")
    _power_law(axes[4], curves["power law"], tanh_a1)
    _half_stable(axes[5], curves["half-stable"])
    _fluctuations(axes[6], curves["fluctuations"])
    _trained(axes[7], rows)
    return figure


def _agreement(ax: Any, rows: Sequence[Measured], experiments: tuple[str, ...], what: str) -> None:
    for experiment in experiments:
        chosen = [row for row in rows if row.experiment == experiment and np.isfinite(row.measured)]
        x, y, e = np.array([(row.predicted, row.measured, row.error) for row in chosen]).reshape(-1, 3).T
        ax.errorbar(x, y, yerr=e, fmt="o", markersize=4, label=experiment)
    ends = [edge(row.predicted for row in rows if row.experiment in experiments) for edge in (min, max)]
    ax.plot(ends, ends, "k:", linewidth=1)
    ax.set(xscale="log", yscale="log", xlabel=f"predicted, {what}", ylabel=f"measured, {what}")
    ax.legend()


def _power_law(ax: Any, curves: dict[str, np.ndarray], a1: float) -> None:
    for name, path in curves.items():
        depth = np.arange(1, path.shape[1])
        (line,) = ax.plot(depth, path[:, 1:].mean(0), label=f"tanh, {name}")
        ax.fill_between(depth, *np.quantile(path[:, 1:], [0.1, 0.9], axis=0), alpha=0.2, color=line.get_color())
    depth = np.arange(1, next(iter(curves.values())).shape[1])
    ax.plot(depth, 1 / (a1 * depth), "k:", label="1 / (2 depth)")
    ax.set(xscale="log", yscale="log", xlabel="depth", ylabel="variance", ylim=(1e-6, 2))
    ax.legend()


def _half_stable(ax: Any, curves: dict[str, np.ndarray]) -> None:
    for name, path in curves.items():
        style = "k:" if "infinite" in name else "-"
        ax.plot(path.mean(0), style, label=None if "infinite" in name else f"mish, {name}")
    ax.set(xlabel="depth", ylabel="variance (dotted: infinite width)")
    ax.legend()


def _fluctuations(ax: Any, curves: dict[str, Any]) -> None:
    for name, (width, estimates) in curves.items():
        depth = np.arange(1, len(estimates) + 1)
        value, error = np.array(estimates).T
        bars = ax.errorbar(depth, value, yerr=error, fmt=".", label=f"ReLU, {name}")
        ax.plot(depth, (1 + 5 / width) ** depth - 1, color=bars[0].get_color())
    ax.set(yscale="log", xlabel="depth", ylabel="relative variance (lines: prod(1 + 5/width) - 1)")
    ax.legend()


def _trained(ax: Any, rows: Sequence[Measured]) -> None:
    chosen = [row for row in rows if row.experiment == TRAINED]
    for weight in dict.fromkeys(row.C_w for row in chosen):
        here = [row for row in chosen if row.C_w == weight]
        depths = [float(row.place.split(",")[0].removeprefix("depth ")) for row in here]
        ax.errorbar(
            depths, [r.measured for r in here], yerr=[r.error for r in here], fmt="o-", label=f"C_w = {weight:.3g}"
        )
    ax.set(xlabel="depth", ylabel="accuracy on training digits")
    ax.legend()
