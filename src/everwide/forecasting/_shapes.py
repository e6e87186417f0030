"""What is believed about a learning curve beyond its pilot: shapes, weighed by all that was measured.

The settings were fitted to the errors that kernels had with more rows, on half of the pilots of `benchmarks/pilots.py`
and some real ones.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from .._checks import InputError
from ..spectral import Factor
from ._pilot import Measured

_FLOORS = np.array([0.0, 0.01, 0.02, 0.04, 0.08, 0.15, 0.25, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.995])
_STARTS = np.array([0.0, 0.03, 0.1, 0.2, 0.4, 0.8, 1.6])  # times the rows of the pilot
_EXPONENTS = np.geomspace(0.05, 5.0, 80)  # flatter curves have a floor
_NO_NOISE = 0.1  # how probable that is before anything is measured; else all shares of it are alike
_TRUST = 0.5  # how much an eigenvector counts: targets are only nearly independent along them
_USUAL_EXPONENT, _SPREAD_OF_EXPONENTS = 0.4, 0.8  # median, and standard deviation of the logarithm
_EARLY = 20.0  # how improbable it is that a curve starts late
_MISFIT = 0.01  # relative: real curves are not exactly of this family
_ROWS, _ORDERS = 1.4, 4.0  # times the variance of the curve that the rows, and single orders, tell

_SMOOTHNESS = np.linspace(0.2, 3.0, 15)  # powers of the eigenvalues, as which what can be learned falls
_AMOUNTS = np.logspace(-5, 3, 33)  # of it, at the median eigenvalue, in units of the error


@dataclass(frozen=True)
class Shapes:
    """All shapes of the family, how probable each is, and the log error that it has with all rows: `(shapes,)`."""

    rows: int
    floors: Float[np.ndarray, " shapes"]
    starts: Float[np.ndarray, " shapes"]
    exponents: Float[np.ndarray, " shapes"]
    weights: Float[np.ndarray, " shapes"]
    log_levels: Float[np.ndarray, " shapes"]
    uncertainty: float  # standard deviation of these

    def log_ratios(self, n: Any) -> Float[np.ndarray, "n shapes"]:
        """The logarithm of the error at each `n` over that of the pilot."""
        return _log_ratios(np.asarray(n, np.float64) / self.rows, self.floors, self.starts, self.exponents)

    def mean(self, values: np.ndarray) -> float:
        """Over all shapes."""
        return float(self.weights @ values)


def weigh(
    n: Float[np.ndarray, " sizes"],
    log_errors: Float[np.ndarray, " sizes"],
    covariance: Float[np.ndarray, "sizes sizes"],
    log_noise: Float[np.ndarray, " floors"],
) -> Shapes:
    """Bayes' rule for a curve that is measured up to `n[-1]` rows, with one fewer than there are; its level is free.

    `log_noise`: how probable each share of noise is in that error, but for the curve.
    """
    rows = int(n[-1]) + 1
    grid = np.meshgrid(_FLOORS, _STARTS, _EXPONENTS, indexing="ij")
    floors, starts, exponents = (part.ravel() for part in grid)
    rest = log_errors[:, None] - _log_ratios(n / rows, floors, starts, exponents)
    precise = Factor.with_jitter(np.array(covariance))
    rest, ones = (np.asarray(precise.whiten(part)) for part in (rest, np.ones(len(n))))
    levels = ones @ rest / (ones @ ones)
    unusual = np.log(exponents / _USUAL_EXPONENT) / _SPREAD_OF_EXPONENTS
    prior = log_noise[np.searchsorted(_FLOORS, floors)] - np.log1p(_EARLY * starts) - unusual**2 / 2
    log_weights = prior - np.sum((rest - ones[:, None] * levels) ** 2, axis=0) / 2
    weights = np.exp(log_weights - log_weights.max())
    return Shapes(rows, floors, starts, exponents, weights / weights.sum(), levels, float((ones @ ones) ** -0.5))


def _log_ratios(share: np.ndarray, floors: np.ndarray, starts: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    falling = ((share[..., None] + starts) / (1 + starts)) ** -exponents
    return np.log(floors + (1 - floors) * falling)


def shapes_of(measured: Measured) -> Shapes:
    """The curve inside the pilot, and its error with all rows but one."""
    left_out, rows = measured.row_errors.mean(), measured.rows
    mean = np.append(measured.errors.mean(0), left_out)
    spread = np.append(measured.errors.std(0), 0.0) / mean
    each = np.column_stack([measured.row_curves, measured.row_errors]) / mean
    each = np.where(np.isnan(each), each[:, -1:], each)  # always learned from: what leaving it out alone says
    covariance = _ROWS * np.cov(each.T) / rows + np.diag(_ORDERS * spread**2 + _MISFIT**2)
    n = np.append(measured.sizes, rows - 1.0)
    return weigh(n, np.log(mean), covariance, _log_noise(measured))


def _log_noise(measured: Measured) -> Float[np.ndarray, " floors"]:
    """How probable each share of noise is: along the smallest eigenvectors of the kernel, noise is all that is left.

    There the targets are independent and centred, of a variance that is the noise and a power of the eigenvalue. What
    is learned of noise comes on top of it in an error: the factor is that of Simon et al. (2021), and stays.
    """
    steps = np.diff(_FLOORS)
    prior = np.log(np.append(_NO_NOISE, (1 - _NO_NOISE) * steps / steps.sum()))
    inverse = 1 / (np.maximum(measured.eigenvalues, 0.0) + measured.ridge)
    overfitted = measured.rows * np.sum(inverse**2) / np.sum(inverse) ** 2
    unit = measured.row_errors.mean() / overfitted
    values, powers = measured.eigenvalues[:-1], measured.powers[:-1] / unit  # the largest is the mean, or near it
    values = np.maximum(values, 1e-12 * measured.eigenvalues[-1])
    told = []
    for smoothness in _SMOOTHNESS:
        learned = _AMOUNTS[:, None] * (values / np.median(values)) ** smoothness
        variances = _FLOORS[:, None, None] + learned + 1e-12
        told.append(-np.sum(np.log(variances) + powers / variances, axis=-1) / 2)
    return prior + _TRUST * logsumexp(np.concatenate(told, axis=1), axis=1)


_DRAWS = 4000
_STRETCH, _SKEW, _FREEDOM = 1.3, 0.2, 4.5  # of the level: Student's law, further up than down
_LEVERAGE, _USUAL_LEVERAGE = 0.35, 10.0  # what far rows add to its standard deviation, for each e-fold beyond the usual
_USUAL_POWER, _SPREAD_OF_POWERS = 1.35, 0.35  # of the law that leads from errors to wrong classes
_NOISE_OF_WRONG = 0.1  # of the logarithm of a measured share of wrong classes
_TOGETHER = 0.5  # how far shares of wrong classes go along where the level of the error is another than measured
_LUCK_OF_CHANCE = 2.0  # standard errors by which the share without learning may be above that of the pilot

Draws = Float[np.ndarray, " draws"]


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Draws: the index of a shape, and the error and the wrong classes with all rows of the pilot.

    `power`: wrong classes are this power of the error. `chance`: the largest share that is wrong without learning.
    """

    shapes: Shapes
    shape: np.ndarray
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
        logs = self.shapes.log_ratios(rows)[:, self.shape] + self.log_level
        return np.where(rows[:, None] < self.smallest, np.minimum(logs, self.log_variance), logs)

    def wrong(self, n: Any) -> Float[np.ndarray, "n draws"]:
        """Shares of wrong classes."""
        shares = np.exp(self.log_wrong + self.power * self.shapes.log_ratios(n)[:, self.shape])
        return np.minimum(shares, self.chance)


def beliefs_of(measured: Measured, seed: int) -> Beliefs:
    """Rows are resampled, alike for all kernels: what they do to the error of each row, learned from all others."""
    left_out = float(measured.row_errors.mean())
    if not left_out > 1e-20 * measured.variance or not (measured.errors > 0).all():
        raise InputError("The pilot is learned without any error from a few of its rows: there is nothing to forecast.")
    rng, rows, shapes = np.random.default_rng(seed + 1), measured.rows, shapes_of(measured)
    counts = rng.multinomial(rows, np.full(rows, 1 / rows), size=_DRAWS)
    wrong = (counts @ measured.row_wrong + 0.5) / (rows + 1)  # none wrong in so many rows is not none at all
    power, spread = _power_of_wrong(measured)
    shape = rng.choice(len(shapes.weights), size=_DRAWS, p=shapes.weights)
    far = _LEVERAGE * max(np.log(measured.leverage / _USUAL_LEVERAGE), 0.0)
    luck = _students(np.log(counts @ measured.row_errors), rng) * np.hypot(_STRETCH * shapes.uncertainty, far)
    power = np.maximum(power + spread * rng.normal(size=_DRAWS), 0.1)
    error_of_chance = (measured.chance * (1 - measured.chance) / rows) ** 0.5
    return Beliefs(
        shapes=shapes,
        shape=shape,
        log_level=shapes.log_levels[shape] + luck,
        log_wrong=np.log(wrong) + _TOGETHER * power * luck,
        power=power,
        smallest=float(measured.sizes[0]),
        log_variance=float(np.log(measured.variance)),
        chance=measured.chance + _LUCK_OF_CHANCE * error_of_chance,
        left_out=left_out,
    )


def _students(draws: Draws, rng: np.random.Generator) -> Draws:
    """Draws of some law, made those of Student's, which goes further up than down."""
    normal = (draws - draws.mean()) / max(float(draws.std()), 1e-12)
    heavy = normal * np.sqrt(_FREEDOM / rng.chisquare(_FREEDOM, size=len(draws)))
    return heavy * np.where(heavy > 0, (1 + _SKEW) ** 0.5, (1 + _SKEW) ** -0.5)


def _power_of_wrong(measured: Measured) -> tuple[float, float]:
    """The power of the error with which wrong classes fall inside the pilot, and its standard deviation."""
    wrong = np.log(np.maximum(measured.wrong.mean(0), 0.5 / measured.rows))
    errors = np.log(measured.errors.mean(0))
    errors, wrong = errors - errors.mean(), wrong - wrong.mean()
    precision = errors @ errors / _NOISE_OF_WRONG**2 + 1 / _SPREAD_OF_POWERS**2
    power = (errors @ wrong / _NOISE_OF_WRONG**2 + _USUAL_POWER / _SPREAD_OF_POWERS**2) / precision
    return float(power), float(precision**-0.5)
