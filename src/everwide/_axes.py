"""Matplotlib's axes, for every picture of a result. Imported when somebody draws."""

from typing import Any


def axes(ax: Any, numbers: str) -> Any:
    """The given axes, or those of a new figure; `numbers`: where they are, for people without matplotlib."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as fault:
        raise ImportError(f"Drawing needs matplotlib: pip install matplotlib. The numbers are in {numbers}.") from fault
    return plt.subplots()[1]
