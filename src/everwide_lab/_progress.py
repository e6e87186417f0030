"""How far a reproduction is."""

from collections.abc import Callable
from typing import NamedTuple


class Stage(NamedTuple):
    """What is done, out of how much, and what is under way. The total may grow: grids of rates are extended.

    >>> from everwide_lab._progress import Stage
    >>> Stage(3, 10, "frozen-sgd, width 64").done
    3
    """

    done: float
    total: float
    note: str


Watcher = Callable[[Stage], None]


def unwatched(stage: Stage) -> None:
    """Nobody looks."""
