"""Losses of the outputs for one row. Any JAX function `loss(outputs, target)` is a loss as well."""

import abc
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._checks import InputError, positive, refuse_complex


class AbstractLoss(eqx.Module):
    """A loss of the outputs `(k,)` for one row and its target."""

    curvature: eqx.AbstractVar[float]  # the largest second derivative in any direction

    @abc.abstractmethod
    def __call__(self, outputs: Float[Array, " k"], target: Any) -> Float[Array, ""]:
        """The loss of one row."""

    @abc.abstractmethod
    def targets(self, y: Any, outputs: int | None) -> tuple[np.ndarray, int]:
        """Checked targets, a row each, and the number of outputs."""


class Mse(AbstractLoss):
    """`1/2 |outputs - target|^2`; targets are `(n,)` or `(n, k)`.

    >>> import everwide.training as tr, jax.numpy as jnp
    >>> tr.Mse()(jnp.array([1.0, 3.0]), jnp.array([1.0, 1.0]))
    Array(2., ...)
    """

    curvature: float = eqx.field(static=True, default=1.0)

    def __call__(self, outputs: Float[Array, " k"], target: Any) -> Float[Array, ""]:
        return jnp.sum(jnp.square(outputs - target)) / 2

    def targets(self, y: Any, outputs: int | None) -> tuple[np.ndarray, int]:
        return real_targets(y, outputs)


class Huber(AbstractLoss):
    """Quadratic up to `delta`, linear beyond, summed over the outputs.

    >>> import everwide.training as tr, jax.numpy as jnp
    >>> tr.Huber()(jnp.array([3.0]), jnp.array([0.0]))
    Array(2.5, ...)
    """

    delta: float = 1.0
    curvature: float = eqx.field(static=True, default=1.0)

    def __check_init__(self):
        positive(self.delta, "delta")

    def __call__(self, outputs: Float[Array, " k"], target: Any) -> Float[Array, ""]:
        far = jnp.abs(outputs - target)
        near = jnp.minimum(far, self.delta)
        return jnp.sum(near**2 / 2 + self.delta * (far - near))

    def targets(self, y: Any, outputs: int | None) -> tuple[np.ndarray, int]:
        return real_targets(y, outputs)


class Poisson(AbstractLoss):
    """`e^f - y f`, the Poisson likelihood with a logarithmic link, summed over the outputs; targets are counts.

    >>> import everwide.training as tr, jax.numpy as jnp
    >>> tr.Poisson()(jnp.array([0.0]), jnp.array([2.0]))
    Array(1., ...)
    """

    curvature: float = eqx.field(static=True, default=math.inf)

    def __call__(self, outputs: Float[Array, " k"], target: Any) -> Float[Array, ""]:
        return jnp.sum(jnp.exp(outputs) - target * outputs)

    def targets(self, y: Any, outputs: int | None) -> tuple[np.ndarray, int]:
        targets, k = real_targets(y, outputs)
        if (targets < 0).any():
            row = int(np.argwhere((targets < 0).any(-1))[0, 0])
            raise InputError(f"Row {row} has the target {targets[row].min():g}: counts are not negative.")
        return targets, k


class SoftmaxCrossEntropy(AbstractLoss):
    """`-log softmax(outputs)` at the label; targets are labels `(n,)`, or probabilities `(n, k)`.

    >>> import everwide.training as tr, jax.numpy as jnp
    >>> tr.SoftmaxCrossEntropy()(jnp.zeros(4), jnp.array(2))
    Array(1.3862944, ...)
    """

    curvature: float = eqx.field(static=True, default=0.5)

    def __call__(self, outputs: Float[Array, " k"], target: Any) -> Float[Array, ""]:
        logs = jax.nn.log_softmax(outputs)
        return -jnp.sum(target * logs) if jnp.ndim(target) else -logs[target]

    def targets(self, y: Any, outputs: int | None) -> tuple[np.ndarray, int]:
        if np.ndim(y) == 2 and np.shape(y)[1] > 1:
            return _probabilities(np.asarray(y), outputs)
        labels = class_labels(y, outputs)
        return labels, int(labels.max()) + 1 if outputs is None else outputs


class BinaryCrossEntropy(AbstractLoss):
    """`log(1 + e^f) - y f`, summed over the outputs; targets are 0 or 1, `(n,)` or `(n, k)`.

    >>> import everwide.training as tr, jax.numpy as jnp
    >>> tr.BinaryCrossEntropy()(jnp.array([0.0]), jnp.array([1.0]))
    Array(0.6931472, ...)
    """

    curvature: float = eqx.field(static=True, default=0.25)

    def __call__(self, outputs: Float[Array, " k"], target: Any) -> Float[Array, ""]:
        return jnp.sum(jnp.logaddexp(outputs, 0) - target * outputs)

    def targets(self, y: Any, outputs: int | None) -> tuple[np.ndarray, int]:
        return _two_valued(y, outputs, (0, 1))


class Hinge(AbstractLoss):
    """`max(0, 1 - y f)`, summed over the outputs; targets are -1 or 1, `(n,)` or `(n, k)`.

    >>> import everwide.training as tr, jax.numpy as jnp
    >>> tr.Hinge()(jnp.array([0.25]), jnp.array([1.0]))
    Array(0.75, ...)
    """

    curvature: float = eqx.field(static=True, default=math.inf)

    def __call__(self, outputs: Float[Array, " k"], target: Any) -> Float[Array, ""]:
        return jnp.sum(jnp.maximum(0, 1 - target * outputs))

    def targets(self, y: Any, outputs: int | None) -> tuple[np.ndarray, int]:
        return _two_valued(y, outputs, (-1, 1))


class Custom(AbstractLoss):
    """Any JAX function of the outputs and the target of one row."""

    fn: Callable[[Any, Any], Any] = eqx.field(static=True)
    curvature: float = eqx.field(static=True, default=math.inf)

    def __call__(self, outputs: Float[Array, " k"], target: Any) -> Float[Array, ""]:
        value = self.fn(outputs, target)
        if jnp.shape(value) != ():
            raise InputError(f"The loss has shape {jnp.shape(value)} for one row, expected a scalar.")
        return value

    def targets(self, y: Any, outputs: int | None) -> tuple[np.ndarray, int]:
        targets = _finite(np.asarray(y))
        return targets, outputs or (targets.shape[1] if targets.ndim > 1 else 1)


Loss = AbstractLoss | Callable[[Any, Any], Any]


def as_loss(loss: Loss) -> AbstractLoss:
    """A loss, or a function of the outputs and the target of one row as a loss."""
    if isinstance(loss, AbstractLoss):
        return loss
    if not callable(loss):
        raise InputError(f"loss={loss!r}: expected a loss such as Mse(), or a JAX function, not a name.")
    return Custom(fn=loss)


def real_targets(y: Any, outputs: int | None = None) -> tuple[np.ndarray, int]:
    """`(n, k)` finite numbers."""
    targets = _finite(np.asarray(y))
    targets = targets[:, None] if targets.ndim == 1 else targets
    if targets.ndim != 2:
        raise InputError(f"y has shape {targets.shape}, expected (n,) or (n, outputs).")
    if outputs is not None and targets.shape[1] != outputs:
        raise InputError(f"y has {targets.shape[1]} columns, but there are {outputs} outputs.")
    return targets.astype(targets.dtype if targets.dtype == np.float32 else np.float64), targets.shape[1]


def class_labels(y: Any, outputs: int | None = None) -> np.ndarray:
    """`(n,)` whole numbers from 0."""
    labels = _finite(np.asarray(y))
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1:
        raise InputError(f"y has shape {labels.shape}, expected labels (n,) or probabilities (n, outputs).")
    wrong = (labels < 0) | (labels != np.floor(labels)) | (False if outputs is None else labels >= outputs)
    if wrong.any():
        row = int(np.argmax(wrong))
        most = "" if outputs is None else f" to {outputs - 1}: there are {outputs} outputs"
        raise InputError(
            f"Row {row} has the label {labels[row]:g}, expected a whole number from 0{most}. "
            "Number the classes with sklearn.preprocessing.LabelEncoder, or give the network an output for each."
        )
    return labels.astype(np.int32)


def _probabilities(targets: np.ndarray, outputs: int | None) -> tuple[np.ndarray, int]:
    targets, k = real_targets(targets, outputs)
    wrong = (targets < 0).any(1) | (np.abs(targets.sum(1) - 1) > 1e-3)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(
            f"Row {row} of y is {targets[row]}, expected probabilities that sum to 1, or whole labels (n,)."
        )
    return targets, k


def _two_valued(y: Any, outputs: int | None, pair: tuple[int, int]) -> tuple[np.ndarray, int]:
    targets, k = real_targets(y, outputs)
    wrong = ~np.isin(targets, pair).all(1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(f"Row {row} has the target {targets[row]}, expected {pair[0]} or {pair[1]}.")
    return targets, k


def _finite(targets: np.ndarray) -> np.ndarray:
    refuse_complex(targets, "y")
    if not (np.issubdtype(targets.dtype, np.number) or targets.dtype == bool):
        raise InputError(f"y holds {targets.dtype}, expected numbers. Encode categories as whole numbers first.")
    if not targets.ndim or not len(targets):
        raise InputError(f"y has shape {targets.shape}, expected a target for each row.")
    if not np.isfinite(targets).all():
        row = int(np.argwhere(~np.isfinite(targets))[0, 0])
        raise InputError(f"Row {row} of y is {targets[row]}: targets must be finite. Drop such rows.")
    return targets
