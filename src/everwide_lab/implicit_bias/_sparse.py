"""Sparse regression by `b = u^2 - v^2`, trained by gradient descent from weights of several scales."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from everwide.theory.implicit_bias import diagonal_network

from .._training import compiled

SCALES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
COLUMNS, NONZERO = 100, 3
_FITTED = 1e-10  # of the first loss
_RATE = 0.5  # over the curvature where all weight is at one place


class Sparse(NamedTuple):
    """Of one scale, a number for each seed.

    - `off`: distance of what was trained from the predicted limit, over the length of the latter.
    - `excess`: how much larger the sum of `|b|` is than the smallest one that fits, relative.
    - `unlike_kernel`: distance from the solution of the smallest squares, over its length.
    - `error`: squared distance from the true coefficients, over their squared length. `left`: last loss over the first.
    """

    scale: float
    off: Float[np.ndarray, " seeds"]
    excess: Float[np.ndarray, " seeds"]
    unlike_kernel: Float[np.ndarray, " seeds"]
    error: Float[np.ndarray, " seeds"]
    left: Float[np.ndarray, " seeds"]


class Problem(NamedTuple):
    """Rows, true coefficients, targets."""

    x: Float[np.ndarray, "n p"]
    truth: Float[np.ndarray, " p"]

    @property
    def y(self) -> Float[np.ndarray, " n"]:
        """Without noise."""
        return self.x @ self.truth

    def network(self, scale: float) -> Any:
        """What theory says of it."""
        return diagonal_network(self.x, self.y, scale=scale)


def problem(n: int, seed: int) -> Problem:
    """Gaussian rows, and three coefficients of size 1 among a hundred."""
    rng = np.random.default_rng(seed)
    truth = np.zeros(COLUMNS)
    truth[:NONZERO] = rng.choice([-1.0, 1.0], NONZERO)
    return Problem(rng.normal(size=(n, COLUMNS)), truth)


@compiled
def _descended(x: Array, y: Array, scale: Array, rate: Array, steps: Array) -> tuple[Array, Array]:
    """Coefficients in the end, and the mean square of what is left."""

    def loss(weights: tuple[Array, Array]) -> Array:
        return jnp.mean(jnp.square(x @ (weights[0] ** 2 - weights[1] ** 2) - y)) / 2

    slope, enough = jax.value_and_grad(loss), _FITTED * jnp.mean(y**2) / 2

    def unfinished(state: Any) -> Array:
        return (state[1] < steps) & (state[2] > enough)

    def step(state: Any) -> Any:
        value, gradient = slope(state[0])
        return jax.tree.map(lambda w, g: w - rate * g, state[0], gradient), state[1] + 1, value

    start = jnp.full(x.shape[1], scale, x.dtype)
    begin = (start, start), jnp.zeros((), steps.dtype), jnp.asarray(jnp.inf, x.dtype)
    (u, v), _, last = lax.while_loop(unfinished, step, begin)
    return u**2 - v**2, 2 * last / jnp.mean(y**2)


def train(problems: list[Problem], scale: float, steps: int) -> Sparse:
    """All problems from one scale, in float64."""
    figures = []
    for one in problems:
        curvature = 4 * np.linalg.eigvalsh(one.x @ one.x.T / len(one.x))[-1] * max(scale**2, 1.0)
        with jax.enable_x64(True):
            numbers = (jnp.asarray(v) for v in (one.x, one.y, scale, _RATE / curvature, steps))
            trained, left = (np.asarray(part) for part in _descended(*numbers))
        network = one.network(scale)
        limit, lazy, rich = network.limit(), network.lazy(), np.abs(network.rich()).sum()
        figures.append(
            (
                np.linalg.norm(trained - limit) / np.linalg.norm(limit),
                np.abs(trained).sum() / rich - 1,
                np.linalg.norm(trained - lazy) / np.linalg.norm(lazy),
                np.sum((trained - one.truth) ** 2) / np.sum(one.truth**2),
                float(left),
            )
        )
    return Sparse(scale, *np.asarray(figures).T)
