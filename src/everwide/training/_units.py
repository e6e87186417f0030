"""Rates, steps and times: how they convert, and how large a rate may be."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..spectral import KernelError, Normalization
from ..spectral._extremes import lanczos_largest
from ..spectral._extremes import largest_eigenvalue as spectral_largest
from ._kernels import AbstractTrainKernel, MatrixKernel, as_kernel
from ._losses import AbstractLoss, Loss, as_loss, mse
from ._optimizers import SGD, AbstractOptimizer, AdamStar


class StabilityWarning(UserWarning):
    """A learning rate above the largest stable one.

    >>> import everwide.training as tr
    >>> issubclass(tr.StabilityWarning, UserWarning)
    True
    """


def max_learning_rate(
    kernel: Any,
    loss: Loss = mse,
    momentum: float = 0.0,
    *,
    normalization: Normalization | str = Normalization.MEAN,
) -> float:
    """The rate above which full-batch gradient descent diverges: `2 (1 + momentum) / (curvature lam_max)`.

    For the `mean` loss it is larger by the number of rows. Exact for the squared loss; for cross-entropies a rate
    below which descent is stable wherever it is. Losses without a bound on their curvature have no such rate.

    >>> import everwide.training as tr, numpy as np
    >>> tr.max_learning_rate(np.diag([1.0, 4.0]), normalization="sum")
    0.5
    >>> tr.max_learning_rate(np.diag([1.0, 4.0]), momentum=0.5)  # the mean over two rows
    1.5
    """
    found, curvature = as_kernel(kernel), as_loss(loss).curvature
    if not 0 <= momentum < 1:
        raise ValueError(f"max_learning_rate(momentum={momentum!r}): expected a number from 0 to below 1.")
    if not np.isfinite(curvature):
        raise ValueError(
            f"{type(as_loss(loss)).__name__} has no largest second derivative, so there is no rate that is stable "
            "everywhere. Pass the largest one that you expect: Custom(loss, curvature=...)."
        )
    largest = largest_eigenvalue(found)
    if largest <= 0:
        raise KernelError("The kernel is zero: nothing is learned at any rate.")
    return 2 * (1 + momentum) * Normalization(normalization).divisor(found.rows) / (curvature * largest)


def largest_eigenvalue(kernel: AbstractTrainKernel) -> float:
    """Of the kernel of all outputs, in float64 where it is a matrix."""
    if isinstance(kernel, MatrixKernel):
        matrix = np.asarray(kernel.matrix, np.float64)
        n = len(matrix) if matrix.ndim == 2 else matrix.shape[0] * matrix.shape[2]
        flat = matrix if matrix.ndim == 2 else matrix.transpose(0, 2, 1, 3).reshape(n, n)
        return spectral_largest(flat)
    with jax.enable_x64(kernel.dtype == np.float64):
        whole = jax.jit(lambda v: kernel.whole(v))
        return lanczos_largest(kernel.rows, lambda v: np.asarray(whole(jnp.asarray(v[None], kernel.dtype)))[0])


def warn_if_unstable(
    kernel: AbstractTrainKernel, loss: AbstractLoss, optimizer: AbstractOptimizer, normalization: Normalization
) -> None:
    """Warn of a rate at which the squared loss diverges for sure."""
    if not isinstance(optimizer, SGD) or callable(optimizer.rate) or loss is not mse or optimizer.nesterov:
        return
    limit = max_learning_rate(kernel, loss, optimizer.momentum, normalization=normalization)
    if optimizer.rate > limit * (1 + 1e-6):
        warn_of_rate(optimizer.rate, limit)


def warn_of_rate(rate: float, limit: float) -> None:
    """Name the rate and the limit."""
    warnings.warn(
        f"The learning rate {rate:.6g} is above the largest stable one, {limit:.6g}: training diverges. "
        "See everwide.training.max_learning_rate.",
        StabilityWarning,
        stacklevel=4,
    )


def flow_time(rate: float, steps: float, momentum: float = 0.0) -> float:
    """The time of gradient flow that corresponds to `steps` small steps: `rate * steps / (1 - momentum)`.

    >>> import everwide.training as tr
    >>> tr.flow_time(0.1, 50)
    5.0
    """
    _check_units(rate, momentum)
    return rate * steps / (1 - momentum)


def steps_for(time: float, rate: float, momentum: float = 0.0) -> int:
    """The steps that take gradient descent to that time of gradient flow, rounded up.

    >>> import everwide.training as tr
    >>> tr.steps_for(5.0, 0.1)
    50
    """
    _check_units(rate, momentum)
    return int(np.ceil(time * (1 - momentum) / rate * (1 - 1e-12)))


def _check_units(rate: float, momentum: float) -> None:
    if not (rate > 0 and 0 <= momentum < 1):
        raise ValueError(
            f"rate={rate!r}, momentum={momentum!r}: expected a rate above 0 and a momentum from 0 to below 1."
        )


def convert_time(time: float, rows: int, *, given: Normalization | str, wanted: Normalization | str) -> float:
    """The time (or rate) that does under one normalization what `time` does under the other.

    >>> import everwide.training as tr
    >>> tr.convert_time(1.0, 50, given="sum", wanted="mean")
    50.0
    """
    return time * Normalization(wanted).divisor(rows) / Normalization(given).divisor(rows)


def to_finite(optimizer: AdamStar, width: int, *, readout: str = "sqrt") -> AdamStar:
    """The rate and `eps` with which ADAM* trains `width` features to the same function.

    - `readout="sqrt"`: the model `f = g . M / sqrt(width)`; both are divided by `sqrt(width)`.
    - `readout="mean"`: the model `f = mean(g * M)`; `eps` is divided by `width`, the rate is the same.

    >>> import everwide.training as tr
    >>> finite = tr.to_finite(tr.AdamStar(0.1, eps=1e-6), width=100)
    >>> round(finite.rate, 6), round(finite.eps, 12)
    (0.01, 1e-07)
    """
    rate, eps = _finite_scales(width, readout)
    return _scaled(optimizer, rate, eps)


def from_finite(optimizer: AdamStar, width: int, *, readout: str = "sqrt") -> AdamStar:
    """The rate and `eps` in function space of ADAM* on `width` features: the inverse of `to_finite`.

    >>> import everwide.training as tr
    >>> round(tr.from_finite(tr.AdamStar(0.01, eps=1e-7), width=100).rate, 6)
    0.1
    """
    rate, eps = _finite_scales(width, readout)
    return _scaled(optimizer, 1 / rate, 1 / eps)


def _finite_scales(width: int, readout: str) -> tuple[float, float]:
    if readout not in ("sqrt", "mean"):
        raise ValueError(f"readout={readout!r}: expected 'sqrt' (f = g . M / sqrt(width)) or 'mean' (f = mean(g * M)).")
    if width < 1:
        raise ValueError(f"width={width}: expected at least 1.")
    return (width**-0.5, width**-0.5) if readout == "sqrt" else (1.0, 1.0 / width)


def _scaled(optimizer: AdamStar, rate: float, eps: float) -> AdamStar:
    old = optimizer.rate
    new = (lambda step: rate * old(step)) if callable(old) else rate * old
    # Decay is relative to the rate: the same share of the weights is lost.
    return AdamStar(
        rate=new,
        b1=optimizer.b1,
        b2=optimizer.b2,
        eps=eps * optimizer.eps,
        weight_decay=optimizer.weight_decay / rate,
        l2=optimizer.l2,
    )
