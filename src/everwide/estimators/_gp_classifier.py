"""Classification with uncertainty."""

from typing import Any

import numpy as np
from jaxtyping import Float

from ._base import ridge_or_auto
from ._calibration import Spread, Temperature
from ._classification import AbstractWideClassification
from ._classifier import SCORED_BY
from ._gp import checked_kernel_name, noise_of, uncertainty_of
from ._learn import Goal, Learned, squared_error


class WideGPClassifier(AbstractWideClassification):
    """A Gaussian process of an infinitely wide network on indicators of classes: less sure where it has seen nothing.

    Arguments as in `WideGPRegressor`; `class_weight` as in `WideClassifier`. Probabilities are calibrated on the
    training rows, each predicted from all others with its own uncertainty.

    >>> from everwide.estimators import WideGPClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = WideGPClassifier().fit(x[::2], y[::2])
    >>> near, far = model.predict_proba([x[0], 10 * x[0]])
    >>> bool(near.max() > far.max())
    True
    """

    def __init__(
        self,
        architecture: Any = "auto",
        *,
        kernel: Any = "nngp",
        noise: Any = "auto",
        class_weight: Any = None,
        input_shape: Any = None,
        max_rows: Any = None,
        random_state: Any = None,
        verbose: Any = False,
    ):
        self.architecture = architecture
        self.kernel = kernel
        self.noise = noise
        self.class_weight = class_weight
        self.input_shape = input_shape
        self.max_rows = max_rows
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "WideGPClassifier":
        """Learn from rows `X` and their classes `y`; a row of weight w counts as w rows."""
        return self._fit(X, y, sample_weight, None)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "WideGPClassifier":
        """Condition on more rows: network, noise and scales stay those of the first call.

        `classes`: all that will ever come, in the first call, where its rows do not have them all.
        """
        self._check_growing()
        if not hasattr(self, "_learned"):
            return self._fit(X, y, sample_weight, classes)
        self._calibrate(self._grown_by(X, y, sample_weight))
        return self

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n classes"]:
        """Calibrated probabilities of the classes."""
        scores = self._scores(X)
        return self._temperature(scores, self._blur(self._uncertainty.at(self._learned, self.transform_inputs(X))))

    @property
    def leave_one_out_(self) -> Float[np.ndarray, "n classes"]:
        """Probabilities of each row that was learned from, predicted from all others."""
        scores = self._left_out_scores()
        return self._temperature(scores, self._blur(self._uncertainty.left_out(self._learned)))

    def _fit(self, X: Any, y: Any, sample_weight: Any, classes: Any) -> "WideGPClassifier":
        field = "nngp" if checked_kernel_name(self.kernel) == "nngp" else "ntk"
        goal = Goal(field, ridge_or_auto(self.noise, "noise"), np.inf, squared_error, SCORED_BY)
        self._calibrate(self._learn(self._first_rows(X, y, sample_weight, classes), goal))
        return self

    def _calibrate(self, learned: Learned) -> None:
        self._accept(learned)
        task = learned.task
        self._uncertainty = uncertainty_of(self.kernel, learned)
        variance = self._uncertainty.left_out(learned)
        residuals = task.y - learned.solution.left_out()
        self._spread = Spread.of(residuals, variance, noise_of(self.kernel, learned), task.weights)
        self._temperature = Temperature.of(self._left_out_scores(), self._blur(variance), self._codes, task.weights)

    def _blur(self, variance: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n 1"]:
        """Of the outputs; one for all classes, so that the most probable class is that of the largest output."""
        return self._spread.amplitude.mean() * variance[:, None]
