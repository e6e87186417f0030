"""Columns seen twice: as they are, and by their ranks, which outliers and skewed units do not move."""

from dataclasses import dataclass

import numpy as np
import scipy.special
from jaxtyping import Float

from ._scaling import InputScaling

_MOST_KNOTS = 1000
_OUTERMOST = 1e-3  # a share of rows: no rank is further out in the Gaussian


@dataclass(frozen=True)
class Quantiles:
    """For each column, values of training rows and the quantiles of a Gaussian that belong to their ranks."""

    knots: tuple[Float[np.ndarray, " _"], ...]
    scores: tuple[Float[np.ndarray, " _"], ...]

    @classmethod
    def of(cls, x: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"]) -> "Quantiles":
        """Of training rows; a row of weight w counts as w rows."""
        columns = [_knots(column, weights) for column in x.T]
        return cls(tuple(knots for knots, _ in columns), tuple(scores for _, scores in columns))

    def __call__(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Between values the quantiles are straight lines; beyond the outermost ones they stay."""
        found = np.empty(x.shape)
        for at, (knots, scores) in enumerate(zip(self.knots, self.scores, strict=True)):
            found[:, at] = np.interp(x[:, at], knots, scores)
        return found


def _knots(column: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, place = np.unique(column, return_inverse=True)
    counts = np.bincount(place, weights, len(values))
    ranks = (np.cumsum(counts) - counts / 2) / counts.sum()
    kept = np.unique(np.linspace(0, len(values) - 1, _MOST_KNOTS).astype(int))
    return values[kept], scipy.special.ndtri(np.clip(ranks[kept], _OUTERMOST, 1 - _OUTERMOST))


@dataclass(frozen=True)
class TwoViews:
    """Scaled columns beside their scaled quantiles."""

    plain: InputScaling
    quantiles: Quantiles
    ranked: InputScaling

    @classmethod
    def of(cls, x: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"]) -> "TwoViews":
        """Of training rows."""
        quantiles = Quantiles.of(x, weights)
        return cls(InputScaling.of(x, weights), quantiles, InputScaling.of(quantiles(x), weights))

    def __call__(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n more"]:
        return np.concatenate([self.plain(x), self.ranked(self.quantiles(x))], axis=1)
