"""How large a learning rate may be, for this architecture and these data."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._checks import InputError, positive
from ..._kernel_matrix import eigenvalue_noise
from ..._kernel_of import kernel_matrix, learnable_kernel
from ..._losses import Loss, as_loss
from ...spectral import Spectrum
from ...training import Mse, max_learning_rate


@dataclass(frozen=True)
class StableRates:
    """Learning rates for full batches, of the NTK parametrization. Made by `stable_rates`."""

    gradient_descent: float
    momentum: float
    best: float | None
    adam_star: float | None
    b1: float
    contraction: float | None
    lambda_max: float
    lambda_min: float
    condition_number: float
    sharpness: float  # largest eigenvalue of the Hessian of the loss, in outputs: what rates are the inverse of

    def hovers_at(self, rate: float) -> float:
        """The norm of the gradient (root mean square) at which ADAM* at this rate ceases to improve, and hovers.

        There its effective rate, `rate` over the norm, has grown to the largest stable one. Decay the rate to go on.
        """
        return positive(rate, "hovers_at: rate") * self.sharpness * (1 - self.b1) / (2 * (1 + self.b1))


def stable_rates(
    kernel: Any,
    x: Any = None,
    y: Any = None,
    *,
    loss: Loss = Mse(),  # noqa: B008
    momentum: float = 0.9,
    b1: float = 0.9,
) -> StableRates:
    """The largest stable learning rates of gradient descent, momentum and ADAM*, in the NTK parametrization.

    Exact for the squared loss; for others stable wherever training goes (see `everwide.training.max_learning_rate`).
    The largest eigenvalue is found by Lanczos. A network of finite width has these rates up to `O(1 / sqrt(width))`.

    Args:
        kernel: a network or a kernel function, with the examples `x`; or their kernel matrix.
        x: the examples.
        y: targets, for ADAM*, whose rate is in units of the gradient at the start, where all outputs are 0.
        loss: a loss of `everwide.training`.
        momentum: of gradient descent.
        b1: of ADAM*.

    Returns:
        `gradient_descent`, `momentum`: above these training diverges; `best`: gradient descent's fastest,
        `2 n / (lambda_min + lambda_max)`, with which every step shrinks the residual by `contraction` at least (both
        of the squared loss, `None` for others); `adam_star`: the largest rate whose first step does not overshoot,
        `None` without targets; `lambda_max`, `lambda_min`, `condition_number` of the kernel (0 and infinite where rows
        repeat); `sharpness`: the largest eigenvalue of the loss's Hessian; `hovers_at(rate)`: the norm of the gradient
        at which ADAM* ceases to improve.

    >>> import numpy as np
    >>> from everwide.theory import rates
    >>> stable = rates.stable_rates(np.diag([4.0, 1.0]), y=[1.0, 1.0])
    >>> stable.gradient_descent, stable.best, stable.condition_number
    (1.0, 0.8, 4.0)
    >>> round(rates.stable_rates(np.eye(2), b1=0.9).hovers_at(0.01) * 38, 6)
    0.005
    """
    for label, share in (("momentum", momentum), ("b1", b1)):
        if not 0 <= share < 1:
            raise InputError(f"stable_rates({label}={share!r}): expected a number from 0 to below 1.")
    given = kernel_matrix(kernel, x)
    matrix, squared = learnable_kernel(given), isinstance(as_loss(loss), Mse)
    plain = max_learning_rate(given, loss)
    largest = 2 * len(matrix) / (as_loss(loss).curvature * plain)
    smallest = Spectrum.smallest(matrix)
    certain = smallest > eigenvalue_noise(given)
    smallest = smallest if certain else 0.0
    sharpness, condition = 2 / plain, largest / smallest if certain else float("inf")
    return StableRates(
        gradient_descent=plain,
        momentum=plain * (1 + momentum),
        best=plain * largest / (smallest + largest) if squared else None,
        adam_star=None if y is None else 2 * _first_gradient(matrix, y, loss) / sharpness,
        b1=float(b1),
        contraction=(largest - smallest) / (largest + smallest) if squared else None,
        lambda_max=largest,
        lambda_min=smallest,
        condition_number=condition,
        sharpness=sharpness,
    )


def _first_gradient(matrix: np.ndarray, y: Any, loss: Loss) -> float:
    """The smallest norm over the outputs, as a function, of the gradient where all outputs are 0."""
    law = as_loss(loss)
    targets, k = law.targets(y, None)
    if len(targets) != len(matrix):
        raise InputError(f"y has {len(targets)} rows and the kernel {len(matrix)}: they must agree.")
    with jax.enable_x64(True):
        slopes = jax.vmap(jax.grad(law))(jnp.zeros((len(matrix), k), jnp.float64), jnp.asarray(targets))
    slope = np.asarray(slopes, np.float64) / len(matrix)
    norms = np.sqrt(np.maximum(np.sum(slope * (matrix @ slope), axis=0), 0.0))
    if not norms.max() > 0:
        raise InputError("The gradient at the start is 0: the targets are 0, as the outputs are, and no rate is right.")
    return float(norms[norms > 0].min())
