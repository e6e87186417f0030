"""Numbers that people pass to formulas: checked where they are known, left alone where they are traced."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import InputError


def real(value: Any) -> Float[Array, "..."]:
    """A floating-point array; Python numbers stay weakly typed, so that they widen nothing."""
    array = jnp.asarray(float(value) if isinstance(value, int | float) else value)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(jnp.result_type(float))


def known(value: Any) -> np.ndarray | None:
    """The value on the host, or `None` where JAX traces it."""
    try:
        return np.asarray(value)
    except jax.errors.TracerArrayConversionError:
        return None


def non_negative(value: Any, label: str) -> Float[Array, "..."]:
    """A real number, 0 or more."""
    values = known(value)
    if values is not None and not np.all(values >= 0):
        raise InputError(f"{label}={value}: expected 0 or more.")
    return real(value)


def positive(value: Any, label: str) -> Float[Array, "..."]:
    """A real number above 0."""
    values = known(value)
    if values is not None and not np.all(values > 0):
        raise InputError(f"{label}={value}: expected a number above 0.")
    return real(value)
