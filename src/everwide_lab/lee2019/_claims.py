"""The claims of Lee et al. 2019, held against exponents and gaps."""

import math
from typing import Any

import numpy as np

from .._claims import Claim, Interval, Verdict, interval, verdict_of

SLACK = 0.1  # what finite widths may take from an exponent
SHARP = 0.2  # two standard errors beyond which an exponent says little

Comparison = Any  # what `everwide.compare` returns
Comparisons = dict[str, Comparison]  # by the name of the regime


def claims_of(comparisons: Comparisons, mse: tuple[str, ...], cross_entropy: str) -> tuple[Claim, ...]:
    """The claims of the paper, and of the review of it, one by one."""
    return (
        _exponent(comparisons, "gap_infinite", "The gap to the infinite network falls as width^-1/2.", -0.5, both=True),
        _exponent(
            comparisons, "gap_linearized", "The gap to the linearization falls at least as fast as width^-1/2.", -0.5
        ),
        _exponent(comparisons, "kernel_change", "The tangent kernel changes by O(width^-1/2), or less.", -0.5),
        _exponent(comparisons, "movement", "Parameters move by O(1) in the NTK parametrization.", 0.0, both=True),
        _grows(comparisons, mse, cross_entropy),
    )


def _exponent(comparisons: Comparisons, quantity: str, claim: str, wanted: float, *, both: bool = False) -> Claim:
    """Is the exponent `wanted` (`both`), or below? Up to `SLACK` and two standard errors, if these are small."""
    laws = {name: one.slopes()[quantity] for name, one in comparisons.items()}
    near = [law.exponent + 2 * law.error <= wanted + SLACK for law in laws.values()]
    if both:
        near = [abs(law.exponent - wanted) <= SLACK + 2 * law.error and 2 * law.error <= SHARP for law in laws.values()]
    above = {name: law.exponent - wanted for name, law in laws.items()}
    far = [(abs(above[name]) if both else above[name]) > SLACK + 2 * law.error for name, law in laws.items()]
    listed = ", ".join(f"{law.exponent:.2f} ± {2 * law.error:.2f} ({name})" for name, law in laws.items())
    return Claim(claim, verdict_of(near, far), f"Measured exponents, with two standard errors: {listed}.")


def _grows(comparisons: Comparisons, mse: tuple[str, ...], cross_entropy: str) -> Claim:
    claim = (
        "Under cross-entropy the gap to the linearization goes on growing with time; on the squared loss it saturates."
    )
    logs = {name: _late_growth(one) for name, one in comparisons.items()}
    ratios = {name: interval(values) for name, values in logs.items()}
    listed = ", ".join(f"x{math.exp(r.mean):.2f} ({_range(r)}; {name})" for name, r in ratios.items())
    last = comparisons[cross_entropy].widths[-1]
    numbers = f"From a quarter of the steps to the last, at width {last}, with 95 % intervals over the seeds: {listed}."
    grown = ratios[cross_entropy]
    if grown.below_zero:
        return Claim(claim, Verdict.FAILS, numbers)
    more = [interval(logs[cross_entropy] - logs[name]).above_zero for name in mse]
    still = [ratios[name].above_zero for name in mse]
    if not grown.above_zero or not all(more):
        return Claim(claim, Verdict.UNDECIDED, numbers)
    return Claim(claim, Verdict.PARTLY if any(still) else Verdict.HOLDS, numbers)


def _range(r: Interval) -> str:
    return f"{math.exp(r.mean - r.half):.2f} to {math.exp(r.mean + r.half):.2f}" if r.half < 100 else "one seed"


def _late_growth(one: Comparison) -> np.ndarray:
    """By which factor the gap grew since a quarter of the steps: its logarithm, at the largest width, for each seed."""
    quarter = int(np.argmin(np.abs(np.asarray(one.steps) - one.steps[-1] / 4)))
    gap = one.curves.gap_linearized[-1]
    return np.log(gap[:, -1] / gap[:, quarter])
