"""What a run leaves behind."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ._data import predicted


class DivergenceWarning(RuntimeWarning):
    """A run has diverged; its result is that of the last finite step.

    >>> import everwide.training as tr
    >>> issubclass(tr.DivergenceWarning, RuntimeWarning)
    True
    """


class History(NamedTuple):
    """The mean loss over all training rows after some of the steps.

    >>> import everwide.training as tr
    >>> tr.History((0, 10), (2.0, 1.0)).loss
    (2.0, 1.0)
    """

    steps: tuple[int, ...]
    loss: tuple[float, ...]


class Trained(NamedTuple):
    """An infinitely wide network after training: `f(x) = start * f0(x) + K(x, X) coefficients`.

    - `coefficients`: `(n, k)`. `outputs`: `(n, k)`, at the training rows.
    - `start`: `(k,)`, what decay has left of `f0`: 1 without decay.
    - `steps`: how many were taken. `diverged`: at which step the run diverged, or `None`.

    >>> import everwide.training as tr, numpy as np
    >>> found = tr.train(np.eye(2), [1.0, 3.0], loss=tr.Mse(), optimizer=tr.SGD(1.0), steps=1)
    >>> found.predict(np.array([[0.5, 0.0]]))
    array([[0.25]])
    """

    coefficients: Float[np.ndarray, "n k"]
    outputs: Float[np.ndarray, "n k"]
    start: Float[np.ndarray, " k"]
    history: History
    steps: int
    diverged: int | None

    def predict(self, k_test_train: Any, f0: Any = None) -> np.ndarray:
        """Outputs `(m, k)` at other rows, from their kernel with the training rows and their `f0`."""
        return predicted(self.coefficients, k_test_train, f0, self.start)
