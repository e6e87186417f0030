"""Handwritten digits, few and of two kinds, so that a network of any width learns them in seconds."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

_KINDS = (3, 8)


class Digits(NamedTuple):
    """Images of unit length as vectors; labels 0 and 1."""

    x: Float[np.ndarray, "n pixels"]
    labels: Int[np.ndarray, " n"]
    x_test: Float[np.ndarray, "m pixels"]

    @property
    def targets(self) -> Float[np.ndarray, "n 2"]:
        """For the squared loss: +1/2 at the label, -1/2 elsewhere."""
        return np.eye(2)[self.labels] - 0.5


def digits(rows: int) -> Digits:
    """`rows` images of both kinds for training, and as many for the test."""
    from sklearn.datasets import load_digits

    images, kinds = (np.asarray(part) for part in load_digits(return_X_y=True))
    chosen = np.flatnonzero(np.isin(kinds, _KINDS))
    if not 2 <= rows <= len(chosen) // 2:
        raise ValueError(f"rows={rows!r}: expected 2 to {len(chosen) // 2}, as there are {len(chosen)} such digits.")
    order = np.random.default_rng(0).permutation(chosen)[: 2 * rows]
    x = images[order].astype(np.float64)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return Digits(x[:rows], (kinds[order[:rows]] == _KINDS[1]).astype(np.int64), x[rows:])
