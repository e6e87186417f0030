"""Gradient descent, seen from the outputs."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import InputError
from ._numbers import real


def function_space_step(kernel: Any, gradient: Any, rate: float | Array) -> Float[Array, "n1 *outputs"]:
    """By how much the outputs move in one step of gradient descent: `-rate K dL/df`, up to terms in `rate**2`.

    - `kernel`: the tangent kernel of the examples one looks at with those of the loss, `(n1, n)`; with outputs,
      `(n1, n, outputs, outputs)`.
    - `gradient`: `dL/df`, the derivative of the loss by the outputs, `(n,)` or `(n, outputs)`.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import function_space_step
    >>> f, y = jnp.array([0.0, 0.0]), jnp.array([1.0, 3.0])
    >>> function_space_step(jnp.eye(2), f - y, 0.5)  # of 1/2 sum (f - y)^2
    Array([0.5, 1.5], dtype=float...)
    """
    k, g = real(kernel), real(gradient)
    _require_fit(k, g, ("kernel", "gradient"))
    moved = k @ g if k.ndim == 2 else jnp.einsum("ijab,jb->ia", k, g)
    return -_weak(rate, moved) * moved


def influence(ntk: Any, residual: Any, rate: float | Array) -> Float[Array, "n1 n *outputs"]:
    """By how much a step on example `j` alone moves the output of example `i`: `-2 rate residual_j K_ij`.

    The loss of one example is `(f - y)^2`. Examples with orthogonal gradients leave each other alone.

    - `ntk`: `(n1, n)`; with outputs, `(n1, n, outputs, outputs)`.
    - `residual`: `f - y` of the `n` examples, `(n,)` or `(n, outputs)`.

    >>> import jax.numpy as jnp
    >>> from everwide.linearization import influence
    >>> influence(jnp.array([[1.0, 0.5]]), jnp.array([1.0, -1.0]), 0.1)
    Array([[-0.2,  0.1]], dtype=float...)
    """
    k, r = real(ntk), real(residual)
    _require_fit(k, r, ("ntk", "residual"))
    shared = k.ndim == 2
    moved = k.reshape(*k.shape, *(1,) * (r.ndim - 1)) * r if shared else jnp.einsum("ijab,jb->ija", k, r)
    return -2 * _weak(rate, moved) * moved


def _require_fit(kernel: Array, values: Array, labels: tuple[str, str]) -> None:
    full = kernel.ndim == 4 and values.ndim == 2 and kernel.shape[1:] == (*values.shape, values.shape[1])
    shared = kernel.ndim == 2 and values.ndim in (1, 2) and kernel.shape[1] == values.shape[0]
    if not (full or shared):
        raise InputError(
            f"{labels[0]} {kernel.shape} and {labels[1]} {values.shape} do not fit together: expected (n1, n) with "
            "(n,) or (n, outputs), or (n1, n, outputs, outputs) with (n, outputs)."
        )


def _weak(rate: float | Array, array: Array) -> float | Array:
    return rate if isinstance(rate, int | float) else jnp.asarray(rate, array.dtype)
