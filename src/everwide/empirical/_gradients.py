"""Gradients of single examples, their random projections, and what one step of gradient descent does to outputs."""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, PyTree

from .._checks import InputError, whole
from .._engine import budget, count, require
from ._models import Function, Model, TorchModel, as_model
from ._operators import activation_bytes, in_chunks, output_of
from ._refusals import refuse_batch_dependence
from ._torch import torch_tangents

Loss = Callable[..., Any]
Law = Callable[[Array, tuple[int, ...], Any], Array]
BLOCK = 1 << 22  # random numbers that are there at once; projections depend on it


class Projection(NamedTuple):
    """Random columns of independent numbers of mean 0 and variance 1, divided by the root of their number."""

    law: Law
    dim: int

    def of(self, gradients: list[Array], key: Array) -> Array:
        """`(n, dim)`, from leaves `(n, ...)`. Only some rows of the random matrix exist at a time."""
        parts = [self.leaf(g.reshape(len(g), -1), jr.fold_in(key, i)) for i, g in enumerate(gradients)]
        dtype = jnp.result_type(*{p.dtype for p in parts})
        return functools.reduce(jnp.add, [p.astype(dtype) for p in parts]) / math.sqrt(self.dim)

    def leaf(self, g: Float[Array, "n size"], key: Array) -> Array:
        """Of one leaf, before the root is divided by."""
        size = g.shape[1]
        rows = min(size, max(1, BLOCK // self.dim))
        blocks = math.ceil(size / rows)

        def matrix(block: Any) -> Array:
            return self.law(jr.fold_in(key, block), (rows, self.dim), g.dtype)

        def add(total: Array, block: tuple[Array, Array]) -> tuple[Array, None]:
            return total + block[1] @ matrix(block[0]), None

        if blocks == 1:
            return g @ matrix(0)
        columns = jnp.pad(g, ((0, 0), (0, blocks * rows - size))).reshape(-1, blocks, rows)
        start = jnp.zeros((len(g), self.dim), g.dtype)
        return lax.scan(add, start, (jnp.arange(blocks), jnp.moveaxis(columns, 1, 0)))[0]


class Task(NamedTuple):
    """What is compiled: gradients of a model, projected or not, in so many pieces."""

    f: Function
    loss: Loss | None
    chunks: int
    projection: Projection | None = None


def per_example_gradients(
    f: Any, params: Any, x: Any, loss: Loss | None = None, y: Any = None, *, memory: int | None = None
) -> PyTree:
    """The gradients of single examples with respect to the parameters.

    Args:
        f: A function, network or module, as in `as_model`.
        params: As in `as_model`.
        x: Examples.
        loss: A scalar JAX function `loss(output, y[i])` of the output for one example, or `loss(output)` without `y`;
            without it, the sum of the outputs is differentiated.
        y: Targets, examples first.
        memory: Bytes of what is held besides the result; `None`: half of what is free.

    Returns:
        A tree like `params` with a leading axis of examples; for a PyTorch module, a dictionary by names.

    >>> import everwide.empirical as emp, jax.numpy as jnp
    >>> x = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    >>> emp.per_example_gradients(lambda params, x: params @ x, jnp.zeros(2), x).tolist()
    [[1.0, 2.0], [3.0, 4.0]]

    """
    model, n = as_model(f, params), count(x)
    way_out = "Use project_gradients, which keeps a few numbers of each example, or take fewer examples."
    require(n * _bytes(model), None, f"The gradients of {n} examples", way_out)
    if isinstance(model, TorchModel):
        pieces = list(_torch_pieces(model, x, loss, y, memory))
        return {name: jnp.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    return _run(*_task(model, x, loss, y, memory), None)


def project_gradients(
    f: Any,
    params: Any,
    x: Any,
    key: Array,
    dim: int,
    *,
    loss: Loss | None = None,
    y: Any = None,
    law: Law = jr.rademacher,
    memory: int | None = None,
) -> Float[Array, "n dim"]:
    """Random projections of the gradients of single examples: inner products are kept, on average.

    `E[p_i . p_j]` is the inner product of the gradients `i` and `j`, with a standard deviation of about
    `|g_i| |g_j| / sqrt(dim)`. The same `key` and `dim` give the same projection, whatever the examples are, so that two
    data sets may be projected apart.

    Args:
        f: A function, network or module, as in `as_model`.
        params: As in `as_model`.
        x: Examples.
        key: A JAX key.
        dim: Numbers that are kept of each gradient.
        loss: As in `per_example_gradients`.
        y: Targets, examples first.
        law: Draws independent numbers of mean 0 and variance 1: `jax.random.rademacher`, `jax.random.normal`, or any
            function of a key, a shape and a dtype.
        memory: Bytes of what is held besides the result; `None`: half of what is free.

    Returns:
        The projections `(n, dim)`.

    >>> import everwide.empirical as emp, jax, jax.numpy as jnp
    >>> f, x = lambda params, x: params @ x, jnp.eye(3)
    >>> emp.project_gradients(f, jnp.zeros(3), x, jax.random.key(0), dim=8).shape
    (3, 8)

    """
    model, projection = as_model(f, params), Projection(law, whole(dim, "dim"))
    if isinstance(model, TorchModel):
        project = jax.jit(lambda leaves: projection.of(leaves, key))  # a list keeps the order of the parameters
        return jnp.concatenate([project([*g.values()]) for g in _torch_pieces(model, x, loss, y, memory)])
    task, *data = _task(model, x, loss, y, memory)
    return _run(task._replace(projection=projection), *data, key)


def _task(model: Model, x: Any, loss: Loss | None, y: Any, memory: int | None) -> tuple[Task, Any, Any, Any]:
    """Everything checked, and the number of pieces."""
    x, y = (jax.tree.map(jnp.asarray, a) for a in (x, y))
    n = count((x, y))
    output_of(model, x)
    refuse_batch_dependence(model, x)
    each, have = 2 * activation_bytes(model, x) + _bytes(model), budget(memory)
    require(each, have, "The gradient of one example", "Give more memory.")
    return Task(model.f, loss, math.ceil(n * each / have)), model.params, x, y


@functools.partial(jax.jit, static_argnums=0)
def _run(task: Task, params: Any, x: Any, y: Any, key: Array | None) -> Any:
    slope = jax.grad(lambda params, x, y: _objective(task.loss, task.f(params, x), y))

    def piece(data: tuple[Any, Any]) -> Any:
        gradients = jax.vmap(slope, (None, 0, 0))(params, *data)
        return task.projection.of(jax.tree.leaves(gradients), key) if task.projection and key is not None else gradients

    if task.chunks == 1:
        return piece((x, y))
    pieces, n = lax.map(piece, in_chunks((x, y), task.chunks)), count(x)
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:])[:n], pieces)


def _torch_pieces(
    model: TorchModel, x: Any, loss: Loss | None, y: Any, memory: int | None
) -> Iterator[dict[str, Array]]:
    """The same for a PyTorch module, piece by piece."""
    tangents, n = torch_tangents(model, x), count((x, jax.tree.map(jnp.asarray, y)))
    each, have = tangents.example_bytes(1) + _bytes(model), budget(memory)
    require(each, have, "The gradient of one example", "Give more memory.")
    size = have // each
    slope = jax.vmap(jax.grad(lambda out, y: _objective(loss, out, y)))
    for cut in (slice(start, start + size) for start in range(0, n, size)):
        some, labels = jax.tree.map(lambda a, cut=cut: a[cut], (x, y))
        yield tangents.gradients(some, slope(tangents.predict(some), jax.tree.map(jnp.asarray, labels)))


def _objective(loss: Loss | None, out: Array, y: Any) -> Array:
    """What is differentiated, of one example."""
    if loss is None:
        return jnp.sum(out)
    value = loss(out) if y is None else loss(out, y)
    if jnp.shape(value) != ():
        raise InputError(
            f"loss returned shape {jnp.shape(value)} for one example, expected a scalar. It is called with the output "
            "for one example and its target, not with a batch."
        )
    return jnp.asarray(value)


def _bytes(model: Model | TorchModel) -> int:
    """Of one gradient."""
    if isinstance(model, TorchModel):
        return sum(p.numel() * p.element_size() for p in model.module.parameters() if p.requires_grad)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(model.params))
