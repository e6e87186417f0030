"""How a network for tables looks at columns, learned from rows: a metric, weights of ranks, random trees.

The kernel is that of `Columns, Dense, Relu, ..., Dense`, or of `Trees, Dense`. Its numbers have the largest evidence,
or the smallest leave-one-out error, on some of the rows: analytic derivatives on the host, in float64.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Float

from ..layers import Columns, Trees
from ..spectral import KernelError, evidence
from ._host import own_tower, tower_slopes
from ._readers import ColumnsReader, Numbers, TreesReader, Which, ranks_of, views

DEPTH = 2  # hidden layers
LENGTH = 0.3  # of the kernels of ranks
_SPREAD = 2.0  # of the logarithms around where they start: what few rows cannot tell stays there
_FARTHEST = 16.0  # from where they start: further on, numbers are zero or infinite
_MOST_FULL = 40  # columns up to which a metric may mix them
_BIAS, _NOISE = 0.1, 0.02  # where they start
_CUTS = 3.0  # of a random tree, where they start


class Pace(NamedTuple):
    """Steps with a diagonal metric and with a full one; and whether there is no time for more."""

    steps: int = 15
    full_steps: int = 10
    late: Callable[[], bool] = lambda: False


_PACE = Pace()


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
        self.z, ranks = views(first, x)
        self.n, self.d = x.shape
        self.left, self.right = np.tril_indices(self.n, -1)
        self.places = self.left * self.n + self.right
        self.products = np.stack([c[self.left] * c[self.right] for c in self.z.T])
        self.near = np.stack([np.exp(-np.abs(u[self.left] - u[self.right]) / LENGTH) for u in ranks.T])

    def slopes(self, moments: np.ndarray, variances: np.ndarray, rest: np.ndarray, by: str) -> Slopes:
        """Of the criterion for these second moments, bias, noise and speed; `KernelError` where there is none."""
        bias, noise, speed = rest.tolist()
        speed = speed if self.trained else 0.0
        tower = tower_slopes(moments, variances[self.left], variances[self.right], bias, speed, DEPTH)
        own, own_speed, own_slope = own_tower(variances, bias, speed, DEPTH)
        value, slope = evidence(self.matrix(tower.kernel, own), self.y, noise, by=by)
        value, slope = value * self.n, slope * self.n
        both, alone = 2 * slope.take(self.places), np.diagonal(slope)
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

    def matrix(self, pairs: np.ndarray, diagonal: np.ndarray) -> Float[np.ndarray, "n n"]:
        """The symmetric matrix of numbers of pairs."""
        whole = np.zeros((self.n, self.n))
        whole.put(self.places, pairs)
        whole += whole.T
        np.fill_diagonal(whole, diagonal)
        return whole


def learn_columns(
    first: Columns, x: np.ndarray, y: np.ndarray, which: Which, *, by: str, pace: Pace = _PACE
) -> ColumnsReader:
    """The network with the best numbers for these rows, which count alike: a diagonal metric first, then a full one."""
    pairs = Pairs(first, x, y, which == "ntk")
    numbers = _diagonal(pairs, by, pace)
    numbers = _full(pairs, numbers, by, pace) if 1 < pairs.d <= _MOST_FULL else numbers
    return ColumnsReader(first, numbers, which, DEPTH)


def learn_trees(first: Trees, x: np.ndarray, y: np.ndarray, which: Which, pace: Pace = _PACE) -> TreesReader:
    """Random trees with as many cuts in each column as have the largest evidence."""
    ranks, (n, d) = ranks_of(first, x), x.shape
    left, right = np.tril_indices(n, -1)
    apart = np.stack([np.abs(u[left] - u[right]) for u in ranks.T])
    start = np.log(np.append(np.full(d, _CUTS / d), _NOISE))

    def value(t: np.ndarray) -> tuple[float, np.ndarray]:
        rates, noise = np.exp(t[:-1]), float(np.exp(t[-1]))
        shared, kernel = np.exp(-(rates @ apart)), np.eye(n)
        kernel[left, right] = kernel[right, left] = shared
        value_per_row, slope = evidence(kernel, y, noise)
        by_pair = 2 * slope[left, right] * shared
        away = (t - start) / _SPREAD
        slopes = n * np.append(-rates * (apart @ by_pair), noise * np.trace(slope))
        return n * value_per_row + 0.5 * float(away @ away), slopes + away / _SPREAD

    *rates, noise = np.exp(_descended(value, start, pace.steps, pace.late)).tolist()
    return TreesReader(replace(first, rates=np.array(rates)), which, noise)


def _start(pairs: Pairs) -> np.ndarray:
    """Logarithms of weights, of the bias, the noise and the ratio of speeds."""
    even = np.full(2 * pairs.d, -math.log(2 * pairs.d))
    return np.concatenate([even, np.log([_BIAS, _NOISE * (DEPTH + 1), 1.0])])


def _of_weights(pairs: Pairs, by: str) -> tuple[Callable[[np.ndarray], tuple[float, np.ndarray]], np.ndarray]:
    """The criterion of a diagonal metric, penalized, with derivatives; and where it starts."""
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

    return value, start


def evaluation(first: Columns, x: np.ndarray, y: np.ndarray, which: Which) -> Callable[[], Any]:
    """What is done again and again while numbers are learned: it tells how long that will take."""
    value, start = _of_weights(Pairs(first, x, y, which == "ntk"), "likelihood")
    return lambda: value(start)


def _diagonal(pairs: Pairs, by: str, pace: Pace) -> Numbers:
    value, start = _of_weights(pairs, by)
    t, d = _descended(value, start, pace.steps, pace.late), pairs.d
    bias, noise, speed = np.exp(t[-3:]).tolist()
    return Numbers(np.exp(t[:d] / 2), np.exp(t[d:-3]), bias, noise, speed)


def _full(pairs: Pairs, numbers: Numbers, by: str, pace: Pace) -> Numbers:
    d, unit = pairs.d, math.sqrt(float(np.mean(numbers.metric**2)))
    rest = np.log([numbers.bias, numbers.noise, numbers.speed])
    begin = np.concatenate([(np.diag(numbers.metric) / unit).ravel(), np.log(numbers.rank_weights), rest])
    start = np.concatenate([begin[: d * d], _start(pairs)[d:]])
    spread = np.concatenate([np.ones(d * d), np.full(d + 3, _SPREAD)])

    def value(t: np.ndarray) -> tuple[float, np.ndarray]:
        metric, weights, rest = t[: d * d].reshape(d, d) * unit, np.exp(t[d * d : -3]), np.exp(t[-3:])
        seen = pairs.z @ metric
        moments = (seen @ seen.T).take(pairs.places) + weights @ pairs.near
        s = pairs.slopes(moments, np.sum(seen**2, 1) + weights.sum(), rest, by)
        by_metric = pairs.z.T @ (pairs.matrix(s.pairs, 2 * s.rows) @ seen)
        by_weight = weights * (pairs.near @ s.pairs + s.rows.sum())
        scale = s.homogeneous - float(by_weight.sum()) - 0.5 * float(np.sum(by_metric * metric))
        slope = np.concatenate([unit * by_metric.ravel(), by_weight, [scale, s.noise, s.speed]])
        away = (t - start) / spread
        return s.value + 0.5 * float(away @ away), slope + away / spread

    t = _descended(value, begin, pace.full_steps, pace.late)
    bias, noise, speed = np.exp(t[-3:]).tolist()
    return Numbers(t[: d * d].reshape(d, d) * unit, np.exp(t[d * d : -3]), bias, noise, speed)


def _descended(
    value: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray, steps: int, late: Callable[[], bool]
) -> np.ndarray:
    """By L-BFGS, from points where a kernel can be factorized, until it is late."""
    worst = 1e10

    def guarded(t: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            return value(t)
        except KernelError:
            return worst, np.zeros_like(t)

    def stop(t: np.ndarray) -> None:
        if late():
            raise StopIteration

    options = {"maxiter": steps, "maxfun": steps * 3 // 2}
    bounds = np.stack([start - _FARTHEST, start + _FARTHEST], 1)
    how: dict[str, Any] = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": options, "callback": stop}
    return scipy.optimize.minimize(guarded, start, **how).x
