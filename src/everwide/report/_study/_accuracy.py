"""How good the network is on rows it has not seen, beside other models on the same folds."""

import math
from typing import NamedTuple

import numpy as np

from .._words import count, number, percent, several
from ._problem import Problem
from ._section import Fact, Grid, Section
from ._validation import NETWORK, Validation

KEY, TITLE = "accuracy", "How good it is"
QUESTION = "How often is it right about rows it has not seen, and is anything else better?"
_Z = 1.959963984540054  # 95 % of a Gaussian
_DRAWS = 1000


class Score(NamedTuple):
    """An accuracy, or a root mean square error, with its 95 % interval."""

    value: float
    low: float
    high: float


def accuracy(problem: Problem, found: Validation) -> Section:
    """Accuracy, or root mean square error and R2, with intervals."""
    classes = problem.classes is not None
    losses = {name: _losses(predicted, found.truth, classes) for name, predicted in found.predicted.items()}
    scores = {name: _wilson(loss) if classes else _bootstrap(loss, problem.seed) for name, loss in losses.items()}
    better = (lambda name: scores[name].value) if classes else (lambda name: -scores[name].value)
    rival = max((name for name in scores if name != NETWORK), key=better)
    variance = float(np.var(found.truth)) if not classes else 1.0
    explained = {name: 1 - float(np.mean(loss)) / variance for name, loss in losses.items()} if not classes else {}
    ahead = _difference(losses[rival] - losses[NETWORK])
    numbers = {
        "rows": len(found.truth),
        "folds": found.folds,
        "rows_of_rare_classes_left_out": found.dropped,
        "measure": "accuracy" if classes else "rmse",
        "scores": {name: score._asdict() for name, score in scores.items()},
        "r2": explained,
        "best_rival": rival,
        "ahead_of_best_rival": ahead._asdict(),
    }
    facts = (_own(scores[NETWORK], classes, explained.get(NETWORK), len(found.truth)), _versus(rival, ahead, classes))
    notes = [
        f"{found.folds}-fold cross-validation on {count(len(found.truth))} rows, the same folds for all models; the "
        "network is chosen on the training rows of each fold alone. The others have scikit-learn's defaults."
    ]
    if found.folds <= 3:
        notes.append("Quick: few rows, few folds and short boosting. The full report is the one to quote.")
    if found.dropped:
        notes.append(f"{several(found.dropped, 'row')} of classes with fewer than {found.folds} rows were left out.")
    grids = (_table(scores, explained, classes),)
    return Section(KEY, TITLE, QUESTION, numbers, facts, notes=tuple(notes), grids=grids)


def _losses(predicted: np.ndarray, truth: np.ndarray, classes: bool) -> np.ndarray:
    return (predicted != truth).astype(np.float64) if classes else (predicted - truth) ** 2


def _wilson(wrong: np.ndarray) -> Score:
    """The interval of Wilson (1927), which stays inside 0 and 1."""
    n, right = len(wrong), 1 - float(np.mean(wrong))
    centre = (right + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * math.sqrt(right * (1 - right) / n + _Z**2 / (4 * n**2)) / (1 + _Z**2 / n)
    return Score(right, max(0.0, centre - half), min(1.0, centre + half))


def _bootstrap(squares: np.ndarray, seed: int) -> Score:
    """Rows drawn again, with replacement."""
    rng = np.random.default_rng([seed, 2])
    draws = rng.multinomial(len(squares), np.full(len(squares), 1 / len(squares)), _DRAWS) @ squares / len(squares)
    low, high = np.sqrt(np.quantile(draws, (0.025, 0.975)))
    return Score(math.sqrt(float(np.mean(squares))), float(low), float(high))


def _difference(gains: np.ndarray) -> Score:
    """The mean of what is gained row by row, with the interval of a mean."""
    mean, error = float(np.mean(gains)), float(np.std(gains, ddof=1)) / math.sqrt(len(gains))
    return Score(mean, mean - _Z * error, mean + _Z * error)


def _own(score: Score, classes: bool, explained: float | None, rows: int) -> Fact:
    if classes:
        wrong = 1 - score.value
        every = f"one row in {count(1 / wrong)}" if wrong > 0 else "none of these rows"
        meaning = f"Expect {percent(score.low)} to {percent(score.high)} on new rows like these: it gets {every} wrong."
        return Fact("Accuracy", percent(score.value), meaning)
    meaning = (
        f"Expect {number(score.low)} to {number(score.high)} on new rows like these, in units of the target; it "
        f"explains {percent(explained or 0.0)} of the variance."
    )
    return Fact("Root mean square error", number(score.value), meaning)


def _versus(rival: str, ahead: Score, classes: bool) -> Fact:
    label = f"Against the best other ({rival})"
    size = (
        percent(abs(ahead.value))
        if classes
        else f"{number(abs(ahead.value))} of squared error, in units of the target squared"
    )
    if ahead.low > 0:
        return Fact(label, f"better by {size}", "More than chance explains, row by row: use the network.")
    if ahead.high < 0:
        meaning = f"More than chance explains, row by row: use the {rival} for predictions, and this page for the rest."
        return Fact(label, f"worse by {size}", meaning)
    meaning = "Chance explains the difference: choose by what else you need, such as uncertainty or speed."
    return Fact(label, "a tie", meaning)


def _table(scores: dict[str, Score], explained: dict[str, float], classes: bool) -> Grid:
    show = percent if classes else number
    order = sorted(scores, key=lambda name: -scores[name].value if classes else scores[name].value)
    rows = tuple(
        (name, show(scores[name].value), f"{show(scores[name].low)} \u2013 {show(scores[name].high)}")
        + ((percent(explained[name]),) if explained else ())
        for name in order
    )
    columns = ("model", "accuracy" if classes else "RMSE", "95\u202f% interval") + (("R\u00b2",) if explained else ())
    return Grid("The same folds for everyone", columns, rows)
