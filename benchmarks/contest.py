"""Estimators beside each other on the same rows; every result is a line of a table, and is not computed twice."""

import csv
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from data import Split
from sklearn.base import clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from everwide.estimators import WideClassifier, WideGPClassifier, WideGPRegressor, WideRegressor

_BINS = 10


def tuned_svc(y: np.ndarray) -> Any:
    """An RBF SVM whose C and width are chosen on the training rows."""
    grid = {"svc__C": [0.1, 1, 10, 100, 1000], "svc__gamma": ["scale", 0.01, 0.1]}
    folds = max(2, min(4, int(np.bincount(y)[np.bincount(y) > 0].min())))
    cv = StratifiedKFold(folds, shuffle=True, random_state=0)
    return GridSearchCV(make_pipeline(StandardScaler(), SVC(cache_size=1000)), grid, cv=cv)


CLASSIFIERS: dict[str, Callable[[np.ndarray], Any]] = {
    "WideClassifier": lambda y: WideClassifier(random_state=0),
    "WideGPClassifier": lambda y: WideGPClassifier(random_state=0),
    "random forest": lambda y: RandomForestClassifier(500, random_state=0),
    "gradient boosting": lambda y: HistGradientBoostingClassifier(random_state=0),
    "SVC": lambda y: make_pipeline(StandardScaler(), SVC(cache_size=1000)),
    "SVC, tuned": tuned_svc,
}


class GaussianProcess:
    """A GP with an RBF kernel and one length for each input.

    Its numbers have the largest marginal likelihood on at most 1000 rows; it then learns from at most 5000.
    """

    def fit(self, x: np.ndarray, y: np.ndarray) -> "GaussianProcess":
        self.scale, order = StandardScaler().fit(x), np.random.default_rng(0).permutation(len(x))
        x = self.scale.transform(x)
        kernel = ConstantKernel(1.0) * RBF(np.ones(x.shape[1])) + WhiteKernel(0.1)
        some, more = order[:1000], order[:5000]
        found = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(x[some], y[some])
        self.model = GaussianProcessRegressor(found.kernel_, optimizer=None, normalize_y=True).fit(x[more], y[more])
        return self

    def predict(self, x: np.ndarray, return_std: bool = False) -> Any:
        return self.model.predict(self.scale.transform(x), return_std=return_std)


class Trees:
    """A forest or boosted trees, with one standard deviation from rows that they have not seen."""

    def __init__(self, model: Any):
        self.model = model

    def fit(self, x: np.ndarray, y: np.ndarray) -> "Trees":
        self.model.fit(x, y)
        if hasattr(self.model, "oob_prediction_"):
            residual = y - self.model.oob_prediction_
        else:
            residual = y - cross_val_predict(clone(self.model), x, y, cv=5)
        self.std = float(np.sqrt(np.mean(residual**2)))
        return self

    def predict(self, x: np.ndarray, return_std: bool = False) -> Any:
        mean = self.model.predict(x)
        return (mean, np.full(len(x), self.std)) if return_std else mean


MOST_ROWS = 10_000  # that ours learn from
REGRESSORS: dict[str, Callable[[], Any]] = {
    "WideRegressor": lambda: WideRegressor(max_rows=MOST_ROWS, random_state=0),
    "WideGPRegressor": lambda: WideGPRegressor(max_rows=MOST_ROWS, random_state=0),
    "WideGPRegressor, ensemble": lambda: WideGPRegressor(which="ensemble", max_rows=MOST_ROWS, random_state=0),
    "GP, RBF": GaussianProcess,
    "random forest": lambda: Trees(RandomForestRegressor(300, oob_score=True, random_state=0)),
    "gradient boosting": lambda: Trees(HistGradientBoostingRegressor(random_state=0)),
}


def regression_line(model: Any, split: Split) -> dict[str, float]:
    """Root mean square error, mean log density, and how often intervals of 90 % hold, on test rows, in raw units."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of others, about optimizers
        model.fit(split.x, split.y)
        found = {"fit": time.perf_counter() - start, "density": np.nan, "held": np.nan, "held_interval": np.nan}
        sure = not isinstance(model, WideRegressor)
        mean, std = model.predict(split.x_test, return_std=True) if sure else (model.predict(split.x_test), None)
    error = split.y_test - mean
    found["rmse"] = float(np.sqrt(np.mean(error**2)))
    found["size"] = float(np.std(split.y_test))
    if std is not None:
        found["density"] = float(np.mean(scipy.stats.norm.logpdf(error, scale=std)))
        found["held"] = 100 * float(np.mean(np.abs(error) <= scipy.stats.norm.ppf(0.95) * std))
    if hasattr(model, "predict_interval"):
        low, high = model.predict_interval(split.x_test)
        found["held_interval"] = 100 * float(np.mean((low <= split.y_test) & (split.y_test <= high)))
    return found


def classification_line(model: Any, split: Split) -> dict[str, float]:
    """Accuracy in percent, calibration error where there are probabilities, seconds to learn and to predict."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of others, about rare classes
        model.fit(split.x, split.y)
    fitted = time.perf_counter()
    predicted = model.predict(split.x_test)
    found = {"accuracy": 100 * float(np.mean(predicted == split.y_test))}
    found |= {"fit": fitted - start, "predict": time.perf_counter() - fitted, "ece": float("nan")}
    if hasattr(model, "predict_proba"):
        probability = model.predict_proba(split.x_test)
        found["ece"] = calibration_error(probability, model.classes_, split.y_test)
    return found


def calibration_error(probability: np.ndarray, classes: np.ndarray, y: np.ndarray) -> float:
    """Mean distance, in percent, between how sure a classifier is and how often it is right, over ten bins."""
    sure, right = probability.max(1), classes[probability.argmax(1)] == y
    bins = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    gaps = [abs(np.sum(sure[bins == b]) - np.sum(right[bins == b])) for b in range(_BINS)]
    return 100 * float(np.sum(gaps)) / len(y)


class Lines:
    """Results in a file, one line for each key, kept when a run is interrupted."""

    def __init__(self, path: Path, keys: tuple[str, ...]):
        self.path, self.keys = path, keys
        self.rows: dict[tuple[str, ...], dict[str, str]] = {}
        if path.exists():
            with path.open(newline="") as file:
                self.rows = {tuple(line[key] for key in keys): line for line in csv.DictReader(file)}

    def run(self, key: tuple[Any, ...], work: Callable[[], dict[str, float]]) -> dict[str, str]:
        """The line of a key: as it was found, or computed now and written."""
        key = tuple(map(str, key))
        if key not in self.rows:
            found = {name: f"{value:.6g}" for name, value in work().items()}
            self.rows[key] = dict(zip(self.keys, key, strict=True)) | found
            fresh = not self.path.exists()
            with self.path.open("a", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(self.rows[key]), lineterminator="\n")
                if fresh:
                    writer.writeheader()
                writer.writerow(self.rows[key])
        return self.rows[key]

    def column(self, name: str, **where: str) -> np.ndarray:
        """Numbers of the lines that agree with `where`."""
        chosen = [line for line in self.rows.values() if all(line[key] == value for key, value in where.items())]
        return np.array([float(line[name]) for line in chosen])
