"""The tangent kernel of weighted outputs, such as losses: one number for each pair of examples."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import InputError
from .._engine import Progress, as_batches, count
from ._factors import AbstractTangents, Job, Outputs, Part
from ._models import Function, Model, TorchModel, as_model
from ._ntk import dtype_of, tangents_of
from ._tiles import kernels
from ._torch import PlanError, torch_tangents


def weighted_ntk(
    f: Any,
    params: Any,
    x1: Any,
    weights1: Any,
    x2: Any = None,
    weights2: Any = None,
    *,
    memory: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Float[np.ndarray, "n1 n2"]:
    """The tangent kernel of a weighted sum of outputs, with weights of its own for each example; exact.

    Entry `(i, j)` is the inner product of the gradients of `weights1[i] @ f(x1[i])` and `weights2[j] @ f(x2[j])`: of
    losses, where the weights are their derivatives by the outputs. Neither gradients nor Jacobians are formed, and it
    costs no more than the kernel of a single output.

    Args:
        f: A function, network or module, as in `as_model`.
        params: As in `as_model`.
        x1: Examples.
        weights1: `(n1, k)`: examples and outputs.
        x2: Examples for the columns; `None` pairs `x1` with itself.
        weights2: `(n2, k)`; `None` where `x2` is.
        memory: Bytes that may be used; `None`: half of what is free.
        progress: Called after every tile.

    Returns:
        The kernel in the dtype of the parameters.

    >>> import everwide.empirical as emp, jax.numpy as jnp
    >>> f = lambda params, x: params @ x
    >>> emp.weighted_ntk(f, jnp.ones((2, 3)), jnp.eye(3), jnp.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])).tolist()
    [[1.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 2.0]]

    """
    if (x2 is None) != (weights2 is None):
        raise InputError("One of x2 and weights2 is None, and the other is not. Give both or neither.")
    model, first = as_model(f, params), (x1, np.asarray(weights1))
    batches, dtype = as_batches(first, None if x2 is None else (x2, np.asarray(weights2))), dtype_of(model)

    def run(tangents: AbstractTangents) -> np.ndarray:
        job = Job(*batches.sizes(), Outputs.SUM, tuple((name, "") for name in tangents.names))
        return kernels(tangents, batches, job, dtype=dtype, memory=memory, progress=progress)[""]

    with jax.enable_x64(True) if dtype == np.float64 else contextlib.nullcontext():
        if isinstance(model, Model):
            return run(tangents_of(_weighted(model, *batches.x1), batches.x1))
        try:
            return run(_torch(model, *batches.x1))
        except PlanError:  # what this module calls depends on the data
            return run(_torch(model, *batches.x1, plain_only=True))


@dataclass(frozen=True)
class Weighted:
    """A function of examples with the weights of their outputs: the sum of these. Of one example, or of a batch."""

    f: Function

    def __call__(self, params: Any, x: Any) -> Array:
        outputs, weights = jnp.asarray(self.f(params, x[0])), x[1]
        return jnp.sum(outputs.reshape(weights.shape) * weights.astype(outputs.dtype), -1, keepdims=True)


def _weighted(model: Model, x: Any, weights: np.ndarray) -> Model:
    one = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), jax.tree.map(jnp.asarray, x))
    out = jax.eval_shape(model.f, model.params, one)
    _check(weights, count(x), getattr(out, "size", None))
    batched = None if model.batched is None else Weighted(model.batched)
    return Model(Weighted(model.f), model.params, batched)


class WeightedTorch(AbstractTangents):
    """Of a PyTorch module: an example comes with its cotangents, and these are the only ones."""

    inner: Any
    names: tuple[str, ...] = eqx.field(static=True)
    outputs: int = eqx.field(static=True, default=1)

    def factors(self, x: Any, cotangents: Float[Array, "k outputs"]) -> tuple[Part, ...]:
        return self.inner.factors(x[0], x[1][None])

    def example_bytes(self, k: int) -> int:
        return self.inner.example_bytes(k)


def _torch(model: TorchModel, x: Any, weights: np.ndarray, *, plain_only: bool = False) -> WeightedTorch:
    inner = torch_tangents(model, x, plain_only=plain_only)
    _check(weights, count(x), inner.outputs)
    return WeightedTorch(inner=inner, names=inner.names)


def _check(weights: np.ndarray, n: int, outputs: int | None) -> None:
    if weights.shape != (n, outputs):
        raise InputError(f"weights1 have shape {weights.shape}, expected ({n}, {outputs}): examples and outputs.")
