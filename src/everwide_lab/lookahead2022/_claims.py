"""The claims of Mohamadi, Bae and Sutherland 2022, held against measurements."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._claims import Claim, interval, verdict_of
from ._querying import Strategy
from ._retraining import Course, Guess

AGREES = 0.5  # of a rank correlation
ALIKE = 0.02  # of an accuracy


class Measured(NamedTuple):
    """Of one task, one number for each seed.

    - `ranks`, `cosines`: agreement of a guess with a course of training.
    - `accuracies`: `(seeds, rounds + 1)` of each strategy; `sizes`: labelled rows.
    """

    task: str
    sizes: tuple[int, ...]
    ranks: dict[tuple[Course, Guess], np.ndarray]
    cosines: dict[tuple[Course, Guess], np.ndarray]
    accuracies: dict[Strategy, np.ndarray]

    def area(self, strategy: Strategy) -> np.ndarray:
        """The mean accuracy after the rounds, by seed."""
        return self.accuracies[strategy][:, 1:].mean(1)


def claims_of(measured: Sequence[Measured]) -> tuple[Claim, ...]:
    """One by one."""
    return (
        _ranks(measured),
        _nearer(measured, Guess.INFINITE, "It foresees the changes better than the kernel of infinite width."),
        _nearer(measured, Guess.START, "It foresees them better than the kernel before training."),
        _nearer(measured, Guess.STEP, "It foresees them better than one step of gradient descent on the candidate."),
        _better(measured, Strategy.RANDOM, 0.0, "Rows chosen by look-ahead teach more than random rows."),
        _better(measured, Strategy.INFINITE, 0.0, "They teach more than rows chosen with the infinite kernel."),
        _better(measured, Strategy.MARGIN, ALIKE, f"They teach as much as those of margins, within {ALIKE:.0%}."),
        _better(measured, Strategy.ENTROPY, ALIKE, f"They teach as much as those of entropies, within {ALIKE:.0%}."),
    )


def _ranks(measured: Sequence[Measured]) -> Claim:
    """Are candidates ranked as by training with each of them?"""
    found = [interval(one.ranks[course, Guess.TRAINED]) for one in measured for course in Course]
    verdict = verdict_of(
        [one.mean - one.half > AGREES for one in found], [one.mean + one.half < AGREES for one in found]
    )
    names = [f"{one.task}, {course.value}" for one in measured for course in Course]
    listed = "; ".join(f"{name} {one}" for name, one in zip(names, found, strict=True))
    claim = "The tangent kernel of the trained network ranks candidates as real retraining does."
    return Claim(claim, verdict, f"Rank correlations of changes in all ({AGREES} asked): {listed}.")


def _nearer(measured: Sequence[Measured], other: Guess, claim: str) -> Claim:
    """Is the direction of changes met better?"""
    names, gaps, means = [], [], []
    for one in measured:
        for course in Course:
            ours, theirs = one.cosines[course, Guess.TRAINED], one.cosines[course, other]
            names.append(f"{one.task}, {course.value}")
            means.append((float(np.mean(ours)), float(np.mean(theirs))))
            gaps.append(interval(ours - theirs))
    listed = "; ".join(
        f"{name} {ours:.2f}, {theirs:.2f}, {gap}" for name, (ours, theirs), gap in zip(names, means, gaps, strict=True)
    )
    verdict = verdict_of([gap.above_zero for gap in gaps], [gap.below_zero for gap in gaps])
    return Claim(claim, verdict, f"Cosines with real changes, of the trained kernel, of this, difference: {listed}.")


def _better(measured: Sequence[Measured], other: Strategy, slack: float, claim: str) -> Claim:
    """Is accuracy over the curve higher, or lower by no more than `slack`?"""
    gaps = [interval(one.area(Strategy.MLMOC) - one.area(other)) for one in measured]
    wanted = [gap.mean - gap.half > -slack for gap in gaps]
    against = [gap.mean + gap.half < -slack for gap in gaps]
    listed = "; ".join(
        f"{one.task} {np.mean(one.area(Strategy.MLMOC)):.3f}, {np.mean(one.area(other)):.3f}, {gap}"
        for one, gap in zip(measured, gaps, strict=True)
    )
    return Claim(claim, verdict_of(wanted, against), f"Mean accuracies over the curve, and their difference: {listed}.")
