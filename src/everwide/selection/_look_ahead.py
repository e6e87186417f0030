"""What a model would predict if it had learned one row more: all candidates, with all their possible labels."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax

from .._checks import InputError, finite_array, not_negative
from .._engine import require
from ..spectral import Factor

_TILE = 1 << 26  # bytes of predictions that exist at a time
_MOST_LABELS = 64  # that are read off the targets, unless somebody lists them
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class LookAhead:
    """Models that have learned one candidate more than the labelled rows. Made by `look_ahead`.

    The one that learned candidate `j` with the label `y` predicts `f(i) + C(i, j) (C(j, j) + ridge)^-1 (y - f(j))`,
    where `f` and the covariance `C` are those of the pool given the labelled rows. A kernel with axes of outputs has
    blocks `C(i, j)`; without, all outputs share it.
    """

    before: Float[np.ndarray, "pool k"]
    candidates: Float[np.ndarray, "u k"]  # predictions at the candidates, which look_ahead makes the pool
    covariance: Float[np.ndarray, "pool u *blocks"]
    own: Float[np.ndarray, "u *blocks"]  # of each candidate with itself
    labels: Float[np.ndarray, "l k"]
    ridge: float
    spread: float

    @property
    def predictions(self) -> Float[np.ndarray, "u l pool k"]:
        """Of the model that had learned the candidate with the label, at every row of the pool."""
        size = 8 * len(self.candidates) * len(self.labels) * self.before.size
        require(size, None, f"Predictions of {len(self.candidates)} models", "Read scores, or take fewer candidates.")
        return np.concatenate([self.before + moved for _, moved in self._moves(self._surprise())])

    def probabilities(self, outputs: Float[np.ndarray, "*any k"] | None = None) -> Float[np.ndarray, "*any l"]:
        """Of the labels, at the candidates, or where the model predicts `outputs`.

        As if targets were Gaussian around predictions, with the mean squared leave-one-out error of the labelled rows.
        """
        outputs = self.candidates if outputs is None else outputs
        return softmax((outputs @ self.labels.T - np.sum(self.labels**2, axis=1) / 2) / self.spread, axis=-1)

    def mlmoc(self) -> Float[np.ndarray, " u"]:
        """By how much predictions change in all, `sum_i |f(i) - f_new(i)|`, with the most likely label."""
        likely = np.argmax(self.probabilities(), axis=1)
        return self._distance(self.labels[likely, None] - self.candidates[:, None])[:, 0]

    def emoc(self, probabilities: Any = None) -> Float[np.ndarray, " u"]:
        """The same, expected over the labels with their `probabilities`, `(u, l)`."""
        return np.sum(self._shares(probabilities) * self._distance(self._surprise()), axis=1)

    def expected_error(self, probabilities: Any = None) -> Float[np.ndarray, " u"]:
        """The share of wrong labels in the pool that the new model would itself expect, averaged over the labels.

        The smaller, the better; `current_error` is what it is now.
        """
        shares = self._shares(probabilities)
        parts = [
            np.mean(1 - self.probabilities(self.before + moved).max(-1), axis=-1)
            for _, moved in self._moves(self._surprise())
        ]
        return np.sum(shares * np.concatenate(parts), axis=1)

    @property
    def current_error(self) -> float:
        """The share of wrong labels in the pool that the model without any candidate expects."""
        return float(np.mean(1 - self.probabilities(self.before).max(-1)))

    def label_flips(self) -> Int[np.ndarray, "u l"]:
        """How many rows of the pool would change their label."""
        now = np.argmax(self.probabilities(self.before), axis=1)
        moves = self._moves(self._surprise())
        return np.concatenate(
            [np.sum(np.argmax(self.probabilities(self.before + moved), axis=-1) != now, axis=-1) for _, moved in moves]
        )

    def variance_reduction(self) -> Float[np.ndarray, " u"]:
        """By how much a candidate lowers the variance of the pool, in all; its label does not matter."""
        if self.own.ndim == 1:
            return np.sum(self.covariance**2, axis=0) / self._total()
        return np.einsum("ijab,ijab->j", self.covariance, self._gain(slice(None)))

    def learned(self, candidate: int, label: Any) -> "LookAhead":
        """With a candidate learned for good, its label a row of targets: the next query needs no new factorization."""
        j, y = int(candidate), finite_array(label, "label").reshape(-1)
        if y.shape != self.before.shape[1:]:
            raise InputError(f"label has {y.size} numbers, expected {self.before.shape[1]}, a row of targets.")
        if len(self.before) != len(self.candidates) or not -len(self.candidates) <= j < len(self.candidates):
            raise InputError(f"candidate={candidate}: expected a row of the pool, 0 to {len(self.candidates) - 1}.")
        gain, row = self._gain(slice(j, j + 1) if j != -1 else slice(j, None))[:, 0], self.covariance[j]
        if self.own.ndim == 1:
            before, less = self.before + np.outer(gain, y - self.before[j]), np.outer(gain, row)
        else:
            before = self.before + gain @ (y - self.before[j])
            less = np.einsum("iab,jbc->ijac", gain, row)
        covariance = self.covariance - less
        rows = np.arange(len(before))
        return replace(self, before=before, candidates=before, covariance=covariance, own=covariance[rows, rows])

    def _surprise(self) -> Float[np.ndarray, "u l k"]:
        return self.labels - self.candidates[:, None]

    def _shares(self, probabilities: Any) -> Float[np.ndarray, "u l"]:
        shares = self.probabilities() if probabilities is None else finite_array(probabilities, "probabilities")
        if shares.shape != (len(self.candidates), len(self.labels)):
            expected = (len(self.candidates), len(self.labels))
            raise InputError(f"probabilities have shape {shares.shape}, expected {expected}: candidates and labels.")
        return shares

    def _total(self) -> Float[np.ndarray, "u *blocks"]:
        if self.own.ndim == 1:
            return np.maximum(self.own, 0) + max(self.ridge, _TINY)
        return self.own + self.ridge * np.eye(self.own.shape[-1])

    def _gain(self, cut: slice) -> Float[np.ndarray, "pool some *blocks"]:
        """`C(i, j) (C(j, j) + ridge)^-1` for some candidates."""
        some, total = self.covariance[:, cut], self._total()[cut]
        if self.own.ndim == 1:
            return some / total
        return np.swapaxes(Factor.solve_blocks(total, np.moveaxis(some, 0, 1).swapaxes(-1, -2)), 0, 1).swapaxes(-1, -2)

    def _moves(
        self, surprise: Float[np.ndarray, "u l k"]
    ) -> Iterator[tuple[slice, Float[np.ndarray, "some l pool k"]]]:
        """How predictions change, for some candidates at a time."""
        each = 8 * surprise.shape[1] * len(self.before) * max(self.before.shape[1], len(self.labels))
        size = max(1, _TILE // each)
        rule = "ij,jlb->jlib" if self.own.ndim == 1 else "ijab,jlb->jlia"
        for start in range(0, len(self.candidates), size):
            cut = slice(start, start + size)
            yield cut, np.einsum(rule, self._gain(cut), surprise[cut], optimize=True)

    def _distance(self, surprise: Float[np.ndarray, "u l k"]) -> Float[np.ndarray, "u l"]:
        """The sum of the lengths of all changes; where outputs share the kernel, they need not be formed."""
        if self.own.ndim == 1:
            reach = np.sum(np.abs(self.covariance), axis=0) / self._total()
            return np.linalg.norm(surprise, axis=2) * reach[:, None]
        return np.concatenate([np.linalg.norm(moved, axis=3).sum(2) for _, moved in self._moves(surprise)])


def look_ahead(
    kernel_labelled: Any,
    y: Any,
    kernel_pool_labelled: Any,
    kernel_pool: Any,
    *,
    ridge: float,
    labels: Any = None,
    start: Any = None,
) -> LookAhead:
    """How a kernel machine would predict if it had learned a row of the pool too, for all rows and all labels at once.

    One Cholesky factor of the labelled rows; each model is a block update of it, exactly what training on one row more
    would give. With the tangent kernel of a trained model and `start`, its outputs, it is linearized retraining.

    Args:
        kernel_labelled: `(n, n)`, of the labelled rows; or `(n, n, k, k)`, as `empirical_ntk` has it.
        y: their targets, `(n,)` or `(n, k)`: numbers, or indicators of classes.
        kernel_pool_labelled: `(u, n)`, between the pool and the labelled rows; or `(u, n, k, k)`.
        kernel_pool: `(u, u)`, of the pool; or `(u, u, k, k)`.
        ridge: at least 0, added to the diagonal.
        labels: possible labels, rows of targets, `(l,)` or `(l, k)`; by default those that `y` has, 64 at the most.
        start: the outputs of a model at the labelled rows and at the pool, which learning corrects. None: all 0.

    Returns:
        `predictions` (candidate, label, pool row, output), those of the model that had learned the candidate with that
        label too; they are formed when asked for, and the scores need them not: `mlmoc()`, `emoc()`,
        `expected_error()`, `label_flips()`, `variance_reduction()`, one for each candidate. `before`, `(u, k)`: the
        predictions without any candidate; `covariance`; `probabilities()` of the labels; `current_error`;
        `learned(candidate, label)`: the same after a query. `candidates` are `before`, `own` the diagonal of the
        covariance, `spread` the mean squared leave-one-out error.

    >>> import everwide.selection as sel, numpy as np
    >>> x, pool = np.array([[0.0], [1.0]]), np.array([[0.4], [5.0]])
    >>> kernel = lambda a, b: np.exp(-((a - b.T) ** 2))
    >>> y = np.eye(2)
    >>> ahead = sel.look_ahead(kernel(x, x), y, kernel(pool, x), kernel(pool, pool), ridge=1e-3)
    >>> ahead.predictions.shape
    (2, 2, 2, 2)
    >>> int(np.argmax(ahead.mlmoc()))  # what is far from all labelled rows changes most
    1

    Mohamadi, Bae and Sutherland, "Making look-ahead active learning strategies feasible with neural tangent kernels"
    (2022).

    """
    targets, noise = _rows(y, "y"), not_negative(ridge, "ridge")
    n, k = targets.shape
    listed = _labels(labels, targets)
    blocks = np.ndim(kernel_labelled) == 4
    u = len(np.asarray(kernel_pool))
    among, across, pool = (
        _matrix(kernel, shape, k if blocks else 0, name)
        for kernel, shape, name in (
            (kernel_labelled, (n, n), "kernel_labelled"),
            (kernel_pool_labelled, (u, n), "kernel_pool_labelled"),
            (kernel_pool, (u, u), "kernel_pool"),
        )
    )
    first, second = (np.zeros((n, k)), np.zeros((u, k))) if start is None else _start(start, n, u, k)
    factor = Factor.of(among, noise, what="kernel_labelled")
    columns = (targets - first).reshape(-1, 1) if blocks else targets - first
    solved, white = factor.solve(columns), factor.whiten(across.T)
    spread = max(float(np.mean((solved / factor.inverse_diagonal()[:, None]) ** 2)), _TINY)
    before = second + (across @ solved).reshape(u, k)
    covariance = pool - white.T @ white
    if blocks:
        covariance = covariance.reshape(u, k, u, k).transpose(0, 2, 1, 3)
    own = covariance[np.arange(u), np.arange(u)]
    return LookAhead(before, before, covariance, own, listed, noise, spread)


def _rows(values: Any, label: str) -> Float[np.ndarray, "n k"]:
    rows = finite_array(values, label)
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2:
        raise InputError(f"{label} has shape {rows.shape}, expected (n,) or (n, outputs).")
    return rows


def _labels(labels: Any, targets: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "l k"]:
    if labels is None:
        listed = np.unique(targets, axis=0)
        if len(listed) > _MOST_LABELS:
            raise InputError(
                f"y has {len(listed)} different rows, more than {_MOST_LABELS}. List the possible labels: labels=..., "
                "for numbers a few of them, such as quantiles of y."
            )
        return listed
    listed = _rows(labels, "labels")
    if listed.shape[1] != targets.shape[1]:
        raise InputError(f"labels have {listed.shape[1]} columns and y {targets.shape[1]}: they must agree.")
    return listed


def _matrix(kernel: Any, shape: tuple[int, int], k: int, label: str) -> Float[np.ndarray, "a b"]:
    """Checked; blocks of outputs as a matrix of `n k` rows."""
    matrix = finite_array(kernel, label)
    expected = (*shape, k, k) if k else shape
    if matrix.shape != expected:
        raise InputError(f"{label} has shape {matrix.shape}, expected {expected}.")
    return matrix.transpose(0, 2, 1, 3).reshape(shape[0] * k, shape[1] * k) if k else matrix


def _start(start: Any, n: int, u: int, k: int) -> list[Float[np.ndarray, "_ k"]]:
    if not isinstance(start, tuple) or len(start) != 2:
        raise InputError("start: expected a pair, the outputs of the model at the labelled rows and at the pool.")
    names = ("start[0]", "start[1]")
    both = [_rows(outputs, name) for outputs, name in zip(start, names, strict=True)]
    for outputs, name, rows in zip(both, names, (n, u), strict=True):
        if outputs.shape != (rows, k):
            raise InputError(f"{name} has shape {outputs.shape}, expected ({rows}, {k}).")
    return both
