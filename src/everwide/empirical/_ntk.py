"""The empirical tangent kernel of any model: the functions that most people call."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._engine import Progress
from ._factors import AbstractTangents
from ._forms import Form, Job, Outputs, decide, ready, tile
from ._kernels import kernels
from ._models import Model, TorchModel, as_model
from ._source import as_batches, tangents_of, traced
from ._tangents import jax_tangents
from ._torch import PlanError, torch_tangents
from ._worker import Batches


def empirical_ntk(
    f: Any,
    params: Any,
    x1: Any,
    x2: Any = None,
    *,
    outputs: Outputs | str = Outputs.FULL,
    memory: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> np.ndarray:
    """The tangent kernel of a model at its parameters, between the examples of `x1` and `x2`; exact.

    `ntk[i, j, a, b]` is the inner product of the gradients of output `a` for `x1[i]` and of output `b` for `x2[j]`.
    `x2=None` pairs `x1` with itself: the result is bitwise symmetric.

    - `f`: a JAX function `f(params, x)` of one example that returns a scalar or a vector; an everwide network; or an
      Equinox, Flax NNX or PyTorch module, with `params=None`. Like `jax.jit`, we take a JAX function to be pure.
    - `x1`, `x2`: arrays, or trees of arrays; examples come first.
    - `outputs`: `"full"`, all pairs of outputs, `(n1, n2, k, k)`; `"trace"`, the mean of `ntk[i, j, a, a]` over `a`,
      `(n1, n2)`, which estimates the kernel of an infinitely wide network; `"diagonal"`, `ntk[i, j, a, a]`,
      `(n1, n2, k)`; `"sum"`, the kernel of the sum of all outputs, `(n1, n2)`.
    - `memory`: bytes that may be used (default: half of what is free). `progress`: called after every tile.

    The result has the dtype of the parameters. In memory, a full kernel is `(n1, k, n2, k)`: its transpose to that
    order, and reshaping it to a matrix of `n1 * k` rows, copy nothing.

    >>> import everwide.empirical as emp, jax.numpy as jnp
    >>> f = lambda params, x: jnp.tanh(x @ params["w"]) @ params["v"]
    >>> params = {"w": jnp.ones((3, 5)), "v": jnp.ones((5, 2))}
    >>> emp.empirical_ntk(f, params, jnp.eye(3)).shape
    (3, 3, 2, 2)
    >>> emp.empirical_ntk(f, params, jnp.eye(3), jnp.ones((4, 3)), outputs="trace").shape
    (3, 4)

    Novak, Sohl-Dickstein, Schoenholz 2022, "Fast finite width neural tangent kernel".
    """
    return _kernels(f, params, x1, x2, outputs, lambda name: "", memory, progress)[""]


def empirical_ntk_blocks(
    f: Any,
    params: Any,
    x1: Any,
    x2: Any = None,
    *,
    outputs: Outputs | str = Outputs.FULL,
    group: Callable[[str], str] | None = None,
    memory: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> dict[str, np.ndarray]:
    """The tangent kernel in parts, one for each group of parameters: which of them learn. The parts add up to it.

    `group` takes the path of a parameter leaf, such as `"['layers'][0]['weight']"`, and returns the name of its group;
    without it, every leaf is a group. Parameters that the model does not use have a kernel of zeros.
    Other arguments as in `empirical_ntk`.

    >>> import everwide.empirical as emp, jax.numpy as jnp
    >>> f = lambda params, x: jnp.tanh(x @ params["w"]) @ params["v"]
    >>> params = {"w": jnp.ones((3, 5)), "v": jnp.ones((5, 2))}
    >>> parts = emp.empirical_ntk_blocks(f, params, jnp.eye(3), outputs="trace")
    >>> sorted(parts)
    ["['v']", "['w']"]
    """
    return _kernels(f, params, x1, x2, outputs, group or (lambda name: name), memory, progress)


def ntk_block(
    f: Callable[[Any, Any], Any],
    params: Any,
    x1: Any,
    x2: Any,
    outputs: Outputs | str = Outputs.FULL,
) -> Array:
    """The same kernel as a pure JAX function, for use inside `jax.jit`: all pairs at once, no memory budget.

    >>> import everwide.empirical as emp, jax, jax.numpy as jnp
    >>> f = lambda params, x: x @ params
    >>> jax.jit(lambda w, x: emp.ntk_block(f, w, x, x, "trace"))(jnp.ones((3, 2)), jnp.eye(3)).shape
    (3, 3)
    """
    outputs = Outputs(outputs)
    leaves = jax.tree.leaves(params)
    tangents = jax_tangents(leaves, traced(f, params, jax.tree.map(lambda a: a[0], x1)))
    n1, n2 = (len(jax.tree.leaves(x)[0]) for x in (x1, x2))
    job = Job(n1, n2, outputs, tuple((name, "") for name in tangents.names))
    k = tangents.outputs
    cotangents = jnp.ones((1, k), jnp.float32) if outputs is Outputs.SUM else jnp.eye(k, dtype=jnp.float32)
    parts = [tangents.factors(x, cotangents) for x in (x1, x2)]
    a, b = (ready(some, decide(parts[0], job)) for some in parts)
    found = tile(a, b, outputs).get("")
    dtype = _common(leaves)
    if found is None:  # no parameter is used
        found = jnp.zeros({Outputs.FULL: (n1, k, n2, k), Outputs.DIAGONAL: (n1, n2, k)}.get(outputs, (n1, n2)), dtype)
    found = found / k if outputs is Outputs.TRACE else found
    return (found.transpose(0, 2, 1, 3) if outputs is Outputs.FULL else found).astype(dtype)


def _kernels(
    f: Any,
    params: Any,
    x1: Any,
    x2: Any,
    outputs: Outputs | str,
    group: Callable[[str], str],
    memory: int | None,
    progress: Callable[[Progress], None] | None,
    form: Form | None = None,
) -> dict[str, np.ndarray]:
    model, outputs = as_model(f, params), Outputs(outputs)
    batches, dtype = Batches(*as_batches(x1, x2)), _dtype(model)

    def run(tangents: AbstractTangents) -> dict[str, np.ndarray]:
        job = Job(*batches.sizes(), outputs, tuple((name, group(name)) for name in tangents.names), form)
        return kernels(tangents, batches, job, dtype=dtype, memory=memory, progress=progress)

    with jax.enable_x64(True) if dtype == np.float64 else contextlib.nullcontext():
        try:
            return run(tangents_of(model, batches.x1))
        except PlanError:  # what this PyTorch module calls depends on the data
            assert isinstance(model, TorchModel)
            return run(torch_tangents(model, batches.x1, plain_only=True))


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
