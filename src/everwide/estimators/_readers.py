"""Kernels between rows of a table, as estimators read them: by compiled networks, or on the host."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from .._gram import diagonal, nngp, ntk
from ..activations import Relu
from ..layers import AbstractLayer, Columns, Dense, Serial, Trees
from ._host import distances, nearness, own_tower, tiled, tower

Which = Literal["nngp", "ntk"]
_LENGTHS = (64, 256, 512)  # numbers of rows and of columns are rounded up to these, then to multiples of the last
_BATCH_BYTES = 1 << 28  # of a kernel with new rows that is held at once


def rounded(n: int, lengths: tuple[int, ...]) -> int:
    """The next larger one of few numbers."""
    return next((length for length in lengths if n <= length), -(-n // lengths[-1]) * lengths[-1])


def batches(rows: int, columns: int) -> list[slice]:
    """New rows, so many at a time that their kernel with `columns` old ones stays small."""
    size = max(_BATCH_BYTES // (8 * max(columns, 1)), 64)
    size = size // _LENGTHS[-1] * _LENGTHS[-1] or size
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


@dataclass(frozen=True)
class KernelReader:
    """One kernel of any network of ours."""

    network: AbstractLayer
    which: Which
    rounds: bool  # dense networks, of which many small ones are read: other numbers of rows compile nothing

    def among(self, x: np.ndarray, dtype: type = np.float64) -> Float[np.ndarray, "n n"]:
        """Of rows with themselves."""
        return self._read(x, x, self._more_rows(x.astype(dtype)))

    def cross(self, x1: np.ndarray, x2: np.ndarray, dtype: type = np.float64) -> Float[np.ndarray, "n1 n2"]:
        """Of new rows with old ones."""
        return self._read(x1, x2, self._more_rows(x1.astype(dtype)), self._more_rows(x2.astype(dtype)))

    def diagonal(self, x: np.ndarray) -> Float[np.ndarray, " n"]:
        """Of every row with itself."""
        return np.asarray(getattr(diagonal(self.network, self._more_rows(x)), self.which), np.float64)[: len(x)]

    def _read(self, x1: np.ndarray, x2: np.ndarray, *padded: np.ndarray) -> Float[np.ndarray, "n1 n2"]:
        matrix = (ntk if self.which == "ntk" else nngp)(self.network, *padded)
        return np.asarray(matrix, np.float64)[: len(x1), : len(x2)]

    def _more_rows(self, x: np.ndarray) -> np.ndarray:
        more = rounded(len(x), _LENGTHS) - len(x) if self.rounds else 0
        return np.pad(x, ((0, more), *((0, 0),) * (x.ndim - 1))) if more else x


@dataclass(frozen=True)
class Numbers:
    """Of a network that sees columns: the metric (a diagonal, or a matrix), weights of ranks, and the rest."""

    metric: Float[np.ndarray, "d *rank"]
    rank_weights: Float[np.ndarray, " d"]
    bias: float  # its variance
    noise: float
    speed: float  # of a layer, in units of that of the next


class Seen(NamedTuple):
    """Rows as the first layer sees them."""

    seen: Float[np.ndarray, "n r"]
    ranks: Float[np.ndarray, "n d"]
    variance: Float[np.ndarray, " n"]

    def some(self, rows: slice) -> "Seen":
        """Of these rows."""
        return Seen(*(part[rows] for part in self))


@dataclass(frozen=True)
class ColumnsReader:
    """The kernel of `Columns, Dense, Relu, ..., Dense` on the host: as that of `network`, with nothing to compile."""

    first: Columns
    numbers: Numbers
    which: Which
    depth: int

    @property
    def network(self) -> Serial:
        """The readout has the speed 1, every layer before it a constant times that of the next."""
        numbers = self.numbers
        columns = replace(self.first, metric=numbers.metric, rank_weights=numbers.rank_weights)
        b_std = math.sqrt(numbers.bias)
        layers: list[AbstractLayer] = [Dense(b_std=b_std, speed=numbers.speed**self.depth)]
        for above in range(self.depth - 1, -1, -1):
            width = None if above else 1
            layers += [Relu(), Dense(width, w_std=2**0.5, b_std=b_std, speed=numbers.speed**above)]
        return Serial(columns, *layers)

    @property
    def noise(self) -> float:
        """Of targets, as it was learned."""
        return self.numbers.noise

    @property
    def importances(self) -> Float[np.ndarray, " d"]:
        """How much of the variance of what the first layer sees comes from each column; together 1."""
        metric = self.numbers.metric
        seen = metric**2 if metric.ndim == 1 else np.sum(metric**2, 1)
        return _shares((seen + self.numbers.rank_weights) * (np.asarray(self.first.scale) > 0))

    def among(self, x: np.ndarray, dtype: type = np.float64) -> Float[np.ndarray, "n n"]:
        """Of rows with themselves; always computed in float64."""
        seen = self._seen(x)
        kernel = tiled(self._block(seen, seen), len(x), len(x), symmetric=True)
        np.fill_diagonal(kernel, self._own(seen.variance))
        return kernel

    def cross(self, x1: np.ndarray, x2: np.ndarray, dtype: type = np.float64) -> Float[np.ndarray, "n1 n2"]:
        """Of new rows with old ones."""
        seen = self._seen(x1)
        other = seen if x1 is x2 else self._seen(x2)
        return tiled(self._block(seen, other), len(x1), len(x2), symmetric=x1 is x2)

    def diagonal(self, x: np.ndarray) -> Float[np.ndarray, " n"]:
        """Of every row with itself."""
        return self._own(self._seen(x).variance)

    def view(self, x: np.ndarray) -> Float[np.ndarray, "n r"]:
        """Rows in units in which distances matter."""
        seen = self._seen(x)
        return np.concatenate([seen.seen, seen.ranks * np.sqrt(self.numbers.rank_weights)], axis=1)

    def _block(self, one: Seen, two: Seen) -> Callable[[slice, slice], np.ndarray]:
        numbers, length = self.numbers, float(self.first.length)

        def block(rows: slice, columns: slice) -> np.ndarray:
            a, b = one.some(rows), two.some(columns)
            moments = a.seen @ b.seen.T
            moments += nearness(a.ranks, b.ranks, numbers.rank_weights, length)
            return tower(moments, a.variance[:, None], b.variance, numbers.bias, self._speed, self.depth)

        return block

    def _own(self, variance: np.ndarray) -> Float[np.ndarray, " n"]:
        return own_tower(variance, self.numbers.bias, self._speed, self.depth)[0]

    @property
    def _speed(self) -> float:
        return self.numbers.speed if self.which == "ntk" else 0.0

    def _seen(self, x: np.ndarray) -> Seen:
        z, ranks = views(self.first, x)
        metric = self.numbers.metric
        seen = z * metric if metric.ndim == 1 else z @ metric
        return Seen(seen, ranks, np.sum(seen**2, 1) + float(self.numbers.rank_weights.sum()))


@dataclass(frozen=True)
class TreesReader:
    """The kernel of `Trees, Dense` on the host: infinitely many random trees. Its two kernels are the same."""

    first: Trees
    which: Which
    noise: float = 0.0  # of targets, as it was learned

    @property
    def network(self) -> Serial:
        """Whose kernel it is."""
        return Serial(self.first, Dense(1))

    @property
    def importances(self) -> Float[np.ndarray, " d"]:
        """The share of each column in the cuts; together 1."""
        return _shares(np.asarray(self.first.rates))

    def among(self, x: np.ndarray, dtype: type = np.float64) -> Float[np.ndarray, "n n"]:
        """Of rows with themselves; always computed in float64."""
        ranks = ranks_of(self.first, x)
        return tiled(self._block(ranks, ranks), len(x), len(x), symmetric=True)

    def cross(self, x1: np.ndarray, x2: np.ndarray, dtype: type = np.float64) -> Float[np.ndarray, "n1 n2"]:
        """Of new rows with old ones."""
        ranks = ranks_of(self.first, x1)
        other = ranks if x1 is x2 else ranks_of(self.first, x2)
        return tiled(self._block(ranks, other), len(x1), len(x2), symmetric=x1 is x2)

    def diagonal(self, x: np.ndarray) -> Float[np.ndarray, " n"]:
        """Of every row with itself."""
        return np.ones(len(x))

    def view(self, x: np.ndarray) -> Float[np.ndarray, "n d"]:
        """Rows in units in which distances matter."""
        return ranks_of(self.first, x) * np.asarray(self.first.rates)

    def _block(self, u: np.ndarray, v: np.ndarray) -> Callable[[slice, slice], np.ndarray]:
        rates = np.asarray(self.first.rates)

        def block(rows: slice, columns: slice) -> np.ndarray:
            apart = distances(u[rows], v[columns], rates)
            return np.exp(np.negative(apart, out=apart), out=apart)

        return block


Looking = ColumnsReader | TreesReader  # at the columns of a table
Reader = KernelReader | ColumnsReader | TreesReader


def views(first: Columns, x: np.ndarray) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d"]]:
    """Scaled columns, and their ranks."""
    return (x - np.asarray(first.centre)) * np.asarray(first.scale), ranks_of(first, x)


def ranks_of(first: Columns | Trees, x: np.ndarray) -> Float[np.ndarray, "n d"]:
    """Shares of training rows below each value."""
    knots, shares = np.asarray(first.ranks.knots), np.asarray(first.ranks.shares)
    return np.stack([np.interp(*column) for column in zip(x.T, knots, shares, strict=True)], 1)


def _shares(sizes: np.ndarray) -> Float[np.ndarray, " d"]:
    return sizes / max(float(sizes.sum()), np.finfo(np.float64).tiny)
