"""Moving the features of an infinitely wide network is the same as changing its readout."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from .._checks import InputError

Field = Callable[[Any], Any]


def reweight_for_feature_update(
    m_hat: Field, velocity: Field, log_density: Field, step: float, carry_weights: bool = True
) -> Field:
    """The readout with which unmoved features give the function that moved features would give, to order `step^2`.

    An infinitely wide network is `f(x) = E[g(x, omega) m_hat(omega)]` over the density of `omega`. Moving every
    feature by `step * velocity(omega)` can be undone by another readout, `m_hat` less `step` times

    - `div(rho m_hat velocity) / rho`, with `carry_weights`: a neuron keeps its output weight, as in real training;
    - `m_hat div(rho velocity) / rho` without: `m_hat` is a fixed function, read where the neuron arrives.

    Args:
        m_hat: a JAX function of one `omega`, an array or a tree of arrays: the output weights.
        velocity: of `omega`, something like `omega`.
        log_density: a number, up to a constant; the density must be positive.
        step: how far features move.
        carry_weights: as above.

    Returns:
        The new readout, a function of one `omega`: `jax.vmap` takes it to many.

    Features from a standard normal density that all move by `step` to the right: the same as tilting the readout.

    >>> import everwide.training as tr, jax, jax.numpy as jnp
    >>> normal = lambda omega: -jnp.sum(omega**2) / 2
    >>> moved = tr.reweight_for_feature_update(lambda omega: 1.0, jnp.ones_like, normal, step=0.1)
    >>> jax.vmap(moved)(jnp.array([-1.0, 0.0, 2.0]))
    Array([0.9, 1. , 1.2], ...)

    Sernau, "Infinite width models that work" (2024), theorem 1; there, without the term that carries the weights.
    """

    def reweighted(omega: Any) -> Any:
        along = velocity(omega)
        _same_form(omega, along)
        _, growth = jax.jvp(log_density, (omega,), (along,))
        readout, carried = jax.jvp(lambda at: jax.tree.map(jnp.asarray, m_hat(at)), (omega,), (along,))
        loss = step * (divergence(velocity, omega) + growth)
        kept = jax.tree.map(lambda m: m * (1 - loss), readout)
        if not carry_weights:
            return kept
        return jax.tree.map(lambda m, change: m - step * change, kept, carried)

    return reweighted


def divergence(velocity: Field, omega: Any) -> jax.Array:
    """The trace of the Jacobian of a vector field: one forward pass for each number in `omega`."""
    flat, unravel = ravel_pytree(omega)

    def along(axis: jax.Array) -> jax.Array:
        _, change = jax.jvp(lambda at: ravel_pytree(velocity(unravel(at)))[0], (flat,), (axis,))
        return jnp.vdot(axis, change)

    return jnp.sum(jax.lax.map(along, jnp.eye(len(flat), dtype=flat.dtype)))


def _same_form(omega: Any, along: Any) -> None:
    wanted, came = (jax.tree.map(jnp.shape, tree) for tree in (omega, along))
    if jax.tree.structure(omega) != jax.tree.structure(along) or wanted != came:
        raise InputError(f"velocity(omega) has the form {came}, expected that of omega: {wanted}.")
