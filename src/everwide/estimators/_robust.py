"""Targets far from what all other rows say of them: drawn near, where rows that are left out are predicted better so.

This is Huber's loss (1964), minimized through pseudo-values: each target becomes its prediction from all other rows and
as much of its residual as the loss listens to; then all is solved again.
"""

import numpy as np
from jaxtyping import Float, Int

from ._absurd import told
from ._choice import Goal, Task, is_clear
from ._readers import Reader, batches
from ._solve import best_ridge
from ._uncertainty import weighted_quantile

_LIMIT = 3.0  # standard deviations of a Gaussian, read from the median residual
_GAUSSIAN = 0.6745  # half of a Gaussian's values are within so many standard deviations
_ROUNDS = 4
_FEWEST = 100  # rows: of fewer, a jump that few of them show looks like a target that is wrong
_MOST = 0.2  # of them drawn near: more are no exceptions
_HEAVY = 0.5  # of all squared residuals lies beyond the limit: otherwise there is little to gain
_GAIN, _ERRORS = 0.07, 2.0  # of Huber's loss, and by so many standard errors
_TINY = 1e-12


def calmed(
    task: Task,
    rows: Int[np.ndarray, " m"],
    reader: Reader,
    ridge: float,
    left_out: Float[np.ndarray, "m k"],
    goal: Goal,
) -> Float[np.ndarray, "n k"] | None:
    """All targets, those drawn near that lie far off; `None` where that does not pay.

    Args:
        task: all rows.
        rows: those on which it is decided.
        reader: the kernel of a simple network,
        ridge: its ridge, to begin with,
        left_out: and what it says of these rows, each predicted from all others.
        goal: what is asked.

    """
    some = task.rows(rows)
    limit, squares = _limit(some.y - left_out, some.copies), (some.y - left_out) ** 2
    heavy = np.sum(squares - np.minimum(squares, limit**2)) > _HEAVY * np.sum(squares)
    if not heavy or len(rows) < _FEWEST or goal.stops:
        return None
    kernel, said = reader.among(some.x), left_out
    for _ in range(_ROUNDS):
        near = some._replace(y=said + np.clip(some.y - said, -limit, limit))
        solution, scale, _ = best_ridge(kernel.copy(), near, goal, ridge, lambda one, near=near: goal.mean(one, near))
        said = solution.left_out()
        limit = _limit(some.y - said, some.copies)
    if not _pays(some, left_out, said, limit):
        return None
    everywhere = np.empty_like(task.y)
    others = np.setdiff1d(np.arange(len(task.x)), rows)
    for part in batches(len(others), len(rows)):
        at = others[part]
        everywhere[at] = reader.cross(task.x[at], some.x, np.float64) @ (solution.coefficients / scale)
    everywhere[rows] = said
    apart = task.y - everywhere
    return np.where(np.abs(apart) <= limit, task.y, everywhere + np.clip(apart, -limit, limit))


def _limit(residuals: Float[np.ndarray, "m k"], copies: Float[np.ndarray, " m"]) -> Float[np.ndarray, " k"]:
    return _LIMIT * np.maximum(weighted_quantile(np.abs(residuals), copies, 0.5) / _GAUSSIAN, _TINY)


def _pays(some: Task, plain: np.ndarray, robust: np.ndarray, limit: np.ndarray) -> bool:
    """Whether few targets are concerned, Huber's loss of rows left out is clearly less, and the squared one no more.

    Of targets whose law is skewed, not spoiled, the mean would be lost: the squared error tells. Where rows that lie
    far off are neighbours, something is there to be learned.
    """
    before, after = (_huber(some.y - said, limit) for said in (plain, robust))
    squares = np.sum((some.y - plain) ** 2 - (some.y - robust) ** 2, axis=1)
    far = np.any(np.abs(some.y - robust) > limit, axis=1)
    gain, whole = (np.average(part, weights=some.weights) for part in (before - after, before))
    few, better = np.average(far, weights=some.weights) <= _MOST, np.average(squares, weights=some.weights) > 0
    clear = gain > _GAIN * whole and is_clear(before - after, some.weights, errors=_ERRORS)
    return bool(few and better and clear and not told(some.x, far))


def _huber(residuals: Float[np.ndarray, "m k"], limit: Float[np.ndarray, " k"]) -> Float[np.ndarray, " m"]:
    size = np.abs(residuals)
    return np.sum(np.where(size <= limit, size**2, (2 * size - limit) * limit), axis=1)
