"""Follow conjugate gradients: repeated until the residual is what was asked for, told, stopped, interrupted."""

import math
import time as clock
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._engine import Coarse, KernelOperator, Progress
from ._descent import Step, System, descend
from ._large import Interrupted, Watch
from ._solvers import Problem

_EXACT = 1e-4  # tolerances below this are checked with products in float64, and mended
_STALLED = 0.5  # a repetition that gains less than this factor ends
_BETTER, _PATIENCE = 1e-3, 3  # the part by which a held-out error must fall, within so many iterations
_SAFETY, _COARSE = 0.9, 0.5  # of the tolerance: what is summed up on the way is not quite the residual; in 16 bits
_RECENT = 5  # iterations from which the number that is left is forecast
_TINY = float(np.finfo(np.float64).tiny)
Inverse = Callable[[np.ndarray], np.ndarray]
Near = Callable[[np.ndarray, np.ndarray | None], Inverse]  # of the noise of rows, and of which rows are there


class Limits(NamedTuple):
    """Iterations at the most, rows to hold out, the seed of their draw, and who is told."""

    iterations: int
    held: int
    seed: int
    progress: Watch | None


class Task(NamedTuple):
    """Columns to solve for: those of each problem beside those of the next; all have the same rows and weights."""

    problems: list[Problem]
    y: Float[np.ndarray, "n c"]
    start: Float[np.ndarray, "n c"]
    tolerances: Float[np.ndarray, " c"]

    def noise(self) -> Float[np.ndarray, "n c"]:
        """That of each column."""
        many = self.y.shape[1] // len(self.problems)
        each = [np.repeat((p.ridge / p.weights)[:, None], many, axis=1) for p in self.problems]
        return np.concatenate(each, axis=1)


class Outcome(NamedTuple):
    x: Float[np.ndarray, "n c"]
    residuals: Float[np.ndarray, " c"]
    iterations: int
    stopped_by: str
    held_out: float = math.nan


@dataclass(frozen=True)
class Run:
    """One kernel with what inverts it nearly: descents from several beginnings."""

    kernel: KernelOperator
    near: Near
    how: Limits
    began: float
    fast: Coarse | None = None  # the kernel in few bits, where it does not fit in more

    def system(self, task: Task, there: np.ndarray | None = None) -> System:
        """The matrices of all columns, with their preconditioners."""
        each = [self.near(p.ridge / p.weights, there) for p in task.problems]

        def inverse(b: np.ndarray) -> np.ndarray:
            parts = np.split(b, len(each), axis=1)
            return np.concatenate([one(part) for one, part in zip(each, parts, strict=True)], axis=1)

        return System(self.kernel, self.kernel if self.fast is None else self.fast, task.noise(), inverse, there)

    def refined(self, task: Task) -> Outcome:
        """Descents, each for what the one before has left, until the residual is what was asked for."""
        system, safety = self.system(task), _SAFETY if self.fast is None else _COARSE
        exact = np.float64 if task.tolerances.min() < _EXACT else np.float32
        sizes = np.maximum(np.linalg.norm(task.y, axis=0), _TINY)
        x, done, before = task.start.copy(), 0, math.inf
        rest = task.y - system.product(x, exact) if x.any() else task.y.copy()
        residuals = np.linalg.norm(rest, axis=0) / sizes
        while (open_ := (residuals > task.tolerances).any()) and done < self.how.iterations:
            far = float((residuals / task.tolerances).max())
            if far > _STALLED * before:
                break
            before = far
            goal = safety * task.tolerances * sizes / np.maximum(np.linalg.norm(rest, axis=0), _TINY)
            step = self._followed(descend(system, rest, goal), goal, done, x)
            done += max(step.iterations, 1)
            new = x + step.x
            left = task.y - system.product(new, exact)
            after = np.linalg.norm(left, axis=0) / sizes
            better = after < residuals  # where rounding has led astray, what was there before stays
            x, rest = np.where(better, new, x), np.where(better, left, rest)
            residuals = np.minimum(after, residuals)
        by = "residual" if not open_ else "iterations" if done >= self.how.iterations else "rounding"
        return Outcome(x, residuals, done, by)

    def until_held_out_stops(self, task: Task) -> Outcome:
        """A descent without some rows, until their error no longer falls."""
        away = np.random.default_rng(self.how.seed).choice(len(self.kernel), self.how.held, replace=False)
        there = np.ones(len(self.kernel), bool)
        there[away] = False
        errors, weights = [], task.problems[0].weights[away]

        def stops(predicted: np.ndarray) -> bool:
            errors.append(float(np.average(np.mean((task.y[away] - predicted[away]) ** 2, axis=1), weights=weights)))
            early = min(errors[:-_PATIENCE], default=math.inf)
            return len(errors) > _PATIENCE and min(errors[-_PATIENCE:]) > (1 - _BETTER) * early

        y = np.where(there[:, None], task.y, 0.0)
        steps = descend(self.system(task, there), y, task.tolerances)
        outcome = self._followed(steps, task.tolerances, 0, np.zeros_like(y), stops)
        return outcome._replace(held_out=errors[-1])

    def _followed(
        self,
        steps: Iterator[Step],
        goal: Float[np.ndarray, " c"],
        done: int,
        base: Float[np.ndarray, "n c"],
        stops: Callable[[np.ndarray], bool] | None = None,
    ) -> Outcome:
        """A descent to its end, told and limited."""
        x, history, by = np.zeros_like(base), [np.ones(base.shape[1])], "residual"
        try:
            for step in steps:
                x = step.x
                history.append(step.residuals)
                self._tell(history, goal, done)
                if stops is not None and stops(step.seen):
                    by = "held-out error"
                    break
                if done + len(history) > self.how.iterations:
                    by = "iterations"
                    break
        except KeyboardInterrupt:
            raise Interrupted(
                f"Stopped after {done + len(history) - 1} iterations, with {history[-1].max():.1e} of the residual "
                "that it began with. Go on with ConjugateGradients(start=...): the coefficients of this exception.",
                base + x,
            ) from None
        return Outcome(x, history[-1], len(history) - 1, by)

    def _tell(self, history: list[np.ndarray], goal: np.ndarray, done: int) -> None:
        """Iterations so far, and how many there will be at the rate of the last ones."""
        if self.how.progress is None:
            return
        since = min(len(history), _RECENT)
        far = [max(float((one / goal).max()), _TINY) for one in (history[-since], history[-1])]
        rate = math.log(far[0] / far[1]) / (since - 1)
        more = math.ceil(max(math.log(far[1]), 0.0) / rate) if rate > 0 else self.how.iterations
        now = done + len(history) - 1
        total = max(min(now + more, self.how.iterations), now)
        self.how.progress(Progress(now, total, clock.perf_counter() - self.began))
