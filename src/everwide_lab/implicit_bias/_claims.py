"""The claims of Woodworth et al. 2020 and Soudry et al. 2018, held against what was trained."""

import math
from collections.abc import Sequence

import numpy as np

from .._claims import Claim, Verdict, interval, verdict_of
from ._separable import LATE, Descent, Separable
from ._sparse import Sparse

NEAR, FAR = 0.02, 0.2  # of a prediction: it is met, it is missed
SOLVED = 0.05  # of the true coefficients, squared: what is left where they are found
LOGARITHMIC, FASTER = 0.7, 0.5  # of what a law of the logarithm predicts
SLOPE = 0.1  # by which an exponent may miss its prediction
GROWTH = 0.15  # the same, of the growth of weights
TRACKS = 0.05  # of a direction's distance: descent is on the flow's way
RISES = 1.05  # a loss that has risen, over the lowest


def claims_of(sparse: Sequence[Sparse], separable: Sequence[Separable]) -> tuple[Claim, ...]:
    """One by one; scales ascend."""
    return (
        _limit(sparse),
        _kernel(sparse[-1]),
        _sparsest(sparse[0]),
        _logarithmic(sparse[0], sparse[2]),
        _generalizes(sparse[0], sparse[-1]),
        _direction(separable),
        _inverse_time(separable),
        _growth(separable),
        _test_loss(separable),
        _adam(separable),
    )


def _limit(sparse: Sequence[Sparse]) -> Claim:
    off = [float(one.off.mean()) for one in sparse]
    listed = ", ".join(f"{o:.4f} from {one.scale:g}" for o, one in zip(off, sparse, strict=True))
    verdict = verdict_of([o <= NEAR for o in off], [o > FAR for o in off])
    numbers = f"Distance of trained coefficients from those predicted, relative: {listed}."
    return Claim(
        "Gradient descent ends at the fit of the smallest penalty q, which the scale decides.", verdict, numbers
    )


def _kernel(largest: Sparse) -> Claim:
    off = float(largest.unlike_kernel.mean())
    numbers = f"Relative distance from it, from weights of {largest.scale:g}: {off:.2g}."
    claim = "From large weights it ends at the smallest sum of squares, as a kernel does."
    return Claim(claim, verdict_of([off <= NEAR], [off > FAR]), numbers)


def _sparsest(smallest: Sparse) -> Claim:
    above = float(smallest.excess.mean())
    numbers = f"Above the smallest, from weights of {smallest.scale:g}: {above:.2%}."
    return Claim(
        "From small weights it ends at the smallest sum of |b|.", verdict_of([above <= NEAR], [above > FAR]), numbers
    )


def _logarithmic(small: Sparse, larger: Sparse) -> Claim:
    claim = (
        "Weights must be exponentially small for that: what is above falls like one over the logarithm of the scale."
    )
    fall, law = small.excess / larger.excess, math.log(larger.scale) / math.log(small.scale)
    told = interval(np.log(np.maximum(fall, 1e-300)))
    verdict = verdict_of([told.mean + told.half > math.log(LOGARITHMIC * law)], [told.mean < math.log(FASTER * law)])
    numbers = (
        f"From {larger.scale:g} to {small.scale:g} it fell from {larger.excess.mean():.2%} to "
        f"{small.excess.mean():.3%}, by a factor of {math.exp(told.mean):.3g}; the logarithm would have {law:.2g}. "
        "The law is one of worst cases."
    )
    return Claim(claim, verdict, numbers)


def _generalizes(smallest: Sparse, largest: Sparse) -> Claim:
    gain, left = interval(largest.error - smallest.error), float(smallest.error.mean())
    verdict = verdict_of([gain.above_zero and left <= SOLVED], [not gain.above_zero])
    numbers = (
        f"Squared error of the coefficients, relative: {left:.2g} from weights of {smallest.scale:g}, "
        f"{largest.error.mean():.2g} from {largest.scale:g}; the difference is {gain}."
    )
    return Claim("Sparse coefficients are found from small weights, and missed from large ones.", verdict, numbers)


def _direction(separable: Sequence[Separable]) -> Claim:
    claim = "On separable data the direction comes to the largest margin, like 1/log(t)."
    slopes = interval(np.array([np.polyfit(np.log(LATE), np.log(one.late), 1)[0] for one in separable]))
    last = np.array([one.descent.apart[-1] for one in separable])
    off = np.array([abs(one.descent.apart[-1] / one.predicted[-1] - 1) for one in separable])
    near = abs(slopes.mean + 1) <= SLOPE and bool(off.max() <= TRACKS)
    verdict = verdict_of([near], [abs(slopes.mean + 1) > 3 * SLOPE or bool(off.min() > FAR)])
    numbers = (
        f"Distance of unit vectors in the end: {last.mean():.3f}, within {off.max():.1%} of what the flow has then; "
        f"the flow's falls as log(t) to the power of {slopes} from log(t) = {LATE[0]:g} to {LATE[-1]:g}."
    )
    return Claim(claim, verdict, numbers)


def _last_decade(run: Descent) -> np.ndarray:
    return run.log_times >= run.log_times[-1] - math.log(10)


def _inverse_time(separable: Sequence[Separable]) -> Claim:
    parts = [(one.descent, _last_decade(one.descent)) for one in separable]
    slopes = interval(np.array([np.polyfit(run.log_times[at], np.log(run.losses[at]), 1)[0] for run, at in parts]))
    verdict = verdict_of([abs(slopes.mean + 1) <= SLOPE], [abs(slopes.mean + 1) > 3 * SLOPE])
    return Claim("The loss falls like 1/t.", verdict, f"Exponent over the last decade of steps: {slopes}.")


def _growth(separable: Sequence[Separable]) -> Claim:
    parts = [(one, _last_decade(one.descent)) for one in separable]
    pace = [np.polyfit(one.descent.log_times[at], one.descent.sizes[at], 1)[0] / one.slope for one, at in parts]
    told = interval(np.array(pace))
    verdict = verdict_of([abs(told.mean - 1) <= GROWTH], [abs(told.mean - 1) > 3 * GROWTH])
    numbers = f"Growth a unit of log(t) over the last decade, times the margin: {told}."
    return Claim("Weights grow like log(t), by one over the margin.", verdict, numbers)


def _test_loss(separable: Sequence[Separable]) -> Claim:
    claim = "The loss of new rows rises in the end, while their errors do not."
    runs = [one.descent for one in separable]
    rises = np.array([run.test_losses[-1] / run.test_losses.min() for run in runs])
    more = interval(np.array([100 * (run.errors[-1] - run.errors[run.test_losses.argmin()]) for run in runs]))
    share = float(np.mean(rises >= RISES))
    verdict = verdict_of([share >= 0.5 and not more.above_zero], [share < 0.5])
    numbers = (
        f"The last loss is {np.mean(rises):.2f} times the lowest on average, and has risen in {share:.0%} of runs; "
        f"errors changed by {more} points since then."
    )
    return Claim(claim, verdict, numbers)


def _adam(separable: Sequence[Separable]) -> Claim:
    claim = "Adam does not come to the largest margin."
    pairs = [(at_loss(one.adam, one.descent.losses[-1]), one.descent.apart[-1]) for one in separable]
    if any(math.isnan(adam) for adam, _ in pairs):
        return Claim(claim, Verdict.UNDECIDED, "Adam did not come to the loss of gradient descent.")
    more = interval(np.array([adam - descent for adam, descent in pairs]))
    numbers = (
        f"At the last loss of gradient descent, its direction is {np.mean([a for a, _ in pairs]):.3f} away, that of "
        f"descent {np.mean([d for _, d in pairs]):.3f}; the difference is {more}."
    )
    return Claim(claim, verdict_of([more.above_zero], [more.below_zero]), numbers)


def at_loss(run: Descent, loss: float) -> float:
    """The distance of the direction at the first look with a loss that low; not a number without one."""
    there = run.losses <= loss
    return float(run.apart[there.argmax()]) if there.any() else math.nan
