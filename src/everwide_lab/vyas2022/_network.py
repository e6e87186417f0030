"""A network of finite width, trained by ADAM and stopped early; and what it was on the way."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float

from everwide import Dense, Relu, Serial
from everwide.layers import AbstractLayer
from everwide.optim import adam_star

from .._sample import Sample
from .._training import Params, State, begin, compiled, descend

RATE, BATCH = 1e-3, 32
LOOKS = 50  # at the validation rows


def network(outputs: int) -> Serial:
    """Two hidden layers of rectifiers."""
    return Serial(Dense(w_std=2**0.5), Relu(), Dense(w_std=2**0.5), Relu(), Dense(outputs))


class Trained(NamedTuple):
    """Parameters at the start, where the validation error was least, at each look; which look was best."""

    start: Params
    best: Params
    looks: Params  # with a leading axis
    best_look: Any


class Training(eqx.Module):
    """ADAM on half the mean square, in batches of the first `n` rows."""

    net: AbstractLayer
    sample: Sample
    n: Array
    steps: Array  # between two looks
    rate: Array

    def outputs(self, params: Params, x: Any) -> Float[Array, "n k"]:
        """Of every row."""
        return jax.vmap(self.net.apply, (None, 0))(params, x)

    def run(self, key: Array, width: int) -> Trained:
        """A whole course. Rows are drawn with replacement: every size is one compilation."""
        first, order = jr.split(key)
        start = self.net.init(first, self.sample.x.shape[1:], width=width, parametrization="standard")
        adam = adam_star(1.0, width_axes=())  # without axes to average: ADAM, and strict about dtypes
        rule = optax.chain(adam, optax.scale(self.rate))

        def loss(params: Params, step: Array) -> Array:
            rows = jr.randint(jr.fold_in(order, step), (BATCH,), 0, self.n)
            apart = self.outputs(params, jnp.asarray(self.sample.x)[rows]) - jnp.asarray(self.sample.y)[rows]
            return jnp.mean(jnp.sum(jnp.square(apart), -1)) / 2

        def look(state: State, _: None) -> tuple[State, tuple[Params, Array]]:
            state = descend(loss, rule, state, self.steps)
            apart = self.outputs(state.params, self.sample.x_validation) - self.sample.y_validation
            return state, (state.params, jnp.mean(jnp.square(apart)))

        _, (looks, errors) = lax.scan(look, begin(start, rule), None, length=LOOKS)
        best = jnp.argmin(errors)
        return Trained(start, jax.tree.map(lambda leaf: leaf[best], looks), looks, best)


@compiled
def _trained(training: Training, key: Array, width: int) -> Trained:
    return training.run(key, width)


def train(sample: Sample, n: int, width: int, steps: int, seed: int) -> Trained:
    """On the first `n` rows; networks of one seed begin alike at every size."""
    dtype = jax.dtypes.canonicalize_dtype(np.float64)
    here = Sample(*(jnp.asarray(part, dtype) for part in sample))
    each = jnp.asarray(-(-steps // LOOKS), jnp.int32)
    net = network(sample.y.shape[1])
    training = Training(net, here, jnp.asarray(n, jnp.int32), each, jnp.asarray(RATE, dtype))
    return _trained(training, jr.key(seed), width)
