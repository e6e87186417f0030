"""Kernel regression on a task, in units of the kernel, and its best ridge."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .._engine import KernelOperator, RowBlocks
from ..spectral import Leaves, solve
from ._choice import Goal, Task
from ._readers import Looking

RIDGES = 10.0 ** np.arange(-9, 1.01, 0.5)
_SMALL_LEAF, HUGE = 1000, 100_000  # rows of a leaf where there are more rows than this
_SMALL_OVERLAP = 0.04  # of nodes there: shared rows grow with each split, by half in ten
_STEP, _MOST_STEPS = 10**0.5, 8  # of a walk over ridges


def solved(kernel: np.ndarray, task: Task, scale: float | None = None, **how: Any) -> tuple[Any, float]:
    """A solution in units of the kernel's mean diagonal, and that; the kernel is used up."""
    unit = float(np.average(np.diagonal(kernel), weights=task.weights)) if scale is None else scale
    unit = unit if unit > 0 else 1.0
    kernel /= unit
    return solve(kernel, task.y, weights=task.weights, copies=task.left, overwrite=True, **how), unit


def points(goal: Goal) -> list[tuple[float, float]]:
    """Ridges and times to compare."""
    if goal.stops:
        return [(0.0, float(goal.time or 0.0))]
    return [(float(ridge), np.inf) for ridge in (RIDGES if goal.ridge is None else [goal.ridge])]


def all_ridges(kernel: np.ndarray, task: Task, goal: Goal) -> tuple[list[Any], float]:
    """Solutions at all points to compare, from one decomposition; and the scale. The kernel is used up."""
    base, scale = solved(kernel, task, solver="eigen")
    return [base.at(*point) for point in points(goal)], scale


def best_ridge(
    kernel: np.ndarray, task: Task, goal: Goal, start: float, score: Callable[[Any], float]
) -> tuple[Any, float, int]:
    """Downhill from a relative ridge, one factorization a step: the solution, the scale, and how many were tried."""
    if goal.stops or goal.ridge is not None:
        (solution, *_), scale = all_ridges(kernel, task, goal)
        return solution, scale, 1
    tried: dict[int, tuple[float, Any]] = {}
    scale = 1.0

    def at(step: int) -> float:
        nonlocal scale
        if step not in tried:
            solution, scale = solved(kernel.copy(), task, ridge=max(start * _STEP**step, RIDGES[0]))
            tried[step] = score(solution), solution
        return tried[step][0]

    way = 1 if at(1) < at(0) else -1
    best = max(0, way)
    while at(best + way) < at(best) and abs(best) < _MOST_STEPS:
        best += way
    return tried[best][1], scale, len(tried)


def ridge_of_neighbours(
    reader: Looking, task: Task, goal: Goal, start: float, unseen: Int[np.ndarray, " m"], size: int
) -> float:
    """The best relative ridge for rows that lie as near to each other as all do: those around one of them.

    That one is as far from the middle as half of the rows are.
    """
    seen = reader.view(task.x)
    out = np.sum((seen - np.median(seen, 0)) ** 2, 1)
    one = seen[np.argpartition(out, len(out) // 2)[len(out) // 2]]
    near = np.sort(np.argpartition(np.sum((seen - one) ** 2, 1), size - 1)[:size])
    some, judged = task.rows(near), np.flatnonzero(np.isin(near, unseen))

    def score(solution: Any) -> float:
        return float(np.average(goal.score(solution, some)[judged], weights=some.weights[judged]))

    return float(best_ridge(reader.among(some.x), some, goal, start, score)[0].ridge) if len(judged) else start


def solved_in_leaves(reader: Looking, task: Task, ridge: float, leaf: int) -> tuple[Any, float]:
    """For so many rows that neighbours are enough: leaf by leaf; and the mean of the kernel's diagonal.

    Leaves are cut across the directions in which rows are far apart as the network sees them.
    """
    unit = float(np.average(reader.diagonal(task.x), weights=task.weights))
    leaves = Leaves(size=leaf, view=reader.view)
    if len(task.x) > HUGE:
        leaves = replace(leaves, size=min(leaf, _SMALL_LEAF), overlap=_SMALL_OVERLAP)
    kernel = KernelOperator(RowBlocks(reader, task.x))
    solution = solve(kernel, task.y, ridge=ridge * unit, weights=task.weights, copies=task.left, solver=leaves)
    return solution, unit


def squared_error(solution: Any, task: Task) -> Float[np.ndarray, " n"]:
    """Of every row, predicted from all others."""
    return np.sum((task.y - solution.left_out()) ** 2, axis=1)
