"""Warnings that point at the line of the user."""

import sys
import warnings

_OURS = ("everwide", "equinox", "jaxtyping", "jax", "beartype")


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the first frame that is not of this library, nor of what it is built on."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
