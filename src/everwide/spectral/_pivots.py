"""Pivoted Cholesky factorizations from few columns: the one routine behind preconditioners, centres and subsets."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from .._checks import at_least_zero

_PARTS, _FEWEST, _MOST = 8, 16, 256  # rounds in which pivots are proposed, and proposals in a round
_ROUNDING = 16  # units of rounding of the diagonal, below which nothing is left
_STRIP = 1 << 16  # rows that are updated at once
_EPS = float(np.finfo(np.float64).eps)
Columns = Callable[[Int[np.ndarray, " b"]], Any]


class Pivots(NamedTuple):
    """`rows` that were chosen, in their order; `features` with `F F^T` nearly the kernel; what is `left` of it."""

    rows: Int[np.ndarray, " rank"]
    features: Float[np.ndarray, "n rank"]
    left: Float[np.ndarray, " n"]


def pivoted(
    columns: Columns,
    diagonal: Any,
    size: int,
    *,
    among: Columns | None = None,
    greedy: bool = False,
    dtype: Any = np.float64,
    seed: int = 0,
) -> Pivots:
    """Rows that stand for all others, and the kernel as far as they tell it.

    Random pivots are proposed many at a time, with probabilities in proportion to what is left of the diagonal, and
    those that earlier ones of the same round have made superfluous are rejected: the law of one at a time, at the speed
    of products of matrices.

    Args:
        columns: a function of rows `(b,)` that gives their columns of the kernel, `(n, b)`.
        diagonal: of the kernel, `(n,)`.
        size: pivots at the most.
        among: a function of rows `(b,)` that gives their kernel with themselves. None: it is read from the columns of
            all that is proposed, a third more of them.
        greedy: the largest of what is left is next, always; else it is drawn.
        dtype: of the features.
        seed: of the draw.

    Returns:
        `rows`, `features` and `left`, of a rank of at most `size`: fewer where nothing but rounding is left.

    Epperly, Tropp and Webber, "Embrace rejection: kernel matrix approximation by accelerated randomly pivoted Cholesky"
    (2024); Chen, Epperly, Tropp and Webber, "Randomly pivoted Cholesky" (2022).

    """
    left = at_least_zero(diagonal, "diagonal").copy()
    n, rng = len(left), np.random.default_rng(seed)
    size, largest = min(size, n), float(left.max())
    noise = _EPS * n * largest
    features, rows = np.zeros((n, size), dtype, order="F"), np.zeros(size, np.int64)
    read = _Read(columns)
    block, rank = 1 if greedy else min(max(size // _PARTS, _FEWEST), _MOST), 0
    while rank < size and (left > noise).any():
        some = np.array([np.argmax(left)]) if greedy else _proposed(left, block, rng)
        inner = np.asarray(read.among(some) if among is None else among(some))
        noise = max(noise, _ROUNDING * _rounding(inner) * largest) if not rank else noise
        known = features[some, :rank].astype(np.float64)
        rest = inner.astype(np.float64) - known @ known.T
        np.fill_diagonal(rest, left[some])  # a kernel knows its diagonal better than its columns do
        kept, lower = _accepted(rest, noise, rng, size - rank)
        if not len(kept):
            left[some[left[some] <= noise]] = 0.0
            continue
        chosen, until = some[kept], rank + len(kept)
        left = _extend(features, left, read.taken(chosen), chosen, lower, rank)
        left[chosen], rows[rank:until], rank = 0.0, chosen, until
    return Pivots(rows[:rank], features[:, :rank], left)


class _Read:
    """Columns that were read for their proposals, kept until they are pivots: none is read twice."""

    def __init__(self, columns: Columns):
        self._columns, self._spare = columns, dict[int, np.ndarray]()

    def among(self, rows: np.ndarray) -> np.ndarray:
        """Of rows with themselves, where nothing but columns can be read."""
        new = np.array([row for row in rows.tolist() if row not in self._spare], np.int64)
        if len(new):
            self._spare.update(zip(new.tolist(), np.asarray(self._columns(new)).T, strict=True))
        return np.stack([self._spare[row][rows] for row in rows.tolist()], axis=1)

    def taken(self, rows: np.ndarray) -> np.ndarray:
        """Columns of pivots, which are not asked for again."""
        if self._spare:
            return np.stack([self._spare.pop(row) for row in rows.tolist()], axis=1)
        return np.asarray(self._columns(rows))


def _proposed(left: Float[np.ndarray, " n"], block: int, rng: np.random.Generator) -> Int[np.ndarray, " b"]:
    """Independent draws; a row that is drawn again would be rejected, and is left out."""
    sums = np.cumsum(left)
    drawn = np.searchsorted(sums, rng.random(block) * sums[-1], side="right")
    _, first = np.unique(drawn, return_index=True)
    return np.minimum(drawn[np.sort(first)], len(left) - 1)


def _accepted(
    rest: Float[np.ndarray, "b b"], noise: float, rng: np.random.Generator, most: int
) -> tuple[Int[np.ndarray, " k"], Float[np.ndarray, "k k"]]:
    """Which proposals stay: each with the probability of what the accepted ones before it leave of it."""
    bounds, kept, lower = np.diagonal(rest).copy(), [], np.zeros_like(rest)
    left = bounds.copy()
    for i in range(len(rest)):
        if len(kept) == most:
            break
        if left[i] <= noise or rng.random() * bounds[i] >= left[i]:
            continue
        step = len(kept)
        lower[i:, step] = (rest[i:, i] - lower[i:, :step] @ lower[i, :step]) / np.sqrt(left[i])
        lower[i, step] = np.sqrt(left[i])
        left[i + 1 :] -= lower[i + 1 :, step] ** 2
        kept.append(i)
    return np.array(kept, np.int64), lower[kept, : len(kept)]


def _extend(
    features: np.ndarray, left: np.ndarray, fresh: np.ndarray, chosen: np.ndarray, lower: np.ndarray, rank: int
) -> Float[np.ndarray, " n"]:
    """Write the features of new pivots, a strip of rows at a time; what is left of the diagonal after them."""
    after, until = left.copy(), rank + len(chosen)
    pivots = features[chosen, :rank].astype(np.float64)
    for start in range(0, len(left), _STRIP):
        strip = slice(start, start + _STRIP)
        rest = fresh[strip] - features[strip, :rank].astype(np.float64) @ pivots.T
        new = scipy.linalg.solve_triangular(lower, rest.T, lower=True, check_finite=False).T
        features[strip, rank:until] = new
        after[strip] -= np.einsum("ij,ij->i", new, new)
    return np.maximum(after, 0.0)


def _rounding(entries: np.ndarray) -> float:
    return float(np.finfo(entries.dtype).eps) if np.issubdtype(entries.dtype, np.floating) else _EPS
