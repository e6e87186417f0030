"""A picture of a forecast."""

from typing import Any

from .._axes import axes


def plot_forecast(ax: Any, found: Any) -> Any:
    """On logarithmic axes."""
    ax = axes(ax, "table()")
    order = found.n.argsort()
    n = found.n[order]
    ax.fill_between(n, found.low[order], found.high[order], alpha=0.2, color="C0", label=f"{found.level:.0%} interval")
    ax.plot(n, found.error[order], color="C0", label="forecast")
    measured = found.measured
    ax.plot(measured.sizes, measured.errors.mean(0), "o", color="C1", label=f"measured inside {found.rows} rows")
    ax.axvline(found.trusted_to, color="0.6", linestyle=":", label="trusted to here")
    ax.set(xscale="log", yscale="log", xlabel="rows", ylabel="mean squared error on new rows")
    ax.legend(frameon=False)
    return ax
