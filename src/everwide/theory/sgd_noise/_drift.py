"""The entropic force: noise in stiff directions pushes along flat ones, to where the loss is wider."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..._checks import InputError, finite_array, positive, whole


class EntropicDrift(NamedTuple):
    """Made by `entropic_drift`."""

    places: Float[np.ndarray, "looks k"]
    curvatures: Float[np.ndarray, "looks m"]


def entropic_drift(
    curvature: Callable[[Any], Any], start: Any, rate: float, *, temperature: float, steps: int
) -> EntropicDrift:
    """Where descent in batches drifts along the valley of a loss, on average.

    Across the valley, the loss is `1/2 sum_j h_j(z) w_j^2`, with curvatures that change along it. Noise keeps the mean
    of `w_j^2` at `rate * temperature / (2 - rate h_j)`; so the loss has a slope along the valley, although its bottom
    is flat, and each step goes by `-rate / 2 sum_j <w_j^2> grad h_j` to where it is wider: of second order in the rate.
    `w` must settle faster than `z` moves.

    Args:
        curvature: a JAX function of the place `z` in the valley, `(k,)`, with the curvatures across it, `(m,)`.
        start: the first place, `(k,)`.
        rate: the learning rate; below 2 over all curvatures.
        temperature: the covariance of the gradients of batches, in units of the Hessian.
        steps: of descent.

    Returns:
        `places` `(steps + 1, k)` and `curvatures` `(steps + 1, m)`.

    >>> from everwide.theory import sgd_noise
    >>> drift = sgd_noise.entropic_drift(lambda z: 2 + 2 * z**2, [1.0], 0.02, temperature=2.0, steps=2000)
    >>> drift.places[[0, 1000, 2000], 0].round(3)
    array([1.   , 0.438, 0.193])

    Wei and Schwab 2019, How noise affects the Hessian spectrum in overparameterized neural networks.
    """
    speed, heat, first = positive(rate, "rate"), positive(temperature, "temperature"), finite_array(start, "start")
    if first.ndim != 1:
        raise InputError(f"start has shape {first.shape}, expected (k,): the coordinates of a place in the valley.")

    def step(z: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
        across, slopes = jnp.asarray(curvature(z)), jax.jacfwd(curvature)(z)
        spread = speed * heat / (2 - speed * across)
        return z - speed / 2 * spread @ slopes, (z, across)

    with jax.enable_x64(True):
        shape = jax.eval_shape(curvature, jnp.asarray(first)).shape
        if len(shape) != 1:
            raise InputError(f"curvature returns an array of shape {shape}, expected (m,): one for each direction.")
        _, (places, curvatures) = lax.scan(step, jnp.asarray(first), length=whole(steps, "steps") + 1)
    course = EntropicDrift(np.asarray(places), np.asarray(curvatures))
    inside = (course.curvatures > 0) & (course.curvatures < 2 / speed)
    if not (inside.all() and np.isfinite(course.places).all()):
        at = int(np.argmin(inside.all(1)))
        raise InputError(
            f"After {at} steps curvatures are {course.curvatures[at]}: expected them above 0 and below 2 / rate, "
            f"{2 / speed:.6g}. Take a smaller rate, or fewer steps."
        )
    return course
