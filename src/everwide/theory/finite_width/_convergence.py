"""How fast training must converge where the tangent kernel stays positive definite."""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..._checks import InputError, finite_array, not_negative, positive
from ._extremes import definite_extremes


class ConvergenceRate(NamedTuple):
    """How fast the squared loss falls under a constant kernel, at least. Made by `convergence_rate`.

    - `lambda_min`, `lambda_max`: of the kernel.
    - `contraction`: the factor of the residual's norm in the slowest direction, each step; its square is the loss's.
    - `exponent`: of the loss under gradient flow with this rate, `loss(t) <= exp(-exponent t) loss(0)`. Gradient
      descent is at least as fast where `rate lambda_max / n <= 1`.

    >>> import numpy as np

    >>> from everwide.theory import finite_width
    >>> finite_width.convergence_rate(np.diag([1.0, 4.0]), 0.5).contraction
    0.75
    """

    lambda_min: float
    lambda_max: float
    contraction: float
    exponent: float

    @property
    def converges(self) -> bool:
        """Gradient descent with this rate converges."""
        return self.contraction < 1

    def steps_to(self, fraction: float) -> int:
        """Steps of gradient descent after which the loss is below that fraction of the first one, for sure.

        >>> import numpy as np

        >>> from everwide.theory import finite_width
        >>> finite_width.convergence_rate(np.diag([1.0, 4.0]), 0.5).steps_to(0.01)
        9
        """
        if not 0 < fraction < 1:
            raise InputError(f"fraction={fraction!r}: expected a number between 0 and 1, such as 0.01.")
        if not self.converges:
            raise InputError(
                f"Gradient descent with this rate multiplies the residual by {self.contraction:.4g} in some direction "
                "and never gets there. Take a rate below everwide.training.max_learning_rate."
            )
        if self.contraction == 0:
            return 1
        return max(1, math.ceil(math.log(fraction) / (2 * math.log(self.contraction))))


def convergence_rate(kernel: Any, rate: float) -> ConvergenceRate:
    """How fast training with a positive definite kernel must converge on the squared loss, from any residual.

    Of a linear model or an infinitely wide network, whose kernel is constant. Where a kernel moves, that of the path's
    smallest `lambda_min` holds for gradient flow.

    - `kernel`: `(n, n)`, the tangent kernel of the training rows. `rate`: the learning rate.

    >>> import numpy as np

    >>> from everwide.theory import finite_width
    >>> found = finite_width.convergence_rate(np.diag([1.0, 4.0]), 0.25)  # the mean over two rows
    >>> found.exponent, found.contraction
    (0.25, 0.875)
    """
    found, step = definite_extremes(kernel), positive(rate, "rate")
    per_row = step / found.rows
    contraction = max(abs(1 - per_row * found.smallest), abs(1 - per_row * found.largest))
    return ConvergenceRate(found.smallest, found.largest, contraction, 2 * per_row * found.smallest)


def gronwall_bound(
    times: Any, *, kernel_change: Any, eigenvalue: float, rate: float, residual: float
) -> Float[np.ndarray, "*times"]:
    """How far a network's outputs can be from those of its linearization at time `t` of gradient flow, at most.

    `residual (exp(rate change t) - 1) exp(-rate eigenvalue t)`, on the sum of `1/2 |f - y|^2` over the training rows:
    what a kernel that has moved by at most `change`, in operator norm, can do to a flow that contracts. The bound
    vanishes with time only while the kernel moves by less than its smallest eigenvalue.

    - `times`: one or several. `kernel_change`: the largest `|T_s - T_0|` up to each time, or one number for all.
    - `eigenvalue`: the smallest of the kernel at the start, `T_0`. `residual`: `|f - y|` at the start.

    >>> from everwide.theory import finite_width
    >>> times = [0.0, 1.0, 10.0]
    >>> finite_width.gronwall_bound(times, kernel_change=0.1, eigenvalue=1.0, rate=1.0, residual=2.0).round(4)
    array([0.    , 0.0774, 0.0002])

    Lee et al. 2019, Wide neural networks of any depth evolve as linear models under gradient descent, appendix; they
    bound `exp(z) - 1` further, by `z exp(z)`.
    """
    at, change = finite_array(times, "times"), finite_array(kernel_change, "kernel_change")
    slowest, step = positive(eigenvalue, "eigenvalue"), positive(rate, "rate")
    start = not_negative(residual, "residual")
    if (at < 0).any() or (change < 0).any():
        raise InputError(f"times={times!r}, kernel_change={kernel_change!r}: expected numbers from 0 on.")
    if change.ndim and change.shape != at.shape:
        raise InputError(f"kernel_change has shape {change.shape}: expected one number, or one for each of {at.shape}.")
    grown, shrunk = step * change * at, step * slowest * at
    grows = np.exp(np.minimum(grown - shrunk, 700.0))  # no overflow: 1e304 says enough
    return np.asarray(start * -np.expm1(-grown) * grows)
