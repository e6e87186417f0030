"""The claims of Papyan, Han and Donoho 2020, and of Papyan 2020, held against runs."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._claims import Claim, Verdict, interval, verdict_of
from ._network import CLASSES, MEASURES, Arm

HALF = math.log(0.5)  # of a logarithm: what falls, falls to half of it or less
AGREE = 0.01  # rows for which last layer and nearest centre may differ
MOST = 0.5  # of the outliers that comes from means of classes
SAID = {
    "within": "After the last error, the variance within classes goes on falling (NC1), to half or less.",
    "norms": "The lengths of the centres of classes become equal (NC2).",
    "angles": "Their angles become those of a simplex (NC2).",
    "duality": "The weights of the last layer align with the centres (NC3).",
}


class Followed(NamedTuple):
    """All runs of an arm: what was seen at looks, `(seeds, looks)` each, and spectra of each seed."""

    arm: Arm
    seen: dict[str, np.ndarray]
    spectra: tuple[dict[str, Any], ...]

    def fitted(self) -> np.ndarray | None:
        """For each seed, the first look without an error on training rows; none if a seed has no such look."""
        reached = self.seen["error"] == 0
        return reached.argmax(1) if reached.any(1).all() else None

    def change(self, name: str) -> np.ndarray:
        """Of a measure, by seed: the logarithm of its last value over that where errors ended; NaN if they do not."""
        at, values = self.fitted(), self.seen[name]
        if at is None:
            return np.full(len(values), np.nan)
        return np.log(values[:, -1] / values[np.arange(len(values)), at])

    def gain(self) -> np.ndarray:
        """By seed: by how much the test error falls after the last error on training rows."""
        at, values = self.fitted(), self.seen["test_error"]
        return np.full(len(values), np.nan) if at is None else values[np.arange(len(values)), at] - values[:, -1]

    def of_spectra(self, name: str) -> np.ndarray:
        """By seed, at the end: `share`, `pairs`, `outliers`; `left`, the largest eigenvalue left over the largest."""
        ends = [one["end"] for one in self.spectra]
        if name == "left":
            return np.array([end["without"] / end["values"][0] for end in ends])
        return np.array([float(end[name]) for end in ends])


def claims_of(followed: Sequence[Followed]) -> tuple[Claim, ...]:
    """One by one; where it is not said otherwise, of networks whose weights decay, as all of the paper's do."""
    decayed = [one for one in followed if one.arm.decay]
    return (
        *(_falls(decayed, name) for name in MEASURES[:-1]),
        _nearest(decayed),
        _generalizes(decayed),
        _decay(followed),
        _classes(followed),
        _outliers(followed),
    )


def _listed(followed: Sequence[Followed], said: Sequence[str]) -> str:
    return "; ".join(f"{one.arm} {each}" for one, each in zip(followed, said, strict=True))


def _falls(followed: Sequence[Followed], name: str) -> Claim:
    found = [interval(one.change(name)) for one in followed]
    said = [
        "still errors"
        if at is None
        else f"{np.mean(values[np.arange(len(values)), at]):.3g} to {values[:, -1].mean():.3g}"
        for at, values in ((one.fitted(), one.seen[name]) for one in followed)
    ]
    wanted = [one.mean + one.half < HALF for one in found]
    against = [one.mean - one.half > HALF for one in found]
    numbers = f"Where errors ended, and at the end (half asked): {_listed(followed, said)}."
    return Claim(SAID[name], verdict_of(wanted, against), numbers)


def _nearest(followed: Sequence[Followed]) -> Claim:
    last = [interval(one.seen["centres"][:, -1] - AGREE) for one in followed]
    said = [f"{one.seen['centres'][:, -1].mean():.2%}" for one in followed]
    wanted = [one.below_zero for one in last]
    numbers = f"Training rows for which they differ at the end (below {AGREE:.0%} asked): {_listed(followed, said)}."
    claim = "In the end the last layer says the class of the nearest centre (NC4)."
    return Claim(claim, verdict_of(wanted, [one.above_zero for one in last]), numbers)


def _generalizes(followed: Sequence[Followed]) -> Claim:
    gains = [interval(100 * one.gain()) for one in followed]
    said = [
        "still errors" if one.fitted() is None else f"{gain} points, to {one.seen['test_error'][:, -1].mean():.1%}"
        for one, gain in zip(followed, gains, strict=True)
    ]
    verdict = verdict_of([gain.above_zero for gain in gains], [gain.below_zero for gain in gains])
    claim = "Meanwhile the test error goes on falling."
    return Claim(claim, verdict, f"By how much after the last training error: {_listed(followed, said)}.")


def _decay(followed: Sequence[Followed]) -> Claim:
    """Pairs by seed of networks that differ in the decay alone."""
    claim = "Weight decay drives the collapse (a claim of others): without it the variance within classes stays larger."
    pairs = [
        (one, other)
        for one in followed
        for other in followed
        if one.arm.decay and not other.arm.decay and one.arm.normalized == other.arm.normalized
    ]
    if not pairs:
        return Claim(claim, Verdict.UNDECIDED, "There is nothing to compare.")
    ends = [[each.seen["within"][:, -1] for each in pair] for pair in pairs]
    gaps = [interval(np.log(other / one)) for one, other in ends]
    said = [f"{other.mean():.3g} without, {one.mean():.3g} with" for one, other in ends]
    verdict = verdict_of([gap.above_zero for gap in gaps], [gap.below_zero for gap in gaps])
    return Claim(claim, verdict, f"NC1 at the end: {_listed([one for one, _ in pairs], said)}.")


def _classes(followed: Sequence[Followed]) -> Claim:
    shares = [interval(one.of_spectra("share")) for one in followed]
    lefts = [one.of_spectra("left") for one in followed]
    said = [
        f"{share.mean:.0%} ± {share.half:.0%}, {one.of_spectra('pairs').mean():.0%}, {left.mean():.2f}"
        for one, share, left in zip(followed, shares, lefts, strict=True)
    ]
    wanted = [share.mean - share.half > MOST for share in shares]
    against = [share.mean + share.half < MOST for share in shares]
    return Claim(
        "The leading eigenvalues of the Gauss-Newton matrix come from the means of classes (Papyan 2020).",
        verdict_of(wanted, against),
        f"At the end: the share of the sum of the {CLASSES} largest that comes from means of classes ({MOST:.0%} "
        "asked), from means of pairs of a class and another label around them, and the largest eigenvalue without "
        f"means of classes, over that with them: {_listed(followed, said)}.",
    )


def _outliers(followed: Sequence[Followed]) -> Claim:
    counts = [one.of_spectra("outliers") for one in followed]
    right = [bool(np.isin(each, (CLASSES - 1, CLASSES)).all()) and len(each) > 1 for each in counts]
    wrong = [not np.isin(each, (CLASSES - 1, CLASSES)).any() and len(each) > 1 for each in counts]
    said = [", ".join(f"{count:.0f}" for count in each) for each in counts]
    return Claim(
        "As many eigenvalues stand apart as there are classes, or one less (Papyan 2020).",
        verdict_of(right, wrong),
        f"Eigenvalues before the largest ratio of neighbours, at the end, by seed: {_listed(followed, said)}.",
    )
