"""What is learned: images of digits, and a checkerboard."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from everwide.tables import Table

SQUARES, WIDE = 4, 2.0  # of the checkerboard, in a row; from -WIDE to WIDE


class Sample(NamedTuple):
    """A pool of rows with their classes, rows to measure on, and how many classes there are."""

    x: Float[np.ndarray, "n d"]
    y: Int[np.ndarray, " n"]
    x_test: Float[np.ndarray, "m d"]
    y_test: Int[np.ndarray, " m"]
    classes: int

    def targets(self, labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n k"]:
        """Indicators of classes, centred as if all were as frequent."""
        return np.eye(self.classes)[labels] - 1 / self.classes


class Task(NamedTuple):
    """A name, and a way to draw a sample by its seed."""

    name: str
    draw: Callable[[int], Sample]


def tasks(pool: int, tests: int) -> list[Task]:
    """Both, with pools of that size."""
    return [
        Task("digits", lambda seed: digits(pool, tests, seed)),
        Task("checkerboard", lambda seed: checkerboard(pool, tests, seed)),
    ]


def digits(pool: int, tests: int, seed: int) -> Sample:
    """All pixels alike are centred and scaled, over all rows and without a look at the classes."""
    table = Table.digits()
    x, y = table.x, np.asarray(table.y)
    order = np.random.default_rng([seed, 1]).permutation(table.n)[: pool + tests]
    rows = ((x - x.mean()) / x.std())[order]
    return Sample(rows[:pool], y[order][:pool], rows[pool:], y[order][pool:], 10)


def checkerboard(pool: int, tests: int, seed: int) -> Sample:
    """Two classes on the squares of a board."""
    x = np.random.default_rng([seed, 2]).uniform(-WIDE, WIDE, size=(pool + tests, 2))
    y = np.floor((x + WIDE) * SQUARES / (2 * WIDE)).sum(1).astype(np.int64) % 2
    return Sample(x[:pool], y[:pool], x[pool:], y[pool:], 2)
