"""Classification with infinitely wide networks: regression on indicators of classes, and calibrated probabilities."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from .._checks import InputError
from ._base import AbstractWide, ridge_and_time, ridge_or_auto
from ._choice import Goal, Learned, Task
from ._classes import Classes, Labels, OneByOne, class_weights, encoded, has_labels
from ._frames import dense
from ._solve import squared_error
from ._uncertainty import Spread, Temperature, checked_which, uncertainty_of

_SCORED_BY = "leave-one-out squared error of indicators"


class AbstractWideClassification(ClassifierMixin, AbstractWide):
    """Regression on indicators of classes, or of labels."""

    class_weight: Any
    classes_: np.ndarray
    _classes: Classes | Labels
    _temperature: Temperature | OneByOne

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row; of labels, each one that is more probable than not."""
        scores = self._scores(X)  # first: it raises where nothing is fitted
        return self._classes.decided(scores)

    def _scores(self, X: Any) -> Float[np.ndarray, "n classes"]:
        check_is_fitted(self)
        return self._outputs(X) + self._classes.share

    def _left_out_scores(self) -> Float[np.ndarray, "n classes"]:
        check_is_fitted(self)
        return self._learned.left_out + self._classes.share

    def _first_rows(self, X: Any, y: Any, sample_weight: Any, classes: Any) -> Task:
        """Task, with names and shares of the classes kept."""
        several = has_labels(y)
        y = dense(y) if several else y
        x, y = self._validated(X, y, sample_weight, ensure_min_samples=2, multi_output=several)
        copies = self._weights(sample_weight, x)
        kept = self._kept(copies, None if several else column_or_1d(y, warn=True))
        copies = copies[kept]
        if several:
            codes = np.asarray(y, np.float64)[kept]
            self._classes = Labels.of(codes, copies)
            weights = class_weights(self.class_weight, codes, self._classes.names, copies)
        else:
            codes, names = encoded(column_or_1d(y), kept, classes)
            weights = class_weights(self.class_weight, codes, names, copies)
            self._classes = Classes.of(codes, names, weights)
        self.classes_ = self._classes.names
        return self._distinct(Task(self._folded(x)[kept], self._classes.targets(codes), weights, copies, copies))

    def _more_rows(self, X: Any, y: Any, sample_weight: Any) -> Task:
        """New rows of the same classes."""
        x = self._folded(self._validated(X))
        codes = self._classes.codes(y)
        check_consistent_length(x, codes)
        copies = self._weights(sample_weight, x)
        weights = class_weights(self.class_weight, codes, self.classes_, copies)
        kept = np.flatnonzero(weights)
        copies = copies[kept]
        return Task(x[kept], self._classes.targets(codes[kept]), weights[kept], copies, copies)

    def _match(self, variance: Float[np.ndarray, "#n 1"]) -> None:
        """Probabilities to the rows that were learned from, each predicted from all others with this variance."""
        rows = self._learned.judged
        task, scores = self._learned.task.rows(rows), self._left_out_scores()[rows]
        some = variance[rows] if len(variance) > 1 else variance
        self._temperature = self._classes.calibrated(scores, some, task.y, task.weights)

    def _check_growing(self) -> None:
        if isinstance(self.class_weight, str):
            raise InputError(
                f"partial_fit: class_weight={self.class_weight!r} changes with new rows. Pass a dict, or sample_weight."
            )


@dataclass(eq=False, repr=False, kw_only=True)
class WideClassifier(AbstractWideClassification):
    """An infinitely wide network, trained by gradient descent on the indicators of the classes.

    As `WideRegressor`, with the same arguments. Probabilities are calibrated on the training rows, each predicted from
    all others. Where a row may have several labels, `y` has a column of zeros and ones for each of them, and so do
    predictions.

    Args:
        architecture: as in `WideRegressor`, and so are all other arguments.
        class_weight: `"balanced"` counts every class alike, however rare; a dict of weights; or None.

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

    relative_ridge: Any = "auto"
    relative_time: Any = "auto"
    class_weight: Any = None

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
        self._accept(self._grown(self._more_rows(X, y, sample_weight)))
        return self

    def decision_function(self, X: Any) -> Float[np.ndarray, "n *classes"]:
        """Outputs of the network, one for each class; for two classes, their difference; of labels, 0 is undecided."""
        scores = self._scores(X)
        return self._classes.margins(scores)

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n classes"]:
        """Calibrated probabilities of the classes, or of each label."""
        scores = self._scores(X)
        return self._temperature(scores, np.zeros((1, 1)))

    @property
    def leave_one_out_(self) -> Float[np.ndarray, "n classes"]:
        """Probabilities of each row that was learned from, predicted from all others."""
        scores = self._left_out_scores()
        return self._temperature(scores, np.zeros((1, 1)))[self._place]

    def _fit(self, X: Any, y: Any, sample_weight: Any, classes: Any, *, grows: bool) -> "WideClassifier":
        ridge, time = ridge_and_time(self.relative_ridge, self.relative_time, grows)
        goal = Goal("ntk", ridge, time, squared_error, _SCORED_BY)
        self._accept(self._learn(self._first_rows(X, y, sample_weight, classes), goal))
        self._match(np.zeros((1, 1)))
        return self


@dataclass(eq=False, repr=False, kw_only=True)
class WideGPClassifier(AbstractWideClassification):
    """A Gaussian process of an infinitely wide network on indicators of classes: less sure where it has seen nothing.

    Probabilities are calibrated on the training rows, each predicted from all others with its own uncertainty.

    Args:
        architecture: as in `WideGPRegressor`, and so are all other arguments.
        class_weight: as in `WideClassifier`.

    >>> from everwide.estimators import WideGPClassifier
    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> model = WideGPClassifier().fit(x[::2], y[::2])
    >>> near, far = model.predict_proba([x[0], 10 * x[0]])
    >>> bool(near.max() > far.max())
    True
    """

    which: Any = "nngp"
    relative_noise: Any = "auto"
    class_weight: Any = None

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
        self._calibrate(self._grown(self._more_rows(X, y, sample_weight)))
        return self

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n classes"]:
        """Calibrated probabilities of the classes, or of each label."""
        scores = self._scores(X)
        return self._temperature(scores, self._blur(self._uncertainty.at(self._learned, self.transform_inputs(X))))

    @property
    def leave_one_out_(self) -> Float[np.ndarray, "n classes"]:
        """Probabilities of each row that was learned from, predicted from all others."""
        scores = self._left_out_scores()
        return self._temperature(scores, self._blur(self._uncertainty.left_out(self._learned)))[self._place]

    def _fit(self, X: Any, y: Any, sample_weight: Any, classes: Any) -> "WideGPClassifier":
        noise, which = ridge_or_auto(self.relative_noise, "relative_noise"), checked_which(self.which)
        goal = Goal("ntk" if which == "ensemble" else which, noise, np.inf, squared_error, _SCORED_BY)
        self._calibrate(self._learn(self._first_rows(X, y, sample_weight, classes), goal))
        return self

    def _calibrate(self, learned: Learned) -> None:
        self._accept(learned)
        task = learned.task
        self._uncertainty = uncertainty_of(self.which, learned)
        variance, noise, rows = self._uncertainty.left_out(learned), self._uncertainty.noise(learned), learned.judged
        residuals = (task.y - learned.left_out)[rows]
        noise = None if noise is None else noise[rows]
        certain = self._uncertainty.certain
        self._spread = Spread.of(residuals, variance[rows], noise, task.weights[rows], certain=certain)
        self._match(self._blur(variance))

    def _blur(self, variance: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n 1"]:
        """Of the outputs; one for all classes, so that the most probable class is that of the largest output."""
        return self._spread.amplitude.mean() * variance[:, None]
