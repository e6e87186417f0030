"""Rows that are there more than once, and predictions that no row speaks for."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ._choice import Task

_CONTINUOUS = 0.5  # a share of rows: a column with more values than that repeats none by chance
_MANY = 20_000  # rows that are not searched for copies: a leaf of them hardly has any
_INNER = 0.01  # of targets on each side: they do not say how far the others reach
_ROOM = 0.25  # of the reach of targets: so far beyond all of them a prediction may go
_RESIDUALS = 2.0  # and so many typical residuals
_ROUNDING = 1e-9  # of the size of targets: not even then is a prediction far away


class Distinct(NamedTuple):
    """A task without repeated rows, and where each row of the old one is in it."""

    task: Task
    place: Int[np.ndarray, " old"]
    note: str


def distinct(task: Task) -> Distinct:
    """Equal rows with equal targets become one of their weight.

    Where a column has so many values that rows are not equal by chance, somebody has copied them: all copies are then
    left out together, since one of them would tell what the others are.
    """
    n = len(task.x)
    if task.x.ndim != 2 or n > _MANY:
        return Distinct(task, np.arange(n), "")
    _, first, place = np.unique(np.concatenate([task.x, task.y], 1), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)  # as they came
    place = np.argsort(order)[place.reshape(-1)]
    rows = first[order]
    weights, copies = (np.bincount(place, part, len(rows)) for part in (task.weights, task.copies))
    x = task.x[rows]
    copied = any(len(np.unique(column)) > _CONTINUOUS * len(rows) for column in x.T)
    left = np.ones(len(rows)) if copied else copies
    note = f"{n - len(rows)} rows are repeated: copies count, and are left out together." if n > len(rows) else ""
    return Distinct(Task(x, task.y[rows], weights, copies, left), place, note if copied else "")


@dataclass(frozen=True)
class Support:
    """How far predictions may go beyond the targets of the training rows; they are drawn near further on."""

    low: Float[np.ndarray, " k"]
    high: Float[np.ndarray, " k"]
    room: Float[np.ndarray, " k"]

    @classmethod
    def of(cls, y: Float[np.ndarray, "n k"], residuals: Float[np.ndarray, "m k"]) -> "Support":
        """Of targets, and of residuals of rows that were predicted from all others."""
        inner = np.quantile(y, 1 - _INNER, axis=0) - np.quantile(y, _INNER, axis=0)
        room = _ROOM * inner + _RESIDUALS * np.median(np.abs(residuals), axis=0)
        return cls(y.min(0), y.max(0), np.maximum(room, _ROUNDING))

    def __call__(self, outputs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        inside = np.clip(outputs, self.low - self.room, self.high + self.room)
        beyond = outputs - inside
        return inside + self.room * (beyond / (self.room + np.abs(beyond)))

    def shrinks(self, outputs: Float[np.ndarray, "n k"]) -> Any:
        """Which rows are concerned."""
        return np.any((outputs < self.low - self.room) | (outputs > self.high + self.room), axis=1)
