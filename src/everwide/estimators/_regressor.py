"""Regression with an infinitely wide network."""

from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.utils.validation import check_is_fitted

from ._base import ridge_and_time
from ._learn import Goal, squared_error
from ._regression import AbstractWideRegression

_SCORED_BY = "leave-one-out squared error"


class WideRegressor(AbstractWideRegression):
    """An infinitely wide network, trained by gradient descent on the squared error: regression with its tangent kernel.

    Nothing needs to be tuned: `architecture="auto"` compares depths, activations, numbers of frozen layers, ridges and
    stopping times by how well they predict each training row from all others, in closed form. Inputs and targets are
    scaled inside. A network that is chosen for flat rows is shown them twice, scaled and by their ranks; one that is
    given, and images, are not.

    - `architecture`: "auto", "mlp", "cnn", "resnet", or a network of everwide.
    - `ridge`: in units of the mean of the kernel's diagonal. `time`: when training stops, in units of its inverse;
      infinity trains to the end. Of a ridge and a finite time, give one.
    - `input_shape`: of one example, such as `(8, 8, 1)`, where rows are flattened images. Arrays `(n, h, w, c)` are
      images as they are.
    - `max_rows`: learn from a random part of the rows. `random_state`: which; and on which networks are compared,
      beyond 1000 rows (500 images).
    - `verbose`: print the choice.

    After `fit`: `choice_`, `network_`, `leave_one_out_` (each training row, predicted from all others), `dual_coef_`.

    >>> import numpy as np
    >>> from everwide.estimators import WideRegressor
    >>> x = np.random.default_rng(0).normal(size=(60, 2))
    >>> model = WideRegressor().fit(x[:40], x[:40, 0] * x[:40, 1])
    >>> bool(model.score(x[40:], x[40:, 0] * x[40:, 1]) > 0.8)
    True
    """

    def __init__(
        self,
        architecture: Any = "auto",
        *,
        ridge: Any = "auto",
        time: Any = "auto",
        input_shape: Any = None,
        max_rows: Any = None,
        random_state: Any = None,
        verbose: Any = False,
    ):
        self.architecture = architecture
        self.ridge = ridge
        self.time = time
        self.input_shape = input_shape
        self.max_rows = max_rows
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "WideRegressor":
        """Learn from rows `X` and targets `y`, `(n,)` or `(n, outputs)`; a row of weight w counts as w rows."""
        return self._fit(X, y, sample_weight, grows=False)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "WideRegressor":
        """Learn more rows, as if they had been there: network, ridge and scales stay those of the first call.

        Rows are trained to the end: what a network has learned when it stops early depends on the rows it started with.
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
        ridge, time = ridge_and_time(self.ridge, self.time, grows)
        goal = Goal("ntk", ridge, time, squared_error, _SCORED_BY)
        self._accept(self._learn(self._first_rows(X, y, sample_weight), goal))
        return self
