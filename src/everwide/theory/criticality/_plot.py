"""Pictures of phase diagrams, on matplotlib axes. Imported when somebody draws."""

from typing import Any

import numpy as np

from ..._axes import axes


def plot_phases(
    ax: Any, name: str, weights: np.ndarray, biases: np.ndarray, lengths: np.ndarray, line: np.ndarray
) -> Any:
    """Depth scales of correlations over `C_w` and `C_b`, capped where they are infinite, and the critical line."""
    if weights.size < 2 or biases.size < 2 or weights.ndim != 1 or biases.ndim != 1:
        raise ValueError(
            f"A picture needs at least two values of C_w and of C_b, got arrays of shape {weights.shape} and "
            f"{biases.shape}. Pass C_w=np.linspace(...), C_b=np.linspace(...) to phase_diagram."
        )
    ax = axes(ax, "the fields")
    shown = np.log10(np.clip(lengths, 0.1, 100.0))
    mesh = ax.pcolormesh(weights, biases, shown, shading="nearest", cmap="viridis")
    ax.figure.colorbar(mesh, ax=ax, label="log10 depth scale of correlations (at most 2)")
    ax.plot(line[:, 0], line[:, 1], color="white", linewidth=2, label="chi_perp = 1")
    if len(line) and np.ptp(line[:, 0]) < 1e-6:
        ax.plot(line[0, 0], line[0, 1], "o", color="white")
    ax.set(xlabel="C_w", ylabel="C_b", title=name)
    ax.set(xlim=(weights.min(), weights.max()), ylim=(biases.min(), biases.max()))
    return ax
