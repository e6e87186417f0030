"""Weighted kernel regression, solved: by an eigendecomposition (any stopping time) or by Cholesky (many rows)."""

import abc
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from jaxtyping import Float

from ._modes import Modes, mean_diagonal, with_other_copies

_potrf, _potri = scipy.linalg.get_lapack_funcs(("potrf", "potri"), dtype=np.float64)
_FIRST_JITTER, _LAST_JITTER = 1e-15, 1e-2  # in units of the mean of the diagonal


class AbstractSolution(abc.ABC):
    """What predictions and their uncertainty need."""

    ridge: float

    @abc.abstractmethod
    def coefficients(self) -> Float[np.ndarray, "n k"]:
        """`a` in `f(x) = k(x, X) a`."""

    @abc.abstractmethod
    def left_out(self) -> Float[np.ndarray, "n k"]:
        """The prediction of every row from all others."""

    @abc.abstractmethod
    def precision(self) -> Float[np.ndarray, " n"]:
        """The diagonal of `A^-1`, where `A` is the kernel in units of `scale` plus the ridge over the weights."""

    @abc.abstractmethod
    def left_out_variance(self) -> Float[np.ndarray, " n"]:
        """The variance of a Gaussian process at every row, given all others, in units of the scale, without noise."""

    @abc.abstractmethod
    def solve(self, b: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
        """`A^-1 b`."""

    @property
    @abc.abstractmethod
    def scale(self) -> float:
        """The mean of the kernel's diagonal."""

    @property
    @abc.abstractmethod
    def jitter(self) -> float:
        """What was added to the diagonal, in units of the scale."""


@dataclass(frozen=True)
class Decomposed(AbstractSolution):
    """From an eigendecomposition. A finite `time` stops gradient flow; then the ridge is 0."""

    modes: Modes
    ridge: float
    time: float = np.inf

    def coefficients(self) -> Float[np.ndarray, "n k"]:
        stopped = np.isfinite(self.time)
        return self.modes.flow_coefficients(self.time) if stopped else self.modes.ridge_coefficients(self._ridge)

    def left_out(self) -> Float[np.ndarray, "n k"]:
        stopped = np.isfinite(self.time)
        return self.modes.flow_left_out(self.time) if stopped else self.modes.ridge_left_out(self._ridge)

    def precision(self) -> Float[np.ndarray, " n"]:
        return self.modes.roots**2 * self.modes.precision(self._ridge)

    def left_out_variance(self) -> Float[np.ndarray, " n"]:
        return _variance(self.precision(), self._ridge, self.modes.roots**2, self.modes.copies)

    def solve(self, b: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
        roots, vectors = self.modes.roots[:, None], self.modes.vectors
        return roots * (vectors @ ((vectors.T @ (roots * b)) / (self.modes.values + self._ridge)[:, None]))

    @property
    def _ridge(self) -> float:
        """With so much that the matrix, whose smallest eigenvalues are rounding, can be inverted."""
        return self.ridge + self.jitter

    @property
    def scale(self) -> float:
        return self.modes.scale

    @property
    def jitter(self) -> float:
        if np.isfinite(self.time):
            return 0.0  # nothing is inverted
        noise = len(self.modes.values) * float(np.finfo(np.float64).eps) * float(self.modes.values[-1])
        return max(self.modes.jitter, noise) if self.ridge < noise else 0.0


@dataclass(frozen=True)
class Factored(AbstractSolution):
    """From a Cholesky factor, which grows with new rows."""

    lower: Float[np.ndarray, "n n"]
    y: Float[np.ndarray, "n k"]
    weights: Float[np.ndarray, " n"]
    copies: Float[np.ndarray, " n"]
    ridge: float
    unit: float
    added: float

    @classmethod
    def of(cls, kernel: np.ndarray, y: np.ndarray, weights: np.ndarray, copies: np.ndarray, ridge: float) -> "Factored":
        """Factorize a kernel, which is used up. Jitter grows until that succeeds."""
        scale = mean_diagonal(kernel, weights)
        kernel /= scale
        diagonal = kernel.diagonal() + ridge / weights
        jitter = 0.0
        while True:
            kernel[np.diag_indices_from(kernel)] = diagonal + jitter
            lower, fault = _potrf(kernel.T, lower=True, clean=True, overwrite_a=False)
            if not fault:
                return cls(lower, y, weights, copies, ridge, scale, jitter)
            if jitter >= _LAST_JITTER:
                raise ValueError(
                    f"The kernel of {len(kernel)} rows is not positive definite, even with {jitter:.0e} of its "
                    "diagonal added. Is it the kernel of a network, and are the inputs finite?"
                )
            jitter = max(10 * jitter, _FIRST_JITTER)

    def extended(
        self,
        cross: Float[np.ndarray, "m n"],
        among: Float[np.ndarray, "m m"],
        y: Float[np.ndarray, "m k"],
        weights: Float[np.ndarray, " m"],
        copies: Float[np.ndarray, " m"],
    ) -> "Factored":
        """With new rows: their kernel with old rows and among themselves. The old factor is a part of the new one."""
        below = scipy.linalg.solve_triangular(self.lower, cross.T / self.scale, lower=True, check_finite=False).T
        rest = among / self.scale - below @ below.T
        rest[np.diag_indices_from(rest)] += self.ridge / weights + self.added
        corner, more = _cholesky(rest)
        return replace(
            self,
            lower=_stacked(self.lower, below, corner),
            added=self.added + more,
            y=np.concatenate([self.y, y]),
            weights=np.concatenate([self.weights, weights]),
            copies=np.concatenate([self.copies, copies]),
        )

    def solve(self, b: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
        return scipy.linalg.cho_solve((self.lower, True), b, check_finite=False)

    def coefficients(self) -> Float[np.ndarray, "n k"]:
        return self.solve(self.y) / self.scale

    def left_out(self) -> Float[np.ndarray, "n k"]:
        precision = self.precision()
        without = self.y - self.solve(self.y) / precision[:, None]
        return with_other_copies(without, self.y, self.ridge / self.weights * precision, self.copies)

    def left_out_variance(self) -> Float[np.ndarray, " n"]:
        return _variance(self.precision(), self.ridge, self.weights, self.copies)

    def precision(self) -> Float[np.ndarray, " n"]:
        inverse, _ = _potri(self.lower, lower=True)
        return inverse.diagonal().copy()

    @property
    def scale(self) -> float:
        return self.unit

    @property
    def jitter(self) -> float:
        return self.added


def _variance(
    precision: Float[np.ndarray, " n"], ridge: float, weights: Float[np.ndarray, " n"], copies: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Without any copy of a row it is `1 / precision` less the noise; the other copies tell about it again.

    It is never below rounding: a row may have a twin, and a density needs a width.
    """
    without = np.maximum(1 / precision - ridge / weights, np.finfo(np.float64).eps)
    others = np.maximum(1 - 1 / copies, 0) * weights
    return without if not others.any() or not ridge else without / (1 + without * others / ridge)


def _cholesky(matrix: np.ndarray) -> tuple[np.ndarray, float]:
    """Of the part of new rows that old ones do not explain, and what was added to mend the rounding of their copies."""
    smallest = float(scipy.linalg.eigvalsh(matrix, subset_by_index=(0, 0), check_finite=False)[0])
    floor = len(matrix) * float(np.finfo(np.float64).eps) * max(float(np.abs(matrix).max()), 1.0)
    more = max(floor - smallest, 0.0)
    matrix[np.diag_indices_from(matrix)] += more
    return scipy.linalg.cholesky(matrix, lower=True, check_finite=False), more


def _stacked(lower: np.ndarray, below: np.ndarray, corner: np.ndarray) -> np.ndarray:
    n, m = len(lower), len(corner)
    found = np.zeros((n + m, n + m), order="F")
    found[:n, :n], found[n:, :n], found[n:, n:] = lower, below, corner
    return found
