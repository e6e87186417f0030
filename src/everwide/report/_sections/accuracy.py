"""How good the network is on rows it has not seen, beside other models on the same folds."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from sklearn.metrics import r2_score

from ..._problem import Problem
from ..._words import count, number, percent, several
from .._drawing import BLUE, GREY, INK
from .._section import Fact, Figure, Grid, Section, Text
from .._validation import NETWORK, Validation, cross_validated

_LEVEL = 0.95
_DRAWS = 1000


class Score(NamedTuple):
    """An accuracy, or a root mean square error, or a difference of losses, with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Accuracy:
    """Cross-validated scores of all models: accuracies, or root mean square errors with R2 (`r2`, otherwise empty).

    `ahead_of_best_rival`: the mean loss of the best other model less that of the network, row by row.
    """

    n: int
    folds: int
    n_of_rare_classes_left_out: int
    measure: str
    scores: dict[str, Score]
    r2: dict[str, float]
    best_rival: str
    ahead_of_best_rival: Score

    @property
    def classes(self) -> bool:
        """Whether scores are accuracies."""
        return self.measure == "accuracy"


def accuracy(problem: Problem, validation: Validation) -> Accuracy:
    """Scores from predictions for rows that the models had not seen."""
    truth, predicted, classes = validation.truth, validation.predicted, problem.classes is not None
    losses = {name: 1.0 * (one != truth) if classes else (one - truth) ** 2 for name, one in predicted.items()}
    scores = {name: _share(loss) if classes else _rmse(loss, problem.seed) for name, loss in losses.items()}
    rivals = [name for name in scores if name != NETWORK]
    rival = min(rivals, key=lambda name: float(np.mean(losses[name])))
    return Accuracy(
        n=len(truth),
        folds=validation.folds,
        n_of_rare_classes_left_out=validation.dropped,
        measure="accuracy" if classes else "rmse",
        scores=scores,
        r2={} if classes else {name: float(r2_score(truth, one)) for name, one in predicted.items()},
        best_rival=rival,
        ahead_of_best_rival=_mean(losses[rival] - losses[NETWORK]),
    )


def _share(wrong: np.ndarray) -> Score:
    """The share of right answers, with the interval of Wilson (1927)."""
    right = int(np.sum(wrong == 0))
    interval = scipy.stats.binomtest(right, len(wrong)).proportion_ci(_LEVEL, method="wilson")
    return Score(right / len(wrong), float(interval.low), float(interval.high))


def _rmse(squares: np.ndarray, seed: int) -> Score:
    """Rows drawn again, with replacement."""
    rng = np.random.default_rng([seed, 2])
    options: Any = {"n_resamples": _DRAWS, "method": "percentile", "random_state": rng}  # `rng` since SciPy 1.15
    drawn = scipy.stats.bootstrap((squares,), np.mean, confidence_level=_LEVEL, **options)
    low, high = np.sqrt(drawn.confidence_interval)
    return Score(math.sqrt(float(np.mean(squares))), float(low), float(high))


def _mean(gains: np.ndarray) -> Score:
    """The mean of what is gained row by row, with the interval of a mean."""
    mean, error = float(np.mean(gains)), float(scipy.stats.sem(gains))
    half = float(scipy.stats.norm.ppf((1 + _LEVEL) / 2)) * error
    return Score(mean, mean - half, mean + half)


def _text(problem: Problem, result: Accuracy) -> Text:
    notes = [
        f"{result.folds}-fold cross-validation on {count(result.n)} rows, the same folds for all models; the "
        "network is chosen on the training rows of each fold alone. The others have scikit-learn's defaults."
    ]
    if problem.quick:
        notes.append("Quick: few rows, few folds and short boosting. The full report is the one to quote.")
    if dropped := result.n_of_rare_classes_left_out:
        notes.append(f"{several(dropped, 'row')} of classes with fewer than {result.folds} rows were left out.")
    return Text((_own(result), _versus(result)), notes=tuple(notes), grids=(_grid(result),))


def _own(result: Accuracy) -> Fact:
    score = result.scores[NETWORK]
    if result.classes:
        wrong = 1 - score.value
        every = f"one row in {count(1 / wrong)}" if wrong > 0 else "none of these rows"
        meaning = f"Expect {percent(score.low)} to {percent(score.high)} on new rows like these: it gets {every} wrong."
        return Fact("Accuracy", percent(score.value), meaning)
    meaning = (
        f"Expect {number(score.low)} to {number(score.high)} on new rows like these, in units of the target; it "
        f"explains {percent(result.r2[NETWORK])} of the variance."
    )
    return Fact("Root mean square error", number(score.value), meaning)


def _versus(result: Accuracy) -> Fact:
    rival, ahead = result.best_rival, result.ahead_of_best_rival
    label = f"Against the best other ({rival})"
    size = (
        percent(abs(ahead.value))
        if result.classes
        else f"{number(abs(ahead.value))} of squared error, in units of the target squared"
    )
    if ahead.low > 0:
        return Fact(label, f"better by {size}", "More than chance explains, row by row: use the network.")
    if ahead.high < 0:
        meaning = f"More than chance explains, row by row: use the {rival} for predictions, and this page for the rest."
        return Fact(label, f"worse by {size}", meaning)
    meaning = "Chance explains the difference: choose by what else you need, such as uncertainty or speed."
    return Fact(label, "a tie", meaning)


def _best_first(result: Accuracy) -> list[str]:
    return sorted(result.scores, key=lambda name: result.scores[name].value, reverse=result.classes)


def _grid(result: Accuracy) -> Grid:
    show = percent if result.classes else number
    rows = tuple(
        (name, show(score.value), f"{show(score.low)} \u2013 {show(score.high)}")
        + ((percent(result.r2[name]),) if result.r2 else ())
        for name, score in ((name, result.scores[name]) for name in _best_first(result))
    )
    columns = ("model", "accuracy" if result.classes else "RMSE", f"{percent(_LEVEL, 0)} interval")
    return Grid("The same folds for everyone", columns + (("R\u00b2",) if result.r2 else ()), rows)


def _draw(figure: Any, result: Accuracy) -> None:
    scale, names = 100.0 if result.classes else 1.0, _best_first(result)[::-1]
    ax = figure.subplots()
    for place, name in enumerate(names):
        value, low, high = (scale * part for part in result.scores[name])
        colour = BLUE if name == NETWORK else GREY
        ax.plot([low, high], [place, place], color=colour, linewidth=5, alpha=0.35, solid_capstyle="round")
        ax.plot(value, place, "o", color=colour, markersize=7)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", labelcolor=INK, length=0)
    ax.set(xlabel="accuracy, %" if result.classes else "root mean square error", ylim=(-0.6, len(names) - 0.4))
    ax.grid(axis="y", visible=False)


def _tile(result: Accuracy) -> Fact:
    ahead, show = result.ahead_of_best_rival, percent if result.classes else number
    word = "better than" if ahead.low > 0 else "worse than" if ahead.high < 0 else "level with"
    label = "accuracy on new rows" if result.classes else "error on new rows (RMSE)"
    return Fact(label, show(result.scores[NETWORK].value), f"{word} the best of forest, boosting and SVM")


SECTION = Section(
    "accuracy",
    "How good it is",
    "How often is it right about rows it has not seen, and is anything else better?",
    measure=lambda problem: accuracy(problem, problem.once(cross_validated)),
    describe=_text,
    figure=Figure(_draw, 2.1, "Dots are cross-validated scores, bars their 95\u202f% intervals."),
    tile=_tile,
)
