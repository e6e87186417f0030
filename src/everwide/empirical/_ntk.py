"""The empirical tangent kernel of any model: the functions that most people call."""

import contextlib
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._engine import Progress
from ._batches import Batches, as_batches, count
from ._factors import AbstractTangents, Form, Job, Outputs, as_outputs, decide, ready, tile
from ._models import Model, TorchModel, as_model
from ._refusals import refuse_batch_dependence
from ._tiles import kernels
from ._torch import PlanError, torch_tangents
from ._trace import JaxTangents, Plan, traced

_REMEMBERED = 8
_plans: OrderedDict[Any, Plan] = OrderedDict()  # of functions and shapes; the one not used for the longest time first
_lock = threading.Lock()


def empirical_ntk(
    f: Any,
    params: Any,
    x1: Any,
    x2: Any = None,
    *,
    outputs: str = "full",
    memory: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> np.ndarray:
    """The tangent kernel of a model at its parameters, between the examples of `x1` and `x2`; exact.

    `ntk[i, j, a, b]` is the inner product of the gradients of output `a` for `x1[i]` and of output `b` for `x2[j]`.

    Args:
        f: A JAX function `f(params, x)` of one example that returns a scalar or a vector; an everwide network; or an
            Equinox, Flax NNX or PyTorch module, with `params=None`. Like `jax.jit`, we take a JAX function to be pure.
        params: A tree of floating-point arrays.
        x1: An array, or a tree of arrays; examples come first.
        x2: Examples for the columns; `None` pairs `x1` with itself, and the result is bitwise symmetric.
        outputs: `"full"`, all pairs of outputs, `(n1, n2, k, k)`; `"trace"`, the mean of `ntk[i, j, a, a]` over `a`,
            `(n1, n2)`, which estimates the kernel of an infinitely wide network; `"diagonal"`, `ntk[i, j, a, a]`,
            `(n1, n2, k)`; `"sum"`, the kernel of the sum of all outputs, `(n1, n2)`.
        memory: Bytes that may be used; `None`: half of what is free.
        progress: Called after every tile.

    Returns:
        The kernel in the dtype of the parameters. In memory, a full kernel is `(n1, k, n2, k)`: its transpose to that
        order, and reshaping it to a matrix of `n1 * k` rows, copy nothing.

    >>> import everwide as ew, jax.numpy as jnp
    >>> f = lambda params, x: jnp.tanh(x @ params["w"]) @ params["v"]
    >>> params = {"w": jnp.ones((3, 5)), "v": jnp.ones((5, 2))}
    >>> ew.empirical_ntk(f, params, jnp.eye(3)).shape
    (3, 3, 2, 2)
    >>> ew.empirical_ntk(f, params, jnp.eye(3), jnp.ones((4, 3)), outputs="trace").shape
    (3, 4)

    Novak, Sohl-Dickstein, Schoenholz 2022, "Fast finite width neural tangent kernel".

    """
    return _kernels(f, params, as_batches(x1, x2), outputs, lambda name: "", memory, progress)[""]


def empirical_ntk_blocks(
    f: Any,
    params: Any,
    x1: Any,
    x2: Any = None,
    *,
    outputs: str = "full",
    group: Callable[[str], str] | None = None,
    memory: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, np.ndarray]:
    """The tangent kernel in parts, one for each group of parameters: which of them learn. The parts add up to it.

    Args:
        f: As in `empirical_ntk`.
        params: As in `empirical_ntk`.
        x1: Examples.
        x2: Examples for the columns.
        outputs: As in `empirical_ntk`.
        group: From the path of a parameter leaf, such as `"['layers'][0]['weight']"`, to the name of its group;
            without it, every leaf is a group.
        memory: Bytes that may be used; `None`: half of what is free.
        progress: Called after every tile.

    Returns:
        The kernels by the names of the groups; parameters that the model does not use have a kernel of zeros.

    >>> import everwide.empirical as emp, jax.numpy as jnp
    >>> f = lambda params, x: jnp.tanh(x @ params["w"]) @ params["v"]
    >>> params = {"w": jnp.ones((3, 5)), "v": jnp.ones((5, 2))}
    >>> parts = emp.empirical_ntk_blocks(f, params, jnp.eye(3), outputs="trace")
    >>> sorted(parts)
    ["['v']", "['w']"]

    """
    return _kernels(f, params, as_batches(x1, x2), outputs, group or (lambda name: name), memory, progress)


def ntk_block(f: Callable[[Any, Any], Any], params: Any, x1: Any, x2: Any, outputs: str = "full") -> Array:
    """The same kernel as a pure JAX function, for use inside `jax.jit`: all pairs at once, no memory budget.

    One tile of `empirical_ntk`, which is the same trace, factors and contraction.

    Args:
        f: A JAX function `f(params, x)` of one example.
        params: A tree of arrays; those that are not floating point have no derivative.
        x1: Examples.
        x2: Examples for the columns.
        outputs: As in `empirical_ntk`.

    Returns:
        The kernel in the dtype of the parameters, of the shape that `empirical_ntk` gives it.

    >>> import everwide.empirical as emp, jax, jax.numpy as jnp
    >>> f = lambda params, x: x @ params
    >>> jax.jit(lambda w, x: emp.ntk_block(f, w, x, x, "trace"))(jnp.ones((3, 2)), jnp.eye(3)).shape
    (3, 3)

    """
    which = as_outputs(outputs)
    tangents = traced(f, params, jax.tree.map(lambda a: a[0], x1))
    n1, n2, k = count(x1, "x1"), count(x2, "x2"), tangents.outputs
    job = Job(n1, n2, which, tuple((name, "") for name in tangents.names))
    cotangents = jnp.ones((1, k), jnp.float32) if which is Outputs.SUM else jnp.eye(k, dtype=jnp.float32)
    parts = [tangents.factors(x, cotangents) for x in (x1, x2)]
    a, b = (ready(some, decide(parts[0], job)) for some in parts)
    kernel, dtype = tile(a, b, which).get(""), _common(tangents.leaves)
    if kernel is None:  # no parameter is used
        kernel = jnp.zeros({Outputs.FULL: (n1, k, n2, k), Outputs.DIAGONAL: (n1, n2, k)}.get(which, (n1, n2)), dtype)
    kernel = kernel / k if which is Outputs.TRACE else kernel
    return (kernel.transpose(0, 2, 1, 3) if which is Outputs.FULL else kernel).astype(dtype)


def _kernels(
    f: Any,
    params: Any,
    batches: Batches,
    outputs: str,
    group: Callable[[str], str],
    memory: int | None,
    progress: Callable[[Progress], None] | None,
    form: Form | None = None,
) -> dict[str, np.ndarray]:
    model, which = as_model(f, params), as_outputs(outputs)
    dtype = _dtype(model)

    def run(tangents: AbstractTangents) -> dict[str, np.ndarray]:
        job = Job(*batches.sizes(), which, tuple((name, group(name)) for name in tangents.names), form)
        return kernels(tangents, batches, job, dtype=dtype, memory=memory, progress=progress)

    with jax.enable_x64(True) if dtype == np.float64 else contextlib.nullcontext():
        try:
            return run(tangents_of(model, batches.x1))
        except PlanError:  # what this PyTorch module calls depends on the data
            assert isinstance(model, TorchModel)
            return run(torch_tangents(model, batches.x1, plain_only=True))


def tangents_of(model: Model | TorchModel, x: Any) -> AbstractTangents:
    """The derivatives of a model for examples such as those of the batch `x`. Models that mix examples are refused.

    The plans of the last few functions are remembered, so that a model that is trained on is traced once.
    """
    if isinstance(model, TorchModel):
        return torch_tangents(model, x)
    one = jax.tree.map(lambda a: jnp.asarray(a[0]), x)
    (leaves, structure), (rows, tree) = jax.tree.flatten(model.params), jax.tree.flatten(one)
    # what a plan depends on: shapes, dtypes, and whether numbers are 64 bits wide unless somebody says otherwise
    shapes = tuple((a.shape, a.dtype) for a in (*leaves, *rows))
    key = (model.f, structure, tree, shapes, jnp.result_type(float))
    with _lock:
        plan = _plans.get(key)
        if plan is not None:
            _plans.move_to_end(key)
    if plan is None:
        refuse_batch_dependence(model, x)
        plan = traced(model.f, model.params, one).plan
        with _lock:
            _plans[key] = plan
            while len(_plans) > _REMEMBERED:
                _plans.popitem(last=False)
    return JaxTangents(leaves, plan)


def _dtype(model: Model | TorchModel) -> np.dtype:
    """Of the parameters."""
    if isinstance(model, TorchModel):
        trained = [p for p in model.module.parameters() if p.requires_grad]
        return np.result_type(*(str(p.dtype).removeprefix("torch.") for p in trained))
    return _common(jax.tree.leaves(model.params))


def _common(leaves: list[Any]) -> np.dtype:
    """The dtype of all of them that are floating point."""
    dtypes = [jnp.result_type(leaf) for leaf in leaves]
    return functools.reduce(np.promote_types, (d for d in dtypes if jnp.issubdtype(d, jnp.floating)))
