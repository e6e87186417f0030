"""Targets of a pilot: numbers, or classes as centred indicators."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from .._checks import InputError

TASKS = ("auto", "regression", "classification")
_MOST_VALUES = 0.1  # of the rows: integers with more values than that are numbers, not classes
_MOST_CLASSES = 0.5  # of the rows: beyond, they are names of rows


@dataclass(frozen=True)
class Targets:
    """Centred, `(rows, outputs)`; `labels`: the class of each row, `None` for numbers. `mean`: what was subtracted."""

    values: Float[np.ndarray, "rows outputs"]
    mean: Float[np.ndarray, " outputs"]
    labels: np.ndarray | None

    @property
    def task(self) -> str:
        """What they are."""
        return "regression" if self.labels is None else "classification"

    @property
    def variance(self) -> float:
        """The error of a network that has learned nothing but the mean."""
        return float(np.mean(self.values**2))

    @property
    def chance(self) -> float:
        """The share of wrong classes if the most frequent one is always said; 1 for numbers."""
        return 1.0 if self.labels is None else 1.0 - float(self.mean.max())

    def wrong(self, predicted: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        """Whether the largest output is another than that of the class; 0 for numbers."""
        if self.labels is None:
            return np.zeros(len(predicted))
        return (np.argmax(predicted + self.mean, axis=1) != self.labels[rows]).astype(np.float64)


def targets_of(y: Any, task: str) -> Targets:
    """Classes are text, truth values, whole numbers with few values, or rows of indicators; the rest are numbers."""
    if task not in TASKS:
        raise InputError(f"task={task!r}: expected one of {', '.join(map(repr, TASKS))}.")
    labels = _as_numbers_if_they_are(np.asarray(y))
    if labels.ndim not in (1, 2) or not labels.size:
        raise InputError(f"y has shape {labels.shape}, expected (rows,) or (rows, outputs).")
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if task == "classification" or (task == "auto" and _looks_like_classes(labels)):
        return _classes(labels)
    return _numbers(labels)


def _as_numbers_if_they_are(y: np.ndarray) -> np.ndarray:
    """Numbers in an array of objects, as tables have them."""
    if y.dtype.kind != "O" or all(isinstance(value, bool | str) for value in y.ravel()):
        return y
    try:
        return y.astype(np.float64)
    except (TypeError, ValueError):
        return y


def _missing(value: Any) -> bool:
    """None, NaN, and what pandas has in their place: none but the first equals itself, or says so."""
    equal = value == value
    return value is None or not isinstance(equal, bool) or not equal


def _looks_like_classes(y: np.ndarray) -> bool:
    if y.ndim == 2:
        return _is_indicator(y)
    if y.dtype.kind in "bUSO":
        return True
    return y.dtype.kind in "iu" and len(np.unique(y)) <= max(2, _MOST_VALUES * len(y))


def _is_indicator(y: np.ndarray) -> bool:
    return bool(y.dtype.kind in "biuf" and np.isin(y, (0, 1)).all() and (y.sum(1) == 1).all())


def _classes(y: np.ndarray) -> Targets:
    if y.ndim == 2 and not _is_indicator(y):
        raise InputError(f"y has shape {y.shape}, expected one class for each row, or rows with a single 1.")
    if y.ndim == 1 and (lost := [row for row, value in enumerate(y.tolist()) if _missing(value)]):
        raise InputError(f"Row {lost[0]} of y has no class: it holds {y[lost[0]]!r}. Drop such rows.")
    names, labels = np.unique(np.argmax(y, axis=1) if y.ndim == 2 else y.astype(str), return_inverse=True)
    if len(names) < 2:
        raise InputError(f"All rows have the class {names[0]}: there is nothing to learn. Expected two or more.")
    if len(names) > _MOST_CLASSES * len(y):
        raise InputError(
            f"y has {len(names)} classes in {len(y)} rows: too many to learn. For numbers pass task='regression'."
        )
    indicators = np.eye(len(names))[labels]
    mean = indicators.mean(0)
    return Targets(indicators - mean, mean, labels)


def _numbers(y: np.ndarray) -> Targets:
    try:
        values = np.asarray(y, np.float64).reshape(len(y), -1)
    except (TypeError, ValueError):
        raise InputError(f"y holds {y.dtype}, expected numbers. For classes pass task='classification'.") from None
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise InputError(f"Row {row} of y is not finite. Drop such rows.")
    mean = values.mean(0)
    if not np.ptp(values, axis=0).max() > 0:
        raise InputError("All targets are equal: there is nothing to learn.")
    return Targets(values - mean, mean, None)
