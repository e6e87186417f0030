"""The claims of Yaida 2018, held against runs."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._claims import Claim, interval, verdict_of
from ._descent import Look, Minimum
from ._schedules import Scheduled

NEAR, FAR = 0.1, 0.3  # of a ratio of 1
TELLS = 0.5  # from 1: nobody takes that for agreement
EARLY = 0.1  # of a run
WORSE = 1.25  # times the loss above its valley: no longer as good


class Settled(NamedTuple):
    """Runs of one kind at one rate: what was seen of each; and the minimum, of the kind that has only one."""

    kind: str
    rate: float
    runs: tuple[Look, ...]
    minima: tuple[Minimum, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.rate:g}"

    def _late(self, run: Look) -> Look:
        return Look(*(part[len(part) // 2 :] for part in run))

    def first(self, *, early: bool) -> np.ndarray:
        """By seed: products over `rate / 2` squares, in the first tenth or in the second half."""
        out = []
        for run in self.runs:
            part = Look(*(p[: max(1, round(EARLY * len(p)))] for p in run)) if early else self._late(run)
            out.append(2 * part.products.mean() / (self.rate * part.squares.mean()))
        return np.array(out)

    def second(self) -> np.ndarray:
        """By seed: squared gradients of all rows over `rate / 2` times what the Hessian makes of those of batches."""
        parts = [self._late(run) for run in self.runs]
        return np.array([2 * part.slopes.mean() / (self.rate * part.bends.mean()) for part in parts])

    def raised(self) -> np.ndarray:
        """By seed: the mean loss above the minimum, in the last half."""
        pairs = zip(self.runs, self.minima, strict=True)
        return np.array([self._late(run).losses.mean() - low.loss for run, low in pairs])

    def predicted(self) -> np.ndarray:
        """By seed: the same, from the stationary covariance."""
        return np.array([low.raised for low in self.minima])


def claims_of(settled: Sequence[Settled], schedules: Sequence[Sequence[Scheduled]]) -> tuple[Claim, ...]:
    """One by one; `schedules`: those of each seed."""
    return (
        _ratio(
            "Once training has settled, parameters times gradient are rate/2 times the squared gradient of a batch.",
            "Their ratio in the second half",
            [(str(one), one.first(early=False)) for one in settled],
        ),
        _tells(settled),
        _ratio(
            "The squared gradient of all rows is rate/2 times what the Hessian makes of the gradient of a batch.",
            "Their ratio in the second half",
            [(str(one), one.second()) for one in settled],
        ),
        _ratio(
            "The mean loss is above the lowest by half the trace of Hessian and stationary covariance.",
            "Measured over predicted, of linear models",
            [(str(one), one.raised() / one.predicted()) for one in settled if one.minima],
        ),
        _adaptive(schedules),
    )


def _ratio(claim: str, what: str, ratios: list[tuple[str, np.ndarray]]) -> Claim:
    told = [(name, interval(values)) for name, values in ratios]
    near = [abs(one.mean - 1) <= NEAR for _, one in told]
    far = [abs(one.mean - 1) > FAR + (one.half if math.isfinite(one.half) else 0) for _, one in told]
    listed = "; ".join(f"{name}: {one}" for name, one in told)
    return Claim(claim, verdict_of(near, far), f"{what}: {listed}.")


def _tells(settled: Sequence[Settled]) -> Claim:
    early = [(str(one), one.first(early=True)) for one in settled]
    off = [bool(np.all(np.abs(values - 1) > TELLS)) for _, values in early]
    close = [bool(np.all(np.abs(values - 1) < NEAR)) for _, values in early]
    listed = ", ".join(f"{name}: {np.median(values):.3g}" for name, values in early)
    numbers = f"The median of the same ratio in the first tenth: {listed}."
    return Claim("Before, they are far from equal, which tells that it has not.", verdict_of(off, close), numbers)


def _adaptive(schedules: Sequence[Sequence[Scheduled]]) -> Claim:
    claim = "A rate that falls when the relation holds does as well as a schedule set by hand."
    by_name = {name: [run for runs in schedules for run in runs if run.name == name] for name in _names(schedules)}
    means = {name: float(np.mean([run.raised for run in runs])) for name, runs in by_name.items()}
    own, hand = means["by the relation"], means["by hand"]
    falls = np.mean([len(run.falls) for run in by_name["by the relation"]])
    listed = "; ".join(f"{name} {value:.2g}" for name, value in means.items())
    verdict = verdict_of([own <= WORSE * hand], [own > WORSE * hand])
    numbers = f"Loss above the valley in the end: {listed}. It fell {falls:.1f} times on average."
    return Claim(claim, verdict, numbers)


def _names(schedules: Sequence[Sequence[Scheduled]]) -> list[str]:
    return [run.name for run in schedules[0]]
