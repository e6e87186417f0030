"""What every attribution tells."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .._checks import InputError, whole
from .._losses import AbstractLoss


@dataclass(frozen=True, eq=False)
class Attribution:
    """How much test rows owe to training rows. Made by `influence`, and by `leave_out` from its predictions.

    - `scores`: `(tests, rows)`, by how much the loss of a test row would rise without a training row. Above 0, the
      training row helps; below 0, it harms.
    - `losses`: `(rows,)`, of the training rows themselves.
    - `self_influence`: `(rows,)`, by how much these would rise, each without its own row: large where nothing but the
      row itself explains its target.

    With groups of rows, `rows` are groups, and what is said of a group is a mean over its rows.
    """

    scores: Float[np.ndarray, "tests rows"]
    losses: Float[np.ndarray, " rows"]
    self_influence: Float[np.ndarray, " rows"]

    def top(self, n: int = 10, *, harmful: bool = False) -> Int[np.ndarray, "tests n"]:
        """The `n` rows that help each test row most, or harm it most: their places, the strongest first."""
        return np.argsort(self.scores if harmful else -self.scores, axis=1, kind="stable")[:, : self._at_most(n)]

    def suspects(self, n: int = 10) -> Int[np.ndarray, " n"]:
        """The `n` rows that would have the largest losses if they had not been learned: labels to look at first."""
        return np.argsort(-(self.losses + self.self_influence), kind="stable")[: self._at_most(n)]

    def _at_most(self, n: int) -> int:
        if whole(n, "n") > len(self.losses):
            raise InputError(f"n={n}: there are {len(self.losses)} rows to choose from.")
        return n


def wide_targets(law: AbstractLoss, y: Any, outputs: int, sizes: tuple[str, str, int]) -> np.ndarray:
    """Checked targets, numbers in float64; `sizes` are the names of targets and rows, and how many there are."""
    targets, _ = law.targets(y, outputs)
    of_y, of_x, n = sizes
    if len(targets) != n:
        raise InputError(f"{of_y} has {len(targets)} rows and {of_x} {n}: they must agree.")
    return targets.astype(np.float64) if targets.dtype.kind == "f" else targets
