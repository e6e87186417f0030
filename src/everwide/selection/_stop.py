"""Whether more labels are worth it: what random ones would do, by a forecast from those that are there."""

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .._checks import InputError
from .._words import number, several
from ..forecasting import forecast, learning_curve_of
from ._embeddings import AbstractEmbedding
from ._learners import take
from ._targets import Targets

FEWEST = 64  # labelled rows, of which a forecast can be made


@dataclass(frozen=True)
class Stop:
    """What a batch of random labels would bring. `stop`: less than a share of the error. Made by `stop()`."""

    stop: bool
    error_now: float
    error_then: float
    low: float
    high: float
    unit: str
    more: int
    sentence: str

    def __bool__(self) -> bool:
        return self.stop

    def __str__(self) -> str:
        return self.sentence


class Outlook(NamedTuple):
    """What a forecast reads: rows, labels, the model, and features of the labelled rows."""

    x: Any
    targets: Targets
    model: Any
    embedding: AbstractEmbedding
    dim: int
    seed: int


def stop_of(outlook: Outlook, more: int, worth: float) -> Stop:
    """Of an estimator by fits to parts of the labelled rows; of all else by the kernel of its features."""
    x, targets, model, embedding, dim, seed = outlook
    m = len(targets.labelled)
    y = targets.names if targets.names is not None else targets.numbers
    assert y is not None
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    task = "classification" if targets.names is not None else "regression"
    if m < FEWEST:
        raise InputError(f"stop() needs {FEWEST} labelled rows to see how the error falls; there are {m}. Label more.")
    sizes = [m, m + more]
    if model is not None and callable(getattr(model, "fit", None)) and callable(getattr(model, "predict", None)):
        rows = take(x, targets.labelled)
        curve: Any = learning_curve_of(copy.deepcopy(model), rows, y, sizes, task=task, seed=seed)
        unit, error, low, high = curve.unit, curve.error, curve.low, curve.high
    else:
        features = embedding.features(targets.labelled, dim, seed).astype(np.float64)
        kernel = features @ features.T
        curve = forecast(kernel, None, y, sizes, task=task, seed=seed)
        classes = curve.accuracy is not None
        unit = "share of wrong classes" if classes else "mean squared error"
        error, low, high = curve.error, curve.low, curve.high
        if classes:
            error, low, high = 1 - curve.accuracy, 1 - curve.accuracy_high, 1 - curve.accuracy_low
    return _said(unit, np.asarray(error), float(low[1]), float(high[1]), more, worth)


def _said(unit: str, error: np.ndarray, low: float, high: float, more: int, worth: float) -> Stop:
    now, then = float(error[0]), float(min(error[1], error[0]))
    enough = now - then < worth * now
    verdict = f"less than {100 * worth:.0f} % of it: stop" if enough else "go on"
    sentence = (
        f"{several(more, 'random label')} more would bring the {unit} from {number(now)} to {number(then)} "
        f"(90 % interval {number(low)} to {number(high)}); {verdict}. This takes labelled rows for random ones: where "
        "they were chosen, errors on new rows differ."
    )
    return Stop(bool(enough), now, then, low, high, unit, more, sentence)
