"""A network that learns the labelled rows, and what its tangent kernel says."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float

from everwide import Dense, Relu, Serial, empirical_ntk, gram
from everwide.optim import adam_star

from .._training import Params, begin, compiled, descend

RATE = 1e-3


def network(outputs: int) -> Serial:
    """Two hidden layers of rectifiers."""
    return Serial(
        Dense(w_std=2**0.5, b_std=0.1), Relu(), Dense(w_std=2**0.5, b_std=0.1), Relu(), Dense(outputs, b_std=0.1)
    )


class Labelled(NamedTuple):
    """Rows that are learned, and their targets. `weights`: 1, or 0 of an empty place: one shape for all sizes."""

    x: Float[Array | np.ndarray, "n d"]
    y: Float[Array | np.ndarray, "n k"]
    weights: Float[Array | np.ndarray, " n"]


class Training(eqx.Module):
    """ADAM on half the mean square of all labelled rows at once.

    Nothing is drawn, so that two courses of training differ by their rows alone.
    """

    net: Serial
    steps: Array
    rate: Array

    def run(self, start: Params, rows: Labelled) -> Params:
        """Of one network."""
        rule = optax.chain(adam_star(1.0, width_axes=()), optax.scale(self.rate))  # without axes to average: ADAM

        def loss(params: Params, step: Array) -> Array:
            apart = jax.vmap(self.net.apply, (None, 0))(params, jnp.asarray(rows.x)) - rows.y
            return jnp.sum(rows.weights * jnp.sum(jnp.square(apart), -1)) / (2 * jnp.sum(rows.weights))

        return descend(loss, rule, begin(start, rule), self.steps).params


@compiled
def _trained(training: Training, start: Params, rows: Labelled) -> Params:
    return training.run(start, rows)


@compiled
def _all_trained(training: Training, start: Params, rows: Labelled) -> Params:
    return jax.vmap(training.run, (None, 0))(start, rows)


class Learner(NamedTuple):
    """A network of one width, and how long it is trained; everything in the precision of JAX."""

    classes: int
    width: int
    steps: int

    @property
    def net(self) -> Serial:
        """The network."""
        return network(self.classes)

    def first(self, dim: int, seed: int) -> Params:
        """Parameters before training."""
        return self.net.init(jr.key(seed), (dim,), width=self.width, parametrization="standard")

    def train(self, start: Params, rows: Labelled) -> Params:
        """From these parameters. Rows with one axis more are as many networks, each trained from them."""
        training = Training(self.net, jnp.asarray(self.steps, jnp.int32), jnp.asarray(RATE, _dtype()))
        here = Labelled(*(jnp.asarray(part, _dtype()) for part in rows))
        return (_all_trained if here.x.ndim == 3 else _trained)(training, start, here)

    def outputs(self, params: Params, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """Of every row."""
        return np.asarray(_outputs(self.net, params, jnp.asarray(x, _dtype())), np.float64)

    def all_outputs(self, params: Params, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "networks n k"]:
        """Of several networks."""
        return np.asarray(_all_outputs(self.net, params, jnp.asarray(x, _dtype())), np.float64)

    def kernel(self, params: Params, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n n"]:
        """The tangent kernel, a mean over the outputs."""
        return np.asarray(empirical_ntk(self.net.apply, params, jnp.asarray(x, _dtype()), outputs="trace"), np.float64)

    def limit(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n n"]:
        """That of infinite width, with layers weighed as those of the finite network are."""
        return np.asarray(gram(self.net, x, width=self.width, parametrization="standard").ntk, np.float64)


@eqx.filter_jit
def _outputs(net: Serial, params: Params, x: Array) -> Array:
    return jax.vmap(net.apply, (None, 0))(params, x)


@eqx.filter_jit
def _all_outputs(net: Serial, params: Params, x: Array) -> Array:
    return jax.vmap(jax.vmap(net.apply, (None, 0)), (0, None))(params, x)


def _dtype() -> Any:
    return jax.dtypes.canonicalize_dtype(np.float64)
