"""Whether the network knows what it does not know."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float, Int
from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss

from ..._problem import Problem
from ..._words import count, number, percent
from .._page import BLUE, GREY, Fact, Figure, Grid, Section, Text
from .accuracy import LEVELS, SHOWN_LEVEL, Validation, cross_validated, uses_process, wilson

_BINS = 10
_PROCESS, _ITSELF = (
    "A Gaussian process of such networks",
    "The infinitely wide network, calibrated on its training rows",
)
_GOOD, _FAIR = 0.03, 0.08
_SAFE, _FEWEST = 0.99, 20  # what counts as decided; rows that can tell


@dataclass(frozen=True, eq=False)
class ClassCalibration:
    """Probabilities of the predicted class (confidence) beside the share of right predictions (accuracy), by bins.

    - `error_by_chance`: the calibration error that honest probabilities would show in as many rows.
    - `log_loss_of_shares`: of who knows how frequent the classes are, and nothing else.
    - `safe`: chosen on one half of the rows, judged on the other; `None` where no rows are safe, or too few to tell.
    """

    n: int
    confidence: Float[np.ndarray, " bins"]
    accuracy: Float[np.ndarray, " bins"]
    bin_sizes: Int[np.ndarray, " bins"]
    expected_calibration_error: float
    error_by_chance: float
    log_loss: float
    log_loss_of_shares: float
    mean_confidence: float
    mean_accuracy: float
    safe: "Safe | None"


class Safe(NamedTuple):
    """The least `confidence` above which 99 % of the rows were right; of other rows, the `share` above it.

    `n` of these were judged, `right` is the share of right ones among them, `low` to `high` its 95 % interval.
    """

    confidence: float
    share: float
    n: int
    right: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class IntervalCalibration:
    """How often intervals held the target, by their level; and the density of what was measured."""

    n: int
    levels: Float[np.ndarray, " levels"]
    covered: Float[np.ndarray, " levels"]
    coverage_of_90_percent_intervals: float
    log_likelihood: float
    mean_std: float
    median_half_width_of_90_percent_intervals: float
    std_of_scores: float


def calibration_of_classes(validation: Validation, seed: int = 0) -> ClassCalibration:
    """Reliability in bins of equal size, and the expected calibration error."""
    truth, probability = validation.truth.astype(np.int64), validation.probability
    sure = np.minimum(probability.max(1), 1.0)
    right = (probability.argmax(1) == truth).astype(np.int64)
    accuracy, confidence = calibration_curve(right, sure, n_bins=_BINS, strategy="quantile")
    edges = np.quantile(sure, np.linspace(0, 1, _BINS + 1))
    sizes = np.bincount(np.searchsorted(edges[1:-1], sure))
    sizes = sizes[sizes > 0]
    shares = np.bincount(truth) / len(truth)
    return ClassCalibration(
        n=len(sure),
        confidence=confidence,
        accuracy=accuracy,
        bin_sizes=sizes,
        expected_calibration_error=float(np.sum(sizes * np.abs(confidence - accuracy)) / len(sure)),
        # The mean size of a Gaussian of the variance of a share.
        error_by_chance=float(np.sum(np.sqrt(2 / np.pi * confidence * (1 - confidence) * sizes)) / len(sure)),
        log_loss=float(log_loss(truth, probability, labels=np.arange(probability.shape[1]))),
        log_loss_of_shares=float(scipy.stats.entropy(shares)),
        mean_confidence=float(sure.mean()),
        mean_accuracy=float(right.mean()),
        safe=safe(sure, right, seed),
    )


def safe(sure: Float[np.ndarray, " n"], right: Int[np.ndarray, " n"], seed: int) -> Safe | None:
    """The lowest confidence that is safe on one half of the rows, and what it is worth on the other."""
    order = np.random.default_rng([seed, 5]).permutation(len(sure))
    chosen, judged = order[: len(order) // 2], order[len(order) // 2 :]
    best = chosen[np.argsort(-sure[chosen], kind="stable")]
    shares = np.cumsum(right[best]) / np.arange(1, len(best) + 1)
    cuts = np.append(sure[best][1:] < sure[best][:-1], True)  # rows of equal confidence are on one side
    enough = np.flatnonzero(cuts & (shares >= _SAFE))
    if not len(enough) or enough[-1] + 1 < _FEWEST:
        return None
    edge = float(sure[best[enough[-1]]])
    above = right[judged[sure[judged] >= edge]]
    low, high = wilson(int(above.sum()), len(above)) if len(above) >= _FEWEST else (0.0, 0.0)
    if high < _SAFE:
        return None
    return Safe(edge, len(above) / len(judged), len(above), float(above.mean()), low, high)


def calibration_of_intervals(validation: Validation) -> IntervalCalibration:
    """Coverage of intervals, and the likelihood of a Gaussian."""
    std = np.maximum(validation.std, np.finfo(np.float64).tiny)
    scores, covered = (validation.truth - validation.mean) / std, validation.inside.mean(0)
    return IntervalCalibration(
        n=len(scores),
        levels=np.array(LEVELS),
        covered=covered,
        coverage_of_90_percent_intervals=float(covered[LEVELS.index(SHOWN_LEVEL)]),
        log_likelihood=float(np.mean(scipy.stats.norm.logpdf(validation.truth, validation.mean, std))),
        mean_std=float(np.mean(validation.std)),
        median_half_width_of_90_percent_intervals=float(np.median(validation.half_width)),
        std_of_scores=float(np.std(scores)),
    )


def _measured(problem: Problem) -> ClassCalibration | IntervalCalibration:
    validation = problem.once(cross_validated)
    return calibration_of_classes(validation, problem.seed) if problem.classes else calibration_of_intervals(validation)


def _text(problem: Problem, result: ClassCalibration | IntervalCalibration) -> Text:
    judge = _PROCESS if uses_process(problem) else _ITSELF
    note = f"{judge}, on {count(result.n)} rows it had not seen"
    if isinstance(result, IntervalCalibration):
        return Text(_interval_facts(result), notes=(f"{note}.",), grids=(_interval_grid(result),))
    return Text(class_facts(result), notes=(f"{note}, in bins of equal size.",), grids=(_class_grid(result),))


def class_facts(result: ClassCalibration) -> tuple[Fact, ...]:
    """What to do with the numbers."""
    return (
        Fact("Expected calibration error", percent(result.expected_calibration_error), _honest(result)),
        _threshold(result),
        Fact("Log loss", number(result.log_loss), _log_loss(result)),
    )


def _log_loss(result: ClassCalibration) -> str:
    guessing = number(result.log_loss_of_shares)
    if result.log_loss > result.log_loss_of_shares:
        return f"Nats by row, worse than {guessing}, that of the shares of the classes: do not use the probabilities."
    return (
        f"Nats by row; {guessing} is that of the shares of the classes, without any input. Lower is better: use it to "
        "compare with other models that give probabilities."
    )


def _class_grid(result: ClassCalibration) -> Grid:
    bins = zip(result.confidence, result.accuracy, result.bin_sizes, strict=True)
    rows = tuple((percent(sure), percent(right), count(n)) for sure, right, n in bins)
    return Grid("What it said, and what was", ("said", "right", "rows"), rows)


def _honest(result: ClassCalibration) -> str:
    error, chance = result.expected_calibration_error, result.error_by_chance
    if error < max(_GOOD, 1.5 * chance):
        told = f"{count(result.n)} rows would show about {percent(chance)} even if all probabilities were right."
        return f"No sign that the probabilities are wrong: {told}"
    ahead = result.mean_confidence - result.mean_accuracy
    side = "too sure of itself" if ahead > 0 else "too careful"
    side = side if abs(ahead) > error / 2 else "too sure of some rows and too careful with others"
    if error < _FAIR:
        return f"It is a little {side}: probabilities are good for ranking, and nearly so for decisions."
    return f"It is {side}: calibrate the probabilities (sklearn.calibration) before you decide by them."


def _threshold(result: ClassCalibration) -> Fact:
    """The share of rows of which it is so sure that 99 % are right."""
    label, known = "Rows it can decide", result.safe
    if known is None:
        meaning = f"No {_FEWEST} rows or more were found of which 99\u202f% are right: have people look at its answers."
        return Fact(label, "none", meaning)
    meaning = (
        f"Those of which it is at least {percent(known.confidence)} sure, as chosen on half of the rows. On the "
        f"other half {percent(known.right)} of {count(known.n)} such rows were right ({percent(known.low)} to "
        f"{percent(known.high)} on new ones)."
    )
    meaning += " Send the rest to people." if known.share < 1 else ""
    return Fact(label, percent(known.share, 0), meaning)


def _interval_facts(result: IntervalCalibration) -> tuple[Fact, ...]:
    at_90, half = result.coverage_of_90_percent_intervals, result.median_half_width_of_90_percent_intervals
    return (
        Fact("Coverage of 90\u202f% intervals", percent(at_90), _covers(at_90, result.n)),
        Fact(
            "Usual width of an interval",
            f"\u00b1 {number(half)}",
            "In units of the target, for 90\u202f%; half of the rows have a narrower one. Is that narrow enough?",
        ),
        Fact(
            "Log likelihood",
            number(result.log_likelihood),
            "Nats by row, of what was measured under what was predicted. Higher is better: use it to compare models.",
        ),
    )


def _interval_grid(result: IntervalCalibration) -> Grid:
    rows = tuple((percent(a, 0), percent(b)) for a, b in zip(result.levels, result.covered, strict=True))
    return Grid("Intervals, and how often they held", ("should hold", "held"), rows)


def _covers(share: float, n: int) -> str:
    low, high = wilson(round(share * n), n)
    if low <= SHOWN_LEVEL <= high:
        return f"The intervals can be taken at their word, as far as {count(n)} rows can tell."
    if share < SHOWN_LEVEL:
        return "The intervals are too narrow: widen them until they hold as often as they say."
    return "The intervals are wider than they need be: safe, and a little wasteful."


def _draw(figure: Any, result: ClassCalibration | IntervalCalibration) -> None:
    ax = figure.subplots()
    if isinstance(result, ClassCalibration):
        across, up = result.confidence, result.accuracy
        error = 196 * np.sqrt(np.maximum(up * (1 - up), 1e-4) / result.bin_sizes)
        ax.errorbar(100 * across, 100 * up, error, fmt="none", ecolor=BLUE, alpha=0.35, linewidth=4)
        ax.set(xlabel="how sure it said it was, %", ylabel="how often it was right, %")
    else:
        across, up = result.levels, result.covered
        ax.set(xlabel="should hold, %", ylabel="held, %")
    low = 100 * max(0.0, min(float(np.min(across)), float(np.min(up))) - 0.05)
    ax.plot([low, 100], [low, 100], "--", color=GREY, linewidth=1, label="honest")
    ax.plot(100 * across, 100 * up, "o-", color=BLUE, label="this network")
    ax.set(xlim=(low, 101), ylim=(low, 101))
    ax.legend(loc="upper left")


def _tile(result: ClassCalibration | IntervalCalibration) -> Fact:
    if isinstance(result, ClassCalibration):
        chance = percent(result.error_by_chance)
        meaning = f"between how sure it says it is, and how often it is right; {chance} would be chance"
        return Fact("calibration error", percent(result.expected_calibration_error), meaning)
    share = percent(result.coverage_of_90_percent_intervals)
    return Fact("of 90\u202f% intervals hold", share, "on rows it has not seen")


SECTION = Section(
    "calibration",
    "Whether it knows when it is wrong",
    "When it says that it is 90\u202f% sure, is it right nine times out of ten?",
    measure=_measured,
    describe=_text,
    figure=Figure(_draw, 3.2, "On the dashed line it is as good as it says; below, it is too sure."),
    tile=_tile,
)
