"""Shapes of learning curves, and how far each is believed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from .._checks import InputError
from ._pilot import Measured

_FLOORS = np.array([0.0, 0.01, 0.02, 0.04, 0.08, 0.15, 0.25, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.995])
_STARTS = np.array([0.0, 0.03, 0.1, 0.2, 0.4, 0.8, 1.6])  # times the rows of the pilot
_EXPONENTS = np.geomspace(0.05, 5.0, 80)  # flatter curves have a floor
_NO_NOISE = 0.5  # how probable that is before anything is measured
_USUAL_EXPONENT, _SPREAD_OF_EXPONENTS = 0.4, 1.0  # median, and standard deviation of the logarithm
_MISFIT = 0.01  # relative: real curves are not exactly of this family
_INDEPENDENT_ORDERS = 6  # orders share their rows: many are worth about as much as these


@dataclass(frozen=True)
class Shapes:
    """All shapes of the family, and how probable each is, `(shapes,)`."""

    rows: int
    floors: Float[np.ndarray, " shapes"]
    starts: Float[np.ndarray, " shapes"]
    exponents: Float[np.ndarray, " shapes"]
    weights: Float[np.ndarray, " shapes"]

    def log_ratios(self, n: Any) -> Float[np.ndarray, "n shapes"]:
        """The logarithm of the error at each `n` over that of the pilot."""
        return _log_ratios(np.asarray(n, np.float64) / self.rows, self.floors, self.starts, self.exponents)

    def mean(self, values: np.ndarray) -> float:
        """Over all shapes."""
        return float(self.weights @ values)


def weigh(
    rows: int, sizes: np.ndarray, errors: Float[np.ndarray, "orders sizes"], left_out: float, variance: float
) -> Shapes:
    """Bayes' rule: the measured curve, and the error with all rows but one, under an unknown level.

    `variance`: of the targets, the error of a network that has learned nothing.
    """
    grid = np.meshgrid(_FLOORS, _STARTS, _EXPONENTS, indexing="ij")
    floors, starts, exponents = (part.ravel() for part in grid)
    mean = errors.mean(0)
    spread = errors.std(0) / mean / min(len(errors), _INDEPENDENT_ORDERS) ** 0.5
    measured = np.log(np.append(mean, left_out))
    precision = 1 / np.append(np.hypot(spread, _MISFIT), _MISFIT) ** 2
    rest = measured[:, None] - _log_ratios(np.append(sizes, rows - 1) / rows, floors, starts, exponents)
    rest = rest - precision @ rest / precision.sum()  # the level is free
    log_weights = -0.5 * precision @ rest**2 + _log_prior(floors, starts, exponents, min(left_out / variance, 1.0))
    weights = np.exp(log_weights - log_weights.max())
    return Shapes(rows, floors, starts, exponents, weights / weights.sum())


def _log_ratios(share: np.ndarray, floors: np.ndarray, starts: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    falling = ((share[..., None] + starts) / (1 + starts)) ** -exponents
    return np.log(floors + (1 - floors) * falling)


def _log_prior(floors: np.ndarray, starts: np.ndarray, exponents: np.ndarray, unexplained: float) -> np.ndarray:
    # Jeffreys' prior of a share, near 0: the probability of less noise than `v` goes as its root.
    noise = np.diff(np.sqrt(_FLOORS), prepend=0.0) * (1 - _NO_NOISE) * unexplained**0.5
    density = np.where(_FLOORS > 0, noise, _NO_NOISE)
    unusual = np.log(exponents / _USUAL_EXPONENT) / _SPREAD_OF_EXPONENTS
    return np.log(density)[np.searchsorted(_FLOORS, floors)] - np.log1p(10 * starts) - unusual**2 / 2


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
