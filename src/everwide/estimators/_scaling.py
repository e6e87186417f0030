"""Inputs and targets in units of the training rows."""

from dataclasses import dataclass

import numpy as np
import scipy.special
from jaxtyping import Bool, Float, Int

_CONSTANT = 1e-12  # of the size of a column: below, it does not vary
_SMALLEST = 1e-290  # below, a number is zero: its inverse would be infinite
_RAREST = 0.2  # the least standard deviation of a category: rare levels do not drown all else
# In Gaussian standard deviations. Uncertainty is to grow where nothing was seen; rare targets are worth knowing.
_FENCE, UNSURE_FENCE, TARGET_FENCE = 5.0, 10.0, 20.0
_BEYOND = 1.5  # rows on each side that are never inside: so one that is alone is seen for what it is
_TAILS = (0.02, 0.05, 0.1, 0.25)  # shares of rows on each side, from which these are read: the widest counts
_BINARY = np.array([0.0, 1.0])
_MOST_KNOTS = 1000
_OUTERMOST = 1e-3  # a share of rows: no rank is further out in the Gaussian

Groups = Int[np.ndarray, " d"] | None
ALONE, AS_IT_IS = -1, -2  # a column of no group; one that is not scaled by how much it varies


def counted(weights: Float[np.ndarray, " n"]) -> float:
    """As how many rows they count: their sum, or if more, as many equal ones as tell a mean as well (Kish, 1965).

    Shares of a sum do not make fewer rows of many, and rows that weigh next to nothing are none.
    """
    return max(float(weights.sum()), float(weights.sum() ** 2 / np.sum(weights**2)))


@dataclass(frozen=True)
class Fences:
    """Values far beyond those of nearly all rows are drawn near: at most one unit beyond a fence.

    The order of values stays, and with it their ranks. One number a hundred times too large would otherwise be all that
    a network sees of a column.
    """

    low: Float[np.ndarray, " columns"]
    high: Float[np.ndarray, " columns"]
    unit: Float[np.ndarray, " columns"]

    @classmethod
    def of(
        cls,
        x: Float[np.ndarray, "n d"],
        weights: Float[np.ndarray, " n"],
        groups: Groups = None,
        *,
        far: float = _FENCE,
        tight: bool = True,
    ) -> "Fences":
        """Around training rows within `far` Gaussian standard deviations, or there; none around zeros and ones."""
        numbers = np.full(x.shape[1], True) if groups is None else groups == ALONE
        none = (-np.inf, np.inf, 1.0)
        edges = [_fence(c, weights, far, tight) if fenced else none for c, fenced in zip(x.T, numbers, strict=True)]
        return cls(*(np.array(part) for part in zip(*edges, strict=True)))

    def __call__(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        inside = np.clip(x, self.low, self.high)
        beyond = x - inside
        return inside + self.unit * (beyond / (self.unit + np.abs(beyond)))

    def beyond(self, x: Float[np.ndarray, "n d"]) -> Bool[np.ndarray, "n d"]:
        """Which values are drawn near."""
        return (x < self.low) | (x > self.high)


def _fence(column: np.ndarray, weights: np.ndarray, far: float, tight: bool) -> tuple[float, float, float]:
    order, largest = np.argsort(column), max(float(np.abs(column).max()), _SMALLEST)
    values, reached = column[order] / largest, np.cumsum(weights[order]) / weights.sum()

    def at(share: float) -> float:
        return float(values[min(int(np.searchsorted(reached, share)), len(values) - 1)])

    tails = np.clip(_BEYOND / counted(weights), _TAILS, _TAILS[-1])
    unit = max((at(1 - p) - at(p)) / -2 / float(scipy.special.ndtri(p)) for p in tails)
    if not unit > _CONSTANT:  # nearly all rows have one value: then all that there is, is inside
        return float(column[order[0]]), float(column[order[-1]]), largest
    if not tight:
        return (at(0.5) - far * unit) * largest, (at(0.5) + far * unit) * largest, unit * largest
    near = column[order[np.abs(values - at(0.5)) <= far * unit]]
    return float(near[0]), float(near[-1]), float(unit) * largest


@dataclass(frozen=True)
class InputScaling:
    """`(x - mean) * factor`. Columns that never vary have the factor 0: a network is not shown what it cannot learn.

    Images are scaled by channel, other inputs by column, after they were drawn inside of their fences, where there are
    some. The mean square of all columns is 1, constant ones included. Columns of one group (the levels of a category)
    have one factor, and together the variance of one column.
    """

    mean: Float[np.ndarray, " channels"]
    factor: Float[np.ndarray, " channels"]
    fences: Fences | None = None

    @classmethod
    def of(
        cls,
        x: Float[np.ndarray, "n *sites channels"],
        weights: Float[np.ndarray, " n"],
        groups: Groups = None,
        fences: Fences | None = None,
    ) -> "InputScaling":
        """Of training rows; groups have numbers from 0 on. What says that values are missing stays zeros and ones."""
        rows = x.reshape(-1, x.shape[-1]) if fences is None else fences(x)
        share = np.repeat(weights, len(rows) // len(x))
        share = share / share.sum()
        mean, std, largest = _moments(rows, share)
        varies = std > _CONSTANT
        units = int(varies.sum())
        if groups is not None:
            units = int((varies & (groups == ALONE)).sum()) + len(np.unique(groups[varies & (groups >= 0)]))
            std = np.where(groups == AS_IT_IS, 1.0, std)
            for group in np.unique(groups[groups >= 0]):
                std[groups == group] = max(np.sqrt(np.sum(std[groups == group] ** 2)), _RAREST)
        shown = max(units, 1)
        factor = np.where(varies, np.sqrt(len(varies) / shown) / np.where(varies, std, 1.0), 0.0)
        return cls(mean * largest, factor / largest, fences)

    def __call__(self, x: Float[np.ndarray, "n *sites channels"]) -> Float[np.ndarray, "n *sites channels"]:
        return ((x if self.fences is None else self.fences(x)) - self.mean) * self.factor


@dataclass(frozen=True)
class TargetScaling:
    """`(y - mean) / std`, one for each output; `std` is the size of a target that never varies."""

    mean: Float[np.ndarray, " outputs"]
    std: Float[np.ndarray, " outputs"]

    @classmethod
    def of(cls, y: Float[np.ndarray, "n outputs"], weights: Float[np.ndarray, " n"]) -> "TargetScaling":
        """Of training rows."""
        mean, std, largest = _moments(y, weights / weights.sum())
        return cls(mean * largest, np.where(std > _CONSTANT, std, 1.0) * largest)

    def __call__(self, y: Float[np.ndarray, "n outputs"]) -> Float[np.ndarray, "n outputs"]:
        return (y - self.mean) / self.std

    def back(self, y: Float[np.ndarray, "*any outputs"]) -> Float[np.ndarray, "*any outputs"]:
        """In the user's units again."""
        return y * self.std + self.mean


@dataclass(frozen=True)
class Quantiles:
    """For each column, values of training rows and the quantiles of a Gaussian that belong to their ranks."""

    knots: tuple[Float[np.ndarray, " _"], ...]
    scores: tuple[Float[np.ndarray, " _"], ...]

    @classmethod
    def of(cls, x: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"], groups: Groups = None) -> "Quantiles":
        """Of training rows; a row of weight w counts as w rows. The zeros and ones of groups stay what they are."""
        ranked = np.full(x.shape[1], True) if groups is None else groups == ALONE
        columns = [_knots(x[:, at], weights) if ranked[at] else (_BINARY, _BINARY) for at in range(x.shape[1])]
        return cls(tuple(knots for knots, _ in columns), tuple(scores for _, scores in columns))

    def __call__(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Between values the quantiles are straight lines; beyond the outermost ones they stay."""
        scored = np.empty(x.shape)
        for at, (knots, scores) in enumerate(zip(self.knots, self.scores, strict=True)):
            scored[:, at] = np.interp(x[:, at], knots, scores)
        return scored


def _knots(column: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, place = np.unique(column, return_inverse=True)
    counts = np.bincount(place, weights, len(values))
    ranks = (np.cumsum(counts) - counts / 2) / counts.sum()
    kept = np.unique(np.linspace(0, len(values) - 1, _MOST_KNOTS).astype(int))
    return values[kept], scipy.special.ndtri(np.clip(ranks[kept], _OUTERMOST, 1 - _OUTERMOST))


@dataclass(frozen=True)
class TwoViews:
    """Scaled columns beside their scaled quantiles."""

    plain: InputScaling
    quantiles: Quantiles
    ranked: InputScaling

    @classmethod
    def of(cls, x: Float[np.ndarray, "n d"], weights: Float[np.ndarray, " n"], groups: Groups = None) -> "TwoViews":
        """Of training rows."""
        quantiles = Quantiles.of(x, weights, groups)
        plain, ranked = InputScaling.of(x, weights, groups), InputScaling.of(quantiles(x), weights, groups)
        return cls(plain, quantiles, ranked)

    def __call__(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n more"]:
        return np.concatenate([self.plain(x), self.ranked(self.quantiles(x))], axis=1)


def _moments(
    rows: Float[np.ndarray, "n k"], share: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Mean and standard deviation in units of the largest entry, which keeps squares finite; and that entry."""
    largest = np.abs(rows).max(0)
    largest = np.where(largest > _SMALLEST, largest, 1.0)
    unit = rows / largest
    mean = share @ unit
    return mean, np.sqrt(share @ (unit - mean) ** 2), largest
