"""A network for tables whose first layer has learned how to look at columns: a metric, and weights of their ranks.

The kernel is that of `Columns, Dense, Relu, ..., Dense`. Its numbers have the largest evidence, or the smallest
leave-one-out error, on some of the rows: analytic derivatives on the host, in float64, since nearly equal rows lie at
the kink of a tangent kernel, where float32 loses them.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from ..activations import Relu
from ..layers import AbstractLayer, Columns, Dense, Serial
from ..spectral import KernelError, evidence

DEPTH = 2  # hidden layers
_LENGTH = 0.3  # of the kernels of ranks
_TILE = 256  # rows of a kernel that are computed at once
_ROWS, _BYTES = 700, 1 << 28  # to learn on, at the most; of what is held for all pairs of them
_STEPS, _FULL_STEPS = 15, 10
_SPREAD = 2.0  # of the logarithms around where they start: what few rows cannot tell stays there
_FARTHEST = 16.0  # from where they start: further on, numbers are zero or infinite
_MOST_FULL = 40  # columns up to which a metric may mix them
_EQUAL = 16 * float(np.finfo(np.float64).eps)
_BIAS, _NOISE = 0.1, 0.02  # where they start


@dataclass(frozen=True)
class Numbers:
    """All that is learned: the metric (a diagonal, or a matrix), weights of ranks, bias, noise, the ratio of speeds."""

    metric: Float[np.ndarray, "d *rank"]
    rank_weights: Float[np.ndarray, " d"]
    bias: float  # its variance
    noise: float
    speed: float  # of a layer, in units of that of the next


class Slopes(NamedTuple):
    """Derivatives of a criterion: in second moments of pairs, in variances, and in logarithms of the other numbers."""

    value: float
    pairs: Float[np.ndarray, " pairs"]
    rows: Float[np.ndarray, " n"]
    homogeneous: float  # of everything that second moments and biases are multiplied by
    noise: float
    speed: float


class Pairs:
    """All pairs of some rows: what their second moments are sums of."""

    def __init__(self, first: Columns, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n outputs"], trained: bool):
        self.y, self.trained = y, trained
        self.z, ranks = _views(first, x)
        self.n, self.d = x.shape
        self.left, self.right = np.tril_indices(self.n, -1)
        self.products = np.stack([c[self.left] * c[self.right] for c in self.z.T])
        self.near = np.stack([np.exp(-np.abs(u[self.left] - u[self.right]) / _LENGTH) for u in ranks.T])

    def slopes(self, moments: np.ndarray, variances: np.ndarray, rest: np.ndarray, by: str) -> Slopes:
        """Of the criterion for these second moments, bias, noise and speed; `KernelError` where there is none."""
        bias, noise, speed = rest.tolist()
        speed = speed if self.trained else 0.0
        tower = _tower(moments, variances[self.left], variances[self.right], bias, speed)
        own, own_speed, own_slope = _own_tower(variances, bias, speed)
        kernel = np.empty((self.n, self.n))
        kernel[self.left, self.right] = kernel[self.right, self.left] = tower.kernel
        np.fill_diagonal(kernel, own)
        value, slope = evidence(kernel, self.y, noise, by=by)
        value, slope = value * self.n, slope * self.n
        both, alone = 2 * slope[self.left, self.right], np.diagonal(slope)
        rows = np.bincount(self.left, both * tower.by_left, self.n) + np.bincount(
            self.right, both * tower.by_right, self.n
        )
        return Slopes(
            value,
            both * tower.by_moment,
            rows + alone * own_slope,
            float(both @ tower.kernel + alone @ own),
            noise * float(alone.sum()),
            speed * float(both @ tower.by_speed + alone @ own_speed),
        )


class Tower(NamedTuple):
    """The tangent kernel of pairs, and its derivatives in their moments, both variances and the speed."""

    kernel: np.ndarray
    by_moment: np.ndarray
    by_left: np.ndarray
    by_right: np.ndarray
    by_speed: np.ndarray


def _tower(moment: np.ndarray, left: np.ndarray, right: np.ndarray, bias: float, speed: float) -> Tower:
    """Arc-cosine kernels (Cho and Saul 2009); derivatives go forward with them."""
    cov, one, two = moment + bias, left + bias, right + bias
    kernel, cov_m, ker_m = cov, np.ones_like(cov), np.ones_like(cov)
    cov_l = cov_r = ker_l = ker_r = ker_s = np.zeros_like(cov)
    for _ in range(DEPTH):
        size, cosine, sine, share = _angles(cov, one, two)
        bend = speed * kernel / (math.pi * np.maximum(sine, 1e-6) * size)
        edge = 0.5 * size * sine / math.pi
        ker_s = (speed * ker_s + kernel) * share
        cov = size * (sine / math.pi + cosine * share) + bias
        lean = 0.5 * cosine * size
        turn_l, turn_r = cov_l - lean / one, cov_r - lean / two
        ker_m, cov_m = speed * ker_m * share + bend * cov_m + share * cov_m, share * cov_m
        cov_l, cov_r = share * cov_l + edge / one, share * cov_r + edge / two
        ker_l = speed * ker_l * share + bend * turn_l + cov_l
        ker_r = speed * ker_r * share + bend * turn_r + cov_r
        kernel, one, two = speed * kernel * share + cov, one + bias, two + bias
    return Tower(kernel, ker_m, ker_l, ker_r, ker_s)


def _angles(cov: np.ndarray, one: np.ndarray, two: np.ndarray) -> tuple[np.ndarray, ...]:
    """Size, cosine and sine of the angle, and the share of half-spaces that hold both.

    Rows that are equal up to rounding are equal, since an angle is the root of what is lost.
    """
    size = np.sqrt(one * two)
    cosine = np.clip(cov / size, -1, 1)
    cosine = np.where(cosine > 1 - _EQUAL, 1.0, cosine)
    return size, cosine, np.sqrt(1 - cosine**2), 1 - np.arccos(cosine) / math.pi


def _own_tower(variance: np.ndarray, bias: float, speed: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The tangent kernel of rows with themselves, its derivative in the speed, and in the variances."""
    cov = kernel = variance + bias
    by_speed, by_variance = np.zeros_like(cov), 1.0
    for _ in range(DEPTH):
        cov = cov + bias
        by_speed = speed * by_speed + kernel
        kernel, by_variance = speed * kernel + cov, speed * by_variance + 1
    return kernel, by_speed, by_variance


def learn_columns(
    x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n outputs"], which: str, *, by: Sequence[str], seed: int
) -> "list[ColumnsReader]":
    """The networks with the best numbers by each criterion, in threads of their own.

    First a diagonal metric, then, of few columns, a full one. Rows count alike here, whatever their weights.
    """
    first = Columns.of(x, length=_LENGTH)
    rows = min(_ROWS, max(int(math.sqrt(_BYTES / (8 * x.shape[1]))), 50))
    some = np.sort(np.random.default_rng(seed).permutation(len(x))[:rows])
    pairs = Pairs(first, x[some], y[some], which == "ntk")

    def learned(criterion: str) -> ColumnsReader:
        numbers = _diagonal(pairs, criterion)
        numbers = _full(pairs, numbers, criterion) if 1 < pairs.d <= _MOST_FULL else numbers
        return ColumnsReader(first, numbers, which)

    with threadpool_limits(1), ThreadPoolExecutor(len(by)) as threads:  # matrices are small: products wait for threads
        return list(threads.map(learned, by))


@dataclass(frozen=True)
class ColumnsReader:
    """The kernel of such a network between rows, on the host: the numbers of `network`, with nothing to compile."""

    first: Columns
    numbers: Numbers
    which: str

    @property
    def network(self) -> Serial:
        """The readout has the speed 1, every layer before it a constant times that of the next."""
        numbers = self.numbers
        columns = replace(self.first, metric=numbers.metric, rank_weights=numbers.rank_weights)
        b_std = math.sqrt(numbers.bias)
        layers: list[AbstractLayer] = [Dense(b_std=b_std, speed=numbers.speed**DEPTH)]
        for above in range(DEPTH - 1, -1, -1):
            width = None if above else 1
            layers += [Relu(), Dense(width, w_std=2**0.5, b_std=b_std, speed=numbers.speed**above)]
        return Serial(columns, *layers)

    @property
    def importances(self) -> Float[np.ndarray, " d"]:
        """How much of the variance of what the first layer sees comes from each column; together 1."""
        metric = self.numbers.metric
        seen = metric**2 if metric.ndim == 1 else np.sum(metric**2, 1)
        varies = np.asarray(self.first.scale) > 0
        both = (seen + self.numbers.rank_weights) * varies
        return both / max(float(both.sum()), np.finfo(np.float64).tiny)

    def among(self, x: np.ndarray, dtype: type = np.float64) -> Float[np.ndarray, "n n"]:
        """Of rows with themselves; always computed in float64."""
        kernel = self.cross(x, x)
        np.fill_diagonal(kernel, self.diagonal(x))
        return kernel

    def cross(self, x1: np.ndarray, x2: np.ndarray, dtype: type = np.float64) -> Float[np.ndarray, "n1 n2"]:
        """Of new rows with old ones."""
        one, two = self._seen(x1), self._seen(x2)
        kernel = np.empty((len(x1), len(x2)))
        for start in range(0, len(x1), _TILE):
            rows = slice(start, start + _TILE)
            moments = one.seen[rows] @ two.seen.T
            for weight, u, v in zip(self.numbers.rank_weights, one.ranks[rows].T, two.ranks.T, strict=True):
                moments += weight * np.exp(-np.abs(u[:, None] - v) / _LENGTH)
            kernel[rows] = _kernel(moments, one.variance[rows, None], two.variance, self.numbers.bias, self._speed)
        return kernel

    def diagonal(self, x: np.ndarray) -> Float[np.ndarray, " n"]:
        """Of every row with itself."""
        return _own_tower(self._seen(x).variance, self.numbers.bias, self._speed)[0]

    @property
    def _speed(self) -> float:
        return self.numbers.speed if self.which == "ntk" else 0.0

    def _seen(self, x: np.ndarray) -> "Seen":
        z, ranks = _views(self.first, x)
        seen = z * self.numbers.metric if self.numbers.metric.ndim == 1 else z @ self.numbers.metric
        return Seen(seen, ranks, np.sum(seen**2, 1) + float(self.numbers.rank_weights.sum()))


class Seen(NamedTuple):
    """Rows as the first layer sees them."""

    seen: Float[np.ndarray, "n r"]
    ranks: Float[np.ndarray, "n d"]
    variance: Float[np.ndarray, " n"]


def _views(first: Columns, x: np.ndarray) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d"]]:
    """Scaled columns, and their ranks."""
    z = (x - np.asarray(first.centre)) * np.asarray(first.scale)
    knots, shares = np.asarray(first.ranks.knots), np.asarray(first.ranks.shares)
    return z, np.stack([np.interp(*column) for column in zip(x.T, knots, shares, strict=True)], 1)


def _kernel(moment: np.ndarray, left: np.ndarray, right: np.ndarray, bias: float, speed: float) -> np.ndarray:
    """As `_tower`, without derivatives."""
    cov, one, two = moment + bias, left + bias, right + bias
    kernel = cov.copy()
    for _ in range(DEPTH):
        size, cosine, sine, share = _angles(cov, one, two)
        cov = size * (sine / math.pi + cosine * share) + bias
        kernel *= speed * share
        kernel += cov
        one, two = one + bias, two + bias
    return kernel


def _start(pairs: Pairs) -> np.ndarray:
    """Logarithms of weights, of the bias, the noise and the ratio of speeds."""
    even = np.full(2 * pairs.d, -math.log(2 * pairs.d))
    return np.concatenate([even, np.log([_BIAS, _NOISE * (DEPTH + 1), 1.0])])


def _diagonal(pairs: Pairs, by: str) -> Numbers:
    d, start = pairs.d, _start(pairs)
    squares = np.concatenate([pairs.z**2, np.ones((pairs.n, d))], axis=1)

    def value(t: np.ndarray) -> tuple[float, np.ndarray]:
        weights, rest = np.exp(t[:-3]), np.exp(t[-3:])
        moments = weights[:d] @ pairs.products + weights[d:] @ pairs.near
        s = pairs.slopes(moments, squares @ weights, rest, by)
        by_weight = weights * (np.concatenate([pairs.products @ s.pairs, pairs.near @ s.pairs]) + s.rows @ squares)
        slope = np.concatenate([by_weight, [s.homogeneous - by_weight.sum(), s.noise, s.speed]])
        away = (t - start) / _SPREAD
        return s.value + 0.5 * float(away @ away), slope + away / _SPREAD

    t = _descended(value, start, _STEPS)
    bias, noise, speed = np.exp(t[-3:]).tolist()
    return Numbers(np.exp(t[:d] / 2), np.exp(t[d:-3]), bias, noise, speed)


def _full(pairs: Pairs, numbers: Numbers, by: str) -> Numbers:
    d, unit = pairs.d, math.sqrt(float(np.mean(numbers.metric**2)))
    rest = np.log([numbers.bias, numbers.noise, numbers.speed])
    begin = np.concatenate([(np.diag(numbers.metric) / unit).ravel(), np.log(numbers.rank_weights), rest])
    start = np.concatenate([begin[: d * d], _start(pairs)[d:]])
    spread = np.concatenate([np.ones(d * d), np.full(d + 3, _SPREAD)])

    def value(t: np.ndarray) -> tuple[float, np.ndarray]:
        metric, weights, rest = t[: d * d].reshape(d, d) * unit, np.exp(t[d * d : -3]), np.exp(t[-3:])
        seen = pairs.z @ metric
        moments = np.einsum("pi,pi->p", seen[pairs.left], seen[pairs.right]) + weights @ pairs.near
        s = pairs.slopes(moments, np.sum(seen**2, 1) + weights.sum(), rest, by)
        half = np.zeros((pairs.n, pairs.n))
        half[pairs.left, pairs.right] = s.pairs
        gram = half + half.T
        np.fill_diagonal(gram, 2 * s.rows)
        by_metric = pairs.z.T @ (gram @ seen)
        by_weight = weights * (pairs.near @ s.pairs + s.rows.sum())
        scale = s.homogeneous - float(by_weight.sum()) - 0.5 * float(np.sum(by_metric * metric))
        slope = np.concatenate([unit * by_metric.ravel(), by_weight, [scale, s.noise, s.speed]])
        away = (t - start) / spread
        return s.value + 0.5 * float(away @ away), slope + away / spread

    t = _descended(value, begin, _FULL_STEPS)
    bias, noise, speed = np.exp(t[-3:]).tolist()
    return Numbers(t[: d * d].reshape(d, d) * unit, np.exp(t[d * d : -3]), bias, noise, speed)


def _descended(value: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray, steps: int) -> np.ndarray:
    """By L-BFGS, from points where a kernel can be factorized."""
    worst = 1e10

    def guarded(t: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            return value(t)
        except KernelError:
            return worst, np.zeros_like(t)

    options = {"maxiter": steps, "maxfun": steps * 3 // 2}
    bounds = np.stack([start - _FARTHEST, start + _FARTHEST], 1)
    return scipy.optimize.minimize(guarded, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
