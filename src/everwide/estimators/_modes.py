"""A decomposed kernel between weighted rows: any ridge and any stopping time, and what each row looks like from others.

A row of weight `w` counts as `w` rows. With `s = sqrt(w)`, everything follows from the matrix `s K s^T`, in units of
the mean of `K`'s diagonal. Where a row stands for several `copies`, one of them is left out, not all: weighting rows is
then the same as repeating them, in every choice that is made.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from jaxtyping import Float, Inexact

from ._flow import resolvents


@dataclass(frozen=True)
class Modes:
    """Eigenvalues and eigenvectors of the weighted kernel, and the targets in their basis."""

    values: Float[np.ndarray, " n"]
    vectors: Float[np.ndarray, "n n"]
    roots: Float[np.ndarray, " n"]  # of the weights
    copies: Float[np.ndarray, " n"]
    targets: Float[np.ndarray, "n k"]  # weighted, in the basis of the eigenvectors
    y: Float[np.ndarray, "n k"]
    scale: float  # the mean of the kernel's diagonal
    jitter: float  # by which eigenvalues were below 0, in units of the scale

    def ridge_coefficients(self, ridge: float) -> Float[np.ndarray, "n k"]:
        """`a` in `f(x) = k(x, X) a`."""
        return self._spread(self._inverse(ridge))

    def flow_coefficients(self, time: float) -> Float[np.ndarray, "n k"]:
        """`a` in `f(x) = k(x, X) a` after gradient flow, whose time is in units of the inverse scale."""
        x = self.values * time
        small = x < 1e-16  # there, the series of the exponential ends with its first term
        return self._spread(np.where(small, time, -np.expm1(-x) / np.where(small, 1.0, self.values)))

    def ridge_left_out(self, ridge: float) -> Float[np.ndarray, "n k"]:
        """The prediction of every row from all others."""
        inverse = self._inverse(ridge)
        precision = np.maximum(self.precision(ridge), np.finfo(np.float64).tiny)  # 0 for a kernel that vanishes
        without = self.y - self._weighted(inverse) / (self.roots * precision)[:, None]
        return with_other_copies(without, self.y, ridge * precision, self.copies)

    def flow_left_out(self, time: float) -> Float[np.ndarray, "n k"]:
        """The same for gradient flow: the sum of what ridges, complex ones, predict."""
        found = np.zeros_like(self.y)
        if not time:
            return found
        shifts, factors = resolvents()
        for shift, factor in zip(shifts / time, factors, strict=True):
            inverse = 1 / (self.values + shift)
            precision = self._squares @ inverse
            without = self.y - self._weighted(inverse) / (self.roots * precision)[:, None]
            found += np.real(factor * with_other_copies(without, self.y, shift * precision, self.copies))
        return found

    def precision(self, ridge: float) -> Float[np.ndarray, " n"]:
        """The diagonal of the inverse of the weighted kernel and the ridge."""
        return self._squares @ self._inverse(ridge)

    @cached_property
    def _squares(self) -> Float[np.ndarray, "n n"]:
        return self.vectors**2

    def _inverse(self, ridge: float) -> Float[np.ndarray, " n"]:
        total = self.values + ridge
        return np.where(total > 0, 1 / np.where(total > 0, total, 1.0), 0.0)

    def _weighted(self, response: np.ndarray) -> np.ndarray:
        if np.iscomplexobj(response):  # two real products are half of a complex one
            return self._weighted(np.real(response)) + 1j * self._weighted(np.imag(response))
        return self.vectors @ (response[:, None] * self.targets)

    def _spread(self, response: np.ndarray) -> np.ndarray:
        return self.roots[:, None] * self._weighted(response) / self.scale


def decompose(
    kernel: Float[np.ndarray, "n n"],
    y: Float[np.ndarray, "n k"],
    weights: Float[np.ndarray, " n"],
    copies: Float[np.ndarray, " n"],
) -> Modes:
    """Decompose a kernel between rows with these weights, all above 0. The kernel is used up."""
    scale = mean_diagonal(kernel, weights)
    roots = np.sqrt(weights)
    kernel /= scale
    kernel *= roots
    kernel *= roots[:, None]
    values, vectors = scipy.linalg.eigh(kernel, driver="evd", overwrite_a=True, check_finite=False)
    targets = vectors.T @ (roots[:, None] * y)
    return Modes(np.maximum(values, 0.0), vectors, roots, copies, targets, y, scale, max(-float(values[0]), 0.0))


def mean_diagonal(kernel: Float[np.ndarray, "n n"], weights: Float[np.ndarray, " n"]) -> float:
    """The unit of ridges; 1 for a kernel that vanishes."""
    found = float(np.average(np.diagonal(kernel), weights=weights))
    return found if found > 0 else 1.0


def with_other_copies(
    without: Inexact[np.ndarray, "n k"],
    y: Float[np.ndarray, "n k"],
    left: Inexact[np.ndarray, " n"],
    copies: Float[np.ndarray, " n"],
) -> Inexact[np.ndarray, "n k"]:
    """Predictions of one copy of a row from all else, given those without any of its copies.

    `left` is `1 - H`, with the leverage `H` of all copies together. The odds `H / (1 - H)` grow with their number. All
    of it is algebra, and holds for complex ridges too.
    """
    others = np.maximum(1 - 1 / copies, 0)  # their share of the weight
    if not others.any():
        return without
    own = (others * (1 - left) / np.where(others > 0, others + (1 - others) * left, 1.0))[:, None]
    return own * y + (1 - own) * without
