"""Cross-validation of the network, and of what people use otherwise, on the same folds."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from .._checks import InputError
from .._problem import Problem, known_target
from ..estimators import WideClassifier, WideGPClassifier, WideGPRegressor, WideRegressor

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
