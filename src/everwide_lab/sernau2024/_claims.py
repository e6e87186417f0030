"""The claims of Sernau 2024, held against losses."""

import numpy as np

from .._claims import Claim, Interval, Verdict, interval, verdict_of
from ._arms import Arm, Rest

Losses = dict[Arm, np.ndarray]  # (widths, seeds), of the test text

TRACKS = 0.8  # the share of the gap that must be closed to speak of tracking
HELPS = 0.2  # below it, nothing is closed
ALIKE = 0.02  # nats: losses that do not differ


def claims_of(widths: tuple[int, ...], losses: Losses, infinite: Losses, rest: Rest) -> tuple[Claim, ...]:
    """The claims of the paper, one by one; seeds are paired: their arms share data, order and first parameters.

    `infinite`: `(seeds,)` of the arms that were run with blocks of infinite width; these are the first seeds.
    """
    claims = (
        _blocks_matter,
        _sgd_is_worse,
        _star_tracks,
        _momentum_is_not_enough,
        _wider_is_better,
        _frozen_catches_up,
    )
    with np.errstate(invalid="ignore"):  # runs may diverge, and the claims say so
        told = tuple(claim(widths, losses) for claim in claims)
        both = (*told, _approaches(widths, losses, infinite), _infinite_is_enough(widths, losses, infinite))
    return tuple(claim._replace(numbers=f"{claim.numbers} All else by {rest.value}.") for claim in both)


def _blocks_matter(widths: tuple[int, ...], losses: Losses) -> Claim:
    claim = "The MLP blocks matter here: read-outs that do not move are worse (a check, no claim of the paper)."
    gaps = {arm: interval((losses[Arm.STILL] - losses[arm]).mean(0)) for arm in (Arm.FROZEN_ADAM, Arm.FROZEN_SGD)}
    verdict = verdict_of([gap.above_zero for gap in gaps.values()], [gap.below_zero for gap in gaps.values()])
    listed = ", ".join(f"{gap} over {arm.value}" for arm, gap in gaps.items())
    return Claim(claim, verdict, f"Still read-outs cost, in the mean over the widths, nats: {listed}.")


def _sgd_is_worse(widths: tuple[int, ...], losses: Losses) -> Claim:
    gaps = [interval(gap) for gap in losses[Arm.FROZEN_SGD] - losses[Arm.FROZEN_ADAM]]
    verdict = verdict_of([gap.above_zero for gap in gaps], [gap.below_zero for gap in gaps])
    return Claim(
        "SGD on the read-out is worse than ADAM, although neither learns features.",
        verdict,
        f"SGD minus ADAM, nats: {_by_width(widths, gaps)}.",
    )


def _star_tracks(widths: tuple[int, ...], losses: Losses) -> Claim:
    claim = "ADAM* tracks frozen features with ADAM over the widths."
    behind = [interval(gap) for gap in losses[Arm.FROZEN_ADAM_STAR] - losses[Arm.FROZEN_ADAM]]
    between = f"ADAM* minus ADAM, nats: {_by_width(widths, behind)}."
    share, told = _closed(widths, losses, Arm.FROZEN_ADAM_STAR)
    if share is None:
        return Claim(claim, Verdict.UNDECIDED, f"{told} {between}")
    verdict = Verdict.HOLDS if share >= TRACKS else Verdict.PARTLY if share >= HELPS else Verdict.FAILS
    return Claim(claim, verdict, f"{told} {between}")


def _momentum_is_not_enough(widths: tuple[int, ...], losses: Losses) -> Claim:
    claim = "It takes ADAM's second moment: momentum alone does not close the gap."
    share, told = _closed(widths, losses, Arm.FROZEN_MOMENTUM)
    if share is None:
        return Claim(claim, Verdict.UNDECIDED, told)
    verdict = Verdict.FAILS if share >= TRACKS else Verdict.PARTLY if share >= HELPS else Verdict.HOLDS
    return Claim(claim, verdict, told)


def _closed(widths: tuple[int, ...], losses: Losses, arm: Arm) -> tuple[float | None, str]:
    """Which share of the gap between SGD and ADAM an arm closes, if there is one."""
    sgd, adam, other = (losses[one] for one in (Arm.FROZEN_SGD, Arm.FROZEN_ADAM, arm))
    gap = interval((sgd - adam).mean(0))
    if not gap.above_zero:
        return None, f"There is no clear gap between SGD and ADAM to close ({gap})."
    share = float((sgd - other).mean() / (sgd - adam).mean())
    shares = (sgd - other).mean(1) / (sgd - adam).mean(1)
    listed = ", ".join(f"{value:.0%} at {width}" for width, value in zip(widths, shares, strict=True))
    name = arm.value.removeprefix("frozen, ")
    return share, f"{name} closes {share:.0%} of the gap between SGD and ADAM ({listed}; {TRACKS:.0%} asked)."


def _wider_is_better(widths: tuple[int, ...], losses: Losses) -> Claim:
    claim = "The final loss falls with the width in every arm."
    if len(widths) < 2:
        return Claim(claim, Verdict.UNDECIDED, "There is one width only.")
    moving = {arm: values for arm, values in losses.items() if arm is not Arm.STILL}
    slopes = {arm: interval(slope_of(widths, values)) for arm, values in moving.items()}
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


def _approaches(widths: tuple[int, ...], losses: Losses, infinite: Losses) -> Claim:
    claim = "Finite widths approach the model whose MLP blocks are infinitely wide."
    if not infinite:
        return Claim(claim, Verdict.UNDECIDED, "No model of infinite width was trained.")
    parts, near, far = [], [], []
    for arm, values in infinite.items():
        gaps = [interval(gap) for gap in losses[arm][:, : len(values)] - values]
        first, last = abs(gaps[0].mean), abs(gaps[-1].mean)
        near.append(last <= ALIKE and last <= first)
        far.append(last > ALIKE and last >= first)
        parts.append(f"{arm.value} {np.mean(values):.3f}, finite minus infinite {_by_width(widths, gaps)}")
    return Claim(claim, verdict_of(near, far), f"Test losses, nats: {'; '.join(parts)}.")


def _infinite_is_enough(widths: tuple[int, ...], losses: Losses, infinite: Losses) -> Claim:
    claim = "With infinitely wide blocks, frozen features reach the trained model (a conjecture of the paper)."
    if Arm.FROZEN_ADAM_STAR not in infinite:
        return Claim(claim, Verdict.UNDECIDED, "No model of infinite width was trained by ADAM*.")
    values = infinite[Arm.FROZEN_ADAM_STAR]
    gap = interval(values - losses[Arm.TRAINED][-1, : len(values)])
    verdict = verdict_of([gap.mean <= ALIKE], [gap.mean > ALIKE and (gap.above_zero or not np.isfinite(gap.half))])
    return Claim(claim, verdict, f"Infinite width with ADAM*, minus trained at width {widths[-1]}, nats: {gap}.")


def slope_of(widths: tuple[int, ...], values: np.ndarray) -> np.ndarray:
    """`(widths, seeds)` to the least-squares change a doubling of the width, for each seed."""
    doublings = np.log2(np.asarray(widths, float))
    centred = doublings - doublings.mean()
    return centred @ values / np.sum(centred**2)


def _by_width(widths: tuple[int, ...], gaps: list[Interval]) -> str:
    return ", ".join(f"{value} at {width}" for width, value in zip(widths, gaps, strict=True))
