"""Kernels of networks with layers that are sampled: means over draws, and their standard errors."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ._checks import warn
from ._engine import Field
from ._kernels import Infinite

DRAWS = 8
_MOST = 256  # draws for a tolerance


class Asked(NamedTuple):
    """How many draws there must be, and the standard error that ends them, as a share of the largest entry."""

    draws: int = DRAWS
    tolerance: float | None = None


def averaged(
    draw: Callable[[Infinite], dict[Field, np.ndarray]], kernel: Infinite, asked: Asked
) -> tuple[dict[Field, np.ndarray], dict[Field, np.ndarray]]:
    """Means and standard errors over draws with seeds of their own; `draw` may give the same arrays every time."""
    count, mean, square = 0, dict[Field, np.ndarray](), dict[Field, np.ndarray]()
    while True:
        seed = np.asarray(np.asarray(0 if kernel.seed is None else kernel.seed) + count, np.uint32)
        for field, values in draw(replace(kernel, seed=seed)).items():
            old = mean.get(field, np.zeros(values.shape))
            mean[field] = old + (values - old) / (count + 1)
            square[field] = square.get(field, 0.0) + (values - old) * (values - mean[field])
        count += 1
        if count < max(asked.draws, 2):
            continue
        errors: dict[Field, np.ndarray] = {f: np.sqrt(total / (count - 1) / count) for f, total in square.items()}
        worst = max(float(errors[f].max() / max(np.abs(mean[f]).max(), 1e-300)) for f in mean)
        if asked.tolerance is None or worst <= asked.tolerance:
            return mean, errors
        if count >= _MOST:
            warn(
                f"After {count} draws the standard error is {worst:.1g} of the largest entry, and "
                f"{asked.tolerance:.1g} was asked for. Give the sampled layers a larger width.",
                RuntimeWarning,
            )
            return mean, errors
