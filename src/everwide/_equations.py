"""Equations of JAX programs, one at a time."""

from typing import Any

from jax.extend.core import JaxprEqn


def bind(eqn: JaxprEqn, arrays: list[Any]) -> list[Any]:
    """Run one equation."""
    given = eqn.primitive.get_bind_params(eqn.params)
    functions, params = given if isinstance(given, tuple) else ((), given)  # JAX before 0.9 returned a pair
    results = eqn.primitive.bind(*functions, *arrays, **params)
    return list(results) if eqn.primitive.multiple_results else [results]
