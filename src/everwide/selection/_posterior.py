"""What is left to learn in a space of features, given the rows that are labelled or picked."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..spectral import Factor, Spectrum

_RIDGES = 10.0 ** np.arange(-6, 1.01, 0.5)  # relative to the mean of the kernel's diagonal
_DEFAULT = 1e-2  # with too few rows to choose one
_FEWEST = 8
_LEAST = 1e-12


class Posterior:
    """Features `P` of all rows with `P P^T` the covariance of a Gaussian process, given labelled and picked rows.

    Learning one more row shrinks the features along that row's own, which costs one pass over them: it is the rank-one
    update of a kernel's posterior, without a kernel.
    """

    def __init__(self, features: Float[np.ndarray, "n p"], labelled: int, ridge: float):
        """The first rows are labelled."""
        known = features[:labelled].astype(np.float64)
        inner = np.eye(features.shape[1]) + known.T @ known / ridge
        white = Factor.of(inner, what="The kernel of the features").whiten(np.eye(len(inner)))
        self.features: Float[np.ndarray, "n p"] = features @ np.asarray(white, features.dtype).T
        self.ridge = ridge

    def variance(self) -> Float[np.ndarray, " n"]:
        """Of every row."""
        return np.einsum("np,np->n", self.features, self.features, dtype=np.float64)

    def covariance(self, row: int) -> Float[np.ndarray, " n"]:
        """Of a row with all rows."""
        return np.asarray(self.features @ self.features[row], np.float64)

    def learn(self, row: int) -> None:
        """One row more, whatever its label."""
        own = self.features[row].astype(np.float64)
        size = float(own @ own)
        if size > 0:
            shrink = (1 - np.sqrt(self.ridge / (size + self.ridge))) / size
            along = np.asarray(self.features @ own.astype(self.features.dtype) * shrink, self.features.dtype)
            self.features = self.features - np.outer(along, own.astype(self.features.dtype))


class Regression:
    """Predictions of a kernel machine at all rows, which learns one row after the other."""

    def __init__(self, posterior: Posterior, y: Float[np.ndarray, "m k"], start: Float[np.ndarray, "n k"]):
        """Targets of the labelled rows, which are the first, and what is predicted before anything is learned."""
        self.posterior, m = posterior, len(y)
        known = posterior.features[:m].astype(np.float64)
        pull = known.T @ (y - start[:m]) / posterior.ridge
        self.f: Float[np.ndarray, "n k"] = start + np.asarray(posterior.features @ pull, np.float64)
        leverage = np.sum(known**2, axis=1, keepdims=True) / posterior.ridge
        left_out = (y - self.f[:m]) / np.maximum(1 - leverage, _LEAST)
        self.spread = max(float(np.mean(left_out**2)), _LEAST) if m else 1.0
        surprise = left_out**2 * (1 - leverage) / posterior.ridge  # in units of the variance of the process
        self.scale = max(float(np.mean(surprise)), _LEAST) if m else 1.0

    def learn(self, row: int, label: Float[np.ndarray, " k"]) -> None:
        """A row with its label."""
        covariance = self.posterior.covariance(row)
        step = (label - self.f[row]) / (covariance[row] + self.posterior.ridge)
        self.f = self.f + np.outer(covariance, step)
        self.posterior.learn(row)


class _Fit(NamedTuple):
    error: float
    ridge: float


def best_ridge(features: Float[np.ndarray, "m p"], y: Float[np.ndarray, "m k"]) -> float:
    """That with the smallest leave-one-out error of the labelled rows."""
    if len(features) < _FEWEST or not np.any(features):
        return _DEFAULT
    targets, spectrum = y - y.mean(0), Spectrum.of_features(features.astype(np.float64))
    values, modes = np.maximum(spectrum.values, 0), spectrum.modes(targets)
    return min(_left_out(spectrum, values, modes, targets, float(ridge)) for ridge in _RIDGES).ridge


def _left_out(spectrum: Spectrum, values: Any, modes: Any, y: Any, ridge: float) -> _Fit:
    share = values / (values + ridge)
    leverage = spectrum.squares @ share
    residual = y - spectrum.rows(share[:, None] * modes)
    return _Fit(float(np.mean((residual / np.maximum(1 - leverage[:, None], _LEAST)) ** 2)), ridge)
