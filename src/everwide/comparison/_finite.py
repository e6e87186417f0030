"""Networks of one width, trained by gradient descent, in one compilation."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from ..kernel import Example
from ..layers import AbstractLayer
from ..linearization import parameter_movement
from ..linearization._jacobian import tangent_kernel
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
    """A network of one width and its data: gradient descent on `1/2 sum |f - y|^2`."""

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
        kernel = tangent_kernel(self.net.apply, start, self.x, self.x)

        def stretch(params: Params, length: Array) -> tuple[Params, tuple]:
            params = lax.fori_loop(0, length, lambda _, p: self._descend(p, rate), params)
            return params, self._look(params, start, kernel)

        _, (train, test, change, moved, relative) = lax.scan(stretch, start, lengths)
        test_kernel = tangent_kernel(self.net.apply, start, self.x_test, self.x)
        return Trained(train, test, kernel, test_kernel, change, moved, relative)

    def _look(self, params: Params, start: Params, kernel: Array) -> tuple:
        train, test = (self._outputs(params, x) for x in (self.x, self.x_test))
        change = tangent_kernel(self.net.apply, params, self.x, self.x) - kernel
        moved = parameter_movement(start, params)
        return train, test, jnp.linalg.norm(change) / jnp.linalg.norm(kernel), moved.absolute, moved.relative

    def _descend(self, params: Params, rate: Array) -> Params:
        loss = lambda p: jnp.sum(jnp.square(self._outputs(p, self.x) - self.y)) / 2
        return jax.tree.map(lambda p, g: p - rate.astype(p.dtype) * g, params, jax.grad(loss)(params))

    def _outputs(self, params: Params, x: Example) -> Array:
        return jax.vmap(lambda one: self.net.apply(params, one))(x)


@eqx.filter_jit
def train(trainer: Trainer, keys: Array, rate: Float[Array, ""], lengths: Int[Array, " steps"]) -> Trained:
    """One network for every key."""
    return jax.vmap(lambda key: trainer.run(key, rate, lengths))(keys)
