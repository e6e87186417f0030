"""Conjugate gradients on many right-hand sides, preconditioned by random pivots."""

import time as clock
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .._checks import InputError, finite_array, positive, whole
from .._engine import KernelOperator, coarse
from ._large import AbstractLargeSolution, AbstractLargeSolver, Watch, with_ridge
from ._pivots import Pivots
from ._preconditioner import Preconditioner, operator_pivots
from ._run import Inverse, Limits, Outcome, Run, Task
from ._solvers import Problem, Report, with_other_copies

_FEWEST, _MOST, _SHARE = 100, 1000, 30  # pivots: a thirtieth of the rows, within these
_PROBES, _PROBED = 16, 0.1  # random vectors for the diagonal of the inverse: their number errs more than their residual
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class ConjugateGradients(AbstractLargeSolver):
    """`(K + ridge / w) a = y` by products with the kernel, of which one triangle is kept while it fits.

    In float32, or in 16 bits an entry: then some products with entries that are computed again, or read from a store,
    mend what rounding has left, as far as the ridge is above it.

    Args:
        tolerance: of `|A a - y| / |y|`, for each column of `y`. Float32 products reach about 1e-5; beyond, residuals
            are computed in float64 and the rest is solved for again.
        rank: pivots of the preconditioner; None: a thirtieth of the rows, from 100 to 1000.
        iterations: at the most.
        held: rows, drawn at random, whose error stops the iterations when it no longer falls: they are left out until
            then, which costs no product, and learned afterwards to the residual that was reached.
        start: coefficients to begin with, `(n, k)`, such as those of an `Interrupted`.
        seed: of pivots, of held rows and of the probes of leave-one-out.
        progress: called after every iteration, with a forecast of how many there will be.

    >>> import everwide.spectral as sp, numpy as np
    >>> x = np.linspace(0, 1, 200)
    >>> kernel = np.exp(-np.abs(x[:, None] - x))
    >>> solution = sp.solve(kernel, np.sin(x), ridge=0.1, solver=sp.ConjugateGradients(tolerance=1e-6))
    >>> solution.report.residual < 1e-6
    True

    Preconditioner: Diaz, Epperly, Frangella, Tropp and Webber, "Robust, randomized preconditioning for kernel ridge
    regression" (2023).
    """

    tolerance: float = 1e-4
    rank: int | None = None
    iterations: int = 500
    held: int = 0
    start: Any = None
    seed: int = 0
    progress: Watch | None = field(default=None, repr=False)

    def pivots_of(self, n: int) -> int:
        """How many pivots `n` rows get."""
        rank = min(max(n // _SHARE, _FEWEST), _MOST) if self.rank is None else whole(self.rank, "rank")
        return min(rank, n)

    def __call__(self, kernel: KernelOperator, problem: Problem) -> "Iterated":
        began, n = clock.perf_counter(), len(kernel)
        held, _, _ = (
            whole(self.held, "held", 0),
            whole(self.iterations, "iterations"),
            positive(self.tolerance, "tolerance"),
        )
        if held > n // 2:
            raise InputError(f"held={held}: expected at most half of the {n} rows. Hold out a few hundred.")
        kernel.refuse_twins(problem.ridge)
        pivots = operator_pivots(kernel, self.pivots_of(n), self.seed)
        began_with = _started(self.start, problem.y)

        def near(noise: np.ndarray, there: np.ndarray | None) -> Inverse:
            return Preconditioner.of(pivots, noise, there).solve

        run = Run(kernel, near, Limits(self.iterations, held, self.seed, self.progress), began, coarse(kernel))
        task = Task([problem], problem.y, began_with, np.full(problem.y.shape[1], self.tolerance))
        if not held:
            outcome = run.refined(task)
            return Iterated(problem, clock.perf_counter() - began, kernel, outcome, run, pivots, self)
        first = run.until_held_out_stops(task)
        task = task._replace(start=first.x, tolerances=np.maximum(first.residuals, task.tolerances))
        outcome = run.refined(task)
        by = first.stopped_by if outcome.stopped_by == "residual" else outcome.stopped_by
        outcome = outcome._replace(
            iterations=first.iterations + outcome.iterations, stopped_by=by, held_out=first.held_out
        )
        return Iterated(problem, clock.perf_counter() - began, kernel, outcome, run, pivots, self)


@dataclass(frozen=True)
class Iterated(AbstractLargeSolution):
    """Made by `ConjugateGradients`. Leave-one-out is estimated, from the inverse's diagonal by random probes."""

    outcome: Outcome
    run: Run
    chosen: Pivots
    how: ConjugateGradients

    def fitted(self) -> Float[np.ndarray, "n k"]:
        return self.outcome.x

    @property
    def centres(self) -> Int[np.ndarray, " n"]:
        return np.arange(len(self.kernel))

    @property
    def pivots(self) -> Int[np.ndarray, " r"]:
        """Rows of the preconditioner: as many that stand for all."""
        return self.chosen.rows

    @property
    def noise(self) -> Float[np.ndarray, " n"]:
        """What was added to the diagonal of the kernel."""
        return self.problem.ridge / self.problem.weights

    @cached_property
    def estimated_precision(self) -> Float[np.ndarray, " n"]:
        """The diagonal of `A^-1`: that of the preconditioner, and by random signs what it is off; within its bounds.

        Bekas, Kokiopoulou and Saad (2007).
        """
        n, rng = len(self.kernel), np.random.default_rng(self.how.seed)
        signs = 2.0 * rng.integers(0, 2, (n, _PROBES)) - 1
        near = Preconditioner.of(self.chosen, self.noise)
        start = near.solve(signs)
        quiet = replace(self.run, how=self.run.how._replace(progress=None))
        task = Task([self.problem], signs, start, np.full(_PROBES, _PROBED))
        precision = near.precision() + np.mean(signs * (quiet.refined(task).x - start), axis=1)
        most = 1 / np.maximum(self.noise, _TINY)
        return np.clip(precision, 1 / (self.kernel.diagonal() + self.noise), most)

    def left_out(self) -> Float[np.ndarray, "n k"]:
        y, precision = self.problem.y, self.estimated_precision
        without = y - self.coefficients / precision[:, None]
        return with_other_copies(without, y, self.noise * precision, self.problem.copies)

    def predict(self, new: np.ndarray) -> Float[np.ndarray, "new k"]:
        return self.kernel.predict(new, self.coefficients)

    def along(self, ridges: Sequence[float]) -> "list[Iterated]":
        """All columns of all ridges are multiplied together."""
        problems = [with_ridge(self.problem, ridge) for ridge in ridges]
        many, k = len(problems), self.problem.y.shape[1]
        y, start = np.tile(self.problem.y, (1, many)), np.tile(self.coefficients, (1, many))
        run = replace(self.run, began=clock.perf_counter())
        outcome = run.refined(Task(problems, y, start, np.full(many * k, self.how.tolerance)))
        parts = [slice(i * k, (i + 1) * k) for i in range(many)]
        each = [outcome._replace(x=outcome.x[:, part], residuals=outcome.residuals[part]) for part in parts]
        seconds = clock.perf_counter() - run.began
        tail = (run, self.chosen, self.how)
        return [Iterated(p, seconds, self.kernel, one, *tail) for p, one in zip(problems, each, strict=True)]

    @property
    def report(self) -> Report:
        fast, outcome = self.run.fast, self.outcome
        kept = self.kernel.bytes if self.kernel.keeps else 0 if fast is None else fast.bytes
        held, name = kept + self.chosen.features.nbytes, "conjugate gradients" + ", 16 bits" * (fast is not None)
        residual = float(outcome.residuals.max())
        return Report(
            name, residual, outcome.iterations, 0.0, self.seconds, held,
            "estimated", outcome.stopped_by, outcome.held_out,
        )  # fmt: skip


def _started(start: Any, y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    if start is None:
        return np.zeros_like(y)
    begin = finite_array(start, "start")
    if begin.shape != y.shape:
        raise InputError(f"start has shape {begin.shape}, expected {y.shape}, as the targets.")
    return begin
