"""What is claimed of deep linear networks, held against networks that were drawn, sampled and trained."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from .._claims import Claim, Interval, Verdict, interval, verdict_of

PRIOR = 0.15  # by which mean and variance of log |theta| may miss the simple law, relative
EXACT = 0.05  # by which a posterior variance may miss the exact one, relative
CENTRED = 0.1  # by which mean outputs may miss the interpolant of least norm, of the predicted spread
CURVE = 0.02  # by which a mode may miss its solution, of its strength
TIMES = 0.1  # by which half-times may miss, relative
ORDER = -0.8  # rank correlation of strengths and half-times


class Prior(NamedTuple):
    """Networks of so many layers of a width: mean and variance of `log |theta|`, by seed, and by the exact law."""

    width: int
    layers: int
    means: np.ndarray
    variances: np.ndarray
    exact: tuple[float, float]

    @property
    def ratio(self) -> float:
        """`L / 2n`: the variance, and minus the mean, where width and depth are large."""
        return self.layers / (2 * self.width)


class Posterior(NamedTuple):
    """All networks that fit, by seed: variance in open directions, sampled over exact; how far the mean is off."""

    hidden_widths: tuple[int, ...]
    effective_depth: float
    variances: np.ndarray
    predicted: np.ndarray
    off: np.ndarray

    def __str__(self) -> str:
        return f"{len(self.hidden_widths)} hidden of {self.hidden_widths[0]}"


class Evidence(NamedTuple):
    """`log p(y | x)` for networks of growing depth, `(seeds, depths)`."""

    scale: float  # of the targets
    depths: tuple[int, ...]
    values: np.ndarray


class Training(NamedTuple):
    """Modes of trained networks, by seed: largest distance from the solution, half-times, rank correlations."""

    layers: int
    aligned: bool
    distances: np.ndarray
    half_times: np.ndarray  # (seeds, modes)
    predicted: np.ndarray
    strengths: np.ndarray

    def ranks(self) -> np.ndarray:
        """By seed: do strong modes come first?"""
        pairs = zip(self.strengths, self.half_times, strict=True)
        return np.array([np.corrcoef(rankdata(strong), rankdata(time))[0, 1] for strong, time in pairs])

    def __str__(self) -> str:
        return f"{self.layers} layers, {'aligned' if self.aligned else 'random'}"


def claims_of(
    priors: Sequence[Prior], posteriors: Sequence[Posterior], evidences: Sequence[Evidence], trained: Sequence[Training]
) -> tuple[Claim, ...]:
    """One by one."""
    return (
        _prior(priors),
        _centred(posteriors),
        _exact(posteriors),
        _depth(posteriors),
        _evidence(evidences),
        _curves([one for one in trained if one.aligned]),
        _order(trained),
        _times([one for one in trained if not one.aligned]),
    )


def _near(found: Interval, target: float, tolerance: float) -> tuple[bool, bool]:
    """The whole interval is near; or the whole is not."""
    low, high = target - tolerance, target + tolerance
    inside = low < found.mean - found.half and found.mean + found.half < high
    return inside, found.mean - found.half > high or found.mean + found.half < low


def _verdict(pairs: Sequence[tuple[bool, bool]]) -> Verdict:
    return verdict_of([inside for inside, _ in pairs], [outside for _, outside in pairs])


def _prior(priors: Sequence[Prior]) -> Claim:
    pairs, listed = [], []
    for one in priors:
        mean, variance = interval(-one.means / one.ratio), interval(one.variances / one.ratio)
        near, spread = _near(mean, 1, PRIOR), _near(variance, 1, PRIOR)
        pairs.append((near[0] and spread[0], near[1] or spread[1]))
        said = ", ".join(f"{each.mean:.2f} ± {each.half:.2f}" for each in (mean, variance))
        listed.append(f"{one.layers} layers of {one.width} {said}")
    numbers = f"Minus the mean, and the variance, over L/2n (1 ± {PRIOR} asked): {'; '.join(listed)}."
    claim = "log |theta| of L random layers of width n has mean -L/2n and variance L/2n: depth undoes width."
    return Claim(claim, _verdict(pairs), numbers)


def _centred(posteriors: Sequence[Posterior]) -> Claim:
    found = [interval(one.off) for one in posteriors]
    pairs = [(one.mean + one.half < CENTRED, one.mean - one.half > CENTRED) for one in found]
    listed = "; ".join(f"{one} {each.mean:.3f}" for one, each in zip(posteriors, found, strict=True))
    claim = "The mean of all networks that fit is the interpolant of least norm, at every depth."
    numbers = f"Root mean square distance at new rows, of the predicted spread ({CENTRED} asked): {listed}."
    return Claim(claim, _verdict(pairs), numbers)


def _exact(posteriors: Sequence[Posterior]) -> Claim:
    found = [interval(one.variances / one.predicted) for one in posteriors]
    listed = "; ".join(f"{one} {each.mean:.3f} ± {each.half:.3f}" for one, each in zip(posteriors, found, strict=True))
    claim = "Their variance is that of the exact posterior (Hanin and Zlokapa 2023), at any width and depth."
    numbers = f"Variance in directions that rows leave open, sampled over exact (1 ± {EXACT} asked): {listed}."
    return Claim(claim, _verdict([_near(each, 1, EXACT) for each in found]), numbers)


def _depth(posteriors: Sequence[Posterior]) -> Claim:
    """Of all networks with the effective depth of the first."""
    first, *others = [one for one in posteriors if np.isclose(one.effective_depth, posteriors[0].effective_depth)]
    found = [interval(one.variances / first.variances) for one in others]
    listed = "; ".join(f"{one} {each.mean:.3f} ± {each.half:.3f}" for one, each in zip(others, found, strict=True))
    claim = "Only the effective depth P sum 1/n_l matters to them."
    numbers = f"Sampled variance over that of {first}, at an effective depth of {first.effective_depth:.2f}: {listed}."
    return Claim(claim, _verdict([_near(each, 1, EXACT) for each in found]), numbers)


def _evidence(evidences: Sequence[Evidence]) -> Claim:
    wanted, against, listed = [], [], []
    for one in evidences:
        gains = np.diff(one.values, axis=1)
        wanted.append(bool((gains > 0).all()))
        against.append(bool((gains < 0).any(1).all()))
        shown = ", ".join(f"{value:.1f}" for value in one.values.mean(0) - one.values[:, 0].mean())
        listed.append(f"targets of size {one.scale:g} {shown}")
    depths = ", ".join(str(depth) for depth in evidences[0].depths)
    numbers = f"log p(y | x) minus that without hidden layers, in nats, at {depths} of them: {'; '.join(listed)}."
    return Claim("The evidence grows with depth.", verdict_of(wanted, against), numbers)


def _curves(trained: Sequence[Training]) -> Claim:
    found = [interval(one.distances) for one in trained]
    pairs = [(one.mean + one.half < CURVE, one.mean - one.half > CURVE) for one in found]
    listed = "; ".join(f"{one} {each.mean:.2%}" for one, each in zip(trained, found, strict=True))
    claim = "Begun in the directions of the data, modes follow da/dt = N a^(2 - 2/N) (s - a) (Saxe et al. 2014)."
    return Claim(claim, _verdict(pairs), f"Largest distance, of the strength ({CURVE:.0%} asked): {listed}.")


def _order(trained: Sequence[Training]) -> Claim:
    found = [interval(one.ranks()) for one in trained]
    pairs = [(one.mean + one.half < ORDER, one.mean - one.half > ORDER) for one in found]
    listed = "; ".join(f"{one} {each}" for one, each in zip(trained, found, strict=True))
    claim = "Strong modes are learned first."
    return Claim(claim, _verdict(pairs), f"Rank correlation of strength and half-time ({ORDER} asked): {listed}.")


def _times(trained: Sequence[Training]) -> Claim:
    apart = [np.abs(one.half_times / one.predicted - 1).mean(1) for one in trained]
    found = [interval(each) for each in apart]
    pairs = [(one.mean + one.half < TIMES, one.mean - one.half > TIMES) for one in found]
    listed = "; ".join(f"{one} {each.mean:.1%} ± {each.half:.1%}" for one, each in zip(trained, found, strict=True))
    claim = "From small random weights too, modes are half learned when the solution says."
    return Claim(claim, _verdict(pairs), f"Mean distance of half-times, relative ({TIMES:.0%} asked): {listed}.")
