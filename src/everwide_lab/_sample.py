"""Rows of an experiment, in three parts."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float


class Sample(NamedTuple):
    """Rows to learn from, in the order in which they are added; rows to choose on; rows to measure on."""

    x: Float[Array | np.ndarray, "n d"]
    y: Float[Array | np.ndarray, "n *k"]
    x_validation: Float[Array | np.ndarray, "v d"]
    y_validation: Float[Array | np.ndarray, "v *k"]
    x_test: Float[Array | np.ndarray, "m d"]
    y_test: Float[Array | np.ndarray, "m *k"]


def split(x: np.ndarray, y: np.ndarray, n: int, validation: int) -> Sample:
    """The first `n` rows are learned from, the next ones choose, and the rest measures."""
    parts = np.split(np.arange(len(x)), [n, n + validation])
    return Sample(*(values[part] for part in parts for values in (x, y)))
