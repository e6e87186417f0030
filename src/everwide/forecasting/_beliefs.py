"""What a pilot says about any number of rows: draws of a level, of a shape, and of how classes follow errors."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from .._checks import InputError
from ._pilot import Measured
from ._shapes import Shapes, weigh

_DRAWS = 4000
_BEND = 0.05  # by how much real curves leave the family beyond the pilot, for each e-fold of rows
_USUAL_POWER, _SPREAD_OF_POWERS = 1.0, 0.25  # of the law that leads from errors to wrong classes
_NOISE_OF_WRONG = 0.1  # of the logarithm of a measured share of wrong classes

Draws = Float[np.ndarray, " draws"]


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Draws: the index of a shape, how it bends beyond the pilot, and the error and the wrong classes at its size.

    `power`: wrong classes are this power of the error. `chance`: the share that is wrong without learning.
    """

    shapes: Shapes
    shape: np.ndarray
    bend: Draws
    log_level: Draws
    log_wrong: Draws
    power: Draws
    smallest: float  # size inside the pilot at which anything was measured
    log_variance: float
    chance: float
    left_out: float

    def log_errors(self, n: Any) -> Float[np.ndarray, "n draws"]:
        """Before anything was measured, an error is at most the variance of the targets."""
        rows = np.asarray(n, np.float64)
        logs = self._log_ratios(rows) + self.log_level
        return np.where(rows[:, None] < self.smallest, np.minimum(logs, self.log_variance), logs)

    def wrong(self, n: Any) -> Float[np.ndarray, "n draws"]:
        """Shares of wrong classes."""
        shares = np.exp(self.log_wrong + self.power * self._log_ratios(np.asarray(n, np.float64)))
        return np.minimum(shares, self.chance)

    def _log_ratios(self, rows: np.ndarray) -> np.ndarray:
        beyond = np.log(np.maximum(rows / self.shapes.rows, 1.0))
        return self.shapes.log_ratios(rows)[:, self.shape] + beyond[:, None] * self.bend


def beliefs_of(measured: Measured, seed: int) -> Beliefs:
    """The level, and the share of wrong classes, are those of resampled rows, each learned from all others."""
    left_out = float(measured.row_errors.mean())
    if not left_out > 1e-20 * measured.variance or not (measured.errors > 0).all():
        raise InputError("The pilot is learned without any error from a few of its rows: there is nothing to forecast.")
    rng, rows = np.random.default_rng(seed + 1), measured.rows
    shapes = weigh(rows, measured.sizes, measured.errors, left_out, measured.variance)
    counts = rng.multinomial(rows, np.full(rows, 1 / rows), size=_DRAWS)
    wrong = (counts @ measured.row_wrong + 0.5) / (rows + 1)  # none wrong in so many rows is not none at all
    power, spread = _power_of_wrong(measured)
    return Beliefs(
        shapes=shapes,
        shape=rng.choice(len(shapes.weights), size=_DRAWS, p=shapes.weights),
        bend=_BEND * rng.normal(size=_DRAWS),
        log_level=np.log(counts @ measured.row_errors / rows),
        log_wrong=np.log(wrong),
        power=np.maximum(power + spread * rng.normal(size=_DRAWS), 0.1),
        smallest=float(measured.sizes[0]),
        log_variance=float(np.log(measured.variance)),
        chance=measured.chance,
        left_out=left_out,
    )


def _power_of_wrong(measured: Measured) -> tuple[float, float]:
    """The power of the error with which wrong classes fall inside the pilot, and its standard deviation."""
    wrong = np.log(np.maximum(measured.wrong.mean(0), 0.5 / measured.rows))
    errors = np.log(measured.errors.mean(0))
    errors, wrong = errors - errors.mean(), wrong - wrong.mean()
    precision = errors @ errors / _NOISE_OF_WRONG**2 + 1 / _SPREAD_OF_POWERS**2
    power = (errors @ wrong / _NOISE_OF_WRONG**2 + _USUAL_POWER / _SPREAD_OF_POWERS**2) / precision
    return float(power), float(precision**-0.5)
