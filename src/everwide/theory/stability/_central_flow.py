"""Gradient descent at the edge of stability, without its swings: the flow that runs through their middle."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from ..._checks import InputError, positive, whole
from ...spectral import lanczos
from ._edge import edge

_LANCZOS = 16  # products with the Hessian for a leading eigenvector, from that of the step before
_MIXED = 0.1  # of a random vector, so that another eigenvector can take the lead
_ROUNDS = 4  # directions that may be over the edge at a time
_SLACK = 1e-3  # of the edge: after a step back, that much over it is on it


class CentralFlow(NamedTuple):
    """Made by `central_flow`."""

    params: PyTree
    losses: Float[np.ndarray, " looks"]
    mean_losses: Float[np.ndarray, " looks"]
    curvatures: Float[np.ndarray, " looks"]
    variances: Float[np.ndarray, " looks"]


class _Place(NamedTuple):
    """Flat parameters, the leading eigenvector of the Hessian there, and the variance of swings in the last step."""

    flat: Float[Array, " p"]
    vector: Float[Array, " p"]
    variance: Float[Array, ""]


def central_flow(value: Callable[[Any], Any], params: Any, rate: float, *, steps: int) -> CentralFlow:
    """Where gradient descent is on average over its swings, once the curvature has come to the edge.

    It is gradient flow that may not leave the region where the curvature is below `2 / rate`: at its border, swings
    along the leading eigenvectors, of a variance that follows, push it along. The mean of the loss over the swings is
    higher than in their middle, by the variance over the rate. Small networks of tanh were followed so for thousands of
    steps, the mean loss to some 10 %, where gradient flow goes elsewhere; with large swings, of few steps or after a
    spike, it is off by up to a factor of two. It is for descent by all rows, and not for cross-entropy that is fitted.

    Args:
        value: the loss as a JAX function of the parameters alone, twice differentiable; of all rows.
        params: with which training begins, a pytree.
        rate: the learning rate.
        steps: of descent; each costs about as much as a hundred, so this is for small networks.

    Returns:
        `params`: in the end; before the first step and after each, `losses`: in the middle of the swings,
        `mean_losses`: on average over them, `curvatures`: the largest eigenvalue of the Hessian, `variances`: of the
        swings, all directions together.

    >>> import jax.numpy as jnp
    >>> from everwide.theory import stability
    >>> value = lambda w: (w[0] * w[1] - 1) ** 2 / 2  # gradient flow would end at a curvature of 4.12
    >>> flow = stability.central_flow(value, jnp.array([1.9, 0.1]), 0.5, steps=40)
    >>> flow.curvatures[[0, -1]].round(1), flow.losses[[0, -1]].round(2)
    (array([3.7, 3.9]), array([0.33, 0.  ]))

    Cohen et al. 2024, Understanding optimization in deep learning with central flows.
    """
    speed, limit = positive(rate, "rate"), edge(rate)
    flat, restore = ravel_pytree(params)
    if not jnp.issubdtype(flat.dtype, jnp.floating) or not flat.size:
        raise InputError(f"params holds {flat.size} numbers of {flat.dtype}: expected real ones.")

    def loss(at: Array) -> Array:
        return jnp.asarray(value(restore(at)))

    if jax.eval_shape(loss, flat).shape != ():
        raise InputError(f"value returns an array of shape {jax.eval_shape(loss, flat).shape}, expected one number.")
    end, numbers = _followed(loss, flat, whole(steps, "steps"), speed, limit)
    losses, curvatures, variances = (np.asarray(part, np.float64) for part in numbers)
    if not np.isfinite(losses).all():
        raise InputError(f"The loss becomes {losses[~np.isfinite(losses)][0]}: scale the data, or lower the rate.")
    return CentralFlow(restore(end), losses, losses + variances / speed, curvatures, variances)


def _followed(loss: Callable[[Array], Array], flat: Array, steps: int, rate: float, limit: float) -> tuple[Array, Any]:
    """The last parameters, and losses, curvatures and variances at all steps."""
    slope, other = jax.grad(loss), _MIXED * jr.normal(jr.key(0), flat.shape, flat.dtype) / flat.size**0.5

    def leading(at: Array, vector: Array) -> tuple[Array, Array]:
        product = jax.linearize(slope, at)[1]
        shifted = lanczos(lambda v: product(v) + limit * v, vector + other, _LANCZOS)  # what is negative stays small
        size, best = shifted.extreme()
        return size - limit, best

    def back(here: _Place, curvature: Array) -> _Place:
        """To the edge along the slope of the curvature."""
        turn = jax.grad(lambda at: here.vector @ jax.jvp(slope, (at,), (here.vector,))[1])(here.flat)
        size = (curvature - limit) / jnp.sum(turn**2)
        return _Place(here.flat - size * turn, here.vector, here.variance + 2 * size / rate)

    def over(state: tuple[_Place, Array, Array]) -> Array:
        _, curvature, rounds = state
        return (curvature > jnp.where(rounds > 1, 1 + _SLACK, 1) * limit) & (rounds <= _ROUNDS)

    def again(state: tuple[_Place, Array, Array]) -> tuple[_Place, Array, Array]:
        """First to see how sharp it is, then back to the edge."""
        place, curvature, rounds = state
        moved = lax.cond(rounds > 0, back, lambda same, _: same, place, curvature)
        curvature, vector = leading(moved.flat, moved.vector)
        return moved._replace(vector=vector), curvature, rounds + 1

    def step(here: _Place, _: None) -> tuple[_Place, tuple[Array, Array, Array]]:
        onward = here._replace(flat=_flowed(slope, here.flat, rate), variance=jnp.zeros((), flat.dtype))
        unseen = onward, jnp.asarray(jnp.inf, flat.dtype), jnp.zeros((), jnp.int32)
        place, curvature, _rounds = lax.while_loop(over, again, unseen)
        return place, (loss(place.flat), curvature, place.variance)

    first, vector = leading(flat, jnp.ones_like(flat))
    start = _Place(flat, vector, jnp.zeros((), flat.dtype))
    run = jax.jit(lambda begin: lax.scan(step, begin, length=steps))
    end, course = run(start)
    return end.flat, tuple(
        jnp.append(jnp.asarray(a, b.dtype), b) for a, b in zip((loss(flat), first, 0.0), course, strict=True)
    )


def _flowed(slope: Callable[[Array], Array], at: Array, rate: float) -> Array:
    """Gradient flow over a time of `rate`, by a step of Runge and Kutta, which is stable up to the edge and beyond."""
    first = slope(at)
    second = slope(at - rate / 2 * first)
    third = slope(at - rate / 2 * second)
    return at - rate / 6 * (first + 2 * second + 2 * third + slope(at - rate * third))
