"""How learning curves go on: a family of shapes, weighed by how well each agrees with a measured beginning.

    error(n) / error(P) = f + (1 - f) ((n + s) / (P + s))^-b

`b`: the exponent of the power law in which errors of kernel regression fall where eigenvalues and coefficients do;
`f`: the share that no number of rows removes, noise; `s`: rows that are spent before the law begins.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

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
