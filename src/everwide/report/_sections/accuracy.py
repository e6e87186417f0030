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
CONSTANT = "always the same answer"
_QUICK_ROUNDS = 15  # of boosting, where a table has so few rows


@dataclass(frozen=True, eq=False)
class Validation:
    """What was predicted for each row by models that had not seen it.

    - `rows`: of the table. `dropped`: rows of classes that are too rare for the folds.
    - `predicted`: by model; classes (codes) or numbers. `CONSTANT` says the most frequent class, or the mean.
    - `probability`: `(rows, classes)` of the Gaussian process of the same network, or of itself; or `(rows, 0)`.
    - `mean`, `std`: of the Gaussian process, for numbers; otherwise empty. `inside`: `(rows, levels)`, whether the
      interval of each of `LEVELS` held the target; `half_width`: of that of 90 %.
    - `last`: the network of the last fold, and which of `rows` it has not seen.
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
    last: tuple[Any, Int[np.ndarray, " out"]]


def cross_validated(problem: Problem) -> Validation:
    """Every row predicted by models of the other folds."""
    rows, dropped = _rows(problem)
    x, y, folds = problem.table.x[rows], known_target(problem.table)[rows], problem.limits.folds
    flat = x.reshape(len(x), -1)
    classes, rivals = problem.classes is not None, _rivals(problem)
    predicted = {name: np.zeros(len(y), y.dtype) for name in (NETWORK, *rivals, CONSTANT)}
    probability = np.zeros((len(y), len(problem.classes or ())))
    mean, std, half_width = (np.zeros(0 if classes else len(y)) for _ in range(3))
    inside, last = np.zeros((len(mean), len(LEVELS)), bool), (None, rows[:0])
    split = (StratifiedKFold if classes else KFold)(folds, shuffle=True, random_state=problem.seed)
    for train, test in split.split(flat, y):
        trained, process = _network(problem, x[train], y[train])
        predicted[NETWORK][test], last = trained.predict(x[test]), (trained, test)
        if classes:
            probability[np.ix_(test, process.classes_.astype(np.int64))] = process.predict_proba(x[test])
        else:
            mean[test], std[test] = process.predict(x[test], return_std=True)
            for place, level in enumerate(LEVELS):
                low, high = process.predict_interval(x[test], level)
                inside[test, place] = (low <= y[test]) & (y[test] <= high)
                half_width[test] = (high - low) / 2 if level == SHOWN_LEVEL else half_width[test]
        for name, rival in rivals.items():
            predicted[name][test] = rival.fit(flat[train], y[train]).predict(flat[test])
        predicted[CONSTANT][test] = np.bincount(y[train]).argmax() if classes else y[train].mean()
    return Validation(rows, y, folds, dropped, predicted, probability, mean, std, inside, half_width, last)


def _network(problem: Problem, x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """The network, chosen on these rows; and what says how sure it is: a Gaussian process, or itself."""
    trained = problem.new(WideClassifier if problem.classes else WideRegressor).fit(x, y)
    if not uses_process(problem):
        return trained, trained
    process = WideGPClassifier if problem.classes else WideGPRegressor
    # Several networks cannot be given: the process chooses its own.
    return trained, problem.new(process, None if problem.adds else trained.network_).fit(x, y)


def uses_process(problem: Problem) -> bool:
    """Whether a Gaussian process says how sure it is; if not, the network itself: no other is chosen."""
    return not (problem.classes and (problem.quick or problem.adds))


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
    return {"random forest": forest, "gradient boosting": boosted, "RBF SVM": make_pipeline(StandardScaler(), machine)}


_LEVEL = 0.95
_DRAWS = 1000
_SAME = "the same answer for every row, beyond chance"
_RULES = 0.5  # of all squared errors, in one row
_RARE = 0.99  # right answers, or shares of variance explained, that are rarely honest


class Score(NamedTuple):
    """An accuracy, or a root mean square error, or a difference of losses, with its 95 % interval."""

    value: float
    low: float
    high: float


class Lead(NamedTuple):
    """The mean loss of another model less that of the network, row by row; `chance`: of as large a one by luck."""

    value: float
    chance: float

    @property
    def verdict(self) -> str:
        """Of the network: "better", "worse" or "a tie"."""
        if self.chance > 1 - _LEVEL:
            return "a tie"
        return "better" if self.value > 0 else "worse"


@dataclass(frozen=True, eq=False)
class Accuracy:
    """Cross-validated scores of all models: accuracies, or root mean square errors with R2 (`r2`, otherwise empty).

    - `n`: rows that were predicted, of `n_table`; each by models that had learned from `n_learned` others.
    - `ahead_of_best_rival`, `ahead_of_constant`: of the network. `rival_ahead_of_constant`: of the best other model.
    - `share_of_worst`: of the network's squared errors, in one row; `score_without_worst`: what is left without it.
    """

    n: int
    n_table: int
    n_learned: int
    folds: int
    n_of_rare_classes_left_out: int
    measure: str
    scores: dict[str, Score]
    r2: dict[str, float]
    best_rival: str
    ahead_of_best_rival: Lead
    ahead_of_constant: Lead
    rival_ahead_of_constant: Lead
    share_of_worst: float
    score_without_worst: float

    @property
    def classes(self) -> bool:
        """Whether scores are accuracies."""
        return self.measure == "accuracy"

    @property
    def useful(self) -> bool:
        """Whether the network is better than the same answer for every row, beyond chance."""
        return self.ahead_of_constant.verdict == "better"


def accuracy(problem: Problem, validation: Validation) -> Accuracy:
    """Scores from predictions for rows that the models had not seen."""
    truth, predicted, classes = validation.truth, validation.predicted, problem.classes is not None
    losses = {name: losses_of(problem, one, truth) for name, one in predicted.items()}
    scores = {name: score_of(problem, loss) for name, loss in losses.items()}
    rivals = [name for name in scores if name not in (NETWORK, CONSTANT)]
    rival = min(rivals, key=lambda name: float(np.mean(losses[name])))
    own, n, total = losses[NETWORK], len(truth), max(float(np.sum(losses[NETWORK])), 1e-300)
    return Accuracy(
        n=n,
        n_table=problem.table.n,
        n_learned=n - n // validation.folds,
        folds=validation.folds,
        n_of_rare_classes_left_out=validation.dropped,
        measure="accuracy" if classes else "rmse",
        scores=scores,
        r2={} if classes else {name: float(r2_score(truth, one)) for name, one in predicted.items()},
        best_rival=rival,
        ahead_of_best_rival=lead(problem, losses[rival] - own),
        ahead_of_constant=lead(problem, losses[CONSTANT] - own),
        rival_ahead_of_constant=lead(problem, losses[CONSTANT] - losses[rival]),
        share_of_worst=float(own.max()) / total,
        score_without_worst=math.sqrt(max(total - float(own.max()), 0.0) / max(n - 1, 1)),
    )


def losses_of(problem: Problem, predicted: np.ndarray, truth: np.ndarray) -> Float[np.ndarray, " n"]:
    """Of every row: 1 where the class is wrong, or the squared error."""
    return 1.0 * (predicted != truth) if problem.classes else (predicted - truth) ** 2


def score_of(problem: Problem, losses: Float[np.ndarray, " n"]) -> Score:
    """An accuracy, or a root mean square error; losses may be means over several models."""
    return _share(losses) if problem.classes else _rmse(losses, problem.seed)


def lead(problem: Problem, gains: Float[np.ndarray, " n"]) -> Lead:
    """The mean of what is gained row by row, and how often random signs of the gains give as much: few rows or one."""
    signs = np.random.default_rng([problem.seed, 4]).choice([-1.0, 1.0], size=(_DRAWS, len(gains)))
    unit = max(float(np.abs(gains).max()), 1e-300)
    total, drawn = float(np.sum(gains / unit)), signs @ (gains / unit)
    as_large = np.sum(np.abs(drawn) >= abs(total) * (1 - 1e-12))
    return Lead(float(np.mean(gains)), (1 + float(as_large)) / (1 + _DRAWS))


def _share(wrong: np.ndarray) -> Score:
    """The share of right answers, with the interval of Wilson (1927)."""
    right = float(np.sum(1 - wrong))
    return Score(right / len(wrong), *wilson(round(right), len(wrong)))


def wilson(right: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    interval = scipy.stats.binomtest(right, n).proportion_ci(_LEVEL, method="wilson")
    return float(interval.low), float(interval.high)


def _rmse(squares: np.ndarray, seed: int) -> Score:
    """Rows drawn again, with replacement."""
    rng = np.random.default_rng([seed, 2])
    options: Any = {"n_resamples": _DRAWS, "method": "percentile", "random_state": rng}  # `rng` since SciPy 1.15
    drawn = scipy.stats.bootstrap((squares,), np.mean, confidence_level=_LEVEL, **options)
    low, high = np.sqrt(drawn.confidence_interval)
    return Score(math.sqrt(float(np.mean(squares))), float(low), float(high))


def _text(problem: Problem, result: Accuracy) -> Text:
    known = "their defaults in scikit-learn" + (", but for 15 rounds of boosting" if problem.quick else "")
    scaled = "columns" if result.classes else "columns and target"
    network = "the network, a sum of several, is" if problem.adds else "the network is"
    notes = [
        f"{result.folds}-fold cross-validation on {count(result.n)} rows, the same folds for all models; {network} "
        f"chosen on the training rows of each fold alone. The others have {known}; for the SVM, {scaled} are scaled "
        "to mean 0 and variance 1."
    ]
    notes += ["Forecasts and theory below are of a single network."] * problem.adds
    notes += ["Quick: few rows, few folds and short boosting. The full report is the one to quote."] * problem.quick
    if dropped := result.n_of_rare_classes_left_out:
        notes.append(f"{several(dropped, 'row')} of classes with fewer than {result.folds} rows were left out.")
    cautions = () if result.useful else (_useless(result),)
    return Text((_own(result), _versus(result)), _warnings(result), tuple(notes), (_grid(result),), cautions)


def _warnings(result: Accuracy) -> tuple[str, ...]:
    score = result.scores[NETWORK].low if result.classes else result.r2[NETWORK]
    rare = "Nearly all of it is right, which is rare: make sure that no input could know the target beforehand."
    return (rare,) * (score >= _RARE)


def _useless(result: Accuracy) -> str:
    own, same = result.scores[NETWORK].value, result.scores[CONSTANT].value
    shown = (
        f"{percent(own)} right, and {percent(same)} for who always says the most frequent class"
        if result.classes
        else f"a root mean square error of {number(own)}, and {number(same)} for who always says the mean"
    )
    by = "By its accuracy on" if result.classes else "On"
    return f"{by} rows it has not seen, the network is not better than {_SAME}: {shown}."


def _learned_from(result: Accuracy) -> str:
    return count(result.n_learned) + (f" of {count(result.n_table)}" if result.n < result.n_table else "")


def _own(result: Accuracy) -> Fact:
    score = result.scores[NETWORK]
    expect = f"to be expected on new rows like these, of a network that has learned from {_learned_from(result)} rows"
    if result.classes:
        meaning = f"{percent(score.low)} to {percent(score.high)} are {expect}: {_wrong(1 - score.value)}."
        return Fact("Accuracy", percent(score.value), meaning)
    if result.share_of_worst > _RULES:
        meaning = (
            f"One row makes {percent(result.share_of_worst)} of the squared errors; without it the error is "
            f"{number(result.score_without_worst)}. Look at that row before you trust any of these numbers."
        )
        return Fact("Root mean square error", number(score.value), meaning)
    r2 = result.r2[NETWORK]
    explains = f"{percent(r2)} of the variance" if r2 > 0 else "none of the variance"
    meaning = (
        f"{number(score.low)} to {number(score.high)}, in units of the target, are {expect}; it explains {explains}."
    )
    return Fact("Root mean square error", number(score.value), meaning)


def _wrong(share: float) -> str:
    if share == 0:
        return "it got none of these rows wrong"
    return f"it gets one row in {count(1 / share)} wrong" if share < 1 / 3 else f"it gets {percent(share)} wrong"


def _versus(result: Accuracy) -> Fact:
    rival, ahead = result.best_rival, result.ahead_of_best_rival
    size = (
        percent(abs(ahead.value))
        if result.classes
        else f"{number(abs(ahead.value))} of squared error, in units of the target squared"
    )
    value = ahead.verdict if ahead.verdict == "a tie" else f"{ahead.verdict} by {size}"
    return Fact(f"Against the best other ({rival})", value, _advice(result))


def _advice(result: Accuracy) -> str:
    """Which model to use; none, where all could as well say the same of every row."""
    rival, helps = result.best_rival, result.rival_ahead_of_constant.verdict == "better"
    if not result.classes and result.share_of_worst > _RULES:
        return "One row makes most of these errors, so that they say little about models: look at that row first."
    if not result.useful and not helps:
        return f"Neither is better than {_SAME}: use neither. Other inputs, or more rows, must come first."
    if not result.useful:
        return f"The network is not better than {_SAME}: use the {rival}."
    return {
        "better": "More than chance explains, row by row: of these, take the network (everwide.estimators).",
        "worse": f"More than chance explains, row by row: use the {rival} for predictions.",
        "a tie": "Chance explains the difference: choose by what else you need, such as uncertainty or speed.",
    }[result.ahead_of_best_rival.verdict]


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
    show, words = percent if result.classes else number, {"better": "better than", "worse": "worse than"}
    than = f"{words.get(result.ahead_of_best_rival.verdict, 'level with')} the best of forest, boosting and SVM"
    than = than if result.useful else f"not better than {_SAME}"
    label = "accuracy on new rows" if result.classes else "error on new rows (RMSE)"
    return Fact(label, show(result.scores[NETWORK].value), f"{than}; each learned from {_learned_from(result)} rows")


SECTION = Section(
    "accuracy",
    "How good it is",
    "How good is it on rows it has not seen, and is anything else better?",
    measure=lambda problem: accuracy(problem, problem.once(cross_validated)),
    describe=_text,
    figure=Figure(_draw, 2.4, "Dots are cross-validated scores, bars their 95\u202f% intervals."),
    tile=_tile,
)
