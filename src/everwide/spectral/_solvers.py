"""Weighted kernel regression behind one interface: how it is solved is a choice, what it tells is the same.

A row of weight `w` counts as `w` rows: coefficients solve `(K + ridge / w) a = y`. Where a row stands for several
`copies`, one of them is left out, not all: weighting rows is then the same as repeating them.
"""

import abc
import math
import time as clock
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Complex, Float, Inexact

from ._decompositions import Factor, Spectrum
from ._filters import gradient_flow

_EPS, _TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)
Cross = Float[np.ndarray, "m n"]  # of other rows with those learned from
_POINTS = 28  # of the contour: the error falls as 2.85 ** -points, 4e-11 of the value, for every time


class Report(NamedTuple):
    """How a solver went: its name; `|A a - y| / |y|` in its own factors; steps, 0 where it is direct; jitter."""

    solver: str
    residual: float
    iterations: int
    jitter: float  # added to the diagonal, so that a matrix with rounding can be inverted
    seconds: float
    bytes: int  # that the solution holds
    left_out: str = "exact"  # or "estimated": what leave-one-out is
    stopped_by: str = ""  # of an iterative solver: "residual", "held-out error", "iterations", "rounding"
    held_out: float = math.nan  # the mean squared error of rows that were held out


class Problem(NamedTuple):
    """Checked targets `(n, k)`, weights and copies `(n,)`, the ridge, the mean of the kernel's diagonal."""

    y: Float[np.ndarray, "n k"]
    weights: Float[np.ndarray, " n"]
    copies: Float[np.ndarray, " n"]
    ridge: float
    scale: float


@dataclass(frozen=True)
class AbstractSolution(abc.ABC):
    """What every solver tells, an iterative one too: coefficients, and how it went."""

    problem: Problem
    seconds: float

    @property
    def ridge(self) -> float:
        """As it was asked for."""
        return self.problem.ridge

    @abc.abstractmethod
    def fitted(self) -> Float[np.ndarray, "n k"]:
        """The coefficients, computed."""

    @cached_property
    def coefficients(self) -> Float[np.ndarray, "n k"]:
        """`a` in `f(x) = k(x, X) a`."""
        return self.fitted()

    @property
    @abc.abstractmethod
    def report(self) -> Report:
        """How it went."""


@dataclass(frozen=True)
class AbstractDirectSolution(AbstractSolution):
    """Whatever follows from the matrix `A = K + ridge / w`, of which there is a factorization.

    `left_out`, `left_out_variance` and `variance` are exact.
    """

    @abc.abstractmethod
    def solve(self, b: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
        """`A^-1 b`."""

    @abc.abstractmethod
    def precision(self) -> Float[np.ndarray, " n"]:
        """The diagonal of `A^-1`."""

    @property
    @abc.abstractmethod
    def noise(self) -> Float[np.ndarray, " n"]:
        """What was added to the diagonal of the kernel."""

    @abc.abstractmethod
    def left_out(self) -> Float[np.ndarray, "n k"]:
        """The prediction of every row from all others."""

    def left_out_by_ridge(self) -> Float[np.ndarray, "n k"]:
        """That of `A^-1 y`."""
        y, precision = self.problem.y, np.maximum(self.precision(), _TINY)  # 0 for a kernel that vanishes
        without = y - self.coefficients / precision[:, None]
        return with_other_copies(without, y, self.noise * precision, self.problem.copies)

    def left_out_variance(self) -> Float[np.ndarray, " n"]:
        """The variance of a Gaussian process at every row, given all others, without noise.

        Without any copy of a row it is `1 / precision` less the noise; the other copies tell about it again. It is
        never below rounding: a row may have a twin, and a density needs a width.
        """
        noise, others = self.noise, np.maximum(1 - 1 / self.problem.copies, 0)
        without = np.maximum(1 / self.precision() - noise, _EPS * self.problem.scale)
        told = np.divide(without * others, noise, out=np.zeros_like(without), where=noise > 0)
        return without / (1 + told)

    def variance(self, cross: Cross, own: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Of a Gaussian process at other rows, from their kernels with the rows learned from and with themselves."""
        return np.maximum(own - np.sum(cross.T * self.solve(cross.T), axis=0), 0.0)

    def ensemble_left_out_variance(self, start: Float[np.ndarray, "n n"]) -> Float[np.ndarray, " n"]:
        """At every row, of networks that begin with outputs of this covariance and learn all other rows.

        Training moves outputs at a row by what the others' residuals say: the rest of the random start stays.
        """
        precision, ones = self.precision(), np.ones((len(start), 1))
        without = np.maximum(np.diagonal(self.solve(self.solve(start).T)) / precision**2, 0.0)
        share = with_other_copies(ones, np.zeros_like(ones), self.noise * precision, self.problem.copies)[:, 0]
        return share**2 * without

    def _report(self, solver: str, image: np.ndarray, jitter: float, held: np.ndarray) -> Report:
        residual = float(np.linalg.norm(image - self.problem.y) / max(np.linalg.norm(self.problem.y), _TINY))
        return Report(solver, residual, 0, jitter, self.seconds, held.nbytes)


@dataclass(frozen=True)
class Decomposed(AbstractDirectSolution):
    """From an eigendecomposition: `at` other ridges, and at stopping times of gradient flow, for little more.

    A finite `time` is that of gradient flow on the sum of squares; then the ridge is 0.
    """

    spectrum: Spectrum
    seen: Float[np.ndarray, "n k"]  # targets in the basis of the eigenvectors
    time: float = math.inf

    def at(self, ridge: float = 0.0, time: float = math.inf) -> "Decomposed":
        """The same rows with another ridge, or stopped at a time."""
        return replace(self, problem=self.problem._replace(ridge=ridge), time=time)

    def fitted(self) -> Float[np.ndarray, "n k"]:
        values = np.maximum(self.spectrum.values, 0.0)
        response = self._inverse if math.isinf(self.time) else gradient_flow(self.time)(values, 1)
        return self.spectrum.rows(response[:, None] * self.seen)

    def left_out(self) -> Float[np.ndarray, "n k"]:
        """Gradient flow is a sum of ridges, complex ones, and so is what it says without a row."""
        if math.isinf(self.time):
            return self.left_out_by_ridge()
        y, predicted = self.problem.y, np.zeros_like(self.problem.y)
        if not self.time:
            return predicted
        values, weights = np.maximum(self.spectrum.values, 0.0), self.problem.weights
        shifts, factors = resolvents()
        for shift, factor in zip(shifts / self.time, factors, strict=True):
            inverse = 1 / (values + shift)
            parts = [self.spectrum.rows(part[:, None] * self.seen) for part in (inverse.real, inverse.imag)]
            precision = weights * (self.spectrum.squares @ inverse)
            without = y - (parts[0] + 1j * parts[1]) / precision[:, None]
            some = with_other_copies(without, y, shift / weights * precision, self.problem.copies)
            predicted += np.real(factor * some)
        return predicted

    def precision(self) -> Float[np.ndarray, " n"]:
        return self.problem.weights * (self.spectrum.squares @ self._inverse)

    def solve(self, b: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
        return self.spectrum.rows(self._inverse[:, None] * self.spectrum.modes(b))

    @cached_property
    def _inverse(self) -> Float[np.ndarray, " n"]:
        total = np.maximum(self.spectrum.values, 0.0) + self.ridge + self.jitter
        return np.divide(1.0, total, out=np.zeros_like(total), where=total > 0)

    @property
    def noise(self) -> Float[np.ndarray, " n"]:
        return (self.ridge + self.jitter) / self.problem.weights

    @cached_property
    def jitter(self) -> float:
        """So much that the matrix, whose smallest eigenvalues are rounding, can be inverted; none for a flow."""
        values = self.spectrum.values
        rounding = len(values) * _EPS * max(float(values[-1]), 0.0)
        lowest = max(-float(values[0]), rounding)
        return lowest if math.isinf(self.time) and self.ridge < rounding else 0.0

    @property
    def report(self) -> Report:
        values, weights = np.maximum(self.spectrum.values, 0.0), self.problem.weights[:, None]
        values = values + self.ridge + self.jitter
        image = self.spectrum.rows(values[:, None] * self.spectrum.modes(self.coefficients / weights)) / weights
        return self._report("eigen", image, self.jitter, self.spectrum.vectors)


@dataclass(frozen=True)
class Factored(AbstractDirectSolution):
    """From a Cholesky factor, which grows with new rows."""

    factor: Factor

    def fitted(self) -> Float[np.ndarray, "n k"]:
        return self.solve(self.problem.y)

    def extended(
        self, cross: Cross, among: Float[np.ndarray, "m m"], y: np.ndarray, weights: np.ndarray, copies: np.ndarray
    ) -> "Factored":
        """With new rows: their kernel with old rows and among themselves. The old factor is a part of the new one."""
        began = clock.perf_counter()
        factor = self.factor.extended(cross, among + np.diag(self.ridge / weights))
        y, weights, copies = map(np.concatenate, zip(self.problem[:3], (y, weights, copies), strict=True))
        problem = self.problem._replace(y=y, weights=weights, copies=copies)
        return Factored(problem, clock.perf_counter() - began, factor)

    def left_out(self) -> Float[np.ndarray, "n k"]:
        return self.left_out_by_ridge()

    def solve(self, b: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
        return np.asarray(self.factor.solve(b))

    def precision(self) -> Float[np.ndarray, " n"]:
        return self._precision

    @cached_property
    def _precision(self) -> Float[np.ndarray, " n"]:
        return self.factor.inverse_diagonal()

    @property
    def jitter(self) -> float:
        """What was added to the diagonal until a factor existed."""
        return self.factor.jitter

    @property
    def noise(self) -> Float[np.ndarray, " n"]:
        return self.ridge / self.problem.weights + self.factor.jitter

    @property
    def report(self) -> Report:
        lower = np.asarray(self.factor.lower)
        return self._report("cholesky", lower @ (lower.T @ self.coefficients), self.jitter, lower)


def eigen(kernel: Float[np.ndarray, "n n"], problem: Problem) -> Decomposed:
    """By an eigendecomposition: many ridges and stopping times for the price of one."""
    began, weighted = clock.perf_counter(), bool((problem.weights != 1).any())
    spectrum = Spectrum.unchecked(kernel, np.sqrt(problem.weights) if weighted else np.ones(1), 0.0)
    return Decomposed(problem, clock.perf_counter() - began, spectrum, spectrum.modes(problem.y))


def cholesky(kernel: Float[np.ndarray, "n n"], problem: Problem) -> Factored:
    """By a Cholesky factor: the fastest for one ridge, and it grows with new rows."""
    began = clock.perf_counter()
    kernel[np.diag_indices_from(kernel)] += problem.ridge / problem.weights
    factor = Factor.with_jitter(kernel, problem.scale)
    return Factored(problem, clock.perf_counter() - began, factor)


def with_other_copies(
    without: Inexact[np.ndarray, "n k"], y: np.ndarray, left: Inexact[np.ndarray, " n"], copies: np.ndarray
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


def resolvents() -> tuple[Complex[np.ndarray, " p"], Complex[np.ndarray, " p"]]:
    """Ridges `z` and factors `c` with `(1 - exp(-x)) / x = sum of Re(c / (x + z))` for all `x >= 0`.

    The inverse Laplace transform, on a parabola around the negative axis, by the trapezoidal rule: Weideman and
    Trefethen (2007), "Parabolic and hyperbolic contours for computing the Bromwich integral".
    """
    theta = np.pi * np.arange(1, _POINTS, 2) / _POINTS  # the upper half; the lower one is its mirror image
    s = _POINTS * (0.1309 - 0.1194 * theta**2 + 0.2500j * theta)
    ds = _POINTS * (-2 * 0.1194 * theta + 0.2500j)
    return s, 2 * (2 * np.pi / _POINTS) * np.exp(s) * ds / (2j * np.pi) / s
