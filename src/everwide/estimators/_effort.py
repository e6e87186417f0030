"""How much work goes into a table: rows, steps and networks, as many as fit into the seconds that one has."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

_BELOW = 0.8  # of a budget is planned for: forecasts err
_EVALUATIONS = 1.4  # of a criterion, for every step
_WAYS, _MIXED, _RIDGES = 3, 2, 5  # in which columns are looked at, those that take full steps, ridges for each
FOLDED, FOLDS, _PART = 600, 3, 0.7  # up to so many rows, so many parts; beyond, numbers are learned from one part
_MEMBERS = 4  # networks that are usually kept
_FACTORS = 4  # how much longer it takes to factorize, to invert and to solve than to factorize


@dataclass(frozen=True)
class Effort:
    """Rows from which numbers are learned, rows on which shares are chosen, and steps for each kind of metric."""

    rows: int = 700
    compared: int = 1400
    steps: int = 15
    full_steps: int = 10
    refined: int = 5000  # rows up to which a ridge is chosen again on all of them
    exact: int = 12_000  # rows that are solved for at once; more are solved for leaf by leaf

    @property
    def leaf(self) -> int:
        """Rows of a leaf."""
        return self.exact // 2

    def parts(self, n: int) -> list[int]:
        """From how many of `n` compared rows numbers are learned, time after time: from parts, at last from all."""
        most = min(self.rows, n)
        some = [min(n - len(range(fold, n, FOLDS)), most) for fold in range(FOLDS)] if n <= FOLDED else [self.part(n)]
        return some if some[0] == most else [*some, most]

    def part(self, n: int) -> int:
        """Of many rows, those that numbers are learned from while the others are kept out."""
        return min(self.rows, int(_PART * n))

    def seconds(self, n: int, cost: Callable[[int], float], rate: float, workers: int) -> float:
        """A forecast for `n` rows: `cost` of one evaluation with so many rows, and `rate` of factorizing."""
        learned, compared = min(self.rows, n), min(self.compared, n)
        evaluations = _EVALUATIONS * (_WAYS * self.steps + _MIXED * self.full_steps)
        steps = evaluations * sum(map(cost, self.parts(compared))) if learned else 0.0
        among = (_WAYS * (learned > 0) + 2) * _RIDGES * _FACTORS * compared**3 / 3 / rate
        again = _RIDGES if compared < n <= self.refined else 1
        size, leaves = (n, 1.0) if n <= self.exact else (self.leaf, n / self.leaf)
        members = _MEMBERS if learned else 2
        last = members * leaves * (cost(size) + again * _FACTORS * size**3 / 3 / rate)
        return (steps + among) / workers + last


USUAL = Effort()
_LEVELS = (
    Effort(0, 500, 0, 0, 0, 2000),
    Effort(200, 500, 8, 5, 1000, 4000),
    Effort(400, 800, 12, 8, 2000, 8000),
    USUAL,
    Effort(1200, 2400, 25, 20),
    Effort(2000, 4000, 40, 40, 8000),
    Effort(3000, 6000, 60, 60, 12_000),
)


class Clock:
    """Of one fit: what is left of its budget, and what it is doing."""

    def __init__(self, budget: float | None, verbose: bool):
        self.budget, self.verbose, self.start = budget, verbose, time.perf_counter()

    @property
    def spent(self) -> float:
        """Seconds since the fit began."""
        return time.perf_counter() - self.start

    def late(self, share: float = 1.0) -> bool:
        """Whether more than this share of the budget is gone."""
        return self.budget is not None and self.spent > share * self.budget

    def say(self, words: str) -> None:
        """What is being done, where progress is asked for."""
        if self.verbose:
            within = "" if self.budget is None else f" of {self.budget:g}"
            sys.stderr.write(f"{self.spent:6.1f}{within} s  {words}\n")
            sys.stderr.flush()


def effort_for(n: int, clock: Clock, ready: Callable[[int], Callable[[], Any]], workers: int, most: int) -> Effort:
    """The most that fits into what is left; without a budget, the usual.

    Args:
        n: rows.
        clock: of the fit.
        ready: makes an evaluation with so many rows ready, which is timed.
        workers: threads that learn side by side.
        most: rows that numbers are learned from at once.
    """
    if clock.budget is None:
        return USUAL
    small = min(n, 300, most)
    evaluate = ready(small)
    evaluate()
    seconds, rate = min(_timed(evaluate) for _ in range(3)), _rate()
    left = _BELOW * (clock.budget - clock.spent)

    def factorized(rows: int) -> float:
        return 2 * _FACTORS * rows**3 / 3 / rate

    def cost(rows: int) -> float:
        return max(seconds - factorized(small), 0.0) * (rows / small) ** 2 + factorized(rows)

    def seconds_of(level: Effort) -> float:
        return replace(level, rows=min(level.rows, most)).seconds(n, cost, rate, workers)

    fitting = [level for level in _LEVELS if seconds_of(level) <= left]
    return fitting[-1] if fitting else _LEVELS[0]


def _timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _rate(size: int = 400) -> float:
    """Operations a second: half of what products of matrices reach."""
    matrix = np.ones((size, size))
    return size**3 / min(_timed(lambda: matrix @ matrix) for _ in range(3))
