"""Architectures beside each other, by what they would reach with more data."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .._checks import InputError
from ._forecast import Forecast, forecast


class Ranked(NamedTuple):
    """One architecture at the largest `n`: its forecast, and how probable it is that it is the best of all."""

    name: str
    forecast: Forecast
    best: float


def compare_forecasts(
    kernels: Mapping[str, Any],
    x: Any,
    y: Any,
    n: Any = None,
    *,
    task: str = "auto",
    which: str = "ntk",
    level: float = 0.9,
    seed: int = 0,
) -> tuple[Ranked, ...]:
    """Forecast each architecture from the same pilot, and rank them by the error at the largest `n`.

    The rows of the pilot are resampled alike for all, so that an easy pilot favours none.

    Args:
        kernels: networks (or what `forecast` takes) by name.
        x: as in `forecast`, as all others.
        y: as in `forecast`.
        n: as in `forecast`.
        task: as in `forecast`.
        which: as in `forecast`.
        level: as in `forecast`.
        seed: as in `forecast`.

    Returns:
        From the best down: `name`, `forecast`, and `best`, the probability that it is the best of all.

    >>> import everwide as ew, everwide.forecasting as fc, numpy as np
    >>> x = np.random.default_rng(0).normal(size=(200, 3))
    >>> nets = {"flat": ew.Dense(1), "deep": ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))}
    >>> [one.name for one in fc.compare_forecasts(nets, x, np.abs(x[:, 0]), n=[400])]
    ['deep', 'flat']
    """
    if not isinstance(kernels, Mapping) or not kernels:
        raise InputError("compare_forecasts: expected at least one architecture, by name: {'deep': net, ...}.")
    options = {"task": task, "which": which, "level": level, "seed": seed}
    curves = {name: forecast(kernel, x, y, n, **options) for name, kernel in kernels.items()}
    largest = int(max(next(iter(curves.values())).n))
    draws = np.stack([each.beliefs.log_errors([largest])[0] for each in curves.values()])
    best = np.bincount(np.argmin(draws, axis=0), minlength=len(curves)) / draws.shape[1]
    ranked = [Ranked(name, each, float(share)) for (name, each), share in zip(curves.items(), best, strict=True)]
    return tuple(sorted(ranked, key=lambda one: float(one.forecast.error[one.forecast.n.argmax()])))
