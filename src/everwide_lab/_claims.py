"""What a paper says, and what the numbers say about it."""

import enum
import math
from typing import NamedTuple

import numpy as np
import scipy.stats


class Verdict(enum.StrEnum):
    """Does a claim hold in the numbers of this run?

    >>> from everwide_lab._claims import Verdict
    >>> Verdict.UNDECIDED.value
    'undecided'
    """

    HOLDS = "holds"
    PARTLY = "holds in part"
    FAILS = "does not hold"
    UNDECIDED = "undecided"


class Claim(NamedTuple):
    """A claim of a paper, the verdict of this run, and the numbers behind it.

    >>> from everwide_lab._claims import Claim, Verdict
    >>> print(Claim("Loss falls with width.", Verdict.HOLDS, "-0.2 a doubling"))
    Loss falls with width. This holds here: -0.2 a doubling
    """

    claim: str
    verdict: Verdict
    numbers: str

    def __str__(self) -> str:
        here = {Verdict.UNDECIDED: "This is undecided here"}.get(self.verdict, f"This {self.verdict.value} here")
        return f"{self.claim} {here}: {self.numbers}"


class Interval(NamedTuple):
    """A mean over seeds and half the width of its 95 % interval (Student), which is infinite for a single seed.

    Where a run has diverged the mean is not a number, and the interval says nothing.
    """

    mean: float
    half: float

    @property
    def above_zero(self) -> bool:
        """All of the interval."""
        return self.mean - self.half > 0

    @property
    def below_zero(self) -> bool:
        """All of the interval."""
        return self.mean + self.half < 0

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "diverged"
        return f"{self.mean:+.3f} ± {self.half:.3f}" if math.isfinite(self.half) else f"{self.mean:+.3f} (one seed)"


def interval(values: np.ndarray) -> Interval:
    """Of one value for each seed."""
    if not np.isfinite(values).all():
        return Interval(math.nan, math.inf)
    if len(values) < 2:
        return Interval(float(np.mean(values)), math.inf)
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Interval(float(np.mean(values)), float(scipy.stats.t.ppf(0.975, len(values) - 1)) * error)


def verdict_of(wanted: list[bool], against: list[bool]) -> Verdict:
    """Holds if it does everywhere; fails if everywhere the opposite does; partly if it holds in some places."""
    if all(wanted):
        return Verdict.HOLDS
    if all(against):
        return Verdict.FAILS
    if any(wanted):
        return Verdict.PARTLY
    return Verdict.FAILS if any(against) else Verdict.UNDECIDED
