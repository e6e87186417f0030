"""What theory says of deep random networks, held against measured ones."""

import math
from collections.abc import Sequence

from .._claims import Claim, Verdict, verdict_of
from ._experiments import (
    EXPONENTIAL,
    FLUCTUATION,
    GRADIENT,
    HALF_STABLE,
    LENGTH,
    POWER_LAW,
    TRAINED,
    VARIANCE_LENGTH,
    Measured,
)

SLACK = 0.1  # what finite widths and depths may take from a prediction, relative to it
SHARP = 0.2  # two standard errors beyond which a number says little
LEARNED = 0.5  # accuracy


def claims_of(rows: Sequence[Measured]) -> tuple[Claim, ...]:
    """The claims of Schoenholz et al. 2017 and of Roberts, Yaida, Hanin 2022, one by one."""
    return (
        _near(
            rows, LENGTH, "Differences of two inputs die out over the correlation length -1/log chi, in both phases."
        ),
        _near(rows, VARIANCE_LENGTH, "Deviations of the variance die out over -1/log chi_parallel."),
        _near(rows, GRADIENT, "Squared gradients change by chi_perpendicular in a layer."),
        _near(rows, POWER_LAW, "At its critical point the variance of a tanh network falls as 1/(2 depth)."),
        _near(rows, EXPONENTIAL, "Beside its critical point it falls exponentially, by C_w in a layer."),
        _half_stable(rows),
        _near(rows, FLUCTUATION, "The relative variance of critical ReLU networks is prod(1 + 5/width) - 1."),
        _trained(rows),
    )


def _near(rows: Sequence[Measured], experiment: str, claim: str) -> Claim:
    """Is every number the predicted one? Up to `SLACK` and two standard errors, if these are small."""
    chosen = [row for row in rows if row.experiment == experiment]
    off = [abs(row.measured - row.predicted) for row in chosen]
    bounds = [SLACK * row.predicted + row.error for row in chosen]
    sharp = [row.error <= SHARP * row.predicted for row in chosen]
    near = [o <= b and s for o, b, s in zip(off, bounds, sharp, strict=True)]
    far = [o > b for o, b in zip(off, bounds, strict=True)]
    worst = max((o / row.predicted for o, row in zip(off, chosen, strict=True)), default=math.inf)
    listed = ", ".join(f"{_number(row.measured)} ({_number(row.predicted)}; {_place(row)})" for row in chosen)
    verdict = verdict_of(near, far) if chosen else Verdict.UNDECIDED
    return Claim(claim, verdict, f"At most {worst:.1%} off. Measured (predicted): {listed}.")


def _half_stable(rows: Sequence[Measured]) -> Claim:
    claim = "At a half-stable point variances come nearer from one side, and leave it on the other."
    chosen = [row for row in rows if row.experiment == HALF_STABLE]
    clear = [abs(row.measured) > row.error for row in chosen]
    alike = [len({r.measured > 0 for r in chosen if r.activation == row.activation}) == 1 for row in chosen]
    listed = ", ".join(
        f"{_number(row.measured)} ± {_number(row.error)} ({_number(row.predicted)}; {row.activation}, {row.place})"
        for row in chosen
    )
    numbers = f"Drifts of one sign on both sides. Measured (predicted): {listed}."
    if not chosen or not all(clear):
        return Claim(claim, Verdict.UNDECIDED, numbers.replace("Drifts of one sign on both sides. ", ""))
    if not all(alike):
        return Claim(claim, Verdict.FAILS, numbers.replace("of one sign", "of different signs"))
    return Claim(claim, Verdict.HOLDS, numbers)


def _trained(rows: Sequence[Measured]) -> Claim:
    claim = "Networks can be trained up to a depth of about six correlation lengths, and on the critical line beyond."
    chosen = [row for row in rows if row.experiment == TRAINED]
    right = [(row.measured > LEARNED) == (row.predicted > LEARNED) for row in chosen]
    wrong = [not one for one in right]
    listed = ", ".join(f"{row.measured:.2f} (C_w = {row.C_w:.3g}, {row.place})" for row in chosen)
    verdict = verdict_of(right, wrong) if chosen else Verdict.UNDECIDED
    return Claim(claim, verdict, f"{sum(right)} of {len(chosen)} settings as predicted. Accuracies: {listed}.")


def _place(row: Measured) -> str:
    return f"{row.activation}, C_w = {row.C_w:.3g}" + ("" if row.place in ("ordered", "chaotic") else f", {row.place}")


def _number(value: float) -> str:
    return f"{value:.3g}"
