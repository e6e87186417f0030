"""Networks of one width, trained by gradient descent, in one compilation."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ..empirical import ntk_block
from ..kernel import Example
from ..layers import AbstractLayer
from ..linearization import movement
from ..signal import Parametrization

Params = Any


class Trained(NamedTuple):
    """Networks of one width at the steps at which one looks; several seeds stack along the first axis."""

    train: Float[Array, "*seeds steps n outputs"]
    test: Float[Array, "*seeds steps m outputs"]
    kernel: Float[Array, "*seeds n_outputs n_outputs"]  # at the start; outputs follow each other within an example
    test_kernel: Float[Array, "*seeds m_outputs n_outputs"]
    kernel_change: Float[Array, "*seeds steps"]
    movement: Float[Array, "*seeds steps"]
    relative_movement: Float[Array, "*seeds steps"]


class Trainer(eqx.Module):
    """A network of one width and its data: gradient descent on the mean over rows of `1/2 |f - y|^2`."""

    net: AbstractLayer
    x: Example  # stacked
    y: Float[Array, "n outputs"]
    x_test: Example
    width: int = eqx.field(static=True)
    parametrization: Parametrization = eqx.field(static=True)

    def run(self, key: Array, rate: Float[Array, ""], lengths: Int[Array, " steps"]) -> Trained:
        """Train one network, and look after each of the `lengths`."""
        shape = self.x.x.shape[1:]
        start = self.net.init(key, shape, width=self.width, parametrization=self.parametrization)
        kernel = self._kernel(start, self.x)

        def descend(_: Any, params: Params) -> Params:
            return jax.tree.map(lambda p, g: p - rate.astype(p.dtype) * g, params, jax.grad(self._loss)(params))

        def stretch(params: Params, length: Array) -> tuple[Params, tuple]:
            params = lax.fori_loop(0, length, descend, params)
            outputs = (self._outputs(params, x) for x in (self.x, self.x_test))
            change = jnp.linalg.norm(self._kernel(params, self.x) - kernel) / jnp.linalg.norm(kernel)
            moved = movement(start, params)
            return params, (*outputs, change, moved.absolute, moved.relative)

        _, (train, test, change, moved, relative) = lax.scan(stretch, start, lengths)
        return Trained(train, test, kernel, self._kernel(start, self.x_test), change, moved, relative)

    def _loss(self, params: Params) -> Array:
        return jnp.mean(jnp.sum(jnp.square(self._outputs(params, self.x) - self.y), -1)) / 2

    def _outputs(self, params: Params, x: Example) -> Array:
        return jax.vmap(lambda one: self.net.apply(params, one))(x)

    def _kernel(self, params: Params, x: Example) -> Array:
        """The tangent kernel with the training rows, as a matrix."""
        blocks = ntk_block(self.net.apply, params, x, self.x)
        n1, n2, k, _ = blocks.shape
        return blocks.transpose(0, 2, 1, 3).reshape(n1 * k, n2 * k)


@eqx.filter_jit
def train(trainer: Trainer, keys: Array, rate: Float[Array, ""], lengths: Int[Array, " steps"]) -> Trained:
    """One network for every key."""
    return jax.vmap(lambda key: trainer.run(key, rate, lengths))(keys)
