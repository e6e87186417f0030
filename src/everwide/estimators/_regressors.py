"""Regression with infinitely wide networks: by the squared error, and with uncertainty."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from .._checks import InputError, probability
from ..layers import AbstractLayer
from ._absurd import absurd
from ._base import AbstractWide, ridge_and_time, ridge_or_auto
from ._choice import Goal, Learned, Task
from ._scaling import TargetScaling
from ._solve import squared_error
from ._uncertainty import Spread, checked_which, log_density, uncertainty_of, weighted_quantile


class AbstractWideRegression(RegressorMixin, AbstractWide):
    """Regression, with one target or several."""

    _target: TargetScaling
    _flat: bool  # targets came as (n,)

    @property
    def leave_one_out_(self) -> Float[np.ndarray, "n *outputs"]:
        """Each row that was learned from, predicted from all others."""
        check_is_fitted(self)
        return self._in_units(self._learned.left_out[self._place])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def _in_units(self, outputs: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n *outputs"]:
        y = self._target.back(outputs)
        return y[:, 0] if self._flat else y

    def _first_rows(self, X: Any, y: Any, sample_weight: Any) -> Task:
        """Checked and scaled, with the scale kept."""
        x, y = self._validated(X, y, sample_weight, multi_output=True, y_numeric=True, ensure_min_samples=2)
        weights = self._weights(sample_weight, x)
        self._flat = y.ndim == 1
        kept = self._kept(weights)
        targets, weights = y.reshape(len(y), -1).astype(np.float64)[kept], weights[kept]
        targets = self._tamed(x[kept], targets, weights)
        if (targets == targets[:1]).all():
            self._notes = (*self._notes, "All rows have the same target: there is nothing else to learn.")
        self._target = TargetScaling.of(targets, weights)
        return self._distinct(Task(self._folded(x)[kept], self._target(targets), weights, weights, weights))

    def _tamed(self, x: np.ndarray, targets: Float[np.ndarray, "n k"], weights: np.ndarray) -> np.ndarray:
        """Targets absurdly far beyond all others become the farthest of these, unless the network is the user's own."""
        if isinstance(self.architecture, AbstractLayer):
            return targets
        wrong = absurd(x, targets, weights)
        if not wrong.any():
            return targets
        said = "target lies" if wrong.sum() == 1 else "targets lie"
        self._notes = (*self._notes, f"{wrong.sum()} {said} absurdly far beyond all others: drawn near.")
        low, high = (pick(np.where(wrong, np.nan, targets), axis=0) for pick in (np.nanmin, np.nanmax))
        return np.clip(targets, low, high)

    def _more_rows(self, X: Any, y: Any, sample_weight: Any) -> Task:
        """In the scales of the first ones."""
        x = self._folded(self._validated(X))
        y = check_array(y, ensure_2d=False, dtype="numeric")
        check_consistent_length(x, y)
        targets, outputs = y.reshape(len(y), -1).astype(np.float64), len(self._target.mean)
        if targets.shape[1] != outputs:
            raise InputError(
                f"partial_fit: y has {targets.shape[1]} outputs, expected {outputs}, as in the first call."
            )
        weights = self._weights(sample_weight, x)
        kept = np.flatnonzero(weights)
        weights = weights[kept]
        return Task(x[kept], self._target(targets[kept]), weights, weights, weights)


@dataclass(eq=False, repr=False, kw_only=True)
class WideRegressor(AbstractWideRegression):
    """An infinitely wide network, trained by gradient descent on the squared error: regression with its tangent kernel.

    Nothing needs to be tuned. Of tables, several networks are learned and added: some see all columns alike, others
    have learned how to look at them (weights, a metric that mixes them, random trees), each as much as it helps to
    predict rows that it has not learned from. Of images, networks, ridges and stopping times are compared by how well
    they predict each row from all others. Inputs and targets are scaled inside; numbers far beyond all others are drawn
    near, and so are predictions far beyond all targets, with a warning. Of tables, targets that lie far from what
    all other rows say of them are drawn near too, where rows that are left out are predicted better so.

    Args:
        architecture: "auto"; "dense", a single network of the best depth, activation and number of frozen layers, which
            is shown flat rows twice, scaled and by their ranks; "mlp", "cnn", "resnet"; or a network of everwide.
        relative_ridge: in units of the mean of the kernel's diagonal, or "auto".
        relative_time: when training stops, in units of the inverse of that mean, for the sum of squares; infinity
            trains to the end. Of a ridge and a finite time, give one.
        input_shape: of one example, such as `(8, 8, 1)`, where rows are flattened images. Arrays `(n, h, w, c)` are
            images as they are.
        max_rows: learn from a random part of the rows. By default all are learned.
        budget_seconds: what a fit may take, about. Of tables, columns are looked at as long as there is time, from more
            rows or from fewer; of images, networks are tried for which there is time. None: as much as pays usually.
        memory: bytes, or a text such as "4GB", that kernels may take; None: half of what is free. Beyond 5000 rows (of
            tables: 12 000) kernels are not solved for in float64, but by what fits: a factor in float32, conjugate
            gradients, leaves or centres.
        store: a folder for kernels that do not fit there (one network only): tiles are read from it instead of being
            computed for every iteration, and fitting the same again goes on with what it holds.
        backend: where these kernels are computed: `everwide.scale.Devices()`, or, with a store that all workers see,
            `everwide.scale.Dask(client)`.
        categorical_features: which columns are categories: "from_dtype" takes texts and the type "category" of pandas;
            or a mask of all columns, or numbers or names of some of them; or None.
        random_state: which part; and on which rows networks are compared, where there are more than 1400 (500 images).
        verbose: print what is being done, and the choice.

    After `fit`: `network_` (of several, the one with the largest share), `leave_one_out_` (each training row, predicted
    from all others), `feature_importances_` of tables, `dual_coef_` of a single network, and
    `choice_` with `description`, `depth`, `activation`, `frozen`, `which`, `relative_ridge`, `relative_time`, `score`,
    `scored_by`, `jitter`, `tried`, `rows`, `rows_compared`, `notes` (on columns), `solver` (how it was
    solved: by what, rows, iterations, residual, seconds, bytes) and `to_dict()`.

    >>> import numpy as np
    >>> from everwide.estimators import WideRegressor
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> model = WideRegressor().fit(x[:40], x[:40, 0] * x[:40, 1])
    >>> bool(model.score(x[40:], x[40:, 0] * x[40:, 1]) > 0.8)
    True
    """

    relative_ridge: Any = "auto"
    relative_time: Any = "auto"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "WideRegressor":
        """Learn from rows `X` and targets `y`, `(n,)` or `(n, outputs)`; a row of weight w counts as w rows."""
        return self._fit(X, y, sample_weight, grows=False)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "WideRegressor":
        """Learn more rows, as if they had been there: network, ridge and scales stay those of the first call.

        Rows are trained to the end: what a network has learned when it stops early depends on the rows it started with.
        Up to 20 000 rows, where memory allows it, only what is new is computed. Beyond, all rows are kept and solved
        for again, from where the last solution was: give many rows at a time.
        """
        if not hasattr(self, "_learned"):
            return self._fit(X, y, sample_weight, grows=True)
        self._accept(self._grown(self._more_rows(X, y, sample_weight)))
        return self

    def predict(self, X: Any) -> Float[np.ndarray, "n *outputs"]:
        """Targets of new rows."""
        check_is_fitted(self)
        return self._in_units(self._outputs(X))

    def _fit(self, X: Any, y: Any, sample_weight: Any, *, grows: bool) -> "WideRegressor":
        ridge, time = ridge_and_time(self.relative_ridge, self.relative_time, grows)
        goal = Goal("ntk", ridge, time, squared_error, "leave-one-out squared error", robust=not grows)
        self._accept(self._learn(self._first_rows(X, y, sample_weight), goal))
        return self


@dataclass(eq=False, repr=False, kw_only=True)
class WideGPRegressor(AbstractWideRegression):
    """An infinitely wide Bayesian network, or an ensemble of trained ones: predictions that know how sure they are.

    Args:
        architecture: as in `WideRegressor`, and so are `input_shape`, `max_rows`, `memory`, `random_state` and
            `verbose`. There is uncertainty of up to 20 000 rows.
        which: `"nngp"` conditions a network's random weights on the targets: a Gaussian process; `"ntk"` is that with
            the tangent kernel. `"ensemble"` trains networks from many random starts: their mean, and where they
            disagree.
        relative_noise: the variance of the targets, in units of the mean of the kernel's diagonal, or "auto".

    Network and noise have the largest leave-one-out density, or the smallest leave-one-out error (ensemble); the width
    of the uncertainty is matched to leave-one-out residuals.

    >>> import numpy as np
    >>> from everwide.estimators import WideGPRegressor
    >>> x = np.random.default_rng(0).normal(size=(50, 1))
    >>> model = WideGPRegressor().fit(x, np.sin(3 * x[:, 0]))
    >>> mean, std = model.predict(np.array([[0.0], [5.0]]), return_std=True)
    >>> bool(std[0] < std[1])
    True
    """

    which: Any = "nngp"
    relative_noise: Any = "auto"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "WideGPRegressor":
        """Learn from rows `X` and targets `y`, `(n,)` or `(n, outputs)`; a row of weight w counts as w rows."""
        noise, which = ridge_or_auto(self.relative_noise, "relative_noise"), checked_which(self.which)
        if which == "ensemble":
            goal = Goal("ntk", noise, np.inf, squared_error, "leave-one-out squared error")
        else:
            goal = Goal(which, noise, np.inf, log_density, "leave-one-out negative log density")
        self._calibrate(self._learn(self._first_rows(X, y, sample_weight), goal))
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "WideGPRegressor":
        """Condition on more rows: network, noise and scales stay those of the first call."""
        if not hasattr(self, "_learned"):
            return self.fit(X, y, sample_weight)
        self._calibrate(self._grown(self._more_rows(X, y, sample_weight)))
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Targets of new rows; with `return_std`, also their standard deviations, noise included."""
        check_is_fitted(self)
        mean = self._in_units(self._outputs(X))
        if not return_std:
            return mean
        variance = self._uncertainty.at(self._learned, self.transform_inputs(X))
        std = self._spread.std(variance) * self._target.std
        return mean, std[:, 0] if self._flat else std

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends that hold a new target with this probability.

        They are as many standard deviations wide as leave-one-out residuals need, whatever the law of the noise is.
        """
        share = probability(coverage, "coverage")
        mean, std = self.predict(X, return_std=True)
        factor = weighted_quantile(self._ratios, self._learned.task.copies[self._learned.judged], share)
        width = std * (factor[0] if self._flat else factor)
        return mean - width, mean + width

    def _calibrate(self, learned: Learned) -> None:
        self._accept(learned)
        self._uncertainty = uncertainty_of(self.which, learned)
        task, rows = learned.task, learned.judged
        variance, noise = self._uncertainty.left_out(learned)[rows], self._uncertainty.noise(learned)
        residuals: Float[np.ndarray, "m k"] = (task.y - learned.left_out)[rows]
        noise, certain = None if noise is None else noise[rows], self._uncertainty.certain
        self._spread = Spread.of(residuals, variance, noise, task.weights[rows], certain=certain)
        self._ratios = np.abs(residuals) / np.maximum(self._spread.std(variance), np.finfo(np.float64).tiny)
