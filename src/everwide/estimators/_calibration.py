"""Probabilities from outputs, and widths of uncertainty, matched to what rows look like from all others."""

from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.special
from jaxtyping import Float, Int

_SHARPEST = np.log(1e4)
_PROBIT = np.pi / 8  # a logistic function, blurred by a Gaussian, is nearly a logistic function again (MacKay 1992)


@dataclass(frozen=True)
class Temperature:
    """`softmax(sharpness * outputs)`, less sharp where outputs are uncertain."""

    sharpness: float

    @classmethod
    def of(
        cls,
        outputs: Float[np.ndarray, "n k"],
        variance: Float[np.ndarray, "#n 1"],
        classes: Int[np.ndarray, " n"],
        weights: Float[np.ndarray, " n"],
    ) -> "Temperature":
        """With the largest likelihood of rows that were predicted from all others.

        As many rows as there are classes could have been of any class: so perfect separation stays finite (Platt 1999).
        """
        n, k = outputs.shape
        doubt = k / (weights.sum() + k)
        targets = np.full((n, k), doubt / k)
        targets[np.arange(n), classes] += 1 - doubt

        def loss(log_sharpness: float) -> float:
            logits = _logits(np.exp(log_sharpness), outputs, variance)
            return float(-np.sum(weights[:, None] * targets * scipy.special.log_softmax(logits, axis=1)))

        grid = np.linspace(-_SHARPEST / 2, _SHARPEST, 40)
        near = grid[int(np.argmin([loss(point) for point in grid]))]
        step = grid[1] - grid[0]
        best = scipy.optimize.fminbound(loss, near - step, near + step)
        return cls(float(np.exp(best)))

    def __call__(self, outputs: Float[np.ndarray, "n k"], variance: Float[np.ndarray, "#n 1"]) -> np.ndarray:
        return scipy.special.softmax(_logits(self.sharpness, outputs, variance), axis=1)


def _logits(sharpness: float, outputs: np.ndarray, variance: np.ndarray) -> np.ndarray:
    return sharpness * outputs / np.sqrt(1 + _PROBIT * sharpness**2 * variance)


@dataclass(frozen=True)
class Spread:
    """Variances `amplitude * (v + noise)` of targets, where `v` is the variance of the function for amplitude 1."""

    amplitude: Float[np.ndarray, " k"]
    noise: Float[np.ndarray, " k"]

    @classmethod
    def of(
        cls,
        residuals: Float[np.ndarray, "n k"],
        variance: Float[np.ndarray, " n"],
        noise: Float[np.ndarray, " n"] | None,
        weights: Float[np.ndarray, " n"],
    ) -> "Spread":
        """With the largest likelihood of residuals of rows that were predicted from all others.

        `noise`: of the rows, for amplitude 1, where it is known; `None` is chosen too, one number for each output.
        """
        share = weights / weights.sum()
        tiny = np.finfo(np.float64).tiny
        if noise is not None:
            known = float(np.median(noise))
            amplitude = share @ (residuals**2 / (variance + noise)[:, None])
            return cls(np.maximum(amplitude, tiny), np.full(residuals.shape[1], known))
        parts = [_two_parts(column**2, variance, share) for column in residuals.T]
        amplitude, chosen = (np.array(part) for part in zip(*parts, strict=True))
        return cls(np.maximum(amplitude, tiny), chosen)

    def std(self, variance: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n k"]:
        """Of targets."""
        return np.sqrt(self.amplitude * (np.maximum(variance, 0)[:, None] + self.noise))


def _two_parts(squares: np.ndarray, variance: np.ndarray, share: np.ndarray) -> tuple[float, float]:
    typical = max(float(share @ variance), np.finfo(np.float64).tiny)

    def fit(log_noise: float) -> tuple[float, float]:
        total = variance + typical * np.exp(log_noise)
        amplitude = max(float(share @ (squares / total)), np.finfo(np.float64).tiny)
        return float(np.log(amplitude) + share @ np.log(total)), amplitude

    grid = np.linspace(np.log(1e-6), np.log(1e6), 61)
    best = min(grid, key=lambda point: fit(point)[0])
    return fit(best)[1], typical * float(np.exp(best))


def weighted_quantile(
    values: Float[np.ndarray, "n k"], copies: Float[np.ndarray, " n"], share: float
) -> Float[np.ndarray, " k"]:
    """The least value of each column that a new one stays below with this probability (Vovk et al. 2005)."""
    n = max(copies.sum(), len(copies))  # weights below 1 do not make fewer rows of many
    needed = min(np.ceil((n + 1) * share) / n, 1.0) * copies.sum()
    order = np.argsort(values, axis=0)
    reached = np.cumsum(copies[order], axis=0) >= needed * (1 - 1e-12)
    place = np.where(reached.any(0), np.argmax(reached, axis=0), len(values) - 1)
    return np.take_along_axis(np.take_along_axis(values, order, 0), place[None], 0)[0]
