"""A tree of exact leaves: rows are split at medians, solved leaf by leaf, and borders are shared."""

import math
import time as clock
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from .._checks import InputError, share, whole
from .._engine import KernelOperator, Progress, RowBlocks
from ._large import AbstractLargeSolution, AbstractLargeSolver, Watch, with_ridge
from ._solve import Solver, solve
from ._solvers import Problem, Report

_SOME = 4000  # rows that a direction of greatest spread is computed from
View = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Leaves(AbstractLargeSolver):
    """`(K + ridge / w) a = y` in each leaf of a tree: for tables of so many rows that their neighbours are enough.

    A node is split at the median of its rows along the direction in which they spread most. Rows near the border belong
    to both sides, and predictions go over from one to the other smoothly.

    Args:
        size: rows of a leaf at the most, apart from those that it shares.
        overlap: the part of a node's rows that both sides learn.
        solver: of a leaf: as in `solve`, a name or a function of a kernel matrix and a problem. It may choose a ridge.
        view: a function of rows that gives what is split, `(n, columns)`: for example columns in units that matter.
            None: rows as the kernel reads them.
        progress: called after every leaf.

    >>> import everwide as ew, everwide.spectral as sp, numpy as np
    >>> x = np.linspace(-1, 1, 80)[:, None]
    >>> kernel = ew.operator(ew.Serial(ew.Dense(b_std=1.0), ew.Relu(), ew.Dense(1)), x)
    >>> solution = sp.solve(kernel, np.sin(3 * x), ridge=1e-4, solver=sp.Leaves(size=20))
    >>> len(solution.leaves), bool(np.abs(solution.predict(x) - np.sin(3 * x)).max() < 0.01)
    (4, True)

    Soft borders: Jordan and Jacobs, "Hierarchical mixtures of experts and the EM algorithm" (1994).
    """

    size: int = 4000
    overlap: float = 0.1
    solver: str | Solver[Any] = "cholesky"
    view: View | None = None
    progress: Watch | None = field(default=None, repr=False)

    def __call__(self, kernel: KernelOperator, problem: Problem) -> "Leaved":
        if not isinstance(kernel.blocks, RowBlocks):
            raise InputError("Leaves split rows, and this kernel is a matrix. Make it with everwide.operator(net, x).")
        kernel.refuse_twins(problem.ridge)
        seen = _seen(self.view, kernel.blocks.x)
        tree = grown(seen, np.arange(len(seen)), whole(self.size, "size", 2), share(self.overlap, "overlap"))
        return _solved(kernel, problem, [problem.ridge], tree, self)[0]


@dataclass(frozen=True)
class Node:
    """Rows on one side of a plane, and on the other; without sides, a leaf with its rows."""

    rows: Int[np.ndarray, " n"]
    direction: Float[np.ndarray, " p"]
    border: tuple[float, float]  # where the right side begins, and where the left one ends
    sides: "tuple[Node, ...]" = ()

    def leaves(self) -> "list[Node]":
        """From left to right."""
        return [leaf for side in self.sides for leaf in side.leaves()] if self.sides else [self]

    def asked(
        self, seen: Float[np.ndarray, "n p"], rows: Int[np.ndarray, " m"], shares: Float[np.ndarray, " m"]
    ) -> "Iterator[tuple[np.ndarray, np.ndarray]]":
        """Of each leaf, the rows that it has something to say about, and its share: of all leaves, in sum `shares`.

        None of them are rows of the tree that the leaf has not learned.
        """
        if not self.sides:
            yield rows, shares
            return
        low, high = self.border
        place = seen[rows] @ self.direction
        inside = np.clip((place - low) / (high - low), 0.0, 1.0) if high > low else (place > low).astype(float)
        right = inside**2 * (3 - 2 * inside)
        for part, side in zip((1 - right, right), self.sides, strict=True):
            there = part > 0
            yield from side.asked(seen, rows[there], shares[there] * part[there])


def grown(seen: Float[np.ndarray, "n p"], rows: Int[np.ndarray, " m"], size: int, overlap: float) -> Node:
    """Split until leaves are small; rows that no direction tells apart stay together."""
    depth = max(math.ceil(math.log2(len(rows) / size)), 0)
    return _grown(seen, rows, depth, overlap)


def _grown(seen: np.ndarray, rows: np.ndarray, depth: int, overlap: float) -> Node:
    direction = _widest(seen[rows]) if depth and len(rows) > 1 else np.zeros(seen.shape[1])
    place = seen[rows] @ direction
    if place.size == 0 or place.max() == place.min():
        return Node(rows, direction, (0.0, 0.0))
    low, high = np.quantile(place, [0.5 - overlap / 2, 0.5 + overlap / 2]).tolist()
    left, right = ((place < high), (place > low)) if high > low else ((place <= low), (place > low))
    if left.all() or right.all() or not left.any() or not right.any():
        return Node(rows, direction, (0.0, 0.0))
    sides = tuple(_grown(seen, rows[side], depth - 1, overlap) for side in (left, right))
    return Node(rows, direction, (low, high), sides)


def _widest(some: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " p"]:
    """The leading principal direction of some of the rows."""
    part = some[:: -(-len(some) // _SOME)]
    part = part - part.mean(0)
    if part.shape[1] == 1:
        return np.ones(1)
    p = part.shape[1]
    return scipy.linalg.eigh(part.T @ part, subset_by_index=(p - 1, p - 1))[1][:, 0]


class Leaf(NamedTuple):
    """What a leaf has learned: of its rows, coefficients and each one's prediction from the others; its ridge."""

    rows: Int[np.ndarray, " n"]
    coefficients: Float[np.ndarray, "n k"]
    left_out: Float[np.ndarray, "n k"]
    report: Report
    ridge: float


@dataclass(frozen=True)
class Leaved(AbstractLargeSolution):
    """Made by `Leaves`. Leave-one-out is exact in every leaf: the tree is the same, and no row has learned itself."""

    tree: Node
    leaves: list[Leaf]
    how: Leaves

    def fitted(self) -> Float[np.ndarray, "m k"]:
        """Of all leaves, one after the other: predictions go through `predict`, which knows the borders."""
        return np.concatenate([leaf.coefficients for leaf in self.leaves])

    @property
    def centres(self) -> Int[np.ndarray, " m"]:
        return np.concatenate([leaf.rows for leaf in self.leaves])

    def predict(self, new: np.ndarray) -> Float[np.ndarray, "new k"]:
        """Each row is asked of the leaves that know its neighbourhood."""
        predicted = np.zeros((len(new), self.problem.y.shape[1]))
        for leaf, rows, part in self._asked(new):
            predicted[rows] += part[:, None] * self.kernel.predict(new[rows], leaf.coefficients, leaf.rows)
        return predicted

    def _asked(self, x: np.ndarray) -> Iterator[tuple[Leaf, np.ndarray, np.ndarray]]:
        """Leaves, and which rows each one has a share in."""
        each = self.tree.asked(_seen(self.how.view, x), np.arange(len(x)), np.ones(len(x)))
        return ((leaf, *one) for leaf, one in zip(self.leaves, each, strict=True) if len(one[0]))

    def left_out(self) -> Float[np.ndarray, "n k"]:
        blocks = self.kernel.blocks
        assert isinstance(blocks, RowBlocks)
        predicted = np.zeros_like(self.problem.y)
        for leaf, rows, part in self._asked(blocks.x):
            predicted[rows] += part[:, None] * leaf.left_out[np.searchsorted(leaf.rows, rows)]
        return predicted

    def along(self, ridges: Sequence[float]) -> "list[Leaved]":
        """The kernel of a leaf is computed once for all."""
        return _solved(self.kernel, self.problem, ridges, self.tree, self.how)

    @property
    def report(self) -> Report:
        """The worst residual and the largest jitter of all leaves."""
        each = [leaf.report for leaf in self.leaves]
        held = sum(leaf.coefficients.nbytes + leaf.left_out.nbytes for leaf in self.leaves)
        worst, jitter = max(one.residual for one in each), max(one.jitter for one in each)
        return Report(f"{len(each)} leaves, {each[0].solver}", worst, 0, jitter, self.seconds, held)


def _solved(kernel: KernelOperator, problem: Problem, ridges: Sequence[float], tree: Node, how: Leaves) -> list[Leaved]:
    began, nodes, inner = clock.perf_counter(), tree.leaves(), cast(Any, how.solver)
    solved: list[list[Leaf]] = [[] for _ in ridges]
    for done, node in enumerate(nodes, start=1):
        matrix, (y, weights, copies) = kernel.among(node.rows, exact=False), (part[node.rows] for part in problem[:3])
        for one, ridge in zip(solved, ridges, strict=True):
            taken = matrix.copy() if len(ridges) > 1 else matrix
            own: Any = solve(taken, y, ridge=ridge, weights=weights, copies=copies, solver=inner, overwrite=True)
            one.append(Leaf(node.rows, own.coefficients, own.left_out(), own.report, own.ridge))
        if how.progress is not None:
            how.progress(Progress(done, len(nodes), clock.perf_counter() - began))
    seconds = clock.perf_counter() - began
    return [
        Leaved(with_ridge(problem, ridge), seconds, kernel, tree, one, how)
        for ridge, one in zip(ridges, solved, strict=True)
    ]


def _seen(view: View | None, x: np.ndarray) -> Float[np.ndarray, "n p"]:
    seen = np.asarray(x if view is None else view(x), np.float64)
    if len(seen) != len(x) or seen.ndim < 2:
        raise InputError(f"view gave an array of shape {seen.shape} for {len(x)} rows, expected (rows, columns).")
    return seen.reshape(len(seen), -1)
