"""Networks of one width, trained on the squared loss; several training sets and seeds at once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from everwide.layers import AbstractLayer

from .._training import Params, begin, compiled, descend
from ._data import Population
from ._kernel import Measured, summarize, training_sets

MOMENTUM = 0.95
ENOUGH = 1e-6  # of the power of the targets: what training leaves, unless its steps are used up
_SAFE = 0.25  # part of the rate at which the infinitely wide network meets its strongest mode in one step


class Lesson(NamedTuple):
    """A training set, padded with examples that are not there, so that all sizes are one compilation."""

    x: Float[Array | np.ndarray, "*runs n d"]
    y: Float[Array | np.ndarray, "*runs n"]
    there: Bool[Array | np.ndarray, "*runs n"]
    rate: Float[Array | np.ndarray, "*runs"]


class Training(eqx.Module):
    """Full-batch gradient descent with momentum on half the mean square.

    A network learns what its target adds to its first outputs, so that it begins at 0, as the theory does.
    """

    net: AbstractLayer
    x_test: Float[Array, "tests d"]
    steps: Array
    width: int = eqx.field(static=True)

    def run(self, key: Array, lesson: Lesson) -> tuple[Float[Array, " tests"], Float[Array, ""]]:
        """Outputs on the points to measure on, and the mean square that is left on the training examples."""
        start = self.net.init(key, lesson.x.shape[1:], width=self.width)
        first = self._outputs(start, lesson.x)

        def loss(params: Params, step: Array) -> Array:
            apart = self._outputs(params, lesson.x) - first - lesson.y
            return jnp.mean(jnp.square(apart), where=lesson.there) / 2

        rule = optax.sgd(jnp.asarray(lesson.rate), MOMENTUM)
        enough = ENOUGH / 2 * jnp.mean(lesson.y**2, where=lesson.there)
        end = descend(loss, rule, begin(start, rule), self.steps, enough)
        learned = self._outputs(end.params, self.x_test) - self._outputs(start, self.x_test)
        return learned, 2 * loss(end.params, end.steps)

    def _outputs(self, params: Params, x: Float[Array | np.ndarray, "n d"]) -> Float[Array, " n"]:
        return jax.vmap(lambda one: self.net.apply(params, one))(x)[:, 0]


@compiled
def _trained(training: Training, keys: Array, lessons: Lesson) -> tuple[Array, Array]:
    """One network for every key."""
    return jax.vmap(training.run)(keys, lessons)


def train_networks(
    net: AbstractLayer, population: Population, sizes: Sequence[int], width: int, seeds: int, steps: int
) -> list[Measured]:
    """A network for every size, seed and target, on the training sets that the kernel had first."""
    targets, most = len(population.names), max(sizes)
    lessons = [_lesson(population, rows, most, k) for n in sizes for rows in training_sets(population, n, seeds)
               for k in range(targets)]  # fmt: skip
    stacked = Lesson(*(jnp.asarray(np.stack(part)) for part in zip(*lessons, strict=True)))
    training = Training(net, jnp.asarray(_wide(population.x_test)), jnp.asarray(steps), width)
    ends = _trained(training, jr.split(jr.key(width), len(lessons)), stacked)
    outputs, left = (np.asarray(part, np.float64) for part in ends)
    guesses = outputs.reshape(len(sizes), seeds, targets, -1).swapaxes(2, 3)
    left = left.reshape(len(sizes), seeds, targets)
    by_size = zip(sizes, guesses, left, strict=True)
    return [row for n, *one in by_size for row in summarize(population, n, str(width), *one)]


def _lesson(population: Population, rows: np.ndarray, most: int, target: int) -> Lesson:
    padded = np.resize(rows, most)
    strongest = np.linalg.eigvalsh(population.kernel[np.ix_(rows, rows)])[-1]
    y, rate = population.y[padded, target], _SAFE * len(rows) / strongest
    return Lesson(_wide(population.x[padded]), _wide(y), np.arange(most) < len(rows), _wide(rate))


def _wide(values: Any) -> np.ndarray:
    """In the precision of the networks: the widest that JAX has enabled."""
    return np.asarray(values, jax.dtypes.canonicalize_dtype(np.float64))
