"""What a model says of rows: outputs, and probabilities of classes."""

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit, softmax

from .._checks import InputError
from .._words import several
from ..empirical import as_model, evaluate
from ..estimators import WideClassifier, WideRegressor
from ..layers import AbstractLayer
from ._targets import Targets

_CHUNK = 1 << 16  # rows that an estimator sees at a time


class AbstractLearner(abc.ABC):
    """A model that was trained on the labelled rows."""

    @property
    @abc.abstractmethod
    def classifies(self) -> bool | None:
        """Whether it predicts classes; None where it does not say."""

    @abc.abstractmethod
    def classes(self, targets: Targets, x: Any) -> np.ndarray:
        """In the order of its probabilities."""

    @abc.abstractmethod
    def outputs(self, x: Any, classes: np.ndarray | None) -> Float[np.ndarray, "n k"]:
        """Probabilities of the classes, or numbers."""

    @property
    @abc.abstractmethod
    def is_kernel_machine(self) -> bool:
        """Whether its own kernel, ridge and targets say all of it: then it is retrained from nothing."""


@dataclass(frozen=True, eq=False)
class Network(AbstractLearner):
    """A JAX function with parameters, or a module: outputs are logits of classes, or numbers."""

    model: Any

    @property
    def classifies(self) -> bool | None:
        return None

    @property
    def is_kernel_machine(self) -> bool:
        return False

    def classes(self, targets: Targets, x: Any) -> np.ndarray:
        seen, k = targets.classes, evaluate(self.model, None, take(x, np.arange(1))).shape[1]
        whole = seen.dtype.kind in "iub"
        if k == len(seen) or (k == 1 and len(seen) == 2):
            return seen
        if whole and (not len(seen) or 0 <= seen.min() <= seen.max() < max(k, 2)):
            return np.arange(max(k, 2))
        raise InputError(
            f"The model has {several(k, 'output')} and y {several(len(seen), 'class', 'classes')}: which is which? "
            f"Number the classes from 0 to {max(k, 2) - 1}, in the order of the outputs, or pass task='regression'."
        )

    def outputs(self, x: Any, classes: np.ndarray | None) -> Float[np.ndarray, "n k"]:
        out = np.asarray(evaluate(self.model, None, x), np.float64)
        if not np.isfinite(out).all():
            raise InputError("The model returns numbers that are not finite. Has its training diverged?")
        if classes is None:
            return out
        if out.shape[1] == 1 and len(classes) <= 2:
            return np.hstack([expit(-out), expit(out)])
        return softmax(out, axis=1)


@dataclass(frozen=True, eq=False)
class Estimator(AbstractLearner):
    """With `predict`, and for classes `predict_proba` or `decision_function`, as scikit-learn has them."""

    model: Any

    @property
    def classifies(self) -> bool | None:
        return _has(self.model, "classes_") or _has(self.model, "predict_proba")

    @property
    def is_kernel_machine(self) -> bool:
        return self.network is not None

    @property
    def network(self) -> AbstractLayer | None:
        """Of our own estimators."""
        return self.model.network_ if isinstance(getattr(self.model, "network_", None), AbstractLayer) else None

    def classes(self, targets: Targets, x: Any) -> np.ndarray:
        return np.asarray(self.model.classes_) if _has(self.model, "classes_") else targets.classes

    def outputs(self, x: Any, classes: np.ndarray | None) -> Float[np.ndarray, "n k"]:
        parts = [self._some(rows, classes) for rows in _chunks(x)]
        out = np.concatenate(parts)
        if not np.isfinite(out).all():
            raise InputError(f"{type(self.model).__name__} predicts numbers that are not finite.")
        return out

    def _some(self, x: Any, classes: np.ndarray | None) -> Float[np.ndarray, "n k"]:
        if classes is None:
            return np.asarray(self.model.predict(x), np.float64).reshape(len(x), -1)
        if _has(self.model, "predict_proba"):
            return np.asarray(self.model.predict_proba(x), np.float64)
        if _has(self.model, "decision_function"):
            scores = np.asarray(self.model.decision_function(x), np.float64)
            return np.stack([expit(-scores), expit(scores)], 1) if scores.ndim == 1 else softmax(scores, axis=1)
        return (np.asarray(self.model.predict(x))[:, None] == classes).astype(np.float64)


def learner_of(model: Any) -> AbstractLearner:
    """Of whatever people have."""
    if _has(model, "predict") and not isinstance(model, tuple):
        if hasattr(model, "__sklearn_is_fitted__") or hasattr(model, "get_params"):
            _refuse_unfitted(model)
        return Estimator(model)
    f, params = model if isinstance(model, tuple) and len(model) == 2 else (model, None)
    if isinstance(f, AbstractLayer) and params is None:
        raise InputError("model is a network without parameters. Pass (net, params), or the network as kernel=.")
    return Network(as_model(f, params))


def wide_learner(x: Any, targets: Targets, kernel: Any) -> AbstractLearner:
    """An infinitely wide network, of the architecture that is given as a kernel, if there is one."""
    rows, y = take(x, targets.labelled), targets.numbers
    architecture = kernel if isinstance(kernel, AbstractLayer) else "dense" if np.ndim(rows) == 2 else "auto"
    if targets.names is not None:
        return Estimator(WideClassifier(architecture).fit(rows, targets.names))
    assert y is not None
    return Estimator(WideRegressor(architecture).fit(rows, y[:, 0] if y.shape[1] == 1 else y))


def _refuse_unfitted(model: Any) -> None:
    fitted = [name for name in vars(model) if name.endswith("_") and not name.startswith("__")]
    says = getattr(model, "__sklearn_is_fitted__", None)
    if not (says() if callable(says) else fitted):
        raise InputError(f"{type(model).__name__} is not fitted. Fit it to the labelled rows first.")


def _has(model: Any, name: str) -> bool:
    try:
        return hasattr(model, name)
    except Exception:  # properties of estimators raise what they like
        return False


def take(x: Any, rows: np.ndarray) -> Any:
    """Some rows of an array or a data frame."""
    return x.iloc[rows] if hasattr(x, "iloc") else x[rows]


def _chunks(x: Any) -> list[Any]:
    return [take(x, np.arange(start, min(start + _CHUNK, len(x)))) for start in range(0, len(x), _CHUNK)]
