"""Labels with holes: which rows have one, and what they say."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .._checks import Choice, InputError, is_missing

_MOST_CLASSES = 50  # whole numbers with more values than these are numbers, unless a model says otherwise


class Task(Choice):
    """What labels are."""

    AUTO = "auto"
    CLASSIFICATION = "classification"
    REGRESSION = "regression"


@dataclass(frozen=True, eq=False)
class Targets:
    """Which rows have labels, and these: names of classes, or numbers `(m, k)`."""

    labelled: Int[np.ndarray, " m"]
    names: np.ndarray | None
    numbers: Float[np.ndarray, "m k"] | None

    @property
    def classes(self) -> np.ndarray:
        """Those that were seen, in order."""
        return np.unique(self.names) if self.names is not None else np.zeros(0)

    def codes(self, classes: np.ndarray) -> Int[np.ndarray, " m"]:
        """Places of the labels among the classes of a model."""
        assert self.names is not None
        known = {name: place for place, name in enumerate(classes.tolist())}
        unknown = sorted({str(name) for name in self.names.tolist() if name not in known})
        if unknown:
            raise InputError(
                f"y has the label {unknown[0]!r}, which the model has never seen: it knows "
                f"{', '.join(map(str, classes[:8].tolist()))}{' ...' if len(classes) > 8 else ''}. Fit it to the "
                "labelled rows first, or leave out model."
            )
        return np.array([known[name] for name in self.names.tolist()], np.int64)


def targets_of(y: Any, n: int, task: str, classifies: bool | None) -> Targets:
    """Of `n` rows; `classifies`: what the model says of itself, if it does."""
    kind, values = Task(task), np.asarray(y)
    if len(values.shape) not in (1, 2) or len(values) != n:
        raise InputError(
            f"y has shape {values.shape}, expected ({n},), a label for each row of x, NaN where it has none."
        )
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    missing = _missing(values)
    labelled, given = np.flatnonzero(~missing), values[~missing]
    if kind is Task.AUTO:
        sure = classifies if classifies is not None else _looks_like_classes(given)
        kind = Task.CLASSIFICATION if sure else Task.REGRESSION
    if kind is Task.CLASSIFICATION:
        if given.ndim == 2:
            raise InputError(f"y has shape {values.shape}: classes are one column. Pass their names or numbers, (n,).")
        return Targets(labelled, _names(given), None)
    try:
        numbers = given.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"y holds {given[0]!r}, which is no number. Pass task='classification'.") from None
    numbers = numbers[:, None] if numbers.ndim == 1 else numbers
    if not np.isfinite(numbers).all():
        raise InputError("y holds infinite numbers, or rows that are labelled in part. Label all of a row, or nothing.")
    return Targets(labelled, None, numbers)


def _missing(values: np.ndarray) -> np.ndarray:
    """None, NaN, and what pandas has in their place."""
    if values.dtype.kind == "f":
        gone = np.isnan(values)
    elif values.dtype.kind == "O":
        gone = np.array([is_missing(value) for value in values.ravel()], bool).reshape(values.shape)
    else:
        gone = np.zeros(values.shape, bool)
    return np.all(gone.reshape(len(gone), -1), axis=1)


def _looks_like_classes(given: np.ndarray) -> bool:
    if given.ndim == 2:
        return False
    if given.dtype.kind in "OUSb":
        return not all(isinstance(v, float | int) and not isinstance(v, bool) for v in given.tolist()) or _few(given)
    return _few(given)


def _few(given: np.ndarray) -> bool:
    numbers = given.astype(np.float64)
    return bool((numbers == np.round(numbers)).all()) and len(np.unique(numbers)) <= _MOST_CLASSES


def _names(given: np.ndarray) -> np.ndarray:
    """Whole numbers that holes have made floats are whole again."""
    if given.dtype.kind == "O":
        given = np.array(given.tolist()) if len(given) else given.astype(np.float64)
    if given.dtype.kind == "f" and (given == np.round(given)).all():
        return given.astype(np.int64)
    return given
