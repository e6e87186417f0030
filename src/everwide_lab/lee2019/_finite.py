"""Networks of one width, trained with momentum or on another loss than the squared one; several seeds at once."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from everwide._compile import trusted_filter_jit
from everwide.empirical import ntk_block
from everwide.layers import AbstractLayer
from everwide.linearization import parameter_movement
from everwide.training import AbstractLoss

Params = Any


class Trained(NamedTuple):
    """Networks of one width at the steps at which one looks; several seeds stack along the first axis."""

    train: Float[Array, "*seeds looks n outputs"]
    test: Float[Array, "*seeds looks m outputs"]
    kernel: Float[Array, "*seeds n n outputs outputs"]  # at the start
    test_kernel: Float[Array, "*seeds m n outputs outputs"]
    kernel_change: Float[Array, "*seeds looks"]
    movement: Float[Array, "*seeds looks"]
    relative_movement: Float[Array, "*seeds looks"]


class Course(eqx.Module):
    """A network, its data, and gradient descent with momentum on the sum of a loss over the rows."""

    net: AbstractLayer
    x: Float[Array, "n channels"]
    y: Array
    x_test: Float[Array, "m channels"]
    loss: AbstractLoss
    rate: Float[Array, ""]
    momentum: Float[Array, ""]
    width: int = eqx.field(static=True)

    def outputs(self, params: Params, x: Float[Array, "rows channels"]) -> Float[Array, "rows outputs"]:
        """Of all rows."""
        return jax.vmap(lambda one: self.net.apply(params, one))(x)

    def step(self, here: "Moving") -> "Moving":
        """As `optax.sgd(rate, momentum)`."""
        total = lambda p: jnp.sum(jax.vmap(self.loss)(self.outputs(p, self.x), self.y))
        speed = jax.tree.map(lambda g, v: g + self.momentum * v, jax.grad(total)(here.params), here.speed)
        return Moving(jax.tree.map(lambda p, v: p - self.rate * v, here.params, speed), speed)

    def run(self, key: Array, lengths: Int[Array, " looks"]) -> Trained:
        """Train one network, and look after each of the `lengths`."""
        start = self.net.init(key, self.x.shape[1:], width=self.width)
        kernel = ntk_block(self.net.apply, start, self.x, self.x)

        def stretch(here: Moving, length: Array) -> tuple[Moving, tuple]:
            here = lax.fori_loop(0, length, lambda _, moving: self.step(moving), here)
            change = ntk_block(self.net.apply, here.params, self.x, self.x) - kernel
            moved = parameter_movement(start, here.params)
            seen = (self.outputs(here.params, x) for x in (self.x, self.x_test))
            return here, (*seen, jnp.linalg.norm(change) / jnp.linalg.norm(kernel), moved.absolute, moved.relative)

        begin = Moving(start, jax.tree.map(jnp.zeros_like, start))
        _, (train, test, change, absolute, relative) = lax.scan(stretch, begin, lengths)
        test_kernel = ntk_block(self.net.apply, start, self.x_test, self.x)
        return Trained(train, test, kernel, test_kernel, change, absolute, relative)


class Moving(NamedTuple):
    """Parameters and their velocity."""

    params: Params
    speed: Params


@trusted_filter_jit
def trained(course: Course, keys: Array, lengths: Int[Array, " looks"]) -> Trained:
    """One network for every key."""
    return jax.vmap(lambda key: course.run(key, lengths))(keys)
