"""Pictures of a comparison, on matplotlib axes. Imported when somebody draws."""

from typing import Any

import numpy as np

from .._axes import axes


def plot_losses(
    ax: Any, widths: tuple[int, ...], steps: tuple[int, ...], finite: np.ndarray, infinite: np.ndarray
) -> Any:
    """Losses `(widths, seeds, steps)` of the networks, mean over the seeds, and of the limit, mean over all."""
    ax = axes(ax, "table()")
    for width, losses in zip(widths, finite, strict=True):
        ax.plot(steps, losses.mean(0), label=f"width {width}")
    ax.plot(steps, infinite[-1].mean(0), color="black", linestyle="--", label="infinite width")
    ax.set(xlabel="step", ylabel="mean squared error", yscale="log")
    ax.legend()
    return ax


def plot_gaps(ax: Any, widths: tuple[int, ...], gaps: dict[str, np.ndarray], exponents: dict[str, float]) -> Any:
    """Gaps `(widths, seeds)` against the width: every seed a dot, their means a line."""
    ax = axes(ax, "table()")
    for name, values in gaps.items():
        (line,) = ax.plot(widths, values.mean(1), label=f"{name.replace('_', ' to ')}, width^{exponents[name]:.2f}")
        ax.plot(widths, values, linestyle="", marker="o", alpha=0.4, color=line.get_color())
    ax.set(xlabel="width", ylabel="largest root mean square gap", xscale="log", yscale="log")
    ax.legend()
    return ax
