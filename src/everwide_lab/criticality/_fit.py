"""Estimates from many networks, with their errors."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_GROUPS = 20
_CLEAR = 5.0  # standard errors that a value must be away from zero to be looked at


class Estimate(NamedTuple):
    """A number and two standard errors of it."""

    value: float
    error: float


def jackknife(statistic: Callable[[np.ndarray], float], values: np.ndarray) -> Estimate:
    """A statistic of all networks (the first axis), and its error: one group of them after the other is left out."""
    groups = min(_GROUPS, len(values))
    if groups < 2:
        return Estimate(statistic(values), math.inf)
    member = np.arange(len(values)) % groups
    without = np.array([statistic(values[member != group]) for group in range(groups)])
    error = math.sqrt((groups - 1) * np.mean((without - without.mean()) ** 2))
    return Estimate(statistic(values), 2 * error if math.isfinite(error) else math.inf)


def mean_of(values: np.ndarray) -> Estimate:
    """The mean over networks."""
    return jackknife(lambda v: float(v.mean()), values)


def relative_variance(values: np.ndarray) -> Estimate:
    """`Var / mean^2` over networks."""
    return jackknife(lambda v: float(v.var() / v.mean() ** 2), values)


def decay_length(values: np.ndarray, largest: float) -> Estimate:
    """Layers over which the mean over networks, of values `(nets, looks)`, falls by `e`.

    A line through the logarithms, from the first mean below `largest` to the last that is clear of noise.
    """
    mean, error = values.mean(0), values.std(0) / math.sqrt(len(values))
    below = np.flatnonzero(mean <= largest)
    start = int(below[0]) if len(below) else len(mean)
    clear = np.flatnonzero(mean[start:] < _CLEAR * error[start:])
    end = start + (int(clear[0]) if len(clear) else len(mean) - start)
    if end - start < 3:
        return Estimate(math.inf, math.inf)
    depth = np.arange(start, end)
    weight = 1 / np.maximum(error / mean, 1e-3)[start:end]

    def length(v: np.ndarray) -> float:
        with np.errstate(invalid="ignore"):  # without one group a mean may be negative
            logs = np.log(v.mean(0)[start:end])
        return float(-1 / np.polyfit(depth, logs, 1, w=weight)[0]) if np.all(np.isfinite(logs)) else math.nan

    return jackknife(length, values)
