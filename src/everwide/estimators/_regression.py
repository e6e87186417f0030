"""Targets that are numbers: their scales, and rows that come later."""

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from ._base import AbstractWide
from ._learn import Task
from ._scaling import TargetScaling


class AbstractWideRegression(RegressorMixin, AbstractWide):
    """Regression, with one target or several."""

    _target: TargetScaling
    _flat: bool  # targets came as (n,)

    @property
    def leave_one_out_(self) -> Float[np.ndarray, "n *outputs"]:
        """Each row that was learned from, predicted from all others."""
        check_is_fitted(self)
        return self._in_units(self._learned.solution.left_out())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def _in_units(self, outputs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n *outputs"]:
        found = self._target.back(outputs)
        return found[:, 0] if self._flat else found

    def _first_rows(self, X: Any, y: Any, sample_weight: Any) -> Task:
        """Checked and scaled, with the scale kept."""
        x, y = self._validated(X, y, multi_output=True, y_numeric=True, ensure_min_samples=2)
        weights = self._weights(sample_weight, x)
        self._flat = y.ndim == 1
        kept = self._kept(weights)
        targets, weights = y.reshape(len(y), -1).astype(np.float64)[kept], weights[kept]
        self._target = TargetScaling.of(targets, weights)
        return Task(self._folded(x)[kept], self._target(targets), weights, weights)

    def _more_rows(self, X: Any, y: Any, sample_weight: Any) -> Task:
        """In the scales of the first ones."""
        x = self._folded(self._validated(X))
        y = check_array(y, ensure_2d=False, dtype="numeric")
        check_consistent_length(x, y)
        targets, outputs = y.reshape(len(y), -1).astype(np.float64), len(self._target.mean)
        if targets.shape[1] != outputs:
            raise ValueError(
                f"partial_fit: y has {targets.shape[1]} outputs, expected {outputs}, as in the first call."
            )
        weights = self._weights(sample_weight, x)
        kept = np.flatnonzero(weights)
        return Task(x[kept], self._target(targets[kept]), weights[kept], weights[kept])
