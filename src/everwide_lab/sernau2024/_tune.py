"""Learning rates, chosen on validation loss from grids that grow until their best point lies inside."""

import math
from collections.abc import Callable
from typing import NamedTuple

FACTOR = math.sqrt(10)
MOST = 7  # points of a grid


class Choice(NamedTuple):
    """The best rate of a grid, all that was tried, and whether the best lies inside."""

    rate: float
    tried: dict[float, float]  # rate: loss
    inside: bool


def tune(loss: Callable[[float], float], first: float, most: int = MOST) -> Choice:
    """Try `first` and its neighbours, then go on towards the best until there are worse rates on both sides of it.

    Rates that diverge have an infinite loss: where all do, the grid grows downwards.
    """
    tried = {power: loss(_rate(first, power)) for power in (-1, 0, 1)}
    best = _best(tried)
    while best in (min(tried), max(tried)) and len(tried) < most:
        power = best + 1 if best == max(tried) else best - 1
        tried[power] = loss(_rate(first, power))
        best = _best(tried)
    inside = min(tried) < best < max(tried)
    return Choice(_rate(first, best), {_rate(first, p): tried[p] for p in sorted(tried)}, inside)


def _best(tried: dict[int, float]) -> int:
    return min(tried, key=lambda power: (tried[power], power))


def _rate(first: float, power: int) -> float:
    """Four digits are enough, and look the same in every file."""
    return float(f"{first * FACTOR**power:.4g}")
