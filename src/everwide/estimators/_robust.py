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
_ASIDE = 2.0  # standard deviations of how many more of them lie above than below, if either is as likely
_MEAN = 1.64  # standard errors of the mean residual, which one in ten means of symmetric laws exceeds
_TINY = 1e-12

Column = Float[np.ndarray, " m"]


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
    heavy = np.sum(squares - np.minimum(squares, limit**2), axis=0) > _HEAVY * np.sum(squares, axis=0)
    if not heavy.any() or len(rows) < _FEWEST or goal.stops:
        return None
    kernel, said = reader.among(some.x), left_out
    for _ in range(_ROUNDS):
        near = some._replace(y=said + np.clip(some.y - said, -limit, limit))
        solution, scale, _ = best_ridge(kernel.copy(), near, goal, ridge, lambda one, near=near: goal.mean(one, near))
        said = solution.left_out()
        limit = _limit(some.y - said, some.copies)
    outputs = zip(some.y.T, left_out.T, said.T, limit, strict=True)
    pays = heavy & [_pays(some, y, plain, robust, float(edge)) for y, plain, robust, edge in outputs]
    if not pays.any():
        return None
    everywhere = np.empty_like(task.y)
    others = np.setdiff1d(np.arange(len(task.x)), rows)
    for part in batches(len(others), len(rows)):
        at = others[part]
        everywhere[at] = reader.cross(task.x[at], some.x, np.float64) @ (solution.coefficients / scale)
    everywhere[rows] = said
    apart = task.y - everywhere
    return np.where(pays & (np.abs(apart) > limit), everywhere + np.clip(apart, -limit, limit), task.y)


def _limit(residuals: Float[np.ndarray, "m k"], copies: Float[np.ndarray, " m"]) -> Float[np.ndarray, " k"]:
    return _LIMIT * np.maximum(weighted_quantile(np.abs(residuals), copies, 0.5) / _GAUSSIAN, _TINY)


def _pays(some: Task, y: Column, plain: Column, robust: Column, limit: float) -> bool:
    """Whether few targets are concerned, and Huber's loss of rows left out is clearly less, the squared one no more.

    Of targets whose law is skewed, not spoiled, the mean would be lost: what lies far off then lies on one side. Where
    rows that lie far off are neighbours, something is there to be learned.
    """
    weights, apart = some.weights, y - robust
    before, after = _huber(y - plain, limit), _huber(apart, limit)
    gain, whole = (np.average(part, weights=weights) for part in (before - after, before))
    far = np.abs(apart) > limit
    few = np.average(far, weights=weights) <= _MOST
    better = np.average((y - plain) ** 2 - apart**2, weights=weights) > 0
    clear = gain > _GAIN * whole and is_clear(before - after, weights, errors=_ERRORS)
    return bool(few and _even(apart, weights, limit) and better and clear and not told(some.x, far))


def _even(apart: Column, weights: Column, limit: float) -> bool:
    """Whether targets lie far off on both sides, and what is left has no mean."""
    above, below = int(np.count_nonzero(apart > limit)), int(np.count_nonzero(apart < -limit))
    both = min(above, below) >= 1 and abs(above - below) <= _ASIDE * np.sqrt(above + below)
    return bool(both and not any(is_clear(side, weights, errors=_MEAN) for side in (apart, -apart)))


def _huber(residuals: Column, limit: float) -> Column:
    size = np.abs(residuals)
    return np.where(size <= limit, size**2, (2 * size - limit) * limit)
