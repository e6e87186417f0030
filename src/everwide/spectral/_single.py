"""Cholesky in single precision, in one matrix: the factor below the diagonal, the kernel above it."""

import time as clock
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from .._checks import InputError, positive, whole
from .._engine import AbstractBlocks, KernelError, KernelOperator
from ._large import AbstractLargeSolution, AbstractLargeSolver, Watch, with_ridge
from ._run import Limits, Outcome, Run, Task
from ._solvers import Problem, Report, with_other_copies

_potrf, _potrs = scipy.linalg.get_lapack_funcs(("potrf", "potrs"), dtype=np.float32)
_FIRST_JITTER, _LAST_JITTER = 1e-6, 1e-2  # in units of the mean of the diagonal; below, float32 sees nothing
_BLOCK = 512  # columns of the inverse at once
_TILE = 1024  # of products with the upper triangle
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class SingleCholesky(AbstractLargeSolver):
    """`(K + ridge / w) a = y` by one float32 matrix of `n^2` numbers, made accurate by products in float64.

    The factor takes the place of the lower triangle; the upper one keeps the kernel, with which residuals are computed
    in float64. Where float32 has no factor, the least jitter is added, and the iterations work against it: `report` has
    the residual that was reached, and `stopped_by="rounding"` if that is not the tolerance.

    Args:
        tolerance: of `|A a - y| / |y|`.
        iterations: products for it, at the most.
        progress: called after every one of them.

    >>> import everwide.spectral as sp, numpy as np
    >>> x = np.linspace(0, 1, 200)
    >>> kernel = np.exp(-np.abs(x[:, None] - x))
    >>> solution = sp.solve(kernel, np.sin(x), ridge=0.1, solver=sp.SingleCholesky())
    >>> solution.report.residual < 1e-11, solution.report.left_out
    (True, 'exact')

    Higham, "Accuracy and stability of numerical algorithms" (2002), chapter 12.
    """

    tolerance: float = 1e-11
    iterations: int = 60
    progress: Watch | None = field(default=None, repr=False)

    def __call__(self, kernel: KernelOperator, problem: Problem) -> "Single":
        positive(self.tolerance, "tolerance")
        whole(self.iterations, "iterations")
        kernel.refuse_twins(problem.ridge)
        began, own = clock.perf_counter(), kernel.diagonal()
        return _factorized(kernel.dense(np.float32), own, problem, kernel, self, began)


@dataclass(frozen=True)
class Upper(AbstractBlocks):
    """The kernel above a factor."""

    matrix: Float[np.ndarray, "n n"]
    own: Float[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.own)

    def block(self, rows: Any, columns: Any) -> Float[np.ndarray, "r c"]:
        """Of tiles below the diagonal, and on it, where the lower half is asked for."""
        return self.matrix[columns, rows].T

    def diagonal(self) -> Float[np.ndarray, " n"]:
        return self.own

    def twins(self) -> int:
        return 0


@dataclass(frozen=True)
class Single(AbstractLargeSolution):
    """Made by `SingleCholesky`. Leave-one-out is exact, in float32."""

    matrix: Float[np.ndarray, "n n"]
    jitter: float
    outcome: Outcome
    how: SingleCholesky
    corners: Float[np.ndarray, " n"]  # the diagonal of this solution's factor, by which it knows its own

    def fitted(self) -> Float[np.ndarray, "n k"]:
        return self.outcome.x

    @property
    def centres(self) -> Int[np.ndarray, " n"]:
        return np.arange(len(self.matrix))

    @property
    def noise(self) -> Float[np.ndarray, " n"]:
        """What was added to the diagonal of the kernel for the factor."""
        return self.problem.ridge / self.problem.weights + self.jitter

    @cached_property
    def precision(self) -> Float[np.ndarray, " n"]:
        """The diagonal of the inverse: squared lengths of the columns of the factor's inverse, some at a time."""
        n, lengths = len(self.matrix), np.zeros(len(self.matrix))
        if not np.array_equal(np.diagonal(self.matrix), self.corners):
            raise InputError(
                f"The factor for ridge={self.ridge:g} has made place for that of another ridge. Ask for left_out() "
                "before along(), or solve again."
            )
        for start in range(0, n, _BLOCK):
            until = min(start + _BLOCK, n)
            part = np.zeros((n - start, until - start), np.float32)
            part[: until - start] = np.eye(until - start)
            for row in range(start, n, _BLOCK):
                here, end = slice(row - start, row - start + _BLOCK), min(row + _BLOCK, n)
                if row > start:
                    part[here] -= self.matrix[row:end, start:row] @ part[: row - start]
                corner = self.matrix[row:end, row:end]
                part[here] = scipy.linalg.solve_triangular(corner, part[here], lower=True, check_finite=False)
            lengths[start:until] = np.einsum("ij,ij->j", part, part, dtype=np.float64)
        return lengths

    def left_out(self) -> Float[np.ndarray, "n k"]:
        y, precision = self.problem.y, np.maximum(self.precision, _TINY)
        without = y - self.coefficients / precision[:, None]
        return with_other_copies(without, y, self.noise * precision, self.problem.copies)

    def predict(self, new: np.ndarray) -> Float[np.ndarray, "new k"]:
        return self.kernel.predict(new, self.coefficients)

    def along(self, ridges: Sequence[float]) -> "list[Single]":
        """A factor for each, one after the other in the same matrix: the last one stays, and with it leave-one-out."""
        own, solutions = self.kernel.diagonal(), []
        for ridge in ridges:
            problem = with_ridge(self.problem, ridge)
            solutions.append(_factorized(self.matrix, own, problem, self.kernel, self.how, clock.perf_counter()))
        return solutions

    @property
    def report(self) -> Report:
        residual = float(self.outcome.residuals.max())
        return Report(
            "cholesky, float32", residual, self.outcome.iterations, self.jitter, self.seconds, self.matrix.nbytes,
            "exact", self.outcome.stopped_by,
        )  # fmt: skip


def _factorized(
    matrix: Float[np.ndarray, "n n"],
    own: Float[np.ndarray, " n"],
    problem: Problem,
    kernel: KernelOperator,
    how: SingleCholesky,
    began: float,
) -> Single:
    noise, jitter = problem.ridge / problem.weights, 0.0
    while True:
        _mirror(matrix)
        np.fill_diagonal(matrix, own + noise + jitter)
        matrix, fault = _potrf(matrix, lower=1, clean=0, overwrite_a=1)
        if not fault:
            break
        if jitter >= _LAST_JITTER * problem.scale:
            raise KernelError(
                f"The kernel of {len(matrix)} rows has no factor in float32, even with {jitter / problem.scale:.0e} of "
                "its diagonal added. Is it the kernel of a network, and are the inputs finite?"
            )
        jitter = max(10 * jitter, _FIRST_JITTER * problem.scale)
    above = KernelOperator(Upper(matrix, own), memory=0, tile=_TILE)

    def inverse(b: np.ndarray) -> np.ndarray:
        return _potrs(matrix, np.asarray(b, np.float32, order="F"), lower=1)[0].astype(np.float64)

    run = Run(above, lambda noise, there: inverse, Limits(how.iterations, 0, 0, how.progress), began)
    tolerances = np.full(problem.y.shape[1], how.tolerance)
    outcome = run.refined(Task([problem], problem.y, np.zeros_like(problem.y), tolerances))
    return Single(
        problem, clock.perf_counter() - began, kernel, matrix, jitter, outcome, how, np.diagonal(matrix).copy()
    )


def _mirror(matrix: Float[np.ndarray, "n n"]) -> None:
    """Copy the upper triangle to where a factor was, or will be."""
    for start in range(0, len(matrix), _TILE):
        rows = slice(start, start + _TILE)
        for column in range(0, start, _TILE):
            columns = slice(column, column + _TILE)
            matrix[rows, columns] = matrix[columns, rows].T
        corner = np.triu(matrix[rows, rows], 1)
        matrix[rows, rows] = corner + corner.T
