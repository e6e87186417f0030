"""Hyperparameters of layers: numbers that may be traced, and how they meet arrays."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .signal import ArchitectureError

Hyper = float | Float[Array, ""]


def name(layer: Any) -> str:
    """How a layer is called in messages."""
    return type(layer).__name__


def positive(layer: Any, field: str, value: Any, *, zero: bool = True) -> None:
    """Raise if a concrete hyperparameter is negative (traced ones are not looked at)."""
    if isinstance(value, int | float) and not (value >= 0 if zero else value > 0):
        bound = "at least 0" if zero else "above 0"
        raise ArchitectureError(f"{name(layer)}({field}={value!r}): {field} must be {bound}. Pass its absolute value.")


def like(value: Any, array: Array) -> Any:
    """A hyperparameter that meets arrays without widening them: Python numbers stay weakly typed."""
    return value if isinstance(value, int | float) else jnp.asarray(value, array.dtype)


def squared(value: Any, array: Array) -> Any:
    """The square of a hyperparameter, taken before it is rounded to the dtype of the array."""
    return value * value if isinstance(value, int | float) else jnp.asarray(value * value, array.dtype)
