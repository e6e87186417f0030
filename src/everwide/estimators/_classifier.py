"""Classification with an infinitely wide network."""

from typing import Any

import numpy as np
from jaxtyping import Float

from ._base import ridge_and_time
from ._calibration import Temperature
from ._classification import AbstractWideClassification
from ._learn import Goal, squared_error

SCORED_BY = "leave-one-out squared error of indicators"


class WideClassifier(AbstractWideClassification):
    """An infinitely wide network, trained by gradient descent on the indicators of the classes.

    As `WideRegressor`, with the same arguments. Probabilities are calibrated on the training rows, each predicted from
    all others.

    - `class_weight`: `"balanced"` counts every class alike, however rare; a dict of weights; or None.

    After `fit`: `classes_`, `choice_`, `network_`, `leave_one_out_` (probabilities of each training row, predicted
    from all others).

    >>> from everwide.estimators import WideClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = WideClassifier().fit(x[::2], y[::2])
    >>> bool(model.score(x[1::2], y[1::2]) > 0.9)
    True
    >>> model.predict_proba(x[:2]).shape
    (2, 3)
    """

    def __init__(
        self,
        architecture: Any = "auto",
        *,
        ridge: Any = "auto",
        time: Any = "auto",
        class_weight: Any = None,
        input_shape: Any = None,
        max_rows: Any = None,
        random_state: Any = None,
        verbose: Any = False,
    ):
        self.architecture = architecture
        self.ridge = ridge
        self.time = time
        self.class_weight = class_weight
        self.input_shape = input_shape
        self.max_rows = max_rows
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "WideClassifier":
        """Learn from rows `X` and their classes `y`; a row of weight w counts as w rows."""
        return self._fit(X, y, sample_weight, None, grows=False)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "WideClassifier":
        """Learn more rows, as if they had been there: network, ridge, scales and calibration stay those of the first.

        `classes`: all that will ever come, in the first call, where its rows do not have them all.
        """
        self._check_growing()
        if not hasattr(self, "_learned"):
            return self._fit(X, y, sample_weight, classes, grows=True)
        self._accept(self._grown_by(X, y, sample_weight))
        return self

    def decision_function(self, X: Any) -> Float[np.ndarray, "n *classes"]:
        """Outputs of the network, one for each class; for two classes, their difference."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n classes"]:
        """Calibrated probabilities of the classes."""
        scores = self._scores(X)
        return self._temperature(scores, np.zeros((1, 1)))

    @property
    def leave_one_out_(self) -> Float[np.ndarray, "n classes"]:
        """Probabilities of each row that was learned from, predicted from all others."""
        scores = self._left_out_scores()
        return self._temperature(scores, np.zeros((1, 1)))

    def _fit(self, X: Any, y: Any, sample_weight: Any, classes: Any, *, grows: bool) -> "WideClassifier":
        ridge, time = ridge_and_time(self.ridge, self.time, grows)
        goal = Goal("ntk", ridge, time, squared_error, SCORED_BY)
        rows = self._first_rows(X, y, sample_weight, classes)
        self._accept(self._learn(rows, goal))
        self._temperature = Temperature.of(self._left_out_scores(), np.zeros((1, 1)), self._codes, rows.weights)
        return self
