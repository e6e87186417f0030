"""Classes as centred indicators, with weights for rare ones."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets


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

    def indicators(self, codes: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n k"]:
        """1 where a row is of a class, minus the share of the class."""
        return np.eye(len(self.names))[codes] - self.share

    def codes(self, y: Any) -> Int[np.ndarray, " n"]:
        """Places of labels among the names."""
        y = np.asarray(y)
        found = np.searchsorted(self.names, y).clip(0, len(self.names) - 1)
        if (unknown := self.names[found] != y).any():
            raise ValueError(
                f"partial_fit: the class {y[unknown].tolist()[0]!r} was not among the first rows. Name all classes in "
                "the first call: partial_fit(X, y, classes=...)."
            )
        return found


def encoded(y: Any, kept: np.ndarray, classes: Any = None) -> tuple[Int[np.ndarray, " n"], np.ndarray]:
    """Codes of the kept labels, and the names of the classes, all of which may be named."""
    check_classification_targets(y)
    names, codes = np.unique(np.asarray(y)[kept], return_inverse=True)
    if classes is not None:
        named = np.unique(np.asarray(classes))
        if len(unknown := np.setdiff1d(names, named)):
            raise ValueError(f"y holds the class {unknown.tolist()[0]!r}, which is not among classes={named.tolist()}.")
        codes, names = np.searchsorted(named, names)[codes], named
    if len(names) < 2:
        raise ValueError(
            f"All rows have one class, {names.tolist()[0]!r}: there is nothing to learn. Expected two or more."
        )
    return codes, names


def class_weights(class_weight: Any, codes: np.ndarray, names: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weights of rows, times those of their classes."""
    if class_weight is None:
        return weights
    if isinstance(class_weight, str) and class_weight == "balanced":
        counts = np.bincount(codes, weights, len(names))
        factors = counts.sum() / (len(names) * np.maximum(counts, np.finfo(np.float64).tiny))
    elif isinstance(class_weight, dict):
        factors = compute_class_weight(class_weight, classes=names, y=names[codes])
    else:
        raise ValueError(f"class_weight={class_weight!r}: expected None, 'balanced' or a dict of weights of classes.")
    if not (np.isfinite(factors) & (factors > 0)).all():
        raise ValueError(
            f"class_weight={class_weight!r}: expected weights above 0. Leave rows out of X where they shall not count."
        )
    return weights * factors[codes]
