"""Estimators beside each other on the same rows; every result is a line of a table, and is not computed twice."""

import csv
import inspect
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import peers
import scipy.stats
from data import Split
from sklearn.model_selection import train_test_split

from everwide.estimators import WideClassifier, WideGPClassifier, WideGPRegressor, WideRegressor

_BINS = 10
MOST_ROWS = 10_000  # that a Gaussian process of ours learns from
OUR_CLASSIFIERS: dict[str, Callable[[np.ndarray], Any]] = {
    "WideClassifier": lambda y: WideClassifier(random_state=0),
    "WideGPClassifier": lambda y: WideGPClassifier(random_state=0),
}
OUR_REGRESSORS: dict[str, Callable[[], Any]] = {
    "WideRegressor": lambda: WideRegressor(random_state=0),
    "WideGPRegressor": lambda: WideGPRegressor(max_rows=MOST_ROWS, random_state=0),
}
CLASSIFIERS = OUR_CLASSIFIERS | peers.CLASSIFIERS
REGRESSORS = OUR_REGRESSORS | peers.REGRESSORS


@contextmanager
def timed(line: dict[str, float], name: str) -> Iterator[None]:
    """Wall seconds as `name`; those of the processor, of all threads together, are added to `cpu`."""
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of others, about optimizers and rare classes
        yield
    line[name] = time.perf_counter() - wall
    line["cpu"] = line.get("cpu", 0.0) + time.process_time() - cpu


def regression_line(make: Callable[[], Any], split: Split) -> dict[str, float]:
    """Root mean square error, mean log density, and how often intervals of 90 % hold, on test rows, in raw units."""
    line: dict[str, float] = {}
    model = make()
    with timed(line, "fit"):
        model.fit(split.x, split.y)
    with timed(line, "predict"):
        mean = model.predict(split.x_test)
    std = deviations(model, make, split)  # for peers another fit, which is not timed
    error = split.y_test - mean
    low, high = mean - scipy.stats.norm.ppf(0.95) * std, mean + scipy.stats.norm.ppf(0.95) * std
    if hasattr(model, "predict_interval"):
        low, high = model.predict_interval(split.x_test, 0.9)
    return line | {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "size": float(np.std(split.y_test)),
        "density": float(np.mean(scipy.stats.norm.logpdf(error, scale=std))),
        "held": 100 * float(np.mean((low <= split.y_test) & (split.y_test <= high))),
    }


def deviations(model: Any, make: Callable[[], Any], split: Split) -> np.ndarray:
    """Standard deviations at test rows: a model's own ones, or one number, of residuals that it has not learned from.

    They are out of bag for a forest, leave-one-out for ours, and otherwise on a fifth of the training rows, from a
    second model of the other four.
    """
    if "return_std" in inspect.signature(model.predict).parameters:
        return model.predict(split.x_test, return_std=True)[1]
    left_out = getattr(model, "oob_prediction_", getattr(model, "leave_one_out_", ()))
    if len(left_out) == len(split.y):
        residual = split.y - left_out
    else:
        x, aside, y, y_aside = train_test_split(split.x, split.y, test_size=0.2, random_state=1)
        residual = y_aside - make().fit(x, y).predict(aside)
    return np.full(len(split.y_test), np.sqrt(np.mean(residual**2)))


def classification_line(model: Any, split: Split) -> dict[str, float]:
    """Accuracy in percent, calibration error and log loss where there are probabilities, seconds."""
    line: dict[str, float] = {}
    with timed(line, "fit"):
        model.fit(split.x, split.y)
    with timed(line, "predict"):
        predicted = model.predict(split.x_test)
    line |= {"accuracy": 100 * float(np.mean(predicted == split.y_test)), "ece": np.nan, "log_loss": np.nan}
    if hasattr(model, "predict_proba"):
        probability = model.predict_proba(split.x_test)
        line["ece"] = calibration_error(probability, model.classes_, split.y_test)
        line["log_loss"] = log_loss(probability, model.classes_, split)
    return line


def calibration_error(probability: np.ndarray, classes: np.ndarray, y: np.ndarray) -> float:
    """Mean distance, in percent, between how sure a classifier is and how often it is right, over ten bins."""
    sure, right = probability.max(1), classes[probability.argmax(1)] == y
    bins = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    gaps = [abs(np.sum(sure[bins == b]) - np.sum(right[bins == b])) for b in range(_BINS)]
    return 100 * float(np.sum(gaps)) / len(y)


def log_loss(probability: np.ndarray, classes: np.ndarray, split: Split) -> float:
    """Mean of -log p of the classes of test rows, where nothing is impossible.

    To n training rows one is added that is shared by all k classes of the task: p becomes (n p + 1/k) / (n + 1), for
    everybody. What a forest has never seen, and classes without a training row, then cost log(k (n + 1)); a bound such
    as 1e-15 would let a few such rows decide the mean.
    """
    names, n = np.unique(np.concatenate([split.y, split.y_test])), len(split.y)
    full = np.zeros((len(probability), len(names)))
    full[:, np.searchsorted(names, classes)] = probability
    p = (n * full + 1 / len(names)) / (n + 1)
    return float(-np.mean(np.log(p[np.arange(len(p)), np.searchsorted(names, split.y_test)])))


class Lines:
    """Results in a file, one line for each key, kept when a run is interrupted."""

    def __init__(self, path: Path, keys: tuple[str, ...]):
        self.path, self.keys = path, keys
        self.rows: dict[tuple[str, ...], dict[str, str]] = {}
        self.columns: list[str] = []
        if path.exists():
            with path.open(newline="") as file:
                reader = csv.DictReader(file)
                self.rows = {tuple(line[key] for key in keys): line for line in reader}
                self.columns = list(reader.fieldnames or ())

    def run(self, key: tuple[Any, ...], work: Callable[[], dict[str, float]]) -> dict[str, str]:
        """The line of a key: as it was found, or computed now and written."""
        key = tuple(map(str, key))
        if key not in self.rows:
            found = {name: f"{value:.6g}" for name, value in work().items()}
            self.rows[key] = dict(zip(self.keys, key, strict=True)) | found
            self._write(self.rows[key])
        return self.rows[key]

    def _write(self, line: dict[str, str]) -> None:
        """At the end of the file; where columns are new, all lines again, with `nan` where they have none."""
        fresh = [name for name in line if name not in self.columns]
        self.columns += fresh
        with self.path.open("w" if fresh else "a", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=self.columns, restval="nan", lineterminator="\n")
            if fresh:
                writer.writeheader()
            writer.writerows(self.rows.values() if fresh else [line])

    def column(self, name: str, **where: str) -> np.ndarray:
        """Numbers of the lines that agree with `where`."""
        chosen = [line for line in self.rows.values() if all(line[key] == value for key, value in where.items())]
        return np.array([float(line.get(name, "nan")) for line in chosen])
