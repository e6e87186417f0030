"""Choose a network, its ridge and its stopping time on training rows alone, and solve for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .._engine import require
from ..layers import AbstractLayer
from ._candidates import Candidate, Kernels, dense_candidates, given_candidate, image_candidates
from ._choice import Choice
from ._modes import Modes, decompose
from ._reader import Field, KernelReader, padded
from ._solution import AbstractSolution, Decomposed, Factored

RIDGES = 10.0 ** np.arange(-9, 1.01, 0.5)
_COMPARED_ROWS, _COMPARED_IMAGES = 1000, 500  # on which networks are compared
_REFINED_ROWS = 5000  # up to which the ridge is chosen again on all rows
_MANY = 200  # rows from which other families of networks and early stopping are tried: fewer tell luck from merit badly
_NEIGHBOURS = 10.0 ** np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
_SAFE_IN_FLOAT32 = 1e-3  # ridges that cover the rounding of float32 kernels
_SMALL = 2000  # rows up to which kernels are computed in float64
# For each pair of rows: a kernel, its copy, its factor and the inverse of that; or what LAPACK decomposes it in.
_BYTES, _BYTES_STOPPED = 28, 48


class Task(NamedTuple):
    """What is to be learned: inputs, scaled targets, weights above 0, of which `copies` are repetitions.

    Inputs are the user's, folded; then scaled; then as the network reads them.
    """

    x: Float[np.ndarray, "n *shape"]
    y: Float[np.ndarray, "n k"]
    weights: Float[np.ndarray, " n"]
    copies: Float[np.ndarray, " n"]


class Goal(NamedTuple):
    """What the user has fixed, `None` is to be chosen; and `score`: for each row, the smaller the better."""

    field: Field
    ridge: float | None
    time: float | None
    score: Callable[[AbstractSolution, Task], Float[np.ndarray, " n"]]
    scored_by: str


@dataclass(frozen=True)
class Learned:
    """A network that has learned a task."""

    reader: KernelReader
    task: Task
    solution: AbstractSolution
    choice: Choice
    dtype: type


class _Scored(NamedTuple):
    candidate: Candidate
    solution: Decomposed
    losses: Float[np.ndarray, " n"]
    mean: float


def show(x: np.ndarray, network: AbstractLayer | None) -> np.ndarray:
    """The inputs as the network reads them: the dense ones that are chosen here have few different widths."""
    return padded(x) if network is None and x.ndim == 2 else x


def squared_error(solution: AbstractSolution, task: Task) -> Float[np.ndarray, " n"]:
    """Of every row, predicted from all others."""
    return np.sum((task.y - solution.left_out()) ** 2, axis=1)


def learn(task: Task, network: AbstractLayer | None, goal: Goal, seed: int) -> Learned:
    """Compare on some rows, then solve on all."""
    n = len(task.x)
    stopped = goal.time is not None and np.isfinite(goal.time)
    require(
        (_BYTES_STOPPED if stopped else _BYTES) * n**2,
        None,
        f"Exact training on {n} rows",
        "Learn from a random part of the rows with max_rows=...; training on more rows than fit is planned.",
    )
    task = task._replace(x=show(task.x, network))
    rows = _compared_rows(task, seed)
    some = Task(*(part[rows] for part in task))
    best, tried = _best(_kernels(some.x, network, goal.field), some, goal)
    if goal.time is None and len(rows) == n and task.copies.sum() >= _MANY:
        best, more = _stopped(best, some, goal)
        tried += more
    reader = KernelReader(best.candidate.network, best.candidate.field, rounds=task.x.ndim == 2)
    exact = best.solution.ridge < _SAFE_IN_FLOAT32 or n <= (_SMALL if task.x.ndim == 2 else _COMPARED_IMAGES)
    dtype = np.float64 if exact else np.float32
    solution, score = best.solution, best.mean
    if len(rows) < n:
        solution, score, more = _on_all(reader, task, best.solution, goal, dtype)
        tried += more
    return Learned(reader, task, solution, _choice(best.candidate, solution, score, tried, n, len(rows), goal), dtype)


def _compared_rows(task: Task, seed: int) -> np.ndarray:
    most = _COMPARED_ROWS if task.x.ndim == 2 else _COMPARED_IMAGES
    n = len(task.x)
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(seed).permutation(n)[:most])


def _kernels(x: np.ndarray, network: AbstractLayer | None, field: Field) -> Kernels:
    if network is not None:
        return given_candidate(network, x, field)
    if x.ndim == 4:
        return image_candidates(x, field)
    if x.ndim == 2:
        return dense_candidates(x, field)
    raise ValueError(
        f"architecture='auto' knows rows (n, features) and images (n, height, width, channels), not {x.shape}. "
        "Pass a network that reads such inputs."
    )


def _best(kernels: Kernels, task: Task, goal: Goal) -> tuple[_Scored, int]:
    """The best candidate of the first family, or of another one if that is clearly better."""
    best: _Scored | None = None
    tried = 0
    for candidate, kernel in kernels:
        if candidate.family and task.copies.sum() < _MANY:
            break
        modes = decompose(kernel, task.y, task.weights, task.copies)
        found = [_scored(candidate, solution, task, goal) for solution in _solutions(modes, goal)]
        tried += len(found)
        for scored in found:
            if best is None or _better(scored, best, task.weights):
                best = scored
    assert best is not None
    return best, tried


def _solutions(modes: Modes, goal: Goal) -> list[Decomposed]:
    if goal.time is not None and np.isfinite(goal.time):
        return [Decomposed(modes, 0.0, goal.time)]
    ridges = RIDGES if goal.ridge is None else [goal.ridge]
    return [Decomposed(modes, float(ridge)) for ridge in ridges]


def _scored(candidate: Candidate, solution: Decomposed, task: Task, goal: Goal) -> _Scored:
    losses = goal.score(solution, task)
    return _Scored(candidate, solution, losses, float(np.average(losses, weights=task.weights)))


def _better(new: _Scored, old: _Scored, weights: np.ndarray) -> bool:
    """Between families, by more than one standard error: comparing more networks must not mean trusting luck."""
    if new.candidate.family == old.candidate.family:
        return new.mean < old.mean
    gain = old.losses - new.losses
    mean = np.average(gain, weights=weights)
    error = np.sqrt(np.average((gain - mean) ** 2, weights=weights) / weights.sum())
    return bool(mean > error)


def _stopped(best: _Scored, task: Task, goal: Goal) -> tuple[_Scored, int]:
    """Training that stops early, if that is clearly better than the best ridge."""
    if goal.ridge is not None:
        return best, 0
    modes = best.solution.modes
    found = [_scored(best.candidate, Decomposed(modes, 0.0, 1 / ridge), task, goal) for ridge in RIDGES[::2]]
    first = min(found, key=lambda scored: scored.mean)
    other = first._replace(candidate=first.candidate._replace(family=-1))
    return (first if _better(other, best, task.weights) else best), len(found)


def _on_all(
    reader: KernelReader, task: Task, chosen: Decomposed, goal: Goal, dtype: type
) -> tuple[AbstractSolution, float, int]:
    """Solve for all rows; the ridge may move to a neighbour."""
    kernel = reader.among(task.x, dtype)
    mean = lambda solution: float(np.average(goal.score(solution, task), weights=task.weights))
    if np.isfinite(chosen.time):
        solution = Decomposed(decompose(kernel, task.y, task.weights, task.copies), 0.0, chosen.time)
        return solution, mean(solution), 1
    moves = _NEIGHBOURS if goal.ridge is None and len(task.x) <= _REFINED_ROWS else np.ones(1)
    best, score = None, np.inf
    for move in moves:
        taken = kernel.copy() if len(moves) > 1 else kernel
        solution = Factored.of(taken, task.y, task.weights, task.copies, chosen.ridge * move)
        found = mean(solution)
        if best is None or found < score:
            best, score = solution, found
    assert best is not None
    return best, score, len(moves)


def _choice(
    candidate: Candidate, solution: AbstractSolution, score: float, tried: int, rows: int, compared: int, goal: Goal
) -> Choice:
    assert isinstance(solution, Decomposed | Factored)
    return Choice(
        description=candidate.description,
        depth=candidate.depth,
        activation=candidate.activation,
        frozen=candidate.frozen,
        kernel=candidate.field,
        ridge=float(solution.ridge),
        time=float(solution.time) if isinstance(solution, Decomposed) else np.inf,
        score=score,
        scored_by=goal.scored_by,
        jitter=float(solution.jitter),
        tried=tried,
        rows=rows,
        rows_compared=compared,
    )
