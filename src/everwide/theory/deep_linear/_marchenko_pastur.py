"""The spectrum of the Gram matrix of noise, and what stands out of it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._checks import InputError, positive
from ...spectral import Spectrum

_TRACY_WIDOM_99 = 2.0234  # for real matrices: 99 % of the largest eigenvalues of noise lie below


@dataclass(frozen=True)
class Outliers:
    """The eigenvalues, ascending, of a Gram matrix that noise does not explain, and the level above which they lie."""

    values: np.ndarray
    level: float

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.values)


@dataclass(frozen=True)
class MarchenkoPastur:
    """The law of the eigenvalues of `A A^T / n`, `A` a large `(P, n)` matrix of independent entries, `alpha = P / n`.

    Made by `marchenko_pastur`.
    """

    alpha: float
    variance: float

    @property
    def edges(self) -> tuple[float, float]:
        """The smallest and the largest eigenvalue, zeros aside."""
        root = math.sqrt(self.alpha)
        return self.variance * (1 - root) ** 2, self.variance * (1 + root) ** 2

    @property
    def zeros(self) -> float:
        """The share of eigenvalues that are exactly 0: above `alpha = 1` the matrix is singular."""
        return max(0.0, 1 - 1 / self.alpha)

    def pdf(self, value: Any) -> np.ndarray:
        """The density `sqrt((high - x) (x - low)) / (2 pi alpha x)`, without the zeros."""
        x = _numbers(value)
        low, high = self.edges
        inside = (x > low) & (x < high)
        safe = np.where(inside, x, high)
        root = np.sqrt(np.maximum((high - safe) * (safe - low), 0))
        return np.asarray(root / (2 * np.pi * self.alpha * self.variance * safe))

    def cdf(self, value: Any) -> np.ndarray:
        """The share of eigenvalues up to `value`, with the zeros."""
        x = _numbers(value)
        low, high = (edge / self.variance for edge in self.edges)
        inside = np.clip(x / self.variance, low, high)
        root = np.sqrt(np.maximum((high - inside) * (inside - low), 0))
        gap = abs(1 - self.alpha)
        first = np.arctan2(low + high - 2 * inside, 2 * root)
        # at alpha = 1 the second angle has no weight, and its sine may be 0 too
        second = np.arctan2(2 * gap**2 - (low + high) * inside, 2 * gap * root)
        area = (root - (1 + self.alpha) * first + gap * second) / (2 * np.pi * self.alpha)
        return np.where(x < 0, 0.0, np.clip(self.zeros + (1 - self.zeros) / 2 + area, self.zeros, 1.0))

    def outliers(self, gram: Any) -> Outliers:
        """The eigenvalues of a symmetric `(P, P)` matrix above those of noise of this law.

        The level is the 99 % quantile of the largest eigenvalue of pure noise, at this size.

        Johnstone, "On the distribution of the largest eigenvalue in principal components analysis" (2001).
        """
        values = Spectrum.of(gram, what="gram").values
        rows, columns = len(values), len(values) / self.alpha
        if columns < 2:
            raise InputError(f"gram has {rows} rows: with alpha={self.alpha} that is the Gram matrix of fewer than 2.")
        a, b = math.sqrt(columns - 1), math.sqrt(rows)
        level = self.variance * ((a + b) ** 2 + _TRACY_WIDOM_99 * (a + b) * (1 / a + 1 / b) ** (1 / 3)) / columns
        return Outliers(values[values > level], level)


def _numbers(value: Any) -> np.ndarray:
    numbers = np.asarray(value, np.float64)
    if np.isnan(numbers).any():
        raise InputError(f"value={value!r}: expected numbers, of which none is NaN.")
    return numbers


def marchenko_pastur(alpha: float, *, variance: float = 1.0) -> MarchenkoPastur:
    """The law of the eigenvalues of `A A^T / n` for a large `(P, n)` matrix of noise.

    Args:
        alpha: `P / n`.
        variance: of the entries of `A`.

    Returns:
        `edges`, `zeros` (the share of eigenvalues that are 0), `pdf(value)`, `cdf(value)`, and `outliers(gram)`: the
        `values` of a Gram matrix that noise does not explain, how many (`count`), and the `level` above which they lie.

    >>> from everwide.theory import deep_linear
    >>> law = deep_linear.marchenko_pastur(0.25)
    >>> law.edges, round(float(law.cdf(1.0)), 4)
    ((0.25, 2.25), 0.5534)

    Marchenko and Pastur, "Distribution of eigenvalues for some sets of random matrices" (1967).
    """
    return MarchenkoPastur(positive(alpha, "alpha"), positive(variance, "variance"))
