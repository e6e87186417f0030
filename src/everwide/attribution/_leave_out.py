"""Kernel machines without some of their rows, in closed form."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from .._checks import InputError, finite_array
from .._engine import require
from .._losses import AbstractLoss, Loss, Mse, as_loss
from ..spectral import Factor, solve
from ._result import Attribution, wide_targets


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Predictions of a kernel machine that has not learned from some of its rows. Made by `leave_out`.

    - `groups`: the names of what is left out, in the order of all columns here; without groups, the places of rows.
    - `full`: `(tests, *outputs)`, with all rows.
    - `predictions`: `(tests, groups, *outputs)`, without each group.
    - `own`: `(rows, *outputs)`, of every training row without its own group.
    - `fitted`: `(rows, *outputs)`, of every training row with all rows.
    """

    groups: np.ndarray
    full: Float[np.ndarray, "tests *outputs"]
    predictions: Float[np.ndarray, "tests groups *outputs"]
    own: Float[np.ndarray, "rows *outputs"]
    fitted: Float[np.ndarray, "rows *outputs"]
    y: Float[np.ndarray, "rows *outputs"]
    places: Int[np.ndarray, " rows"]  # the group of each row

    def attribution(self, y_test: Any, *, loss: Loss | None = None) -> Attribution:
        """By how much losses rise without each group.

        Args:
            y_test: targets of the test rows.
            loss: of `everwide.training`, or a function of the outputs and the target of a row; None: `Mse()`.

        Returns:
            `scores` `(tests, groups)`; `losses` and `self_influence` `(groups,)`, means over the rows of each group;
            `top` and `suspects`.

        >>> import everwide.attribution as at, numpy as np
        >>> without = at.leave_out(np.eye(3), [1.0, 2.0, 3.0], np.eye(3)[:1], ridge=1.0)
        >>> without.attribution([1.0]).scores  # without row 0 the prediction is 0, with it 0.5
        array([[0.375, 0.   , 0.   ]])

        """
        full, without = (a.reshape(*a.shape[:kept], -1) for a, kept in ((self.full, 1), (self.predictions, 2)))
        law, (tests, k) = as_loss(Mse() if loss is None else loss), full.shape
        targets = wide_targets(law, y_test, k, ("y_test", "kernel_test", tests))
        trained = wide_targets(law, self.y, k, ("y", "kernel", len(self.y)))
        with jax.enable_x64(True):  # differences of losses
            scores = np.asarray(_losses(law, without, targets) - _losses(law, full[:, None], targets))
            own, fitted = (_losses(law, a.reshape(-1, 1, k), trained)[:, 0] for a in (self.own, self.fitted))
        return Attribution(scores, self._means(np.asarray(fitted)), self._means(np.asarray(own - fitted)))

    def _means(self, values: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " groups"]:
        return np.bincount(self.places, values) / np.bincount(self.places)


@eqx.filter_jit
def _losses(law: AbstractLoss, outputs: Any, targets: Any) -> Float[Array, "n groups"]:
    """Of rows, for the outputs `(n, groups, k)`."""
    return jax.vmap(jax.vmap(law, (0, None)))(outputs, targets)


def leave_out(
    kernel: Any, y: Any, kernel_test: Any, *, groups: Any = None, ridge: float = 0.0, weights: Any = None
) -> LeftOut:
    """What kernel ridge regression would predict without a row, or without a group of rows: for all of them, exactly.

    One factorization serves all: with `A = K + ridge / w` and `a = A^-1 y`, leaving out the rows `G` moves a prediction
    by `-(k A^-1)_G (A^-1)_GG^-1 a_G`.

    Args:
        kernel: `(n, n)`, of the training rows.
        y: targets, `(n,)` or `(n, outputs)`.
        kernel_test: `(tests, n)`, of the test rows with the training rows.
        groups: `(n,)`, the group of each row, numbers or text: a source, a patient, a labeller. None: every row alone.
        ridge: absolute, added to the diagonal.
        weights: `(n,)`, above 0: a row of weight `w` counts as `w` rows, and is left out with all of its weight.

    Returns:
        `predictions` `(tests, groups, *outputs)`; `full`, with all rows; `own` and `fitted`, training rows without
        their group and with it; `groups`, the names in the order of the columns; and `attribution(y_test, loss=...)`,
        by how much losses rise: `scores`, `losses`, `self_influence`, `top`, `suspects`.

    >>> import everwide.attribution as at, numpy as np
    >>> kernel, y = np.eye(3) + 1, np.array([1.0, 2.0, 3.0])
    >>> without = at.leave_out(kernel, y, kernel[:1], ridge=1.0)
    >>> without.full, without.predictions
    (array([1.1]), array([[1.25 , 1.   , 0.875]]))
    >>> at.leave_out(kernel, y, kernel[:1], groups=["a", "a", "b"], ridge=1.0).predictions
    array([[1.   , 0.875]])

    """
    solution = solve(kernel, y, ridge=ridge, weights=weights)
    targets, coefficients = solution.problem.y, solution.coefficients
    n, tests = len(targets), finite_array(kernel_test, "kernel_test")
    if tests.ndim != 2 or tests.shape[1] != n:
        raise InputError(f"kernel_test has shape {tests.shape}, expected (tests, {n}): with the {n} training rows.")
    names, places = _groups(groups, n)
    way_out = "Pass fewer test rows at a time, or larger groups."
    require(16 * len(tests) * len(names) * targets.shape[1], None, "The predictions without each group", way_out)
    if groups is None:
        residuals = coefficients / solution.precision()[:, None]
    else:
        residuals = _residuals(solution.solve(np.eye(n)), coefficients, places)
    full, reach = tests @ coefficients, np.asarray(solution.solve(tests.T)).T
    members = np.eye(len(names))[places] if groups is not None else None
    moved = [reach * column if members is None else (reach * column) @ members for column in residuals.T]
    outputs = np.shape(y)[1:]
    return LeftOut(
        groups=names,
        full=full.reshape(-1, *outputs),
        predictions=(full[:, None] - np.stack(moved, -1)).reshape(len(tests), len(names), *outputs),
        own=(targets - residuals).reshape(-1, *outputs),
        fitted=(targets - solution.noise[:, None] * coefficients).reshape(-1, *outputs),
        y=targets.reshape(-1, *outputs),
        places=places,
    )


def _residuals(
    inverse: Float[np.ndarray, "n n"], coefficients: Float[np.ndarray, "n k"], places: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n k"]:
    """`y - prediction` of every row without its group: `(A^-1)_GG^-1 a_G`."""
    residuals, order = np.empty_like(coefficients), np.argsort(places, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(places[order])) + 1):
        block = inverse[np.ix_(rows, rows)]
        factor = Factor.of((block + block.T) / 2, what="The inverse kernel of a group")
        residuals[rows] = factor.solve(coefficients[rows])
    return residuals


def _groups(groups: Any, n: int) -> tuple[np.ndarray, Int[np.ndarray, " n"]]:
    """Names, and the group of each row."""
    if groups is None:
        if n == 1:
            raise InputError("There is one training row: without it there is nothing to learn from.")
        return np.arange(n), np.arange(n)
    given = np.asarray(groups)
    if given.shape != (n,):
        raise InputError(f"groups have shape {given.shape}, expected ({n},): the group of each training row.")
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise InputError(f"groups hold {given[~np.isfinite(given)][0]}: expected a name for each row.")
    names, places = np.unique(given, return_inverse=True)
    if len(names) == 1:
        raise InputError(f"All {n} rows are in the group {names[0]!r}: without it there is nothing to learn from.")
    return names, places
