"""The ways to train on the squared loss, by their names."""

from typing import Any

import numpy as np

from .._checks import InputError, not_negative, positive, share
from ._filters import GradientDescent, GradientFlow, Ridge
from ._momentum import Momentum, MomentumFlow


def ridge(ridge: float = 0.0) -> Ridge:
    """Kernel ridge regression, the mean of a Gaussian process; without a ridge, training to the end.

    Args:
        ridge: added to the diagonal of the kernel.

    Returns:
        The filter `1 / (lam + ridge)` of the eigenvalues `lam`.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.ridge(1.0)(np.array([1.0, 3.0]))
    array([0.5 , 0.25])
    """
    return Ridge(not_negative(ridge, "ridge"))


def gradient_flow(time: Any) -> GradientFlow:
    """Gradient flow on the mean squared loss of `n` rows, `df/dt = -K (f - y) / n`.

    Args:
        time: one time, or several in ascending order; `inf` is the end of training.

    Returns:
        The filter `(1 - exp(-time lam / n)) / lam` of the eigenvalues `lam`; `n` is their number unless it is given.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.gradient_flow([0.0, 1.0, np.inf])(np.array([0.5]))
    array([[0.    ],
           [0.7869],
           [2.    ]])
    """
    return GradientFlow(_times("time", time))


def gradient_descent(rate: float, steps: Any) -> GradientDescent:
    """Gradient descent on the mean squared loss of `n` rows: `f <- f - rate K (f - y) / n`.

    A rate above `2 n / lam` makes that mode diverge: see `everwide.training.max_learning_rate`.

    Args:
        rate: the learning rate.
        steps: how many, or several numbers in ascending order.

    Returns:
        The filter `(1 - (1 - rate lam / n)^steps) / lam` of the eigenvalues `lam`.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.gradient_descent(0.5, [1, 2])(np.array([1.0]))
    array([[0.5 ],
           [0.75]])
    """
    return GradientDescent(positive(rate, "rate"), _whole(_times("steps", steps)))


def momentum(rate: float, momentum: float, steps: Any = None, *, time: Any = None) -> Momentum | MomentumFlow:
    """Gradient descent with momentum (heavy ball), or its limit of small rates.

    The steps are those of `optax.sgd(rate, momentum)` and of PyTorch, the limit that of `neural_tangents.predict`.

    Args:
        rate: the learning rate, on the mean over the rows.
        momentum: from 0 to below 1.
        steps: how many, or several numbers in ascending order.
        time: instead of them, times of the limit, which count steps.

    Returns:
        The filter of the eigenvalues.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.momentum(0.5, 0.9, [1, 2])(np.array([1.0]))
    array([[0.5],
           [1.2]])
    >>> sp.momentum(0.01, 0.9, time=[0.0, 5.0, np.inf])(np.array([2.0]))
    array([[0.        ],
           [0.10231499],
           [0.5       ]])
    """
    if (steps is None) == (time is None):
        raise InputError(f"momentum(steps={steps!r}, time={time!r}): expected one of them.")
    rate, kept = positive(rate, "rate"), share(momentum, "momentum")
    if time is None:
        return Momentum(rate, kept, _whole(_times("steps", steps)))
    return MomentumFlow(rate, kept, _times("time", time))


def _times(label: str, value: Any) -> np.ndarray:
    """One time or several, in order."""
    times = np.asarray(value, np.float64)
    if not times.size or np.isnan(times).any() or (times < 0).any():
        raise InputError(f"{label}={value!r}: expected a time, or several, from 0 on.")
    if times.ndim > 1 or (times.ndim == 1 and (np.diff(times) < 0).any()):
        raise InputError(f"{label}={value!r}: expected one time, or a list in ascending order. Sort it.")
    return times


def _whole(steps: np.ndarray) -> np.ndarray:
    """Finite whole numbers."""
    if not np.isfinite(steps).all() or (steps != np.floor(steps)).any():
        raise InputError(f"steps={steps}: expected whole numbers. A flow has times between them, ridge() the end.")
    return steps
