"""How noisy the gradients of minibatches are."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from ..._checks import InputError, whole
from ..._losses import AbstractLoss, Loss, as_loss
from ...empirical import jacobian_operator
from ...training import Mse

_TOGETHER = 64  # rows whose gradients are held at once


class GradientNoise(NamedTuple):
    """Made by `gradient_noise`."""

    signal: float
    trace: float
    scale: float


def gradient_noise(
    f: Any,
    params: Any,
    x: Any,
    y: Any,
    *,
    loss: Loss = Mse(),  # noqa: B008
    batch_size: int = 1,
) -> GradientNoise:
    """How far the gradient of a random batch is from that of all rows, where the parameters are now.

    Batches far above `scale` gain little over larger ones and bear their rates; far below it, what a batch says is
    mostly noise. Descent in small batches drifts, where the loss is flat, to parameters with a smaller `trace`.

    Args:
        f: the network, or any model, as in `everwide.empirical.as_model`.
        params: as in `everwide.empirical.as_model`.
        x: examples, two or more.
        y: targets, as the loss has them.
        loss: a loss of `everwide.training`.
        batch_size: rows of a batch, drawn without replacement.

    Returns:
        `signal`: the squared norm of the gradient of the mean loss; `trace`: of the covariance of a batch's gradient,
        which is the mean of its squared distance; `scale`: the rows in a batch (were there no end of rows) at which the
        two are equal, infinite where the gradient is 0.

    >>> import jax.numpy as jnp
    >>> from everwide.theory import rates
    >>> noise = rates.gradient_noise(lambda w, x: w * x, jnp.asarray(0.0), jnp.ones((2, 1)), [1.0, 3.0])
    >>> noise.signal, noise.trace, noise.scale
    (4.0, 1.0, 0.25)

    McCandlish et al. 2018, An empirical model of large-batch training.
    """
    law, task = as_loss(loss), task_of(f, params, x, y, as_loss(loss), batch_size)
    n, size = task.model.examples, task.batch_size
    if n < 2:
        raise InputError(f"gradient_noise: x has {n} row, and how far rows differ takes 2 or more.")
    mean, squares = (float(value) for value in _moments(task.model.f, law, task.model.params, task.model.x, task.y))
    if not math.isfinite(mean + squares):
        raise InputError("gradient_noise: gradients are not finite. Look for NaN in x, y and params, or scale them.")
    spread = max(squares - mean, 0.0)
    trace = spread / size * (n - size) / (n - 1)
    return GradientNoise(mean, trace, spread / mean if mean > 0 else float("inf"))


class Task(NamedTuple):
    """A model with its examples (a Jacobian), its targets in the dtype of its outputs, and the rows of a batch."""

    model: Any
    y: Array
    batch_size: int


def task_of(f: Any, params: Any, x: Any, y: Any, loss: AbstractLoss, batch_size: int | None) -> Task:
    """Everything checked; examples come in the dtype of the parameters."""
    own = [jnp.asarray(leaf).dtype for leaf in jax.tree.leaves(params)]
    model = jacobian_operator(f, params, jax.tree.map(lambda a: _cast(a, own[0]), x) if own else x)
    (targets, _), n = loss.targets(y, model.outputs), model.examples
    if len(targets) != n:
        raise InputError(f"y has {len(targets)} rows and x {n}: they must agree.")
    size = n if batch_size is None else whole(batch_size, "batch_size")
    if size > n:
        raise InputError(f"batch_size={size}: expected at most {n}, the rows that there are.")
    return Task(model, _cast(targets, model.dtype), size)


def _cast(value: Any, dtype: Any) -> Array:
    kind = getattr(value, "dtype", None) or np.asarray(value).dtype
    if isinstance(kind, np.dtype) and kind.kind in "OUS":
        raise InputError(f"x holds {kind}, expected numbers. Encode text and categories first.")
    array = jnp.asarray(value)
    return array.astype(dtype) if jnp.issubdtype(array.dtype, jnp.floating) else array


@eqx.filter_jit
def _moments(
    f: Callable[[Any, Any], Any], loss: AbstractLoss, params: PyTree, x: PyTree, y: Array
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The squared norm of the mean gradient, and the mean of the squared norms of single ones."""

    def one(row: tuple[PyTree, Array]) -> Array:
        slope = jax.grad(lambda p: loss(jnp.atleast_1d(f(p, row[0])), row[1]))(params)
        return _square(slope)

    def mean_loss(p: PyTree) -> Array:
        return jnp.mean(jax.vmap(lambda a, t: loss(jnp.atleast_1d(f(p, a)), t))(x, y))

    return _square(jax.grad(mean_loss)(params)), jnp.mean(lax.map(one, (x, y), batch_size=_TOGETHER))


def _square(tree: PyTree) -> Array:
    return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)), jnp.zeros(()))
