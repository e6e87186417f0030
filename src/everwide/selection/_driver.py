"""Picks candidates one after the other: what costs, groups and near-duplicates mean, for all methods."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from .._checks import InputError, row_weights
from .._words import number
from ._methods import AbstractMethod, Pool

_NEAR = 1e-3  # rows whose scaled inputs differ by less, in units of a typical row, are the same row


class Asked(NamedTuple):
    """Costs and groups of all `n` rows, as they were given."""

    costs: Any
    groups: Any
    n: int


class Driver:
    """Scores are divided by costs, groups are taken in turn, and no row is taken twice.

    `inputs` are scaled, in the order of the pool; `order` are the numbers of its rows.
    """

    def __init__(self, inputs: Float[np.ndarray, "m d"], pool: Pool, order: np.ndarray, asked: Asked):
        self.inputs, self.labelled, self.rng = inputs, pool.labelled, pool.rng
        self.costs: Float[np.ndarray, " c"] = row_weights(asked.costs, asked.n, "costs")[order[pool.labelled :]]
        self.near = _NEAR**2 * float(np.mean(np.sum(inputs**2, axis=1)))
        self.allowed: Bool[np.ndarray, " c"] = np.ones(pool.size, bool)
        self.groups: Int[np.ndarray, " c"] = _groups(asked.groups, asked.n)[order[pool.labelled :]]
        self.taken: Int[np.ndarray, " g"] = np.zeros(asked.n, np.int64)
        self.known = list(range(pool.labelled))
        self.passed_over: dict[int, int] = {}

    def run(self, method: AbstractMethod, size: int) -> tuple[np.ndarray, list[str], np.ndarray]:
        """Picks, reasons, and scores at the moment of picking."""
        picks: list[int] = []
        why: list[str] = []
        scores: list[float] = []
        while len(picks) < size and self.allowed.any():
            fewest = int(self.taken[self.groups[self.allowed]].min())
            values = method.scores(self.allowed & (self.taken[self.groups] == fewest))
            pick = self._pick(values / self.costs, fewest, method.random)
            if pick is None:
                continue
            cost = f", at a cost of {number(self.costs[pick])}" if (self.costs != self.costs[0]).any() else ""
            why.append(method.reason(pick, float(values[pick])) + cost)
            scores.append(float(values[pick]))
            picks.append(pick)
            method.add(pick)
            self.allowed[pick] = False
            self.taken[self.groups[pick]] += 1
            self.known.append(self.labelled + pick)
        return np.array(picks, np.int64), why, np.array(scores)

    def _pick(self, worth: Float[np.ndarray, " c"], fewest: int, random: bool) -> int | None:
        """The best candidate that is no near-duplicate; None where all that are open were passed over."""
        while (open_rows := np.flatnonzero(self.allowed & (self.taken[self.groups] == fewest))).size:
            some = np.maximum(worth[open_rows], 0)
            if random and some.sum() > 0:
                pick = int(self.rng.choice(open_rows, p=some / some.sum()))
            else:
                pick = int(open_rows[np.argmax(some)])
            twin = self._twin(self.labelled + pick)
            if twin is None:
                return pick
            self.allowed[pick], self.passed_over[self.labelled + pick] = False, twin
        return None

    def _twin(self, row: int) -> int | None:
        """A labelled or picked row that is nearly the same."""
        if not self.known:
            return None
        away = np.sum((self.inputs[self.known] - self.inputs[row]) ** 2, axis=1)
        nearest = int(np.argmin(away))
        return self.known[nearest] if away[nearest] <= self.near else None


def _groups(groups: Any, n: int) -> Int[np.ndarray, " n"]:
    """Numbers of the groups of rows that tell about each other; by default they are one group."""
    if groups is None:
        return np.zeros(n, np.int64)
    given = np.asarray(groups)
    if given.shape != (n,):
        raise InputError(f"groups have shape {given.shape}, expected ({n},), one for each row of x.")
    return np.unique(given, return_inverse=True)[1].reshape(-1)
