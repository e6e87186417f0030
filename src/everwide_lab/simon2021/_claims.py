"""The claims of Simon et al. 2021, held against measured learnabilities and errors."""

from collections.abc import Callable, Sequence

import numpy as np

from .._claims import Claim, Interval, Verdict, interval, verdict_of
from ._kernel import KERNEL, Laws, Measured

LEARNABILITY = 0.05  # by which a mean may miss its prediction
ERROR, SMALL = 0.15, 0.03  # likewise, as a share of the prediction, or of the power of the target if that is more
ALLOWED = f"{ERROR:.0%} of the prediction or {SMALL} of the power of the target"
MOST, HALF = 0.9, 0.5
EXACT = 1e-6

Rule = Callable[[Measured], tuple[np.ndarray, float]]  # deviations by draw, and what they may be


def claims_of(rows: Sequence[Measured], laws: Laws) -> tuple[Claim, ...]:
    """One by one."""
    kernel = [row for row in rows if row.width == KERNEL]
    return (
        _agreement("Learnabilities are those which eigenvalues predict.", kernel, _learned, f"{LEARNABILITY}"),
        _agreement("Test errors of kernel regression are those which eigenvalues predict.", kernel, _erred, ALLOWED),
        _networks(rows),
        _hard(kernel),
        *_laws(laws),
    )


def _learned(row: Measured) -> tuple[np.ndarray, float]:
    return row.learnability - row.predicted_learnability, LEARNABILITY


def _erred(row: Measured) -> tuple[np.ndarray, float]:
    return row.error - row.predicted_error, max(ERROR * row.predicted_error, SMALL)


def status(deviations: np.ndarray, allowed: float) -> Verdict:
    """Near, far, or too uncertain to tell: two standard errors decide."""
    if not np.isfinite(deviations).all():
        return Verdict.FAILS
    mean, error = abs(float(np.mean(deviations))), _standard_error(deviations)
    if mean <= allowed:
        return Verdict.HOLDS
    return Verdict.FAILS if mean - 2 * error > allowed else Verdict.UNDECIDED


def shared(statuses: Sequence[Verdict]) -> Verdict:
    """Of many: nine in ten hold, half of them fail, or something in between."""
    held = np.mean([one is Verdict.HOLDS for one in statuses])
    failed = np.mean([one is Verdict.FAILS for one in statuses])
    if held >= MOST:
        return Verdict.HOLDS
    if failed >= HALF:
        return Verdict.FAILS
    return Verdict.PARTLY if held >= HALF else Verdict.UNDECIDED


def _agreement(claim: str, rows: Sequence[Measured], rule: Rule, allowed: str) -> Claim:
    """In every domain?"""
    parts, verdicts = [], []
    for domain in dict.fromkeys(row.domain for row in rows):
        measured = [rule(row) for row in rows if row.domain == domain]
        verdicts.append(shared([status(*one) for one in measured]))
        near = sum(status(*one) is Verdict.HOLDS for one in measured)
        worst = max(abs(float(np.mean(deviations))) for deviations, _ in measured)
        parts.append(f"{domain} {near} of {len(measured)}, at worst {worst:.3f} off")
    holds, fails = ([one is kind for one in verdicts] for kind in (Verdict.HOLDS, Verdict.FAILS))
    verdict = Verdict.PARTLY if Verdict.PARTLY in verdicts else verdict_of(holds, fails)
    return Claim(claim, verdict, f"Means over training sets within {allowed}: {'; '.join(parts)}.")


def _networks(rows: Sequence[Measured]) -> Claim:
    """The same training sets: what differs is the width."""
    kernel = {(row.domain, row.target, row.n): row for row in rows if row.width == KERNEL}
    widths = sorted({int(row.width) for row in rows if row.width != KERNEL})
    if not widths:
        return Claim("Networks learn as the kernel does.", Verdict.UNDECIDED, "No network was trained.")
    parts, verdicts = [], []
    for width in widths:
        pairs = [(row, kernel[row.domain, row.target, row.n]) for row in rows if row.width == str(width)]
        logs = interval(_excess([pair for pair in pairs if _counts(pair[0])]))
        verdicts.append(_within(logs))
        parts.append(f"width {width} {_factor(logs)}, {_beside(pairs)}")
    verdict = Verdict.PARTLY if verdicts[-1] is Verdict.HOLDS and verdicts[0] is not Verdict.HOLDS else verdicts[0]
    numbers = f"Errors over those of the kernel, with a 95 % interval over the seeds: {'; '.join(parts)}."
    return Claim(f"Networks learn as the kernel does, down to width {widths[0]}.", verdict, numbers)


def _factor(logs: Interval) -> str:
    if not np.isfinite(logs.half):
        return "unknown"
    return f"x{np.exp(logs.mean):.2f} ({np.exp(logs.mean - logs.half):.2f} to {np.exp(logs.mean + logs.half):.2f})"


def _beside(pairs: Sequence[tuple[Measured, Measured]]) -> str:
    """Errors beside the prediction, and learnabilities beside those of the kernel."""
    logs = [np.log(np.mean(one.error) / one.predicted_error) for one, _ in pairs if _counts(one)]
    apart = [np.mean(one.learnability) - np.mean(two.learnability[: len(one.learnability)]) for one, two in pairs]
    return f"x{np.exp(np.mean(logs)):.2f} of the prediction, learnabilities {np.mean(np.abs(apart)):.3f} apart"


def _counts(row: Measured) -> bool:
    """Factors of tiny errors say little."""
    return row.predicted_error >= SMALL


def _excess(pairs: Sequence[tuple[Measured, Measured]]) -> np.ndarray:
    """The logarithm of the errors of networks over those of the kernel, by seed; the mean over all settings."""
    return np.mean([np.log(one.error / two.error[: len(one.error)]) for one, two in pairs], axis=0)


def _within(logs: Interval) -> Verdict:
    """Is the factor near 1? The interval decides."""
    if not np.isfinite(logs.mean):
        return Verdict.FAILS
    allowed = np.log(1 + ERROR)
    if abs(logs.mean) - logs.half > allowed:
        return Verdict.FAILS
    return Verdict.HOLDS if abs(logs.mean) <= allowed and logs.half <= 2 * allowed else Verdict.UNDECIDED


def _hard(rows: Sequence[Measured]) -> Claim:
    """An error of 1 is that of learning nothing."""
    claim = "Of a hard mode, few examples make the error worse than that of learning nothing."
    worse = [row for row in rows if row.predicted_error > 1.1]
    if not worse:
        return Claim(claim, Verdict.UNDECIDED, "No target was predicted to be that hard.")
    above = [np.mean(row.error) - 2 * _standard_error(row.error) > 1 for row in worse]
    below = [np.mean(row.error) + 2 * _standard_error(row.error) < 1 for row in worse]
    verdict = shared([Verdict.HOLDS if a else Verdict.FAILS if b else Verdict.UNDECIDED
                      for a, b in zip(above, below, strict=True)])  # fmt: skip
    top = max(worse, key=lambda row: float(np.mean(row.error)))
    numbers = (
        f"In {sum(above)} of {len(worse)} settings in which it is predicted; at most {np.mean(top.error):.2f}, "
        f"predicted {top.predicted_error:.2f} ({top.domain}, {top.target}, n = {top.n})."
    )
    return Claim(claim, verdict, numbers)


def _laws(laws: Laws) -> tuple[Claim, ...]:
    return (
        Claim(
            "No free lunch: the learnabilities of a complete set of functions add up to the number of examples.",
            _holds(laws.sum_gap < EXACT),
            f"For every training set, to {laws.sum_gap:.0e}.",
        ),
        Claim(
            "More examples never lower the learnability of a mode.",
            _holds(laws.mode_falls == 0),
            f"{laws.mode_falls} falls in {laws.mode_steps} steps of one example.",
        ),
        Claim(
            "More examples never lower the learnability of any function.",
            _holds(laws.mixture_falls == 0),
            f"{laws.mixture_falls} falls in {laws.mixture_steps} steps for mixtures of modes, by at most "
            f"{-laws.worst_fall:.3f}.",
        ),
    )


def _holds(right: bool) -> Verdict:
    return Verdict.HOLDS if right else Verdict.FAILS


def _standard_error(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else np.inf
