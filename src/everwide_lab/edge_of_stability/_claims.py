"""The claims of Cohen et al. 2021 and 2022, held against runs."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .._claims import Claim, Interval, Verdict, interval, verdict_of
from ._arms import Arm, Course, Optimizer

ARRIVED = 0.95  # of the edge
BAND = (0.9, 1.15)  # of the edge: where sharpness hovers
MOST, SOME = 0.9, 0.05  # shares of looks at which sharpness has risen; of steps at which the loss has
FALLS = 0.7  # the last loss over that on arrival
SLOPE = 0.1  # by which an exponent may miss 1
SUNK = 0.5  # the last sharpness over the highest


class Followed(NamedTuple):
    """All runs of an arm, one a seed."""

    arm: Arm
    courses: tuple[Course, ...]

    def arrivals(self) -> list[int | None]:
        """The look at which each run was first at the edge; none where it never was, or diverged."""
        return [_arrival(course, self.arm.edge) if course.finished else None for course in self.courses]

    def ratios(self) -> np.ndarray:
        """By seed: sharpness over the edge, the median of all looks since the arrival; not a number without one."""
        pairs = zip(self.courses, self.arrivals(), strict=True)
        return np.array([np.nan if at is None else np.median(run.sharpness[at:]) / self.arm.edge for run, at in pairs])

    def growth(self) -> np.ndarray:
        """By seed: how much sharper on arrival, or in the end, than at the first look."""
        pairs = zip(self.courses, self.arrivals(), strict=True)
        return np.array([run.sharpness[-1 if at is None else at] / run.sharpness[0] for run, at in pairs])

    def sharpening(self) -> np.ndarray:
        """By seed: the share of the looks until the arrival at which it was sharper than before; 1 without any."""
        shares = []
        for run, at in zip(self.courses, self.arrivals(), strict=True):
            before = np.diff(run.sharpness[: None if at is None else at + 1])
            shares.append(float(np.mean(before > 0)) if len(before) else 1.0)
        return np.array(shares)

    def rises(self, *, after: bool) -> np.ndarray:
        """By seed: the share of steps after which the loss was higher, since the arrival or before it."""
        shares = []
        for run, at in zip(self.courses, self.arrivals(), strict=True):
            taken, here = np.diff(run.steps, prepend=0), np.arange(len(run.steps))
            chosen = here > at if after and at is not None else here < (len(here) if at is None else at)
            chosen = np.zeros_like(chosen) if after and at is None else chosen
            shares.append(float(np.sum((run.rises * taken)[chosen]) / max(1.0, float(taken[chosen].sum()))))
        return np.array(shares)

    def fall(self) -> np.ndarray:
        """By seed: the last loss over that on arrival; not a number without one."""
        pairs = zip(self.courses, self.arrivals(), strict=True)
        return np.array([np.nan if at is None else run.losses[-1] / run.losses[at] for run, at in pairs])


def _arrival(course: Course, edge: float) -> int | None:
    reached = course.sharpness >= ARRIVED * edge
    return int(np.argmax(reached)) if reached.any() else None


def claims_of(followed: Sequence[Followed]) -> tuple[Claim, ...]:
    """One by one."""
    squared = [one for one in followed if one.arm.squared]
    of = {kind: [one for one in squared if one.arm.optimizer is kind] for kind in Optimizer}
    return (
        _sharpens(squared),
        _hovers(of[Optimizer.DESCENT], "Trained by all rows with gradient descent, the sharpness hovers at 2/rate."),
        _exponent(of[Optimizer.DESCENT]),
        _uneven(of[Optimizer.DESCENT]),
        _hovers(of[Optimizer.MOMENTUM], "With momentum it hovers at 2 (1 + momentum)/rate."),
        _hovers(
            of[Optimizer.ADAM],
            "With Adam (2022) the preconditioned sharpness hovers at 2 (1 + b1)/((1 - b1) rate), 38/rate.",
        ),
        _goes_on(of[Optimizer.ADAM]),
        _sinks([one for one in followed if not one.arm.squared]),
    )


def _sharpens(followed: Sequence[Followed]) -> Claim:
    grown = [interval(np.log(one.growth())) for one in followed]
    steady = [float(np.mean(one.sharpening())) for one in followed]
    wanted = [each.above_zero and share >= MOST for each, share in zip(grown, steady, strict=True)]
    listed = "; ".join(
        f"{one.arm} {np.mean(one.growth()):.2f} times, {share:.0%}" for one, share in zip(followed, steady, strict=True)
    )
    return Claim(
        "Below the edge training sharpens (progressive sharpening).",
        verdict_of(wanted, [each.below_zero for each in grown]),
        f"How much sharper on arrival at the edge, or in the end, than at the first look, and looks at which it was "
        f"sharper than before ({MOST:.0%} asked): {listed}.",
    )


def _within(found: Interval, low: float, high: float) -> tuple[bool, bool]:
    """All of the interval is between the two; or all of it is outside."""
    inside = low < found.mean - found.half and found.mean + found.half < high
    return inside, found.mean + found.half < low or found.mean - found.half > high


def _hovers(followed: Sequence[Followed], claim: str) -> Claim:
    pairs, listed = [], []
    for one in followed:
        known = one.ratios()[np.isfinite(one.ratios())]
        found = interval(known) if len(known) else None
        missed = len(known) < len(one.courses)
        inside, outside = (False, True) if found is None else _within(found, *BAND)
        pairs.append((inside and not missed, outside))
        said = "never there" if found is None else f"{found.mean:.3f} ± {found.half:.3f}"
        listed.append(
            f"{one.arm} {said}{f', {len(known)} of {len(one.courses)} runs' if missed and len(known) else ''}"
        )
    verdict = verdict_of([inside for inside, _ in pairs], [outside for _, outside in pairs])
    numbers = f"Sharpness over the edge since the arrival, median of the looks ({BAND[0]} to {BAND[1]} asked): "
    return Claim(claim, verdict, f"{numbers}{'; '.join(listed)}.")


def _exponent(followed: Sequence[Followed]) -> Claim:
    claim = "So the rate sets the sharpness: half the rate leads to twice as sharp places."
    sharp = np.stack([one.ratios() * one.arm.edge for one in followed])
    logs = np.log([1 / one.arm.rate for one in followed])
    if len(followed) < 2 or not np.isfinite(sharp).all():
        return Claim(claim, Verdict.UNDECIDED, "Not all runs reached the edge.")
    centred = logs - logs.mean()
    found = interval(centred @ np.log(sharp) / np.sum(centred**2))
    inside, outside = _within(found, 1 - SLOPE, 1 + SLOPE)
    numbers = f"Exponent of the sharpness in 1/rate (1 ± {SLOPE} asked), gradient descent: {found}."
    return Claim(claim, verdict_of([inside], [outside]), numbers)


def _uneven(followed: Sequence[Followed]) -> Claim:
    wanted, against, listed = [], [], []
    for one in followed:
        before, after, fall = one.rises(after=False), one.rises(after=True), one.fall()
        often, left = interval(after - SOME), interval(np.log(fall))
        wanted.append(often.above_zero and left.mean + left.half < math.log(FALLS))
        against.append(often.below_zero or left.above_zero)
        said = f"{before.mean():.0%}, {after.mean():.0%}, {np.mean(fall):.2f}"
        listed.append(f"{one.arm} {said if np.isfinite(fall).all() else 'not all at the edge'}")
    numbers = (
        "Steps after which the loss was higher, before and after the arrival, and the last loss over that on arrival "
        f"(over {SOME:.0%} and below {FALLS} asked): {'; '.join(listed)}."
    )
    claim = "At the edge the loss rises at many steps, and still falls in the long run."
    return Claim(claim, verdict_of(wanted, against), numbers)


def _changes(followed: Sequence[Followed], change: Callable[[Followed], np.ndarray]) -> list[Interval]:
    return [interval(np.log(change(one))) for one in followed]


def _goes_on(followed: Sequence[Followed]) -> Claim:
    """The sharpness that no preconditioner changes, at the end over that on arrival."""

    def change(one: Followed) -> np.ndarray:
        pairs = zip(one.courses, one.arrivals(), strict=True)
        return np.array([np.nan if at is None else run.raw[-1] / run.raw[at] for run, at in pairs])

    found = _changes(followed, change)
    listed = "; ".join(
        f"{one.arm} {'not all at the edge' if np.isnan(each.mean) else f'{np.exp(each.mean):.2f}'}"
        for one, each in zip(followed, found, strict=True)
    )
    return Claim(
        "With Adam the sharpness itself goes on rising at the edge, as the preconditioner adapts (2022).",
        verdict_of([each.above_zero for each in found], [each.below_zero for each in found]),
        f"Sharpness without preconditioning, at the end over that on arrival: {listed}.",
    )


def _sinks(followed: Sequence[Followed]) -> Claim:
    def change(one: Followed) -> np.ndarray:
        return np.array([run.sharpness[-1] / run.sharpness.max() / SUNK for run in one.courses])

    found = _changes(followed, change)
    ends = [float(np.mean([run.sharpness[-1] for run in one.courses])) for one in followed]
    listed = "; ".join(
        f"{one.arm} {SUNK * np.exp(each.mean):.3f}, {last / one.arm.edge:.3f}"
        for one, each, last in zip(followed, found, ends, strict=True)
    )
    return Claim(
        "With cross-entropy the sharpness falls at the end of training.",
        verdict_of([each.below_zero for each in found], [each.above_zero for each in found]),
        f"The last sharpness over the highest ({SUNK} or less asked), and over the edge: {listed}.",
    )
