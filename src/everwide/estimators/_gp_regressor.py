"""Regression with uncertainty."""

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.utils.validation import check_is_fitted

from ._base import ridge_or_auto
from ._calibration import Spread, weighted_quantile
from ._gp import checked_kernel_name, log_density, noise_of, uncertainty_of
from ._learn import Goal, Learned, squared_error
from ._regression import AbstractWideRegression


class WideGPRegressor(AbstractWideRegression):
    """An infinitely wide Bayesian network, or an ensemble of trained ones: predictions that know how sure they are.

    - `kernel`: `"nngp"` conditions a network's random weights on the targets: a Gaussian process. `"ensemble"` trains
      networks from many random starts: their mean, and where they disagree.
    - `noise`: of the targets, as a ridge in units of the mean of the kernel's diagonal.
    - the rest as in `WideRegressor`.

    Network and noise have the largest leave-one-out density (nngp) or the smallest leave-one-out error (ensemble); the
    width of the uncertainty is matched to leave-one-out residuals.

    >>> import numpy as np
    >>> from everwide.estimators import WideGPRegressor
    >>> x = np.random.default_rng(0).normal(size=(50, 1))
    >>> model = WideGPRegressor().fit(x, np.sin(3 * x[:, 0]))
    >>> mean, std = model.predict(np.array([[0.0], [5.0]]), return_std=True)
    >>> bool(std[0] < std[1])
    True
    """

    def __init__(
        self,
        architecture: Any = "auto",
        *,
        kernel: Any = "nngp",
        noise: Any = "auto",
        input_shape: Any = None,
        max_rows: Any = None,
        random_state: Any = None,
        verbose: Any = False,
    ):
        self.architecture = architecture
        self.kernel = kernel
        self.noise = noise
        self.input_shape = input_shape
        self.max_rows = max_rows
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "WideGPRegressor":
        """Learn from rows `X` and targets `y`, `(n,)` or `(n, outputs)`; a row of weight w counts as w rows."""
        noise = ridge_or_auto(self.noise, "noise")
        if checked_kernel_name(self.kernel) == "nngp":
            goal = Goal("nngp", noise, np.inf, log_density, "leave-one-out negative log density")
        else:
            goal = Goal("ntk", noise, np.inf, squared_error, "leave-one-out squared error")
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
        if not 0 < coverage < 1:
            raise ValueError(f"coverage={coverage!r}: expected a number above 0 and below 1.")
        mean, std = self.predict(X, return_std=True)
        factor = weighted_quantile(self._ratios, self._learned.task.copies, coverage)
        width = std * (factor[0] if self._flat else factor)
        return mean - width, mean + width

    def _calibrate(self, learned: Learned) -> None:
        self._accept(learned)
        self._uncertainty = uncertainty_of(self.kernel, learned)
        variance = self._uncertainty.left_out(learned)
        residuals: Float[np.ndarray, "n k"] = learned.task.y - learned.solution.left_out()
        self._spread = Spread.of(residuals, variance, noise_of(self.kernel, learned), learned.task.weights)
        self._ratios = np.abs(residuals) / self._spread.std(variance)
