"""The claims of Vyas, Bansal and Nakkiran 2022, held against exponents."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._claims import Claim, Interval, Verdict, interval, verdict_of
from ._learners import PARTS, PRETRAINING, Learner

ALIKE = 0.15  # exponents that do not differ
STILL = 0.2  # the share of its way that a kernel must have before it, to be on the way


class Measured(NamedTuple):
    """Of one task: errors `(seeds, sizes)` of each learner; `(seeds, moments)` of the kernel at parts of training."""

    task: str
    sizes: tuple[int, ...]
    errors: dict[Learner, np.ndarray]
    course_errors: np.ndarray
    course_distances: np.ndarray

    def exponents(self, learner: Learner, least: int = 0) -> np.ndarray:
        """`a` in error ~ n^-a, by seed, of sizes from `least` on: least squares over logarithms. NaN of one size."""
        used = np.asarray(self.sizes) >= least
        if used.sum() < 2:
            return np.full(len(self.errors[learner]), np.nan)
        logs = np.log(np.asarray(self.sizes, float)[used])
        centred = logs - logs.mean()
        return -np.log(self.errors[learner][:, used]) @ centred / np.sum(centred**2)


def claims_of(measured: Sequence[Measured]) -> tuple[Claim, ...]:
    """One by one."""
    if any(len(one.sizes) < 2 for one in measured):
        return (Claim("Networks have better exponents than kernels.", Verdict.UNDECIDED, "There is one size only."),)
    few = f"A kernel that was trained on {PRETRAINING} rows does not catch up with the exponent of the network."
    return (
        _ahead(
            measured, Learner.INFINITE, "Networks have better exponents in the amount of data than infinite kernels."
        ),
        _ahead(measured, Learner.START, "They have better exponents than their own kernels at the start."),
        _ahead(measured, Learner.PRETRAINED, few, PRETRAINING),
        _alike(measured),
        _evolves(measured),
    )


def _ahead(measured: Sequence[Measured], learner: Learner, claim: str, least: int = 0) -> Claim:
    """Are the exponents of networks larger, of sizes from `least` on? Pairs by seed."""
    gaps = [interval(one.exponents(Learner.NETWORK, least) - one.exponents(learner, least)) for one in measured]
    if any(np.isnan(gap.mean) for gap in gaps):
        return Claim(claim, Verdict.UNDECIDED, f"There are not two sizes from {least} rows on.")
    verdict = verdict_of([gap.above_zero for gap in gaps], [gap.below_zero for gap in gaps])
    since = f", from {least} rows on" if least else ""
    listed = _listed(measured, learner, gaps, least)
    return Claim(claim, verdict, f"Exponents of network, kernel, and their difference{since}: {listed}.")


def _alike(measured: Sequence[Measured]) -> Claim:
    gaps = [interval(one.exponents(Learner.NETWORK) - one.exponents(Learner.TRAINED)) for one in measured]
    near = [abs(gap.mean) <= ALIKE for gap in gaps]
    far = [abs(gap.mean) - gap.half > ALIKE for gap in gaps]
    claim = "The kernel after training on all rows has the exponent of the network (a claim of others)."
    numbers = f"Exponents of network, kernel, and their difference: {_listed(measured, Learner.TRAINED, gaps)}."
    return Claim(claim, verdict_of(near, far), numbers)


def _listed(measured: Sequence[Measured], learner: Learner, gaps: Sequence[Interval], least: int = 0) -> str:
    def mean(one: Measured, which: Learner) -> str:
        return f"{np.mean(one.exponents(which, least)):.2f}"

    return "; ".join(
        f"{one.task} {mean(one, Learner.NETWORK)}, {mean(one, learner)}, {gap}"
        for one, gap in zip(measured, gaps, strict=True)
    )


def _evolves(measured: Sequence[Measured]) -> Claim:
    shares = [interval(one.course_distances[:, 1] / one.course_distances[:, 0]) for one in measured]
    verdict = verdict_of([s.mean - s.half > STILL for s in shares], [s.mean + s.half < STILL for s in shares])
    listed = "; ".join(f"{one.task} {share}" for one, share in zip(measured, shares, strict=True))
    numbers = (
        f"1 - alignment (CKA) with the last kernel after {PARTS[0]:.0%} of the steps, over that at the start ({STILL} "
        f"asked), at {measured[0].sizes[-1]} rows or the most there are: {listed}."
    )
    return Claim("The kernel goes on changing during most of the training.", verdict, numbers)
