"""How fast a network may learn, and how long it takes."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..._checks import InputError, positive, probability, share, whole
from ..._engine import KernelError, KernelOperator, checked_kernel, eigenvalue_noise
from ..._gram import kernel_matrix
from ..._losses import AbstractLoss, Loss, as_loss, real_targets
from ...layers import AbstractLayer
from ...spectral import Spectrum, density, lanczos, leading
from ...training import Mse, max_learning_rate
from .._host import root_between
from ._limits import largest_of_width, multiples

_FIRST_LENGTH = 32  # Lanczos steps, doubled until times stand still
_STEADY = 1e-3
_LOOKED_AT = (0.5, 0.9, 0.99)


class Part(NamedTuple):
    """Eigenvalues from `lower` to `upper`, the target's share in them, and when the slowest is fitted to `1/e`."""

    lower: float
    upper: float
    share: float
    time: float


@dataclass(frozen=True)
class FitTimes:
    """What the target is made of, and when gradient flow has learned it. Made by `fit_times`."""

    values: Float[np.ndarray, " k"]
    shares: Float[np.ndarray, " k"]
    n: int  # rows, over which the loss is a mean

    def left(self, time: Any) -> Any:
        """The share of the training error that is left at a time of gradient flow, or at several."""
        if not np.all(np.asarray(time) >= 0):
            raise InputError(f"left(time={time!r}): expected a time, or several, from 0 on.")
        decayed = np.exp(-2 * np.multiply.outer(np.asarray(time, np.float64), self.values) / self.n)
        return decayed @ self.shares if np.ndim(time) else float(decayed @ self.shares)

    def time(self, fraction: float) -> float:
        """When that fraction of the training error is gone; infinite where it cannot be learned."""
        rest, learnable = 1 - probability(fraction, "time: fraction"), self.values > 0
        if self.shares[~learnable].sum() >= rest:
            return float("inf")
        slow, fast = self.values[learnable].min(), self.values.max()
        unit = self.n / 2
        bracket = np.log([unit / fast * -np.log1p(-fraction) * 0.5, unit / slow * 800])
        return float(np.exp(root_between(lambda log: self.left(np.exp(log)) - rest, *bracket)))

    def steps(self, fraction: float, rate: float) -> int:
        """Of gradient descent at a small rate: time over rate, rounded up."""
        step, time = positive(rate, "steps: rate"), self.time(fraction)
        if time == np.inf:
            raise InputError(f"steps(fraction={fraction!r}): that much of the target cannot be learned by this kernel.")
        return int(np.ceil(time / step))

    def parts(self) -> tuple[Part, ...]:
        """The target by powers of ten of the eigenvalues, from the largest down; what has eigenvalue 0 comes last."""
        top, parts = self.values.max(), []
        below = np.where(self.values > 0, np.floor(np.log10(top / np.maximum(self.values, 1e-300)) + 1e-12), np.inf)
        for decade in np.unique(below[self.shares > 0]):
            inside = below == decade
            lowest = float(self.values[inside].min())
            upper = float(top * 10.0**-decade) if np.isfinite(decade) else 0.0
            time = self.n / lowest if lowest > 0 else float("inf")
            parts.append(Part(lowest, upper, float(self.shares[inside].sum()), time))
        return tuple(parts)


def fit_times(kernel: Any, x: Any, y: Any) -> FitTimes:
    """How long gradient flow on the squared loss needs for each part of the target.

    Only products with the kernel are needed: Lanczos from the targets, lengthened until times no longer move.

    Args:
        kernel: a network or a kernel function, with the examples `x`; or their kernel matrix, with `x=None`; or
            `everwide.operator(net, x)`, for more rows than a matrix may have.
        x: the examples.
        y: targets, `(n,)` or `(n, outputs)`; outputs begin at 0.

    Returns:
        `values`: eigenvalues, descending; `shares`: of the target's mean square along them, in all 1 (for large
        matrices neighbouring eigenvalues are lumped together, so that times agree to about 0.1 %); `left(time)`: the
        share of the training error that is left; `time(fraction)`: when that fraction of it is gone;
        `steps(fraction, rate)` of gradient descent; `parts()`: the target by powers of ten of the eigenvalues, each
        with `lower`, `upper`, `share` and `time`.

    >>> import numpy as np
    >>> from everwide.theory import rates
    >>> times = rates.fit_times(2 * np.eye(2), None, [1.0, 1.0])
    >>> round(times.left(1.0), 4), round(times.time(0.99), 4), times.steps(0.99, rate=0.1)
    (0.1353, 2.3026, 24)
    >>> [round(part.share, 2) for part in rates.fit_times(np.diag([1.0, 0.02]), None, [2.0, 1.0]).parts()]
    [0.8, 0.2]
    """
    given = _given(kernel, x)
    matrix, floor = _learnable(given), _noise(given)
    targets, _ = real_targets(y)
    if len(targets) != len(matrix):
        raise InputError(f"y has {len(targets)} rows and the kernel {len(matrix)}: they must agree.")
    targets = targets / max(float(np.abs(targets).max()), np.finfo(np.float64).tiny)  # shares do not depend on units
    if not np.any(targets):
        raise InputError("All targets are 0, as outputs are before training: there is nothing to fit.")
    length, before = _FIRST_LENGTH, np.array(np.nan)
    while True:
        times = _joined(_measures(matrix, targets, length), len(matrix), floor)
        now = np.log([times.time(fraction) for fraction in _LOOKED_AT])
        if length >= len(matrix) or np.allclose(before, now, rtol=0, atol=_STEADY):
            return times
        length, before = 2 * length, now


def _given(kernel: Any, x: Any) -> np.ndarray | KernelOperator:
    return kernel if isinstance(kernel, KernelOperator) and x is None else kernel_matrix(kernel, x)


def _noise(given: np.ndarray | KernelOperator) -> float:
    """What rounding may have done to eigenvalues."""
    if not isinstance(given, KernelOperator):
        return eigenvalue_noise(given)
    return float(4 * len(given) ** 0.5 * np.finfo(given.dtype).eps * given.diagonal().max())


def _measures(
    matrix: np.ndarray | KernelOperator, targets: np.ndarray, length: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each target that is not 0, eigenvalues and its squared length along each."""
    columns = targets[:, targets.any(0)].astype(np.float64)
    if not isinstance(matrix, KernelOperator):
        return [lanczos(matrix, column, length).measure() for column in columns.T]
    measured = density(matrix, length=length, start=columns)
    return list(zip(measured.values, measured.weights * np.sum(columns**2, 0)[:, None], strict=True))


def _learnable(given: np.ndarray | KernelOperator) -> Any:
    """In float64, or a `KernelError`: indefinite beyond its rounding, or zero. An operator is taken as it is."""
    if isinstance(given, KernelOperator):
        if not given.diagonal().any():
            raise KernelError("The kernel is zero: nothing is learned at any rate.")
        return given
    matrix = checked_kernel(given)
    if not matrix.any():
        raise KernelError("The kernel is zero: nothing is learned at any rate.")
    Spectrum.check(given)
    return matrix


def _joined(measures: list[tuple[np.ndarray, np.ndarray]], n: int, floor: float) -> FitTimes:
    values, weights = (np.concatenate(part) for part in zip(*measures, strict=True))
    order = np.argsort(-values)
    values = np.where(values > floor, values, 0.0)  # the others are zeros that rounding has moved
    return FitTimes(values[order], weights[order] / weights.sum(), n)


@dataclass(frozen=True)
class StableRates:
    """Learning rates for full batches, of the NTK parametrization. Made by `stable_rates`."""

    gradient_descent: float
    momentum: float
    diverges: tuple[float, float] | None
    at_start: float | None
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
    net: AbstractLayer | None = None,
    width: int | None = None,
) -> StableRates:
    """Three rates of gradient descent apart: the edge of the lazy regime, the catapult above it, and divergence.

    Above the edge, `2 n / lambda_max`, the infinitely wide network and every kernel machine diverge: exactly, on the
    squared loss; for other losses training is stable below it, wherever it goes. A network of finite width that is
    trained above the edge leaves its first kernel: the loss spikes, curvature falls, and training goes on, often to
    better networks. It diverges at a multiple of the edge that only measurements know; those here are of dense
    networks, mostly of width 64, at their critical initialization (`benchmarks/README.md`). The multiple depends on
    activation and depth, hardly on the width. `recommended_rate` measures your network, with any optimizer.

    Args:
        kernel: a network or a kernel function, with the examples `x`; or their kernel matrix; or
            `everwide.operator(net, x)`, of whose smallest eigenvalue nothing is known: it counts as 0.
        x: the examples.
        y: targets, for `adam_star` and `at_start`, which speak of the start, where all outputs are 0.
        loss: a loss of `everwide.training`.
        momentum: of gradient descent.
        b1: of ADAM*.
        net: the network, where `kernel` is its matrix.
        width: of the network. Narrow and deep ones have larger eigenvalues than their limit (up to four times at width
            64), so that their rates are smaller: the mean of six networks that are drawn at this width is taken.

    Returns:
        `gradient_descent`, `momentum`: the edges of the lazy regime; `diverges`: the lowest and the highest rate at
        which networks of this kind were seen to diverge, of all kinds where only a matrix is given (plain gradient
        descent on the squared loss, `None` for others): between the edge and the first of them they catapult and train;
        `at_start`: the edge of the Gauss-Newton curvature before training, which for cross-entropies is far above that
        which holds everywhere, `None` without targets; `best`: the infinite network's fastest, `2 n / (lambda_min +
        lambda_max)`, with which every step shrinks the residual by `contraction` at least (both of the squared loss,
        `None` for others); `adam_star`: the largest rate whose first step does not overshoot, `None` without targets;
        `lambda_max`, `lambda_min`, `condition_number` of the kernel (0 and infinite where rows repeat); `sharpness`:
        the largest eigenvalue of the loss's Hessian; `hovers_at(rate)`: the norm of the gradient at which ADAM* ceases
        to improve.

    >>> import numpy as np
    >>> from everwide.theory import rates
    >>> stable = rates.stable_rates(np.diag([4.0, 1.0]), y=[1.0, 1.0])
    >>> stable.gradient_descent, stable.best, stable.condition_number
    (1.0, 0.8, 4.0)
    >>> stable.diverges[0] > stable.gradient_descent
    True
    >>> round(rates.stable_rates(np.eye(2), b1=0.9).hovers_at(0.01) * 38, 6)
    0.005

    Lewkowycz et al. 2020, The large learning rate phase of deep learning: the catapult mechanism.
    """
    given = _given(kernel, x)
    matrix, law = _learnable(given), as_loss(loss)
    plain = _edge(given, loss)
    largest = 2 * len(matrix) / (law.curvature * plain)
    network = kernel if net is None else net
    if width is not None:
        infinite, largest = largest, largest_of_width(network, x, whole(width, "width"))
        plain *= infinite / largest
    smallest = 0.0 if isinstance(given, KernelOperator) else Spectrum.smallest(matrix)
    certain = smallest > _noise(given)
    smallest = smallest if certain else 0.0
    sharpness, squared = 2 / plain, isinstance(law, Mse)
    low, high = multiples(network)
    return StableRates(
        gradient_descent=plain,
        momentum=plain * (1 + share(momentum, "momentum")),
        diverges=(low * plain / 2, high * plain / 2) if squared else None,
        at_start=None if y is None else plain * law.curvature / _first_curvature(law, y),
        best=plain * largest / (smallest + largest) if squared else None,
        adam_star=None if y is None else 2 * _first_gradient(matrix, y, loss) / sharpness,
        b1=share(b1, "b1"),
        contraction=(largest - smallest) / (largest + smallest) if squared else None,
        lambda_max=largest,
        lambda_min=smallest,
        condition_number=largest / smallest if certain else float("inf"),
        sharpness=sharpness,
    )


def _edge(given: np.ndarray | KernelOperator, loss: Loss) -> float:
    """`max_learning_rate`, of an operator from one row that has its largest eigenvalue."""
    if not isinstance(given, KernelOperator):
        return max_learning_rate(given, loss)
    return len(given) * max_learning_rate(leading(given).values[:1, None], loss)


def _first_curvature(law: AbstractLoss, y: Any) -> float:
    """The largest second derivative of the loss of any row where all outputs are 0."""
    targets, k = law.targets(y, None)
    with jax.enable_x64(True):
        hessians = jax.vmap(lambda target: jax.hessian(law)(jnp.zeros(k, jnp.float64), target))(jnp.asarray(targets))
    return max(Spectrum.largest(np.asarray(one, np.float64)) for one in np.unique(np.asarray(hessians), axis=0))


def _first_gradient(matrix: Any, y: Any, loss: Loss) -> float:
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
