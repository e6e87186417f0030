"""Gradient descent on networks of finite width: one loop for all experiments."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int

# Sums that these versions hand to YNNPACK may be silently wrong on a CPU: https://github.com/jax-ml/jax/issues/39103.
_BROKEN = ("0.10.2", "0.11.0")
_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT"} if version("jaxlib") in _BROKEN else None

Params = Any
Loss = Callable[[Params, Int[Array, ""]], Float[Array, ""]]  # of the parameters, at a step that may choose its batch


class State(NamedTuple):
    """Parameters, what the optimizer remembers, steps taken, and losses: before the last step, and the sum of a run."""

    params: Params
    memory: Any
    steps: Int[Array, ""]
    loss: Float[Array, ""]
    total: Float[Array, ""]


def begin(params: Params, rule: optax.GradientTransformation) -> State:
    """Before the first step."""
    dtype = jax.tree.leaves(params)[0].dtype
    return State(params, rule.init(params), jnp.zeros((), jnp.int32), jnp.array(jnp.inf, dtype), jnp.zeros((), dtype))


def descend(
    loss: Loss, rule: optax.GradientTransformation, state: State, steps: Array | int, enough: Array | None = None
) -> State:
    """Take `steps` more steps, or fewer if the loss falls to `enough`; `total` sums up their losses."""
    last = state.steps + jnp.asarray(steps, jnp.int32)
    slope = jax.value_and_grad(loss)

    def unfinished(here: State) -> Array:
        going = here.steps < last
        return going if enough is None else going & (here.loss > enough)

    def step(here: State) -> State:
        value, gradient = slope(here.params, here.steps)
        updates, memory = rule.update(gradient, here.memory, here.params)
        params: Any = optax.apply_updates(here.params, updates)
        return State(params, memory, here.steps + 1, value, here.total + value)

    return lax.while_loop(unfinished, step, state._replace(total=jnp.zeros_like(state.total)))


def compiled(function: Callable[..., Any]) -> Any:
    """`equinox.filter_jit` without what the compiler of this version is known to get wrong."""
    return eqx.filter_jit(function, compiler_options=_OPTIONS)  # pyright: ignore[reportCallIssue]
