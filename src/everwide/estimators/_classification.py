"""Targets that are classes: indicators, weights, and rows that come later."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from ._base import AbstractWide
from ._calibration import Temperature
from ._classes import Classes, class_weights, encoded
from ._learn import Learned, Task


class AbstractWideClassification(ClassifierMixin, AbstractWide):
    """Regression on indicators of classes."""

    class_weight: Any
    classes_: np.ndarray
    _classes: Classes
    _codes: Int[np.ndarray, " n"]  # of the rows that were learned from
    _temperature: Temperature

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        scores = self._scores(X)
        return self.classes_[np.argmax(scores, axis=1)]

    def _scores(self, X: Any) -> Float[np.ndarray, "n classes"]:
        check_is_fitted(self)
        return self._outputs(X) + self._classes.share

    def _left_out_scores(self) -> Float[np.ndarray, "n classes"]:
        check_is_fitted(self)
        return self._learned.solution.left_out() + self._classes.share

    def _first_rows(self, X: Any, y: Any, sample_weight: Any, classes: Any) -> Task:
        """Task, with names and shares of the classes kept."""
        x, y = self._validated(X, y, ensure_min_samples=2)
        y = column_or_1d(y, warn=True)
        copies = self._weights(sample_weight, x)
        kept = self._kept(copies, y)
        self._codes, self.classes_ = encoded(y, kept, classes)
        weights = class_weights(self.class_weight, self._codes, self.classes_, copies[kept])
        self._classes = Classes.of(self._codes, self.classes_, weights)
        return Task(self._folded(x)[kept], self._classes.indicators(self._codes), weights, copies[kept])

    def _grown_by(self, X: Any, y: Any, sample_weight: Any) -> Learned:
        """With new rows of the same classes, whose codes are kept once they are learned."""
        rows, codes = self._more_rows(X, y, sample_weight)
        learned = self._grown(rows)
        self._codes = np.concatenate([self._codes, codes])
        return learned

    def _more_rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[Task, Int[np.ndarray, " n"]]:
        x = self._folded(self._validated(X))
        codes = self._classes.codes(column_or_1d(y))
        check_consistent_length(x, codes)
        copies = self._weights(sample_weight, x)
        weights = class_weights(self.class_weight, codes, self.classes_, copies)
        kept = np.flatnonzero(weights)
        return Task(x[kept], self._classes.indicators(codes[kept]), weights[kept], copies[kept]), codes[kept]

    def _check_growing(self) -> None:
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"partial_fit: class_weight={self.class_weight!r} changes with new rows. Pass a dict, or sample_weight."
            )
