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
from ._large import AbstractLargeSolution, AbstractLargeSolver, Interrupted, Watch, with_ridge
from ._pivots import Pivots
from ._preconditioner import Preconditioner, operator_pivots
from ._probes import Probes
from ._run import Inverse, Limits, Outcome, Run, Task
from ._solvers import Problem, Report, with_other_copies

_FEWEST, _MOST, _SHARE = 100, 1000, 30  # pivots: a thirtieth of the rows, within these


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
        left_out: whether leave-one-out will be asked for: it is then estimated on the way, in the same products.
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
    left_out: bool = False
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
        pivots, noise = operator_pivots(kernel, self.pivots_of(n), self.seed), problem.ridge / problem.weights
        everyone = Preconditioner.of(pivots, noise)

        def near(other: np.ndarray, there: np.ndarray | None) -> Inverse:
            same = there is None and np.array_equal(other, noise)
            return (everyone if same else Preconditioner.of(pivots, other, there)).solve

        run = Run(kernel, near, Limits(self.iterations, held, self.seed, self.progress), began, coarse(kernel))
        start, tolerances = _started(self.start, problem.y), np.full(problem.y.shape[1], self.tolerance)
        task, first = Task([problem], problem.y, start, tolerances), None
        if held:
            first = run.until_held_out_stops(task)
            task = task._replace(start=first.x, tolerances=np.maximum(first.residuals, tolerances))
        precision = None
        if self.left_out:
            outcome, precision = _with_probes(run, task, Probes.of(everyone, self.seed))
        else:
            outcome = run.refined(task)
        outcome = outcome if first is None else _after(first, outcome)
        return Iterated(problem, clock.perf_counter() - began, kernel, outcome, run, pivots, self, precision)


def _with_probes(run: Run, task: Task, probes: Probes) -> tuple[Outcome, Float[np.ndarray, " n"]]:
    """Targets and probes together; and the diagonal of the inverse."""
    targets, problem = slice(task.y.shape[1]), task.problems[0]
    try:
        outcome = run.refined(probes.beside(task))
    except Interrupted as stop:
        stop.coefficients = stop.coefficients[:, targets]
        raise
    precision = probes.precision(outcome.x[:, targets.stop :], run.kernel, problem.ridge / problem.weights)
    return outcome._replace(x=outcome.x[:, targets], residuals=outcome.residuals[targets]), precision


def _after(first: Outcome, outcome: Outcome) -> Outcome:
    """What was learned with all rows, after a descent that held-out rows have stopped."""
    by = first.stopped_by if outcome.stopped_by == "residual" else outcome.stopped_by
    return outcome._replace(iterations=first.iterations + outcome.iterations, stopped_by=by, held_out=first.held_out)


@dataclass(frozen=True)
class Iterated(AbstractLargeSolution):
    """Made by `ConjugateGradients`. Leave-one-out is estimated, from the inverse's diagonal by random probes."""

    outcome: Outcome
    run: Run
    chosen: Pivots
    how: ConjugateGradients
    precision: Float[np.ndarray, " n"] | None = None  # the diagonal of the inverse, if it was asked for on the way

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
        """The diagonal of `A^-1`, as it was estimated on the way, or now."""
        if self.precision is not None:
            return self.precision
        probes = Probes.of(Preconditioner.of(self.chosen, self.noise), self.how.seed)
        quiet = replace(self.run, how=self.run.how._replace(progress=None))
        empty = np.zeros((len(self.kernel), 0))
        none = Task([self.problem], empty, empty, np.zeros(0))
        return _with_probes(quiet, none, probes)[1]

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
