"""Deep networks that learn digits, or do not."""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float

from everwide import Dense, Repeat, Serial, Tanh
from everwide.theory.criticality import phase_diagram

from .._training import Params, begin, compiled, descend
from ._experiments import TANH, TRAINED, Measured, Sizes

DEPTHS = (6, 12, 24, 48)
_WIDTH, _RATES = 64, (0.001, 0.01)
_BATCH, _MOMENTUM = 32, 0.9


class Digits(NamedTuple):
    """Images `(n, pixels)`, each of unit mean square, and their labels `(n,)`."""

    x: Any
    labels: Any


def digits() -> Digits:
    """The digits of scikit-learn."""
    from sklearn.datasets import load_digits

    images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    x = images - images.mean(0)
    return Digits((x / np.sqrt(np.mean(x**2, 1, keepdims=True))).astype(np.float32), labels.astype(np.int32))


def trainability(weight: float, bias: float, data: Digits, sizes: Sizes) -> list[Measured]:
    """Accuracy on training data at several depths, at the better of two learning rates; spread is between two seeds.

    "Predicted" is the rule of thumb that a network learns, to 1, if it is less than six correlation lengths deep, and
    that it guesses otherwise.
    """
    point = phase_diagram(TANH.fn, C_w=weight, C_b=bias)
    length, rows = float(point.xi_perp), []
    for depth in DEPTHS:
        net = tanh_network(weight, bias, float(point.K_star), depth, _WIDTH)
        train = partial(trained_accuracy, net, data, sizes.steps, seeds=2, stream=(sizes.seed, depth))
        best = max((train(rate) for rate in _RATES), key=np.mean)
        place = f"depth {depth}, {depth / length:.2g} lengths"
        rule, spread = 1.0 if depth < 6 * length else 0.1, float(np.ptp(best))
        rows.append(Measured(TRAINED, TANH.name, weight, bias, place, rule, float(best.mean()), spread))
    return rows


def tanh_network(weight: float, bias: float, variance: float, depth: int, width: int) -> Serial:
    """`depth` hidden layers. The first brings images to `variance`; `weight`, `bias`: `C_w` and `C_b` of the others."""
    b_std = math.sqrt(bias)
    first, others = (
        Serial(Dense(width, w_std=math.sqrt(c), b_std=b_std), Tanh()) for c in (max(variance - bias, 0.0), weight)
    )
    return Serial(first, Repeat(others, depth - 1), Dense(10, b_std=0.0))


def trained_accuracy(
    net: Serial, data: Digits, steps: int, rate: float, *, seeds: int, stream: tuple[int, int]
) -> Float[np.ndarray, " seeds"]:
    """Share of the training images that networks tell apart after SGD with momentum; a `stream` is a set of them."""
    rng = np.random.default_rng(stream)
    keys = jr.split(jr.key(int(rng.integers(1 << 31))), seeds)
    batches = rng.integers(0, len(data.x), (seeds, steps, _BATCH), dtype=np.int32)
    dtype = jnp.result_type(float)
    given = Digits(jnp.asarray(data.x, dtype), jnp.asarray(data.labels))
    traced = jax.tree.map(lambda number: jnp.asarray(number, dtype), net)  # other variances need no other code
    return np.asarray(_accuracies(traced, given, keys, jnp.asarray(batches), jnp.asarray(rate, dtype)))


@compiled
def _accuracies(net: Serial, data: Digits, keys: Array, batches: Array, rate: Array) -> Array:
    outputs = jax.vmap(net.apply, (None, 0))

    def one(key: Array, rows: Array) -> Array:
        def loss(params: Params, step: Array) -> Array:
            logits = outputs(params, data.x[rows[step]])
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, data.labels[rows[step]]))

        rule = optax.sgd(rate, _MOMENTUM)
        start = net.init(key, data.x.shape[1:], parametrization="standard")
        end = descend(loss, rule, begin(start, rule), len(rows)).params
        return jnp.mean(jnp.argmax(outputs(end, data.x), -1).astype(jnp.int32) == data.labels)

    return jax.vmap(one)(keys, batches)
