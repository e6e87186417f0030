"""Figures that the rules look at, from the records of a run, and what a rule says."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from . import _thresholds as lim
from ._log import Record


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong: its name, evidence, and a remedy."""

    name: str
    evidence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.evidence}. {self.remedy}."


class Signs:
    """One run, digested."""

    def __init__(self, facts: Record, records: list[Record]):
        self.facts = facts
        self.vitals, self.curves, self.noises, self.events = (
            [r for r in records if r["record"] == kind] for kind in ("vitals", "curvature", "noise", "event")
        )
        self.steps = max((r["step"] for r in records), default=0)
        self.early = max(lim.AT_ONCE, lim.EARLY * self.steps)
        told = [r["told"] for r in records if r["record"] in ("vitals", "told") and r.get("told")]
        figures = ("mean", "smallest", "largest", "last")
        self.told: list[Record] = [t for t in told if None not in (t.get(name, 0.0) for name in figures)]
        self.lost = [t["broken"] for t in told if len(t.get("broken") or ()) == 2]  # how many not finite, and the first
        self.spoiled = bool(told) and told[0].get("first", 0.0) is None  # the first loss that was told
        firsts = [t["first"] for t in self.told if t.get("first") is not None]
        values = [v["value"] for v in self.vitals if v.get("value") is not None]
        self.first: float | None = firsts[0] if firsts else (values[0] if values else None)
        self.chance = _chance(facts)
        self.reference = self.chance or self.first or 1.0
        self.base = max(self.first or 0.0, self.reference)
        k = facts.get("outputs") or 1  # of knowing not even how often each class comes, or what the size of targets is
        blind = {"SoftmaxCrossEntropy": math.log(k), "BinaryCrossEntropy": k * math.log(2)}
        self.blind: float = blind.get(facts.get("loss", ""), k / 2)
        self.rates = [v["rate"] for v in self.vitals if v.get("rate")]
        self.rate: float | None = max(self.rates) if self.rates else None
        kind = facts.get("optimizer")
        self.adam = kind == "adam" or (kind == "part" and bool(self.curves))  # where others move, there are none

    @property
    def start(self) -> Record | None:
        """The first vitals."""
        return self.vitals[0] if self.vitals else None

    @property
    def odd(self) -> float:
        """What rows that happen to be odd may add to the loss of a batch, the more the fewer it has."""
        size = self.facts.get("batch_size") or 0
        calm = [v for v in self.vitals if v.get("quantiles") and (v["value"] or math.inf) < lim.SURGE * self.base]
        tails = [v["quantiles"][-1] or 0.0 for v in calm]
        return lim.ODD * max(tails, default=0.0) / max(math.sqrt(size), size / 4) if size > lim.TINY else 0.0

    @property
    def stuck(self) -> bool:
        """Whether many steps have taught nothing."""
        return self.steps >= lim.LONG and self.last is not None and self.last > lim.UNLEARNT * self.reference

    @property
    def ramped(self) -> bool:
        """Whether the rate began small."""
        return bool(self.rates) and self.rates[0] < 0.5 * max(self.rates)

    @property
    def last(self) -> float | None:
        """The loss at the end, of the last steps where it was told, else of the probe; `None` if not finite."""
        if self.told:
            return self.told[-1]["mean"] if self.broken is None else None
        return self.vitals[-1]["value"] if self.vitals else None

    @property
    def broken(self) -> int | None:
        """The first step at which something was not finite."""
        steps = [v["step"] for v in self.vitals if v["value"] is None or v["gradient"] is None]
        return min(steps, default=None)

    def surges(self) -> list[tuple[int, float]]:
        """Steps at which the loss was far above where it began, and how many times."""
        probe = [(v["step"], v["value"]) for v in self.vitals if (v["value"] or 0.0) > lim.SURGE * self.base]
        high = probe + [(t["peak"], t["largest"]) for t in self.told if self._has_surged(t, self.base)]
        return sorted((step, value / self.base) for step, value in high)

    def _has_surged(self, told: Record, base: float) -> bool:
        """Whether losses were high: one, in the beginning; later, where a batch may be odd, on average or by far."""
        means = [mean or 0.0 for _, mean in told.get("course", ())]
        odd = told["peak"] > self.early and max(means, default=0.0) <= lim.SURGE * base
        return told["largest"] > (lim.ALONE if odd else lim.SURGE) * base + self.odd

    def spikes(self) -> list[int]:
        """Steps at which the loss jumped over what it had been, and lost much of what was learned."""
        base = lim.SPIKE * self.base
        jumps = [e for e in self.events if e["name"] == "spike"]
        return sorted(e["step"] for e in jumps if (e["figures"]["value"] or math.inf) > base + self.odd)

    def unrest(self) -> tuple[list[int], list[int]]:
        """Steps of surges and spikes: at the beginning, and later."""
        steps = sorted({*(step for step, _ in self.surges()), *self.spikes()})
        return [s for s in steps if s <= self.early], [s for s in steps if s > self.early]

    def learning(self, floor: float) -> Iterator[Record]:
        """Vitals while the loss of the probe is above a share of what knowing nothing costs, and the rate is full."""
        full = 0.3 * (self.rate or 0.0)
        for v in self.vitals:
            if v["value"] is not None and v["value"] > floor * self.reference and (v.get("rate") or 0.0) >= full:
                yield v

    def layers(self, vitals: Record) -> dict[str, Record]:
        """Layers with weights, in their order, where these are finite."""
        return {n: g for n, g in vitals["groups"].items() if None not in (g["gain"], g.get("rms", 0.0))}

    def ratios(self) -> list[tuple[int, float]]:
        """Steps, and the curvature over the edge of stability."""
        return [(c["step"], c["ratio"]) for c in self.curves if c["ratio"] is not None]


def _chance(facts: Record) -> float | None:
    """The loss of a model that knows how often each class comes, or the mean of the targets, and nothing else."""
    counts = np.array(facts.get("classes") or [0.0])
    if counts.max() > 0:
        counts = counts * (counts.max() < counts.sum()) + 1  # of one class alone the probe says nothing
        shares = counts / counts.sum()
        known = {"SoftmaxCrossEntropy": -(shares @ np.log(shares)).item(), "Mse": (shares @ (1 - shares)).item() / 2}
        return known.get(facts.get("loss", ""))
    targets = facts.get("targets")
    if not targets or not targets.get("std"):
        return None
    if facts.get("loss") == "Mse":
        return facts.get("outputs", 1) * targets["std"] * targets["std"] / 2
    share = targets.get("mean") or 0.0
    if facts.get("loss") == "BinaryCrossEntropy" and 0 < share < 1:
        return -facts.get("outputs", 1) * (share * math.log(share) + (1 - share) * math.log(1 - share))
    return None
