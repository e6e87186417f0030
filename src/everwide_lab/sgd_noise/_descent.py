"""Small models with weight decay, trained in batches; what is averaged on the way."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from everwide import InputError
from everwide.theory.sgd_noise import gradient_covariance, stationary_covariance

from .._training import compiled

DECAY = 0.02
BLOCK = 50  # steps between two looks at all rows
_PIXELS, _CLASSES = 64, 10
_REST, _CALM = 5000, 0.4  # steps by all rows, and their rate


class Look(NamedTuple):
    """Means over a block of steps, and what all rows say at its end.

    `products`: of parameters and the gradient of the batch; `squares`: of that gradient. `slopes`: the squared gradient
    of all rows; `bends`: the product of the gradient of a batch with the Hessian and itself; `losses`: of all rows.
    """

    products: Float[np.ndarray | Array, "*looks"]
    squares: Float[np.ndarray | Array, "*looks"]
    slopes: Float[np.ndarray | Array, "*looks"]
    bends: Float[np.ndarray | Array, "*looks"]
    losses: Float[np.ndarray | Array, "*looks"]


class Task(eqx.Module):
    """Digits, and a network of one hidden layer of hyperbolic tangents, or a linear model, which has a width of 0.

    Without biases. All weights are one vector.
    """

    x: Float[Array, "n 64"]
    labels: Int[Array, " n"]
    width: int = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    def start(self, key: Array) -> Float[Array, " p"]:
        """Outputs of the order of 1."""
        inputs, first, last = self.width or _PIXELS, *jr.split(key)
        weights = jr.normal(first, (_PIXELS * self.width,)), jr.normal(last, (inputs * _CLASSES,))
        return jnp.concatenate([weights[0], weights[1] / inputs**0.5])

    def row_loss(self, w: Float[Array, " p"], x: Float[Array, " 64"], label: Int[Array, ""]) -> Float[Array, ""]:
        """Cross-entropy of one row, and the penalty."""
        first, last = w[: _PIXELS * self.width], w[_PIXELS * self.width :].reshape(-1, _CLASSES)
        hidden = jnp.tanh(x @ first.reshape(_PIXELS, self.width) / _PIXELS**0.5) if self.width else x
        outputs = hidden @ last
        return -jax.nn.log_softmax(outputs)[label] + DECAY / 2 * jnp.sum(w**2)

    def loss(self, w: Float[Array, " p"], rows: Any = slice(None)) -> Float[Array, ""]:
        """Mean over rows."""
        return jnp.mean(jax.vmap(self.row_loss, (None, 0, 0))(w, self.x[rows], self.labels[rows]))

    def batch(self, w: Float[Array, " p"], key: Array) -> Float[Array, " p"]:
        """The gradient of rows that are drawn without replacement."""
        return jax.grad(self.loss)(w, jr.choice(key, len(self.x), (self.batch_size,), replace=False))


def task(n: int, width: int, batch_size: int, seed: int) -> Task:
    """Rows of a seed, centred, of mean square 1; in float64, if JAX is asked for it."""
    from sklearn.datasets import load_digits

    images, kinds = (np.asarray(part) for part in load_digits(return_X_y=True))
    if not batch_size < n <= len(images):
        raise InputError(f"n={n!r}: expected more than batch_size={batch_size}, and {len(images)} at the most.")
    chosen = np.random.default_rng(seed).permutation(len(images))[:n]
    x = images[chosen] - images[chosen].mean(0)
    return Task(jnp.asarray(x / np.sqrt(np.mean(x**2))), jnp.asarray(kinds[chosen]), width, batch_size)


@compiled
def _advanced(one: Task, w: Array, key: Array, rate: Array) -> tuple[Array, Look]:
    """A block of steps."""

    def step(here: Array, own: Array) -> tuple[Array, tuple[Array, Array]]:
        gradient = one.batch(here, own)
        return here - rate * gradient, (here @ gradient, gradient @ gradient)

    *keys, last = jr.split(key, BLOCK + 1)
    end, (products, squares) = lax.scan(step, w, jnp.stack(keys))
    value, slope = jax.value_and_grad(one.loss)(end)
    drawn = one.batch(end, last)
    bend = drawn @ jax.jvp(jax.grad(one.loss), (end,), (drawn,))[1]
    return end, Look(products.mean(), squares.mean(), slope @ slope, bend, value)


class Walker:
    """A network under way, block by block, in float64."""

    def __init__(self, one: Task, seed: int):
        self._task, self._key = one, jr.key(seed)
        self.w = one.start(jr.fold_in(self._key, 1))

    def walk(self, rate: float, blocks: int) -> Look:
        """So many blocks at a rate: what was seen after each."""
        looks = []
        for _ in range(blocks):
            self._key, own = jr.split(self._key)
            self.w, look = _advanced(self._task, self.w, own, jnp.asarray(rate))
            looks.append(look)
        return Look(*(np.asarray(part) for part in zip(*looks, strict=True)))


@compiled
def rested(one: Task, w: Array) -> Array:
    """After descent by all rows: the bottom of the valley that a run has ended in."""
    slope = jax.grad(one.loss)
    return lax.fori_loop(0, _REST, lambda _, here: here - _CALM * slope(here), w)


class Minimum(NamedTuple):
    """Of the valley that a run has ended in: its lowest loss, and by how much noise is predicted to raise it."""

    loss: float
    raised: float


def minimum(one: Task, w: Float[Array, " p"], rate: float) -> Minimum:
    """Half the trace of Hessian and stationary covariance, both at the minimum."""
    at = rested(one, w)
    hessian = np.asarray(jax.jit(jax.hessian(one.loss))(at))
    gradients = jax.vmap(jax.grad(one.row_loss), (None, 0, 0))(at, one.x, one.labels)
    spread = stationary_covariance(hessian, gradient_covariance(np.asarray(gradients), one.batch_size), rate)
    return Minimum(float(one.loss(at)), float(np.sum(hessian * spread)) / 2)
