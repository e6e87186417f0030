"""The ways to train, by their names."""

from typing import Any

from ._filters import GradientDescent, GradientFlow, Normalization, Ridge
from ._momentum import Momentum, MomentumFlow


def ridge(ridge: float = 0.0) -> Ridge:
    """Kernel ridge regression; without a ridge, training to the end.

    >>> import everwide.spectral as sp
    >>> sp.ridge(0.1).ridge
    0.1
    """
    return Ridge(ridge)


def gradient_flow(time: Any, *, normalization: Normalization | str = Normalization.MEAN) -> GradientFlow:
    """Gradient flow until one time or several.

    >>> import everwide.spectral as sp
    >>> sp.gradient_flow([1.0, 10.0]).time
    array([ 1., 10.])
    """
    return GradientFlow(time, normalization=normalization)


def gradient_descent(
    rate: float, steps: Any, *, normalization: Normalization | str = Normalization.MEAN
) -> GradientDescent:
    """Gradient descent, after a number of steps or several.

    >>> import everwide.spectral as sp
    >>> sp.gradient_descent(0.1, 100).rate
    0.1
    """
    return GradientDescent(rate, steps, normalization=normalization)


def momentum(
    rate: float,
    beta: float,
    steps: Any = None,
    *,
    time: Any = None,
    normalization: Normalization | str = Normalization.MEAN,
) -> Momentum | MomentumFlow:
    """Gradient descent with momentum: after `steps` steps, or in the limit of small rates, at a `time` in steps.

    >>> import everwide.spectral as sp
    >>> sp.momentum(0.1, 0.9, 100).beta, sp.momentum(0.1, 0.9, time=99.5).beta
    (0.9, 0.9)
    """
    if (steps is None) == (time is None):
        raise ValueError(f"momentum(steps={steps!r}, time={time!r}): expected one of them.")
    if time is None:
        return Momentum(rate, beta, steps, normalization=normalization)
    return MomentumFlow(rate, beta, time, normalization=normalization)
