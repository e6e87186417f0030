"""The digits of scikit-learn, with their classes: real rows that need no file."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from everwide import InputError

LEAST = 20  # rows: two of each class, more or less


class Digits(NamedTuple):
    """Rows to learn from, other rows, and the classes of both."""

    x: Float[np.ndarray, "n 64"]
    labels: Int[np.ndarray, " n"]
    x_test: Float[np.ndarray, "m 64"]
    labels_test: Int[np.ndarray, " m"]

    def targets(self) -> Float[np.ndarray, "n 10"]:
        """Indicators of the classes, minus a tenth."""
        return np.eye(10)[self.labels] - 0.1


def digits(n: int, seed: int) -> Digits:
    """`n` rows that a seed draws, centred, of mean square 1; all pixels are scaled alike."""
    from sklearn.datasets import load_digits

    images, classes = (np.asarray(part) for part in load_digits(return_X_y=True))
    if not LEAST <= n < len(images):
        raise InputError(f"n={n!r}: expected {LEAST} to {len(images) - 1} of the {len(images)} digits.")
    order = np.random.default_rng(seed).permutation(len(images))
    return _scaled(images[order], classes[order], n)


def balanced(n: int, seed: int) -> Digits:
    """As many rows of each of the ten classes, `n` in all; the rest is for measuring."""
    from sklearn.datasets import load_digits

    images, classes = (np.asarray(part) for part in load_digits(return_X_y=True))
    least = int(np.bincount(classes).min())
    if n % 10 or not LEAST <= n < 10 * least:
        raise InputError(f"n={n!r}: expected tens, {LEAST} to {10 * (least - 1)}: as many digits of each class.")
    order = np.random.default_rng(seed).permutation(len(images))
    places = [order[classes[order] == label] for label in range(10)]
    rows = np.concatenate([part[: n // 10] for part in places] + [part[n // 10 :] for part in places])
    return _scaled(images[rows], classes[rows], n)


def _scaled(images: np.ndarray, labels: np.ndarray, n: int) -> Digits:
    x = images - images[:n].mean(0)
    x = x / np.sqrt(np.mean(x[:n] ** 2))
    return Digits(x[:n], labels[:n], x[n:], labels[n:])
