"""How fast training must converge where the tangent kernel stays positive definite."""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..._checks import InputError, finite_array, not_negative, positive, probability
from ..._kernel_matrix import checked_kernel, eigenvalue_noise
from ...spectral import KernelError, Spectrum


class Extremes(NamedTuple):
    """Of a symmetric positive definite matrix of `n` rows."""

    smallest: float
    largest: float
    n: int


def definite_extremes(kernel: Any) -> Extremes:
    """Both extremes; a `KernelError` where the smallest cannot be told from 0."""
    matrix = checked_kernel(kernel)
    largest, smallest = Spectrum.largest(matrix), Spectrum.smallest(matrix)
    if not smallest > eigenvalue_noise(kernel):
        raise KernelError(
            f"The smallest eigenvalue of the kernel is {smallest:.3g}, the largest {largest:.3g}: it is singular up to "
            "rounding, and nothing can be proved from it. Drop duplicate rows, and rows that are multiples of others; "
            "compute the kernel in float64."
        )
    return Extremes(smallest, largest, len(matrix))


class ConvergenceRate(NamedTuple):
    """Made by `convergence_rate`."""

    lambda_min: float
    lambda_max: float
    contraction: float
    exponent: float

    @property
    def converges(self) -> bool:
        """Gradient descent with this rate converges."""
        return self.contraction < 1

    def steps_to(self, fraction: float) -> int:
        """Steps of gradient descent after which the loss is below that fraction of the first one, for sure."""
        share = probability(fraction, "fraction")
        if not self.converges:
            raise InputError(
                f"Gradient descent with this rate multiplies the residual by {self.contraction:.4g} in some direction "
                "and never gets there. Take a rate below everwide.training.max_learning_rate."
            )
        if self.contraction == 0:
            return 1
        return max(1, math.ceil(math.log(share) / (2 * math.log(self.contraction))))

    def gronwall_bound(self, time: Any, *, kernel_change: Any, residual: float) -> Float[np.ndarray, "*times"]:
        """How far a network's outputs can be from those of its linearization in gradient flow, at most.

        The root mean square over the training rows, `residual (exp(z change) - 1) exp(-z lambda_min)` with
        `z = rate time / n`: what a kernel that has moved by at most `change` can do to a flow that contracts. It
        vanishes with time only while the kernel moves by less than its smallest eigenvalue.

        Args:
            time: one or several, in steps of the rate.
            kernel_change: the largest `|T_s - T_0|`, in operator norm, up to each time; or one number for all.
            residual: the root mean square of `f - y` at the start, `sqrt(2 loss)`.

        Lee et al. 2019, Wide neural networks of any depth evolve as linear models under gradient descent, appendix;
        they bound `exp(z) - 1` further, by `z exp(z)`.
        """
        at, change = finite_array(time, "time"), finite_array(kernel_change, "kernel_change")
        start = not_negative(residual, "residual")
        if (at < 0).any() or (change < 0).any():
            raise InputError(f"time={time!r}, kernel_change={kernel_change!r}: expected numbers from 0 on.")
        if change.ndim and change.shape != at.shape:
            raise InputError(f"kernel_change has shape {change.shape}: expected one number, or one for each time.")
        shrunk = self.exponent / 2 * at
        grown = shrunk * (change / self.lambda_min)
        grows = np.exp(np.minimum(grown - shrunk, 700.0))  # no overflow: 1e304 says enough
        return np.asarray(start * -np.expm1(-grown) * grows)


def convergence_rate(kernel: Any, rate: float) -> ConvergenceRate:
    """How fast training with a positive definite kernel must converge on the squared loss, from any residual.

    Of a linear model or an infinitely wide network, whose kernel is constant. Where a kernel moves, that of the path's
    smallest `lambda_min` holds for gradient flow.

    Args:
        kernel: `(n, n)`, the tangent kernel of the training rows.
        rate: the learning rate.

    Returns:
        `lambda_min`, `lambda_max` of the kernel; `contraction`, the factor of the residual in the slowest direction in
        each step (its square is the loss's); `exponent`, of the loss under gradient flow with this rate,
        `loss(t) <= exp(-exponent t) loss(0)`; gradient descent is at least as fast where `rate lambda_max <= n`.
        `converges`; `steps_to(fraction)`, of the loss; `gronwall_bound(time, kernel_change=, residual=)`, how far a
        network can be from its linearization.

    >>> import numpy as np
    >>> from everwide.theory import finite_width
    >>> law = finite_width.convergence_rate(np.diag([1.0, 4.0]), 0.25)  # the mean over two rows
    >>> law.exponent, law.contraction, law.steps_to(0.01)
    (0.25, 0.875, 18)
    >>> law.gronwall_bound([0.0, 8.0, 80.0], kernel_change=0.1, residual=2.0).round(4)
    array([0.    , 0.0774, 0.0002])
    """
    ends, step = definite_extremes(kernel), positive(rate, "rate")
    per_row = step / ends.n
    contraction = max(abs(1 - per_row * ends.smallest), abs(1 - per_row * ends.largest))
    return ConvergenceRate(ends.smallest, ends.largest, contraction, 2 * per_row * ends.smallest)
