"""How good the network is on rows it has not seen, beside other models on the same folds."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Bool, Float, Int
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from ..._checks import InputError
from ..._problem import Problem, known_target
from ..._words import count, number, percent, several
from ...estimators import WideClassifier, WideGPClassifier, WideGPRegressor, WideRegressor
from .._page import BLUE, GREY, INK, Fact, Figure, Grid, Section, Text

SHOWN_LEVEL = 0.9
LEVELS = (0.5, 0.8, SHOWN_LEVEL, 0.95)
NETWORK = "infinitely wide network"
_QUICK_ROUNDS = 15  # of boosting, where a table has so few rows


@dataclass(frozen=True, eq=False)
class Validation:
    """What was predicted for each row by models that had not seen it.

    - `rows`: of the table. `dropped`: rows of classes that are too rare for the folds.
    - `predicted`: by model; classes (codes) or numbers.
    - `probability`: `(rows, classes)` of the Gaussian process of the same network, or of itself; or `(rows, 0)`.
    - `mean`, `std`: of the Gaussian process, for numbers; otherwise empty. `inside`: `(rows, levels)`, whether the
      interval of each of `LEVELS` held the target; `half_width`: of that of 90 %.
    """

    rows: Int[np.ndarray, " n"]
    truth: np.ndarray
    folds: int
    dropped: int
    predicted: dict[str, np.ndarray]
    probability: Float[np.ndarray, "n classes"]
    mean: Float[np.ndarray, " m"]
    std: Float[np.ndarray, " m"]
    inside: Bool[np.ndarray, "m levels"]
    half_width: Float[np.ndarray, " m"]


def cross_validated(problem: Problem) -> Validation:
    """Every row predicted by models of the other folds."""
    rows, dropped = _rows(problem)
    x, y, folds = problem.table.x[rows], known_target(problem.table)[rows], problem.limits.folds
    flat = x.reshape(len(x), -1)
    classes, rivals = problem.classes is not None, _rivals(problem)
    predicted = {name: np.zeros(len(y), y.dtype) for name in (NETWORK, *rivals)}
    probability = np.zeros((len(y), len(problem.classes or ())))
    mean, std, half_width = (np.zeros(0 if classes else len(y)) for _ in range(3))
    inside = np.zeros((len(mean), len(LEVELS)), bool)
    split = (StratifiedKFold if classes else KFold)(folds, shuffle=True, random_state=problem.seed)
    for train, test in split.split(flat, y):
        trained, process = _network(problem, x[train], y[train])
        predicted[NETWORK][test] = trained.predict(x[test])
        if classes:
            columns = process.classes_.astype(np.int64)
            probability[np.ix_(test, columns)] = process.predict_proba(x[test])
        else:
            mean[test], std[test] = process.predict(x[test], return_std=True)
            for place, level in enumerate(LEVELS):
                low, high = process.predict_interval(x[test], level)
                inside[test, place] = (low <= y[test]) & (y[test] <= high)
                half_width[test] = (high - low) / 2 if level == SHOWN_LEVEL else half_width[test]
        for name, rival in rivals.items():
            predicted[name][test] = rival.fit(flat[train], y[train]).predict(flat[test])
    return Validation(rows, y, folds, dropped, predicted, probability, mean, std, inside, half_width)


def _network(problem: Problem, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """The network, chosen on these rows; and what says how sure it is: a Gaussian process, or if quick, itself."""
    trained = problem.new(WideClassifier if problem.classes else WideRegressor).fit(x, y)
    if not uses_process(problem):
        return trained, trained
    process = WideGPClassifier if problem.classes else WideGPRegressor
    # What is chosen for flat rows reads them twice, a network that is given once: the process must be chosen as well.
    network = None if x.ndim == 2 and problem.asked == "auto" else trained.network_
    return trained, problem.new(process, network).fit(x, y)


def uses_process(problem: Problem) -> bool:
    """Whether a Gaussian process says how sure it is; if not, the network itself: no other kernel is compiled."""
    return not (problem.quick and problem.classes)


def _rows(problem: Problem) -> tuple[np.ndarray, int]:
    """At random; those of classes with fewer rows than folds cannot be on both sides of every split."""
    y, rng = known_target(problem.table), np.random.default_rng([problem.seed, 1])
    chosen = np.sort(rng.permutation(len(y))[: problem.limits.n_validation])
    if len(chosen) < 2 * problem.limits.folds:
        raise InputError(f"cross-validation needs at least {2 * problem.limits.folds} rows, and there are {len(y)}.")
    if not problem.classes:
        return chosen, 0
    labels = y[chosen].astype(np.int64)
    enough = np.bincount(labels)[labels] >= problem.limits.folds
    if len(np.unique(labels[enough])) < 2:
        raise InputError(f"fewer than two classes have {problem.limits.folds} rows or more, one for each fold.")
    return chosen[enough], int(np.sum(~enough))


def _rivals(problem: Problem) -> dict[str, Any]:
    """What people use otherwise, by name. Fitting one again forgets what it has seen."""
    trees: Any = {"random_state": problem.seed, "n_jobs": -1}
    # All rounds on all rows: rare classes cannot be split once more.
    rounds = _QUICK_ROUNDS if problem.quick else 100
    boosting: Any = {"random_state": problem.seed, "max_iter": rounds, "early_stopping": False}
    if problem.classes:
        models = RandomForestClassifier(**trees), HistGradientBoostingClassifier(**boosting), SVC()
    else:
        scaled = TransformedTargetRegressor(SVR(), transformer=StandardScaler())
        models = RandomForestRegressor(**trees), HistGradientBoostingRegressor(**boosting), scaled
    forest, boosted, machine = models
    machine = make_pipeline(StandardScaler(), machine)
    return {"random forest": forest, "gradient boosting": boosted, "RBF SVM": machine}


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
