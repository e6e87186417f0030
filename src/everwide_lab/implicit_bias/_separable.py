"""Logistic regression on digits that can be parted, by gradient descent and by Adam, for a long time."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jaxtyping import Array, Float

from everwide import InputError
from everwide.theory.implicit_bias import margin_trajectory, max_margin

from .._training import compiled

CLASSES = (3, 8)
ADAM = 0.01  # its rate
_LOOKS = 25


class Rows(NamedTuple):
    """Rows with a column of ones, times their labels: a margin is a product with one. Training rows, then others."""

    signed: Float[np.ndarray, "n p"]
    test: Float[np.ndarray, "m p"]


class Descent(NamedTuple):
    """One optimizer and one seed, at several steps.

    `log_times`: logarithms of rate times steps. `losses`, `test_losses`: in nats. `errors`: shares of test rows on the
    wrong side. `sizes`: of the weights. `apart`: distance of their direction from that of the largest margin.
    """

    log_times: Float[np.ndarray, " looks"]
    losses: Float[np.ndarray, " looks"]
    test_losses: Float[np.ndarray, " looks"]
    errors: Float[np.ndarray, " looks"]
    sizes: Float[np.ndarray, " looks"]
    apart: Float[np.ndarray, " looks"]


class Separable(NamedTuple):
    """Of a seed: both runs, and what is predicted of the flow.

    `predicted`: distances of its direction at the times of the descent, `late`: at those of `LATE`. `slope`: of the
    size of its weights in the logarithm of time.
    """

    descent: Descent
    adam: Descent
    predicted: Float[np.ndarray, " looks"]
    late: Float[np.ndarray, " late"]
    slope: float


LATE = (50.0, 100.0, 200.0, 400.0)  # logarithms of times that no training sees


def rows(n: int, seed: int) -> Rows:
    """Two kinds of digits of scikit-learn, of mean square 1."""
    from sklearn.datasets import load_digits

    images, kinds = (np.asarray(part) for part in load_digits(return_X_y=True))
    chosen = np.isin(kinds, CLASSES)
    x, y = images[chosen], np.where(kinds[chosen] == CLASSES[0], 1.0, -1.0)
    if not 10 <= n <= len(x) // 2:
        raise InputError(f"n={n!r}: expected 10 to {len(x) // 2}, half of the digits {CLASSES[0]} and {CLASSES[1]}.")
    order = np.random.default_rng(seed).permutation(len(x))
    x = x - x[order[:n]].mean(0)
    signed = (y[:, None] * np.column_stack([x / np.sqrt(np.mean(x[order[:n]] ** 2)), np.ones(len(x))]))[order]
    return Rows(signed[:n], signed[n:])


@compiled
def _trained(signed: Array, rule: Any, counts: Array) -> Array:
    """Weights after so many steps, one after the other."""

    def loss(w: Array) -> Array:
        return jnp.mean(jnp.logaddexp(0, -signed @ w))

    def step(_: Array, state: Any) -> Any:
        gradient = jax.grad(loss)(state[0])
        with jax.numpy_dtype_promotion("standard"):  # Adam of optax mixes its dtypes
            updates, memory = rule.update(gradient, state[1])
        return state[0] + updates, memory

    def look(state: Any, more: Array) -> Any:
        now = lax.fori_loop(0, more, step, state)
        return now, now[0]

    start = jnp.zeros(signed.shape[1], signed.dtype)
    return lax.scan(look, (start, rule.init(start)), counts)[1]


def _followed(data: Rows, rule: Any, rate: float, steps: int, direction: np.ndarray) -> Descent:
    looks = np.unique(np.geomspace(1, steps, _LOOKS).round().astype(int))
    with jax.enable_x64(True):
        weights = np.asarray(_trained(jnp.asarray(data.signed), rule, jnp.asarray(np.diff(looks, prepend=0))))
    held, test = weights @ data.signed.T, weights @ data.test.T
    sizes = np.linalg.norm(weights, axis=1)
    apart = np.linalg.norm(weights / sizes[:, None] - direction, axis=1)
    loss, test_loss = (np.logaddexp(0, -part).mean(1) for part in (held, test))
    return Descent(np.log(rate * looks), loss, test_loss, np.mean(test <= 0, 1), sizes, apart)


def follow(n: int, steps: int, seed: int) -> Separable:
    """Both optimizers on the rows of a seed, and the flow that theory has for them."""
    data = rows(n, seed)
    kernel, ones = data.signed @ data.signed.T, np.ones(n)  # of rows times labels: all labels are 1
    best = max_margin(kernel, ones)
    direction = data.signed.T @ best.coefficients * best.margin
    rate = 4 * n / float(np.linalg.eigvalsh(kernel)[-1])  # half of what is stable from the start on
    descent = _followed(data, optax.sgd(rate), rate, steps, direction)
    adam = _followed(data, optax.adam(ADAM), ADAM, steps, direction)
    flow = margin_trajectory(kernel, ones, [*descent.log_times, *LATE])
    looks = len(descent.log_times)
    return Separable(descent, adam, flow.direction_errors[:looks], flow.direction_errors[looks:], 1 / best.margin)
