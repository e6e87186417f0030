"""The claims of Sernau 2024, held against losses."""

import numpy as np

from .._claims import Claim, Interval, Verdict, interval, verdict_of
from ._arms import Arm

Losses = dict[Arm, np.ndarray]  # (widths, seeds), of the test text

TRACKS = 0.8  # the share of the gap that must be closed to speak of tracking
HELPS = 0.2  # below it, nothing is closed


def claims_of(widths: tuple[int, ...], losses: Losses) -> tuple[Claim, ...]:
    """The claims of the paper, one by one; seeds are paired: their arms share data, order and first parameters."""
    claims = (_sgd_is_worse, _star_tracks, _wider_is_better, _frozen_catches_up)
    with np.errstate(invalid="ignore"):  # runs may diverge, and the claims say so
        return tuple(claim(widths, losses) for claim in claims)


def _sgd_is_worse(widths: tuple[int, ...], losses: Losses) -> Claim:
    gaps = [interval(gap) for gap in losses[Arm.FROZEN_SGD] - losses[Arm.FROZEN_ADAM]]
    verdict = verdict_of([gap.above_zero for gap in gaps], [gap.below_zero for gap in gaps])
    return Claim(
        "SGD on the read-out is worse than ADAM, although neither learns features.",
        verdict,
        f"SGD minus ADAM, nats: {_by_width(widths, gaps)}.",
    )


def _star_tracks(widths: tuple[int, ...], losses: Losses) -> Claim:
    sgd, adam, star = (losses[arm] for arm in (Arm.FROZEN_SGD, Arm.FROZEN_ADAM, Arm.FROZEN_ADAM_STAR))
    claim = "ADAM* tracks frozen features with ADAM over the widths."
    gap = interval((sgd - adam).mean(0))
    behind = [interval(difference) for difference in star - adam]
    between = f"ADAM* minus ADAM, nats: {_by_width(widths, behind)}."
    if not gap.above_zero:
        return Claim(
            claim, Verdict.UNDECIDED, f"There is no clear gap between SGD and ADAM to close ({gap}). {between}"
        )
    share = float((sgd - star).mean() / (sgd - adam).mean())
    shares = (sgd - star).mean(1) / (sgd - adam).mean(1)
    listed = ", ".join(f"{value:.0%} at {width}" for width, value in zip(widths, shares, strict=True))
    verdict = Verdict.HOLDS if share >= TRACKS else Verdict.PARTLY if share >= HELPS else Verdict.FAILS
    return Claim(
        claim,
        verdict,
        f"It closes {share:.0%} of the gap between SGD and ADAM ({listed}; {TRACKS:.0%} asked). {between}",
    )


def _wider_is_better(widths: tuple[int, ...], losses: Losses) -> Claim:
    claim = "The final loss falls with the width in every arm."
    if len(widths) < 2:
        return Claim(claim, Verdict.UNDECIDED, "There is one width only.")
    slopes = {arm: interval(slope_of(widths, values)) for arm, values in losses.items()}
    verdict = verdict_of([s.below_zero for s in slopes.values()], [s.above_zero for s in slopes.values()])
    listed = "; ".join(f"{arm.value} {slope}" for arm, slope in slopes.items())
    return Claim(claim, verdict, f"Change of the loss a doubling of the width, nats: {listed}.")


def _frozen_catches_up(widths: tuple[int, ...], losses: Losses) -> Claim:
    claim = "Frozen features with ADAM converge to the trained model as the width grows (a conjecture of the paper)."
    gaps = losses[Arm.FROZEN_ADAM] - losses[Arm.TRAINED]
    listed = f"Frozen minus trained, nats: {_by_width(widths, [interval(gap) for gap in gaps])}"
    if len(widths) < 2:
        return Claim(claim, Verdict.UNDECIDED, f"{listed}. There is one width only.")
    slope, last = interval(slope_of(widths, gaps)), interval(gaps[-1])
    numbers = f"{listed}; the gap changes by {slope} a doubling of the width."
    if not interval(gaps.mean(0)).above_zero:
        return Claim(claim, Verdict.UNDECIDED, f"{numbers} There is no clear gap to close.")
    if slope.below_zero and not last.above_zero:
        return Claim(claim, Verdict.HOLDS, numbers)
    verdict = Verdict.PARTLY if slope.below_zero else Verdict.FAILS if slope.above_zero else Verdict.UNDECIDED
    ratio = gaps[-1].mean() / gaps[0].mean()
    remains = f" At width {widths[-1]} it is {ratio:.2f} times as large as at {widths[0]}."
    return Claim(claim, verdict, numbers + remains)


def slope_of(widths: tuple[int, ...], values: np.ndarray) -> np.ndarray:
    """`(widths, seeds)` to the least-squares change a doubling of the width, for each seed."""
    doublings = np.log2(np.asarray(widths, float))
    centred = doublings - doublings.mean()
    return centred @ values / np.sum(centred**2)


def _by_width(widths: tuple[int, ...], gaps: list[Interval]) -> str:
    return ", ".join(f"{value} at {width}" for width, value in zip(widths, gaps, strict=True))
