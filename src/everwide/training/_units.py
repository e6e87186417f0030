"""Rates, steps and times: how they convert, and how large a rate may be."""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .._checks import InputError, share, warn, whole
from .._losses import AbstractLoss, Loss, Mse, as_loss
from ..spectral import KernelError, Spectrum
from ._kernels import ALL, AbstractTrainKernel, MatrixKernel, as_kernel, flat
from ._optimizers import SGD, AbstractOptimizer, AdamStar

Finite = TypeVar("Finite", SGD, AdamStar)


class DivergenceWarning(RuntimeWarning):
    """A run has diverged, and its result is that of the last finite step; or its rate is so large that it will.

    >>> import everwide.training as tr
    >>> issubclass(tr.DivergenceWarning, RuntimeWarning)
    True
    """


def max_learning_rate(kernel: Any, loss: Loss = Mse(), momentum: float = 0.0) -> float:  # noqa: B008
    """The rate above which full-batch gradient descent diverges: `2 (1 + momentum) n / (curvature lam_max)`.

    Exact for the squared loss; for cross-entropies a rate below which descent is stable wherever it is. Losses without
    a bound on their curvature have no such rate.

    Args:
        kernel: as in `train`.
        loss: the mean over the rows of this is descended.
        momentum: of gradient descent, from 0 to below 1.

    Returns:
        The largest stable learning rate.

    >>> import everwide.training as tr, numpy as np
    >>> tr.max_learning_rate(np.diag([1.0, 4.0]))
    1.0
    >>> tr.max_learning_rate(np.diag([1.0, 4.0]), momentum=0.5)
    1.5
    """
    matrix, law, kept = as_kernel(kernel), as_loss(loss), share(momentum, "momentum")
    if not np.isfinite(law.curvature):
        raise InputError(
            f"{type(law).__name__} has no largest second derivative, so there is no rate that is stable everywhere."
        )
    largest = largest_eigenvalue(matrix)
    if largest <= 0:
        raise KernelError("The kernel is zero: nothing is learned at any rate.")
    return 2 * (1 + kept) * matrix.rows / (law.curvature * largest)


def largest_eigenvalue(kernel: AbstractTrainKernel) -> float:
    """Of the kernel of all outputs, in float64 where it is a matrix."""
    if isinstance(kernel, MatrixKernel):
        return Spectrum.largest(flat(np.asarray(kernel.matrix, np.float64)))
    with jax.enable_x64(kernel.dtype == np.float64):
        image = jax.jit(lambda v: kernel.product(ALL, v))
        return Spectrum.largest(lambda v: np.asarray(image(jnp.asarray(v[None], kernel.dtype)))[0], kernel.rows)


def warn_if_unstable(kernel: AbstractTrainKernel, loss: AbstractLoss, optimizer: AbstractOptimizer) -> None:
    """Warn of a rate at which the squared loss diverges for sure."""
    if not isinstance(loss, Mse) or not isinstance(optimizer, SGD) or callable(optimizer.rate) or optimizer.nesterov:
        return
    limit = max_learning_rate(kernel, loss, optimizer.momentum)
    if optimizer.rate > limit * (1 + 1e-6):
        warn_of_rate(float(optimizer.rate), limit)


def warn_of_rate(rate: float, limit: float) -> None:
    """Name the rate and the limit."""
    warn(
        f"The learning rate {rate:.6g} is above the largest stable one, {limit:.6g}: training diverges. "
        "See everwide.training.max_learning_rate.",
        DivergenceWarning,
    )


def to_finite(optimizer: Finite, width: int, *, readout: str = "sqrt") -> Finite:
    """The optimizer with which `width` features, trained weight by weight, learn the same function.

    Args:
        optimizer: `SGD(...)` or `AdamStar(...)`, in function space.
        width: of the features `g`.
        readout: "sqrt": the model `f = g . M / sqrt(width)`, whose features `g / sqrt(width)` have this kernel.
            Gradient descent is the same; ADAM* averages over the width where the norm adds, so `rate` and `eps` are
            divided by `sqrt(width)`, and `weight_decay`, which is relative to the rate, is multiplied.
            "mean": the model `f = mean(g * M)`, whose weights are larger by `sqrt(width)` and whose gradients are
            smaller by it: `l2` is divided by `width`. For ADAM* so is `eps`, and the rate is the same; for gradient
            descent `rate` is multiplied, and `weight_decay` divided by `width`.

    Returns:
        An optimizer of the same kind.

    >>> import everwide.training as tr
    >>> finite = tr.to_finite(tr.AdamStar(0.1, eps=1e-6), width=100)
    >>> round(finite.rate, 6), round(finite.eps, 12)
    (0.01, 1e-07)
    """
    return _scaled(optimizer, float(whole(width, "width")), readout)


def from_finite(optimizer: Finite, width: int, *, readout: str = "sqrt") -> Finite:
    """The optimizer in function space of one of `width` features: the inverse of `to_finite`.

    Args:
        optimizer: `SGD(...)` or `AdamStar(...)`, of the weights `M`.
        width: of the features.
        readout: as in `to_finite`.

    Returns:
        An optimizer of the same kind.

    >>> import everwide.training as tr
    >>> round(tr.from_finite(tr.AdamStar(0.01, eps=1e-7), width=100).rate, 6)
    0.1
    """
    return _scaled(optimizer, 1 / whole(width, "width"), readout)


def _scaled(optimizer: Finite, width: float, readout: str) -> Finite:
    if readout not in ("sqrt", "mean"):
        raise InputError(f"readout={readout!r}: expected 'sqrt' (f = g . M / sqrt(width)) or 'mean' (f = mean(g * M)).")
    mean = readout == "mean"
    l2 = optimizer.l2 / width if mean else optimizer.l2
    # Decay is relative to the rate: the same share of the weights is lost.
    if isinstance(optimizer, SGD):
        faster = width if mean else 1.0
        scales = {"weight_decay": optimizer.weight_decay / faster, "l2": l2}
    else:
        faster = 1.0 if mean else width**-0.5
        eps = optimizer.eps * (1 / width if mean else width**-0.5)
        scales = {"eps": eps, "weight_decay": optimizer.weight_decay / faster, "l2": l2}
    old = optimizer.rate
    rate = (lambda step: faster * old(step)) if callable(old) else faster * old
    return dataclasses.replace(optimizer, rate=rate, **scales)
