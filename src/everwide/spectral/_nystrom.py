"""Nystrom: features from few centres, whitened in float64, in one pass over all rows."""

import math
import time as clock
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from .._checks import InputError, whole
from .._engine import KernelOperator, Progress, require
from ._decompositions import Factor, Spectrum
from ._large import AbstractLargeSolution, AbstractLargeSolver, Watch, with_ridge
from ._pivots import pivoted
from ._solvers import Problem, Report, with_other_copies

_BLOCK = 4096  # rows whose features exist at once
_POOL, _MOST_POOL = 10, 50_000  # rows that centres are chosen from: so many for each, but no more than that
_FEWEST, _MOST, _ROOTS = 100, 3000, 3  # centres: three times the root of the number of rows, within these
_syrk: Any = scipy.linalg.get_blas_funcs("syrk", dtype=np.float64)
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Nystrom(AbstractLargeSolver):
    """`(K + ridge / w) a = y` with the kernel as far as some rows, the centres, tell it: for a million rows.

    Centres are random pivots of a part of the rows. Features are whitened in float64, their second moments are summed
    over all rows in one pass, and an eigendecomposition of these serves all ridges.

    Args:
        centres: how many; None: three times the root of the number of rows, from 100 to 3000.
        rows: that centres are chosen from, drawn at random; None: ten for each of them.
        seed: of both.
        progress: called after every block of rows.

    >>> import everwide.spectral as sp, numpy as np
    >>> x = np.linspace(0, 1, 200)
    >>> kernel = np.exp(-np.abs(x[:, None] - x))
    >>> solution = sp.solve(kernel, np.sin(x), ridge=0.1, solver=sp.Nystrom(centres=20))
    >>> solution.centres.shape, solution.coefficients.shape
    ((20,), (20, 1))

    Williams and Seeger, "Using the Nystrom method to speed up kernel machines" (2000); centres: Epperly, Tropp and
    Webber (2024).
    """

    centres: int | None = None
    rows: int | None = None
    seed: int = 0
    progress: Watch | None = field(default=None, repr=False)

    def centres_of(self, n: int) -> int:
        """How many centres `n` rows get."""
        usual = min(max(_ROOTS * math.isqrt(n), _FEWEST), _MOST)
        return min(usual if self.centres is None else whole(self.centres, "centres"), n)

    def __call__(self, kernel: KernelOperator, problem: Problem) -> "Centred":
        began, n = clock.perf_counter(), len(kernel)
        m = self.centres_of(n)
        pool = min(_POOL * m, _MOST_POOL) if self.rows is None else whole(self.rows, "rows", m)
        require(8 * (3 * m * m + 2 * m * _BLOCK) + 4 * m * min(pool, n), None, f"{m} centres", "Take fewer centres.")
        centres = _chosen(kernel, m, min(pool, n), self.seed)
        white = White(kernel, centres, Factor.with_jitter(kernel.among(centres), problem.scale))
        sums = _summed(white, problem, self.progress, began)
        spectrum = Spectrum.unchecked(sums.gram, np.ones(1), 0.0)
        seen = spectrum.modes(sums.moments)
        return Centred(problem, clock.perf_counter() - began, kernel, white, spectrum, seen)


@dataclass(frozen=True)
class White:
    """Features of rows: their kernel with the centres, whitened, so that `f f^T` is nearly the kernel."""

    kernel: KernelOperator
    centres: Int[np.ndarray, " m"]
    factor: Factor

    def features(self, rows: Any) -> Float[np.ndarray, "m b"]:
        """In columns."""
        cross = self.kernel.block(self.centres, rows).astype(np.float64)
        return np.asarray(self.factor.whiten(cross))


class Sums(NamedTuple):
    """Of weighted features: second moments, and products with the targets."""

    gram: Float[np.ndarray, "m m"]
    moments: Float[np.ndarray, "m k"]


@dataclass(frozen=True)
class Centred(AbstractLargeSolution):
    """Made by `Nystrom`. Leave-one-out is exact for these centres, in a second pass."""

    white: White
    spectrum: Spectrum
    seen: Float[np.ndarray, "m k"]

    @property
    def centres(self) -> Int[np.ndarray, " m"]:
        return self.white.centres

    def fitted(self) -> Float[np.ndarray, "m k"]:
        return self.white.factor.unwhiten(self._inside())

    def _inside(self) -> Float[np.ndarray, "m k"]:
        """Coefficients of the features."""
        return self.spectrum.rows(self._inverse(self.ridge)[:, None] * self.seen)

    def _inverse(self, ridge: float) -> Float[np.ndarray, " m"]:
        """Directions that are rounding are left alone."""
        values = self.spectrum.values
        total = np.maximum(values, 0.0) + ridge
        least = max(len(values) * _EPS * float(values[-1]), np.finfo(np.float64).tiny)
        return np.divide(1.0, total, out=np.zeros_like(total), where=total > least)

    def left_out(self, rows: Any = None) -> Float[np.ndarray, "b k"]:
        """Of all rows, or of some."""
        return np.concatenate([next(self._left_out(some, [self.ridge])) for some in self._blocks(rows)])

    def errors(self, ridges: Sequence[float], rows: Any = None) -> Float[np.ndarray, " r"]:
        """The weighted mean of squared leave-one-out errors for each ridge, in one pass over all rows, or over some."""
        sums, total = np.zeros(len(ridges)), 0.0
        for some in self._blocks(rows):
            weights, y = self.problem.weights[some], self.problem.y[some]
            squares = [np.sum((y - one) ** 2, axis=1) @ weights for one in self._left_out(some, ridges)]
            sums, total = sums + squares, total + float(weights.sum())
        return sums / total

    def _left_out(self, rows: np.ndarray, ridges: Sequence[float]) -> Iterator[Float[np.ndarray, "b k"]]:
        modes = self.spectrum.vectors.T @ self.white.features(rows)
        y, weights, copies = (part[rows] for part in self.problem[:3])
        for ridge in ridges:
            inverse = self._inverse(ridge)
            leverage = np.minimum(weights * (inverse @ modes**2), 1 - _EPS)
            without = (modes.T @ (inverse[:, None] * self.seen) - leverage[:, None] * y) / (1 - leverage)[:, None]
            yield with_other_copies(without, y, 1 - leverage, copies)

    def _blocks(self, rows: Any) -> list[np.ndarray]:
        some = np.arange(len(self.kernel)) if rows is None else np.asarray(rows)
        return [some[start : start + _BLOCK] for start in range(0, len(some), _BLOCK)]

    def predict(self, new: np.ndarray) -> Float[np.ndarray, "new k"]:
        return self.kernel.predict(new, self.coefficients, self.centres)

    def along(self, ridges: Sequence[float]) -> "list[Centred]":
        """For nothing: the decomposition serves all."""
        return [replace(self, problem=with_ridge(self.problem, ridge)) for ridge in ridges]

    @property
    def report(self) -> Report:
        inside, values = self._inside(), self.spectrum.values
        image = self.spectrum.rows((values + self.ridge)[:, None] * self.spectrum.modes(inside))
        target = self.spectrum.rows(self.seen)
        residual = float(np.linalg.norm(image - target) / max(np.linalg.norm(target), np.finfo(np.float64).tiny))
        held = self.spectrum.vectors.nbytes + np.asarray(self.white.factor.lower).nbytes
        return Report("nystrom", residual, 0, self.white.factor.jitter, self.seconds, held)


def _chosen(kernel: KernelOperator, size: int, pool: int, seed: int) -> Int[np.ndarray, " m"]:
    """Pivots of some of the rows."""
    some = np.sort(np.random.default_rng(seed).permutation(len(kernel))[:pool])
    own = kernel.diagonal()[some]
    if not own.max() > 0:
        raise InputError("The kernel is 0 on its diagonal: there is nothing to learn with it.")
    pivots = pivoted(
        lambda rows: kernel.block(some, some[rows]),
        own,
        size,
        among=lambda rows: kernel.block(some[rows], some[rows]),
        dtype=np.float32,
        seed=seed,
    )
    return some[pivots.rows]


def _summed(white: White, problem: Problem, progress: Watch | None, began: float) -> Sums:
    """One pass over all rows; only one triangle of the second moments is summed."""
    n, m = len(problem.y), len(white.centres)
    gram, moments = np.zeros((m, m), order="F"), np.zeros((m, problem.y.shape[1]))
    starts = range(0, n, _BLOCK)
    for done, start in enumerate(starts, start=1):
        rows = slice(start, min(start + _BLOCK, n))
        weighted = white.features(rows) * np.sqrt(problem.weights[rows])
        gram = _syrk(1.0, weighted, beta=1.0, c=gram, overwrite_c=True, lower=True)
        moments += weighted @ (np.sqrt(problem.weights[rows])[:, None] * problem.y[rows])
        if progress is not None:
            progress(Progress(done, len(starts), clock.perf_counter() - began))
    return Sums(np.tril(gram) + np.tril(gram, -1).T, moments)
