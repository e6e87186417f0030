"""ADAM*, the same for weights of a finite width and for functions: the second moment is averaged over the width."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class AdamStarState(NamedTuple):
    """Steps so far and both moments; the second is averaged over the width."""

    steps: jax.Array
    first: Any
    second: Any


def scale_by_adam_star(
    b1: Any,
    b2: Any,
    eps: Any,
    begin: Callable[[Any], Any],
    squares: Callable[[Any, dict[str, Any]], Any],
    spread: Callable[[Any], Any],
) -> Any:
    """A transformation of optax: the first moment over the root of the second.

    Args:
        b1: share of the first moment that a step keeps.
        b2: share of the second moment that a step keeps.
        eps: added to the root.
        begin: parameters to second moments that are 0.
        squares: gradients, and what else the caller passes, to their averaged squares.
        spread: what is like a second moment to what can be multiplied with a gradient.

    Returns:
        The transformation; it takes extra arguments and hands them to `squares`.
    """
    import optax

    def init(params: Any) -> AdamStarState:
        return AdamStarState(jnp.zeros((), jnp.int32), jax.tree.map(jnp.zeros_like, params), begin(params))

    def inverse(second: jax.Array, count: jax.Array) -> jax.Array:
        left1, left2 = (1 - jnp.asarray(b, second.dtype) ** count.astype(second.dtype) for b in (b1, b2))
        size = left1 * (jnp.sqrt(jnp.maximum(second / left2, 0)) + eps)
        # What had no gradient so far stays where it is.
        return jnp.where(size > 0, 1 / jnp.where(size > 0, size, 1), 0)

    def update(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, AdamStarState]:
        count = jnp.asarray(optax.safe_increment(state.steps))
        first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.first, updates)
        second = jax.tree.map(lambda v, s: b2 * v + (1 - b2) * s, state.second, squares(updates, extra))
        factors = spread(jax.tree.map(lambda v: inverse(v, count), second))
        return jax.tree.map(lambda m, f: m * f, first, factors), AdamStarState(count, first, second)

    return optax.GradientTransformationExtraArgs(init, update)
