"""Covariances: of the gradients of batches, and of the parameters that follow them."""

from typing import Any

import numpy as np
from jaxtyping import Float

from ..._checks import Choice, InputError, finite_array, positive, whole
from ...spectral import Spectrum

_STILL = 1e-9  # of the largest noise: along a flat direction there is none


class Sampling(Choice):
    """How the rows of a batch are drawn."""

    WITHOUT_REPLACEMENT = "without replacement"
    WITH_REPLACEMENT = "with replacement"
    INDEPENDENT = "independent"


def gradient_covariance(gradients: Any, batch_size: int, *, sampling: str = "without replacement") -> np.ndarray:
    """The covariance of the gradient of a random batch, from the gradients of all rows.

    Args:
        gradients: `(n, p)`, one row each, as from `everwide.empirical.per_example_gradients`.
        batch_size: rows of a batch, on average if they are drawn independently.
        sampling: `"without replacement"`, as when rows are shuffled; `"with replacement"`; or `"independent"`: every
            row with the probability `batch_size / n`, their sum divided by `batch_size`, so that numbers of rows count
            as noise too.

    Returns:
        `(p, p)`. Its trace is that of `theory.rates.gradient_noise`, which needs no gradients side by side.

    >>> from everwide.theory import sgd_noise
    >>> sgd_noise.gradient_covariance([[1.0], [3.0]], 1), sgd_noise.gradient_covariance([[1.0], [3.0]], 2)
    (array([[1.]]), array([[0.]]))
    """
    slopes, law = finite_array(gradients, "gradients"), Sampling(sampling)
    if slopes.ndim != 2:
        raise InputError(
            f"gradients has shape {slopes.shape}, expected (n, p): one row of parameters for each example."
        )
    n, size = len(slopes), whole(batch_size, "batch_size")
    if size > n and law is not Sampling.WITH_REPLACEMENT:
        raise InputError(f"batch_size={size}: expected at most {n}, the rows that there are.")
    if law is Sampling.INDEPENDENT:
        return (1 - size / n) / (size * n) * slopes.T @ slopes
    centred = slopes - slopes.mean(0)
    left = (n - size) / max(n - 1, 1) if law is Sampling.WITHOUT_REPLACEMENT else 1.0
    return left / (size * n) * centred.T @ centred


def stationary_covariance(hessian: Any, noise: Any, rate: float) -> Float[np.ndarray, "p p"]:
    """How far parameters wander around a minimum, once descent with noisy gradients has settled.

    On a quadratic loss `S` solves `H S + S H - rate H S H = rate C`. Where the noise is in proportion to the curvature,
    `C = a H`, the variance is `a rate / 2` in every direction, to the first order in the rate: a temperature.

    Args:
        hessian: `H`, `(p, p)`, of the mean loss at the minimum: symmetric, positive semidefinite, below `2 / rate`.
        noise: `C`, `(p, p)`, the covariance of the gradients of batches, as from `gradient_covariance`.
        rate: the learning rate.

    Returns:
        `S`, `(p, p)`. The mean loss is higher than at the minimum by half the trace of `H S`.

    >>> import numpy as np
    >>> from everwide.theory import sgd_noise
    >>> sgd_noise.stationary_covariance(np.diag([1.0, 4.0]), np.diag([0.3, 1.2]), 0.1).diagonal().round(4)
    array([0.0158, 0.0188])

    Mandt, Hoffman and Blei 2017, Stochastic gradient descent as approximate Bayesian inference; in discrete time.
    """
    speed, spectrum = positive(rate, "rate"), Spectrum.of(hessian, what="hessian")
    covariance = Spectrum.of(noise, what="noise")
    p = len(spectrum.values)
    if len(covariance.values) != p:
        raise InputError(f"noise has shape {np.shape(noise)}, expected that of the hessian, {(p, p)}.")
    values = np.where(spectrum.learnable, spectrum.values, 0.0)
    if speed * values[-1] >= 2:
        raise InputError(
            f"The largest eigenvalue of the hessian is {values[-1]:.6g}, and 2 / rate is {2 / speed:.6g}: nothing is "
            "stationary from there on. Take a smaller rate."
        )
    turned = spectrum.vectors.T @ (np.asarray(noise, np.float64) @ spectrum.vectors)
    flat = values == 0
    if np.abs(turned[flat]).max(initial=0.0) > _STILL * covariance.values[-1]:
        raise InputError(
            f"hessian has {flat.sum()} flat directions, along some of which gradients have noise: parameters wander "
            "ever further there. Leave those directions out, or add weight decay to the hessian."
        )
    decay = values[:, None] + values - speed * np.outer(values, values)
    spread = np.divide(speed * turned, decay, out=np.zeros_like(turned), where=~(flat[:, None] | flat))
    return spectrum.vectors @ spread @ spectrum.vectors.T
