"""A learning curve beside that of a kernel that learned from the same rows: their ratio varies slowly."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from ..spectral import Factor
from ._extrapolate import Begun, log_errors
from ._fits import Design
from ._forecast import Forecast
from ._pilot import Targets

_SPREAD = 0.1  # of the slope of log ratios, by the log of the rows: before anything is measured it is 0
_MISFIT = 0.03  # by which ratios leave a straight line
_WANDER = 0.05  # by how much the slope changes beyond the pilot
_SHARE = {
    "classification": 0.9,
    "regression": 0.5,
}  # of the ratio's road, chosen on other data; the rest is the curve's own
STRETCH = {"classification": 1.0, "regression": 1.6}  # of intervals, so that they held on other data

Errors = Float[np.ndarray, "folds sizes"]


class Line(NamedTuple):
    """Log ratios of errors to the kernel's, by the log of the rows over `last`: coefficients and their covariance."""

    last: float
    coefficients: Float[np.ndarray, "2"]
    covariance: Float[np.ndarray, "2 2"]

    def at(self, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The log ratio at each `n`, and its standard deviation."""
        beyond = np.log(n / self.last)
        basis = np.stack([np.ones_like(beyond), beyond], 1)
        spread = np.einsum("ni,ij,nj->n", basis, self.covariance, basis) + (_WANDER * np.maximum(beyond, 0)) ** 2
        return basis @ self.coefficients, np.sqrt(spread)


class Ahead(NamedTuple):
    """How a measured curve goes on: by itself; and, where there is a kernel, as that times the ratio.

    `own`: in units of `unit`, so that squared errors go on alike in whatever unit they are.
    """

    own: Begun
    unit: float
    kernel: Forecast | None
    line: Line | None

    def log_errors(self, n: np.ndarray) -> Float[np.ndarray, "n 3"]:
        """At 5, 50 and 95 %. Both roads have tested the same rows: their errors are taken to be the same one."""
        alone = log_errors(self.own, n) + np.log(self.unit)
        if self.kernel is None or self.line is None:
            return alone
        share, stretch = _SHARE[self.kernel.task], STRETCH[self.kernel.task]
        logs = share * self._beside(self.kernel, self.line, n) + (1 - share) * alone
        return logs[:, [1]] + stretch * (logs - logs[:, [1]])

    def _beside(self, kernel: Forecast, line: Line, n: np.ndarray) -> Float[np.ndarray, "n 3"]:
        low, middle, high = kernel_log_errors(kernel, n).T
        ratio, spread = line.at(n)
        sides = np.stack([low - middle, 0 * middle, high - middle], 1)
        return (middle + ratio)[:, None] + np.sign(sides) * np.hypot(sides, ndtri(0.95) * spread[:, None])


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


def line_of(sizes: np.ndarray, errors: Errors, theirs: Errors, least: float) -> Line:
    """A straight line through log ratios, drawn to the slope 0; their noise is that of leaving a fold out.

    A size counts as its rows do: with few, models are far from what they will be. `least`: an error below is not told
    from it. Folds that failed are left out on both sides.
    """
    known = np.where(np.isfinite(errors), 1.0, np.nan)
    ratios = _log_means(errors, least) - _log_means(theirs * known, least)
    pairs = [(np.delete(errors, fold, 0), np.delete(theirs * known, fold, 0)) for fold in range(len(errors))]
    without = [_log_means(own, least) - _log_means(other, least) for own, other in pairs]
    noise = (len(errors) - 1) * float(np.nanmean(np.nanvar(without, axis=0)))
    use = np.isfinite(ratios)
    rows, ratios = sizes[use] / sizes[-1], ratios[use]
    basis, weights = np.stack([np.ones_like(rows), np.log(rows)], 1), rows / (noise + _MISFIT**2)
    (a, b), (_, d) = (basis.T * weights) @ basis + np.diag([0, _SPREAD**-2])
    covariance = np.array([[d, -b], [-b, a]]) / (a * d - b * b)
    return Line(float(sizes[-1]), covariance @ (basis.T * weights) @ ratios, covariance)


def _log_means(errors: Errors, least: float) -> np.ndarray:
    return np.log(np.maximum(np.nanmean(errors, axis=0), least))
