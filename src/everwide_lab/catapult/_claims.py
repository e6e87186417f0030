"""The claims of Lewkowycz et al. 2020, held against networks that were trained at many rates."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._claims import Claim, Verdict, interval, verdict_of
from ._sweep import End, Kind, Runs

EDGE = 2.0  # of the linear theory: rate times curvature
MOST, FEW = 0.9, 0.5  # shares of runs: a claim holds, does not hold
STEADY, MOVED = 0.1, 0.25  # relative changes of the curvature at the largest width
RISES = 1.05  # a loss that has risen, over the first
NEAR, FAR = 0.15, 0.3  # of a limit, relative; the grid of rates is good to 7 %
SLOPE = 0.3  # by which growth with the width may miss its prediction, relative


class Swept(NamedTuple):
    """Runs of one kind of network at one width, on a grid of multiples."""

    kind: Kind
    width: int
    multiples: np.ndarray
    runs: Runs

    def below(self) -> np.ndarray:
        """Of the multiples: below the edge."""
        return self.multiples < EDGE

    def limits(self) -> np.ndarray:
        """For each seed, where runs begin to fail: between two multiples of the grid. Infinite if none fails."""
        failed = np.isin(self.runs.ends(), (End.DIVERGED, End.STUCK)) & ~self.below()
        first = np.where(failed.any(1), failed.argmax(1), len(self.multiples))
        grid = np.append(self.multiples, math.inf)
        return np.sqrt(grid[first] * grid[first - 1])

    def catapults(self) -> np.ndarray:
        """Which runs lie between the edge and the limit of their network: `(seeds, multiples)`."""
        return ~self.below() & (self.multiples < self.limits()[:, None])


class Onset(NamedTuple):
    """Steps from the start to the highest loss, `(widths, seeds)`, at one multiple."""

    kind: Kind
    widths: tuple[int, ...]
    multiple: float
    steps: np.ndarray

    def slopes(self) -> np.ndarray:
        """More steps for a width that is e times as large, by seed."""
        logs = np.log(np.asarray(self.widths, float))
        centred = logs - logs.mean()
        return centred @ self.steps / np.sum(centred**2)

    def predicted(self) -> float:
        """What the solvable model grows by: the residual, by |1 - multiple| a step, to the root of the width."""
        return 1 / (2 * math.log(abs(1 - self.multiple)))


def claims_of(swept: Sequence[Swept], onsets: Sequence[Onset], model: np.ndarray) -> tuple[Claim, ...]:
    """One by one; `model`: limits of the solvable model."""
    return (
        _falls(swept),
        _steady(swept),
        _first_rises(swept),
        _flat(swept),
        _logarithmic(onsets),
        _limit(swept, "linear", 4.0, f" In the model of one example it is {np.mean(model):.3f}."),
        _limit(swept, "relu", 12.0, ""),
        _generalizes(swept),
    )


def _by_kind(swept: Sequence[Swept]) -> dict[Kind, list[Swept]]:
    kinds = dict.fromkeys(one.kind for one in swept)
    return {kind: [one for one in swept if one.kind == kind] for kind in kinds}


def _shares(claim: str, what: str, flags: dict[Kind, np.ndarray]) -> Claim:
    """In nearly all runs of every kind?"""
    told = {kind: values for kind, values in flags.items() if len(values)}
    if not told:
        return Claim(claim, Verdict.UNDECIDED, "No run was there to see it.")
    shares = {kind: float(np.mean(values)) for kind, values in told.items()}
    verdict = verdict_of([s >= MOST for s in shares.values()], [s < FEW for s in shares.values()])
    listed = "; ".join(f"{kind} {share:.0%} of {len(told[kind])}" for kind, share in shares.items())
    return Claim(claim, verdict, f"{what}: {listed}.")


def _falls(swept: Sequence[Swept]) -> Claim:
    flags = {
        kind: np.concatenate([(one.runs.rises[:, one.below()] == 0).ravel() for one in group])
        for kind, group in _by_kind(swept).items()
    }
    return _shares("Below 2/lambda the loss falls at every step.", "Runs in which it never rose", flags)


def _steady(swept: Sequence[Swept]) -> Claim:
    claim = "Below 2/lambda the curvature barely changes."
    changes = {kind: [_change(one) for one in group] for kind, group in _by_kind(swept).items()}
    last = [values[-1] for values in changes.values()]
    listed = "; ".join(f"{kind} {', '.join(f'{c:.0%}' for c in values)}" for kind, values in changes.items())
    widths = ", ".join(str(width) for width in dict.fromkeys(one.width for one in swept))
    verdict = verdict_of([change <= STEADY for change in last], [change > MOVED for change in last])
    return Claim(claim, verdict, f"Median relative change at widths {widths} (the last decides): {listed}.")


def _change(one: Swept) -> float:
    ratios = one.runs.curvature_end[:, one.below()] / one.runs.curvature[:, one.below()]
    return float(np.median(np.abs(ratios - 1)))


def _first_rises(swept: Sequence[Swept]) -> Claim:
    flags = {}
    for kind, group in _by_kind(swept).items():
        rose = [(one.runs.peak >= RISES) & (one.runs.peak_step > 0) for one in group]
        flags[kind] = np.concatenate([r[one.catapults()] for r, one in zip(rose, group, strict=True)])
    claim = "Between 2/lambda and the limit the loss first rises, and then falls."
    return _shares(claim, f"Runs that learned after a loss of {RISES:g} times the first", flags)


def _flat(swept: Sequence[Swept]) -> Claim:
    flags = {}
    for kind, group in _by_kind(swept).items():
        ends = [one.multiples * one.runs.curvature_end / one.runs.curvature for one in group]
        flags[kind] = np.concatenate([(e <= 1.02 * EDGE)[one.catapults()] for e, one in zip(ends, group, strict=True)])
    return _shares("After a catapult the curvature is below 2/rate.", "Runs that ended there", flags)


def _logarithmic(onsets: Sequence[Onset]) -> Claim:
    claim = "The rise takes about log(width) steps."
    slopes = [interval(one.slopes()) for one in onsets]
    wanted = [one.predicted() for one in onsets]
    near = [s.above_zero and abs(s.mean - w) <= SLOPE * w + s.half for s, w in zip(slopes, wanted, strict=True)]
    far = [s.mean + s.half < w * (1 - SLOPE) for s, w in zip(slopes, wanted, strict=True)]
    listed = "; ".join(
        f"{one.kind} {_by_width(one)}, {slope} for a width e times as large, {w:.2f} predicted"
        for one, slope, w in zip(onsets, slopes, wanted, strict=True)
    )
    multiples = ", ".join(dict.fromkeys(f"{one.multiple:g}" for one in onsets))
    return Claim(claim, verdict_of(near, far), f"Step of the highest loss at {multiples}/lambda: {listed}.")


def _by_width(one: Onset) -> str:
    return ", ".join(f"{mean:.1f} at {width}" for width, mean in zip(one.widths, one.steps.mean(1), strict=True))


def _limit(swept: Sequence[Swept], activation: str, wanted: float, more: str) -> Claim:
    claim = {
        "linear": "Without activations, and with one hidden layer, training diverges above 4/lambda.",
        "relu": "ReLU networks bear up to 12/lambda.",
    }[activation]
    groups = {kind: group for kind, group in _by_kind(swept).items() if kind.activation == activation}
    if not groups:
        return Claim(claim, Verdict.UNDECIDED, "No such network was trained." + more)
    limits = {kind: np.concatenate([one.limits() for one in group]) for kind, group in groups.items()}
    off = [abs(math.log(float(np.median(values)) / wanted)) for values in limits.values()]
    verdict = verdict_of([o <= math.log(1 + NEAR) for o in off], [o > math.log(1 + FAR) for o in off])
    if all(o > math.log(1 + NEAR) for o in off) and any(o <= math.log(1 + FAR) for o in off):
        verdict = Verdict.PARTLY
    listed = "; ".join(f"{kind} {np.median(v):.1f} ({v.min():.1f} to {v.max():.1f})" for kind, v in limits.items())
    return Claim(claim, verdict, f"Median limits, in 1/lambda, and their range over widths and seeds: {listed}.{more}")


def _generalizes(swept: Sequence[Swept]) -> Claim:
    claim = "Networks generalize better after a catapult."
    gains = {kind: np.concatenate([gain(one) for one in group]) for kind, group in _by_kind(swept).items()}
    told = {kind: interval(100 * values) for kind, values in gains.items() if len(values)}
    if not told:
        return Claim(claim, Verdict.UNDECIDED, "No network learned on both sides of 2/lambda.")
    verdict = verdict_of([g.below_zero for g in told.values()], [g.above_zero for g in told.values()])
    listed = "; ".join(f"{kind} {told.get(kind, 'not one that learned')}" for kind in gains)
    numbers = (
        "Share of test rows on the wrong side, best rate above 2/lambda minus best rate below, both chosen on "
        f"validation rows among runs that reached the same training loss, in points: {listed}."
    )
    return Claim(claim, verdict, numbers)


def gain(one: Swept) -> np.ndarray:
    """Test errors above the edge minus those below, by seed, of seeds that learned on both sides."""
    best = []
    for side in (~one.below(), one.below()):
        chosen = np.where((one.runs.ends() == End.LEARNED) & side, one.runs.validation, np.inf)
        at = chosen.argmin(1)[:, None]
        told = np.isfinite(np.take_along_axis(chosen, at, 1)[:, 0])
        best.append(np.where(told, np.take_along_axis(one.runs.test, at, 1)[:, 0], np.nan))
    apart = best[0] - best[1]
    return apart[np.isfinite(apart)]
