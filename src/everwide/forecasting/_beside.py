"""A learning curve beside that of a kernel that learned from the same rows: both say how far it will fall."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..spectral import Factor
from ._extrapolate import Begun, log_errors
from ._fits import Design
from ._forecast import Forecast
from ._pilot import Targets

Errors = Float[np.ndarray, "folds sizes"]


class Roads(NamedTuple):
    """Weights of what its own beginning and a kernel say of the fall of a curve beyond its last size, in logs.

    `stretch`: of the interval that the beginning alone has.
    """

    own: float
    kernel: float
    stretch: float


# Of any model, and of trained networks, which fall further than either says. How they were chosen: benchmarks/README.md
ANY = {"classification": Roads(0.4, 0.6, 1.0), "regression": Roads(0.5, 0.5, 1.0)}
NETWORKS = {"classification": Roads(0.4, 0.65, 1.1), "regression": Roads(0.6, 0.5, 1.1)}


class Ahead(NamedTuple):
    """How a measured curve goes on: by itself; and, where there is a kernel, as far as that falls, too.

    `own`: in units of `unit`, so that squared errors go on alike in whatever unit they are.
    """

    own: Begun
    unit: float
    kernel: Forecast | None
    roads: Roads

    def log_errors(self, n: np.ndarray) -> Float[np.ndarray, "n 3"]:
        """At 5, 50 and 95 %; up to the last size as measured."""
        last = self.own.sizes[-1:]
        alone, begin = log_errors(self.own, n), log_errors(self.own, last)[0, 1]
        if self.kernel is None:
            return alone + np.log(self.unit)
        middle, (share, beside, stretch) = alone[:, 1], self.roads
        theirs = np.concatenate([last, np.maximum(n, last)])
        falls = kernel_log_errors(self.kernel, theirs)[:, 1]
        ahead = begin + share * (middle - begin) + beside * (falls[1:] - falls[0])
        logs = np.where(n > last, ahead, middle)[:, None] + stretch * (alone - middle[:, None])
        return np.log(self.unit) + (logs if self.kernel.accuracy is None else np.minimum(logs, 0))


def kernel_log_errors(kernel: Forecast, n: np.ndarray) -> Float[np.ndarray, "n 3"]:
    """Of shares of wrong classes, or mean squared errors, at 5, 50 and 95 %."""
    beliefs = kernel.beliefs
    draws = beliefs.log_errors(n) if kernel.accuracy is None else np.log(beliefs.wrong(n))
    return np.quantile(draws, (0.05, 0.5, 0.95), axis=-1).T


def kernel_errors(kernel: np.ndarray, y: Targets, ridge: float, design: Design) -> Errors:
    """Of kernel regression with the rows of a design: shares of wrong classes, or mean squared errors.

    One factorization a fold: that of the first rows is a leading block.
    """
    matrix, errors = kernel.astype(np.float64), []
    for order, test in zip(design.orders, design.tests, strict=True):
        own = matrix[np.ix_(order, order)]
        own[np.diag_indices_from(own)] += ridge
        factor = Factor.with_jitter(own, float(np.mean(np.diagonal(own))))
        cross, targets = (np.asarray(factor.whiten(part)) for part in (matrix[np.ix_(order, test)], y.values[order]))
        errors.append([error_of(y, cross[:size].T @ targets[:size], test) for size in design.sizes])
    return np.array(errors)


def error_of(y: Targets, predicted: np.ndarray, test: np.ndarray) -> float:
    """Of centred outputs for some rows: the share of wrong classes, or the mean squared error."""
    wrong = (predicted - y.values[test]) ** 2 if y.labels is None else y.wrong(predicted, test)
    return float(np.mean(wrong))
