"""The ways to train on the squared loss, by their names."""

import math
from typing import Any

import numpy as np

from ._filters import GradientDescent, GradientFlow, Normalization, Ridge
from ._momentum import Momentum, MomentumFlow


def ridge(ridge: float = 0.0) -> Ridge:
    """Kernel ridge regression, the mean of a Gaussian process; without a ridge, training to the end.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.ridge(1.0)(np.array([1.0, 3.0]))
    array([0.5 , 0.25])
    """
    if not 0 <= ridge < math.inf:
        raise ValueError(f"ridge(ridge={ridge!r}): expected a finite number, at least 0.")
    return Ridge(float(ridge))


def gradient_flow(time: Any, *, normalization: Normalization | str = Normalization.MEAN) -> GradientFlow:
    """Gradient flow `df/dt = -K (f - y)` (sum), or that over the number of rows (mean), at one time or several.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.gradient_flow([0.0, 1.0, np.inf], normalization="sum")(np.array([0.5]))
    array([[0.    ],
           [0.7869],
           [2.    ]])
    """
    return GradientFlow(_times("gradient_flow", "time", time), Normalization(normalization))


def gradient_descent(
    rate: float, steps: Any, *, normalization: Normalization | str = Normalization.MEAN
) -> GradientDescent:
    """After one number of steps or several: `f <- f - rate K (f - y)` (sum), or that over the number of rows (mean).

    A rate above `2 / lam` makes that mode diverge: see `everwide.training.max_learning_rate`.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.gradient_descent(0.5, [1, 2], normalization="sum")(np.array([1.0]))
    array([[0.5 ],
           [0.75]])
    """
    taken = _whole("gradient_descent", _times("gradient_descent", "steps", steps))
    return GradientDescent(_positive("gradient_descent", rate), taken, Normalization(normalization))


def momentum(
    rate: float,
    beta: float,
    steps: Any = None,
    *,
    time: Any = None,
    normalization: Normalization | str = Normalization.MEAN,
) -> Momentum | MomentumFlow:
    """Gradient descent with momentum, after `steps` steps; or its limit of small rates, at a `time` that counts steps.

    The steps are those of `optax.sgd(rate, momentum=beta)` and of PyTorch's SGD, the limit that of
    `neural_tangents.predict`.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.momentum(0.5, 0.9, [1, 2], normalization="sum")(np.array([1.0]))
    array([[0.5],
           [1.2]])
    >>> sp.momentum(0.01, 0.9, time=[0.0, 5.0, np.inf], normalization="sum")(np.array([2.0]))
    array([[0.        ],
           [0.10231499],
           [0.5       ]])
    """
    if (steps is None) == (time is None):
        raise ValueError(f"momentum(steps={steps!r}, time={time!r}): expected one of them.")
    if not 0 <= beta < 1:
        raise ValueError(f"momentum(beta={beta!r}): expected a number from 0 to below 1.")
    rate, law = _positive("momentum", rate), Normalization(normalization)
    if time is None:
        return Momentum(rate, float(beta), _whole("momentum", _times("momentum", "steps", steps)), law)
    return MomentumFlow(rate, float(beta), _times("momentum", "time", time), law)


def _positive(name: str, rate: float) -> float:
    if not 0 < rate < math.inf:
        raise ValueError(f"{name}(rate={rate!r}): expected a finite number above 0.")
    return float(rate)


def _times(name: str, argument: str, value: Any) -> np.ndarray:
    """One time or several, in order."""
    found = np.asarray(value, np.float64)
    if not found.size or np.isnan(found).any() or (found < 0).any():
        raise ValueError(f"{name}({argument}={value!r}): expected a time, or several, from 0 on.")
    if found.ndim > 1 or (found.ndim == 1 and (np.diff(found) < 0).any()):
        raise ValueError(f"{name}({argument}={value!r}): expected one time, or a list in ascending order. Sort it.")
    return found


def _whole(name: str, steps: np.ndarray) -> np.ndarray:
    """Finite whole numbers."""
    if not np.isfinite(steps).all() or (steps != np.floor(steps)).any():
        raise ValueError(
            f"{name}(steps={steps}): expected whole numbers. A flow has times between them, ridge() the end."
        )
    return steps
