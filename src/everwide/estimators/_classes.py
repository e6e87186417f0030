"""What classifiers learn: one class of several, or any number of labels a row; and how sure they are of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from .._checks import InputError
from ._uncertainty import Temperature


@dataclass(frozen=True)
class Classes:
    """Names of classes, in order, and their shares among the training rows."""

    names: np.ndarray
    share: Float[np.ndarray, " k"]

    @classmethod
    def of(cls, codes: Int[np.ndarray, " n"], names: np.ndarray, weights: Float[np.ndarray, " n"]) -> "Classes":
        """Shares, by weight."""
        counts = np.bincount(codes, weights, len(names))
        return cls(names, counts / counts.sum())

    def targets(self, codes: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n k"]:
        """1 where a row is of a class, minus the share of the class."""
        return np.eye(len(self.names))[codes] - self.share

    def codes(self, y: Any) -> Int[np.ndarray, " n"]:
        """Places of labels among the names."""
        y = column_or_1d(y)
        codes = np.searchsorted(self.names, y).clip(0, len(self.names) - 1)
        if (unknown := self.names[codes] != y).any():
            raise InputError(
                f"partial_fit: the class {y[unknown].tolist()[0]!r} was not among the first rows. Name all classes in "
                "the first call: partial_fit(X, y, classes=...)."
            )
        return codes

    def decided(self, scores: Float[np.ndarray, "n k"]) -> np.ndarray:
        """The most probable class."""
        return self.names[np.argmax(scores, axis=1)]

    def margins(self, scores: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n *k"]:
        """Scores; of two classes, their difference."""
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def calibrated(self, scores: np.ndarray, variance: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Temperature:
        """Probabilities that fit targets `y` of rows best."""
        return Temperature.of(scores, variance, np.argmax(y + self.share, axis=1), weights)


@dataclass(frozen=True)
class Labels:
    """Any number of labels a row, in columns of zeros and ones, and how often each one is there."""

    share: Float[np.ndarray, " k"]

    @classmethod
    def of(cls, y: Float[np.ndarray, "n k"], weights: Float[np.ndarray, " n"]) -> "Labels":
        """Shares, by weight."""
        share = np.average(y, axis=0, weights=weights)
        if not ((share > 0) & (share < 1)).any():
            raise InputError("All rows have the same labels: there is nothing to learn.")
        return cls(share)

    @property
    def names(self) -> np.ndarray:
        """Numbers of the columns."""
        return np.arange(len(self.share))

    def targets(self, y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """1 where a row has a label, minus the share of the label."""
        return y - self.share

    def codes(self, y: Any) -> Float[np.ndarray, "n k"]:
        """More rows of the same labels."""
        y = np.asarray(y, np.float64)
        if y.ndim != 2 or y.shape[1] != len(self.share) or not np.isin(y, (0, 1)).all():
            raise InputError(
                f"partial_fit: y has the shape {y.shape}: expected (n, {len(self.share)}) with zeros and ones, "
                "as in the first call."
            )
        return y

    def decided(self, scores: Float[np.ndarray, "n k"]) -> Int[np.ndarray, "n k"]:
        """1 for every label that is more probable than not."""
        return (scores > 0.5).astype(np.int64)

    def margins(self, scores: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """Above 0 for every label that is more probable than not."""
        return 2 * scores - 1

    def calibrated(self, scores: np.ndarray, variance: np.ndarray, y: np.ndarray, weights: np.ndarray) -> "OneByOne":
        """Probabilities that fit targets `y` of rows best, for each label alone."""
        codes = (y + self.share > 0.5).astype(np.int64)
        return OneByOne(
            tuple(
                Temperature.of(_pair(score), variance, code, weights)
                for score, code in zip(scores.T, codes.T, strict=True)
            )
        )


@dataclass(frozen=True)
class OneByOne:
    """Probabilities of labels, each of which is there or not."""

    each: tuple[Temperature, ...]

    def __call__(self, outputs: Float[np.ndarray, "n k"], variance: Float[np.ndarray, "#n 1"]) -> np.ndarray:
        both = zip(self.each, outputs.T, strict=True)
        return np.stack([temperature(_pair(score), variance)[:, 1] for temperature, score in both], axis=1)


def _pair(score: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n 2"]:
    return np.stack([1 - score, score], axis=1)


def has_labels(y: Any) -> bool:
    """Whether `y` has a column of zeros and ones for each of several labels."""
    shape = y.shape if hasattr(y, "shape") else np.asarray(y, dtype=object).shape
    return len(shape) == 2 and shape[1] > 1 and type_of_target(y) == "multilabel-indicator"


def encoded(y: Any, kept: np.ndarray, classes: Any = None) -> tuple[Int[np.ndarray, " n"], np.ndarray]:
    """Codes of the kept labels, and the names of the classes, all of which may be named."""
    check_classification_targets(y)
    names, codes = np.unique(np.asarray(y)[kept], return_inverse=True)
    if classes is not None:
        named = np.unique(np.asarray(classes))
        if len(unknown := np.setdiff1d(names, named)):
            raise InputError(f"y holds the class {unknown.tolist()[0]!r}, which is not among classes={named.tolist()}.")
        codes, names = np.searchsorted(named, names)[codes], named
    if len(names) < 2:
        raise InputError(
            f"All rows have one class, {names.tolist()[0]!r}: there is nothing to learn. Expected two or more."
        )
    return codes, names


def class_weights(class_weight: Any, codes: np.ndarray, names: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weights of rows, times those of their classes."""
    if class_weight is None:
        return weights
    if codes.ndim == 2:
        raise InputError(f"class_weight={class_weight!r} with several labels a row: expected None.")
    if isinstance(class_weight, str) and class_weight == "balanced":
        counts = np.bincount(codes, weights, len(names))
        factors = counts.sum() / (len(names) * np.maximum(counts, np.finfo(np.float64).tiny))
    elif isinstance(class_weight, dict):
        factors = compute_class_weight(class_weight, classes=names, y=names[codes])
    else:
        raise InputError(f"class_weight={class_weight!r}: expected None, 'balanced' or a dict of weights of classes.")
    if not (np.isfinite(factors) & (factors > 0)).all():
        raise InputError(
            f"class_weight={class_weight!r}: expected weights above 0. Leave rows out of X where they shall not count."
        )
    return weights * factors[codes]
