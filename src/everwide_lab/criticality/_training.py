"""Deep networks that learn digits, or do not."""

from typing import NamedTuple

import numpy as np

_BATCH, _MOMENTUM = 32, 0.9


class Digits(NamedTuple):
    """Images `(n, pixels)`, each of unit mean square, and their labels."""

    x: np.ndarray
    labels: np.ndarray


def digits() -> Digits:
    """The digits of scikit-learn."""
    from sklearn.datasets import load_digits

    images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    x = images - images.mean(0)
    return Digits((x / np.sqrt(np.mean(x**2, 1, keepdims=True))).astype(np.float32), labels)


def trained_accuracy(
    data: Digits,
    *,
    weight: float,
    bias: float,
    variance: float,
    depth: int,
    width: int,
    steps: int,
    rate: float,
    seeds: int,
    stream: int,
) -> np.ndarray:
    """`(seeds,)`: share of the training images that networks of tanh tell apart after SGD with momentum.

    The first weights bring images to `variance`; `weight` and `bias` are `C_w` and `C_b` of the others. Another
    `stream` is another set of networks.
    """
    rng = np.random.default_rng([stream, depth])
    sizes = [data.x.shape[1], *[width] * depth, 10]
    scales = [max(variance - bias, 0.0), *[weight] * (depth - 1), 1.0]
    draw = lambda *shape: rng.standard_normal((seeds, *shape), dtype=np.float32)
    weights = [draw(n, m) * np.float32(np.sqrt(c / n)) for n, m, c in zip(sizes, sizes[1:], scales, strict=False)]
    biases = [draw(1, m) * np.float32(np.sqrt(bias)) for m in sizes[1:-1]] + [np.zeros((seeds, 1, 10), np.float32)]
    moving = [[np.zeros_like(p) for p in group] for group in (weights, biases)]
    for _ in range(steps):
        rows = rng.integers(0, len(data.x), (seeds, _BATCH))
        for k, gradients in enumerate(_gradients(weights, biases, data.x[rows], data.labels[rows])):
            for group, speed, gradient in zip((weights, biases), moving, gradients, strict=True):
                speed[k] = _MOMENTUM * speed[k] + gradient
                group[k] = group[k] - np.float32(rate) * speed[k]
    out = _outputs(weights, biases, np.broadcast_to(data.x, (seeds, *data.x.shape)))[-1]
    return np.mean(out.argmax(-1) == data.labels, axis=-1)


def _outputs(weights: list[np.ndarray], biases: list[np.ndarray], x: np.ndarray) -> list[np.ndarray]:
    """The input, every hidden layer, and the output."""
    found = [x]
    for matrix, bias in zip(weights, biases, strict=True):
        z = found[-1] @ matrix + bias
        found.append(z if len(found) == len(weights) else np.tanh(z))
    return found


def _gradients(
    weights: list[np.ndarray], biases: list[np.ndarray], x: np.ndarray, labels: np.ndarray
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of the mean cross-entropy, for every layer: of its weights and of its bias."""
    layers = _outputs(weights, biases, x)
    out = np.exp(layers[-1] - layers[-1].max(-1, keepdims=True))
    chances = out / out.sum(-1, keepdims=True)
    delta = (chances - np.eye(10, dtype=np.float32)[labels]) / np.float32(x.shape[1])
    found = []
    for k in reversed(range(len(weights))):
        found.append((layers[k].swapaxes(1, 2) @ delta, delta.sum(1, keepdims=True)))
        delta = (delta @ weights[k].swapaxes(1, 2)) * (1 - layers[k] ** 2)
    return found[::-1]
