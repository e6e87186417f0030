"""The tangent kernel of any model, and of a finite network of ours."""

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from .._checks import InputError
from .._engine import Progress, Remembered, as_batches, count
from ..kernel import AbstractKernelFunction, Block, Example, Inputs
from ..layers import AbstractLayer
from ..signal import ArchitectureError, Pairs, Signal
from ._factors import AbstractTangents, Job, Outputs, as_outputs, decide, ready, tile
from ._models import Model, TorchModel, any_model, as_example
from ._refusals import refuse_batch_dependence, refuse_not_finite, refuse_not_holomorphic
from ._tiles import Size, centre, estimated, kernels
from ._torch import PlanError, torch_tangents
from ._trace import JaxTangents, Plan, alike, traced

_REMEMBERED = 8
_plans = Remembered[Plan](_REMEMBERED)  # of functions and shapes


def empirical_ntk(
    f: Any,
    params: Any,
    x1: Any,
    x2: Any = None,
    *,
    outputs: str = "full",
    centred: bool = False,
    holomorphic: bool = False,
    memory: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> np.ndarray:
    """The tangent kernel of a model at its parameters, between the examples of `x1` and `x2`; exact.

    `ntk[i, j, a, b]` is the inner product of the gradients of output `a` for `x1[i]` and of output `b` for `x2[j]`.

    Complex numbers, of JAX functions and modules, are two real ones each. So `k` complex outputs are `2 k` outputs, the
    real parts first, then the imaginary parts; the gradient is with respect to real and imaginary parts of complex
    parameters; and the kernel is real. With the blocks `R` (real with real parts), `I` (imaginary with imaginary) and
    `S` (imaginary with real), `J J^H` of a complex function of real parameters is `R + I + i (S - S^T)`.

    Args:
        f: A JAX function `f(params, x)` of one example that returns a scalar or a vector; an everwide network; or an
            Equinox, Flax NNX or PyTorch module, with `params=None`. Like `jax.jit`, we take a JAX function to be pure.
        params: A tree of floating-point or complex arrays.
        x1: An array, or a tree of arrays; examples come first.
        x2: Examples for the columns; `None` pairs `x1` with itself, and the result is bitwise symmetric.
        outputs: `"full"`, all pairs of outputs, `(n1, n2, k, k)`; `"trace"`, the mean of `ntk[i, j, a, a]` over `a`,
            `(n1, n2)`, which estimates the kernel of an infinitely wide network; `"diagonal"`, `ntk[i, j, a, a]`,
            `(n1, n2, k)`; `"sum"`, the kernel of the sum of all outputs, `(n1, n2)`. The largest stable rate of a
            network with several outputs is that of `"full"`: eigenvalues of the mean are smaller.
        centred: Whether Jacobians are taken relative to their mean over the examples of their batch.
        holomorphic: All outputs and parameters are complex, and `f` has a complex derivative `J`: the kernel is
            `J J^H`, complex, with `k` outputs, for a quarter of the work.
        memory: Bytes that may be used; `None`: half of what is free.
        progress: Called after every tile.

    Returns:
        The kernel in the dtype of the parameters (of their real parts). In memory, a full kernel is `(n1, k, n2, k)`:
        its transpose to that order, and reshaping it to a matrix of `n1 * k` rows, copy nothing.

    >>> import everwide as ew, jax.numpy as jnp
    >>> f = lambda params, x: jnp.tanh(x @ params["w"]) @ params["v"]
    >>> params = {"w": jnp.ones((3, 5)), "v": jnp.ones((5, 2))}
    >>> ew.empirical_ntk(f, params, jnp.eye(3)).shape
    (3, 3, 2, 2)
    >>> ew.empirical_ntk(f, params, jnp.eye(3), jnp.ones((4, 3)), outputs="trace").shape
    (3, 4)
    >>> log_psi = lambda params, x: jnp.sum(jnp.log(jnp.cosh(x.astype(complex) @ params)))  # a wave function
    >>> w = jnp.full((3, 5), 0.1 + 0.2j)
    >>> ew.empirical_ntk(log_psi, w, jnp.eye(3), centred=True).shape
    (3, 3, 2, 2)
    >>> ew.empirical_ntk(log_psi, w, jnp.eye(3), holomorphic=True).dtype
    dtype('complex64')

    Novak, Sohl-Dickstein, Schoenholz 2022, "Fast finite width neural tangent kernel".

    """
    one = empirical_ntk_blocks(
        f,
        params,
        x1,
        x2,
        outputs=outputs,
        group=lambda _: "",
        centred=centred,
        holomorphic=holomorphic,
        memory=memory,
        progress=progress,
    )
    return one[""]


def empirical_ntk_blocks(
    f: Any,
    params: Any,
    x1: Any,
    x2: Any = None,
    *,
    outputs: str = "full",
    group: Callable[[str], str] | None = None,
    centred: bool = False,
    holomorphic: bool = False,
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
        centred: As in `empirical_ntk`.
        holomorphic: As in `empirical_ntk`.
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
    batches, model, which = as_batches(x1, x2), any_model(f, params), as_outputs(outputs)
    dtype = dtype_of(model)
    numbers = np.promote_types(dtype, np.complex64) if holomorphic else dtype

    def run(tangents: AbstractTangents) -> dict[str, np.ndarray]:
        groups = tuple((name, name if group is None else group(name)) for name in tangents.names)
        job = Job(*batches.sizes(), which, groups)
        parts = kernels(tangents, batches, job, dtype=numbers, memory=memory, progress=progress)
        for kernel in parts.values() if centred else ():
            centre(kernel, which, symmetric=batches.x2 is None)
        refuse_not_finite(parts, None if isinstance(model, TorchModel) else model.params)
        return parts

    with jax.enable_x64(True) if dtype == np.float64 else contextlib.nullcontext():
        try:
            return run(tangents_of(model, batches.x1, holomorphic))
        except PlanError:  # what this PyTorch module calls depends on the data
            assert isinstance(model, TorchModel)
            return run(torch_tangents(model, batches.x1, plain_only=True))


def ntk_block(
    f: Callable[[Any, Any], Any],
    params: Any,
    x1: Any,
    x2: Any,
    outputs: str = "full",
    *,
    centred: bool = False,
    holomorphic: bool = False,
) -> Array:
    """The same kernel as a pure JAX function, for use inside `jax.jit`: all pairs at once, no memory budget.

    One tile of `empirical_ntk`, which is the same trace, factors and contraction. Inside `jax.shard_map`, a device that
    has some rows computes their kernel with all columns that it is given; centre when all rows are together again.

    Args:
        f: A JAX function `f(params, x)` of one example.
        params: A tree of arrays; those that are not floating point have no derivative.
        x1: Examples.
        x2: Examples for the columns.
        outputs: As in `empirical_ntk`.
        centred: As in `empirical_ntk`.
        holomorphic: As in `empirical_ntk`; whether `f` is holomorphic is not checked.

    Returns:
        The kernel in the dtype of the parameters, of the shape that `empirical_ntk` gives it.

    >>> import everwide.empirical as emp, jax, jax.numpy as jnp
    >>> f = lambda params, x: x @ params
    >>> jax.jit(lambda w, x: emp.ntk_block(f, w, x, x, "trace"))(jnp.ones((3, 2)), jnp.eye(3)).shape
    (3, 3)

    """
    which = as_outputs(outputs)
    params, x1, x2 = alike((params, x1, x2))
    tangents = traced(f, params, jax.tree.map(lambda a: a[0], x1), holomorphic)
    n1, n2, k = count(x1, "x1"), count(x2, "x2"), tangents.outputs
    job = Job(n1, n2, which, tuple((name, "") for name in tangents.names))
    parts = [tangents.factors(x, which.cotangents(range(k), k)) for x in (x1, x2)]
    a, b = (ready(some, decide(parts[0], job)) for some in parts)
    kernel, dtype = tile(a, b, which).get(""), _common(tangents.leaves)
    if kernel is None:  # no parameter is used
        kernel = jnp.zeros(which.shape(n1, n2, k), dtype)
    kernel = which.examples_first(kernel / k if which is Outputs.TRACE else kernel)
    if centred:
        kernel = kernel - kernel.mean(0) - kernel.mean(1, keepdims=True) + kernel.mean((0, 1))
    return kernel.astype(np.promote_types(dtype, np.complex64) if holomorphic else dtype)


def tangents_of(model: Model | TorchModel, x: Any, holomorphic: bool = False) -> AbstractTangents:
    """The derivatives of a model for examples such as those of the batch `x`. Models that mix examples are refused.

    The plans of the last few functions are remembered, so that a model that is trained on is traced once.
    """
    if isinstance(model, TorchModel):
        if holomorphic:
            raise InputError("holomorphic=True: PyTorch modules must be real. Write the model in JAX.")
        return torch_tangents(model, x)
    one = jax.tree.map(lambda a: jnp.asarray(a[0]), x)
    (leaves, structure), (rows, tree) = jax.tree.flatten(model.params), jax.tree.flatten(one)
    # what a plan depends on: shapes, dtypes, and whether numbers are 64 bits wide unless somebody says otherwise
    shapes = tuple((a.shape, a.dtype) for a in (*leaves, *rows))
    key = (model.f, structure, tree, shapes, jnp.result_type(float), holomorphic)

    def planned() -> Plan:
        plan = traced(model.f, model.params, one, holomorphic).plan
        refuse_batch_dependence(model, x)
        return plan

    tangents = JaxTangents(leaves, _plans.get(key, planned))
    if holomorphic:
        refuse_not_holomorphic(model.f, model.params, one)
    return tangents


def dtype_of(model: Model | TorchModel) -> np.dtype:
    """Of the parameters."""
    if isinstance(model, TorchModel):
        trained = [p for p in model.module.parameters() if p.requires_grad]
        return np.result_type(*(str(p.dtype).removeprefix("torch.") for p in trained))
    return _common(jax.tree.leaves(model.params))


def _common(leaves: list[Any]) -> np.dtype:
    """The dtype of all of them that are floating point, or of their real parts."""
    dtypes = [jnp.result_type(leaf) for leaf in leaves]
    return functools.reduce(np.promote_types, (jnp.finfo(d).dtype for d in dtypes if jnp.issubdtype(d, jnp.inexact)))


_LARGEST_TILE = 512
_WORKSPACE = 256 << 20  # bytes of derivatives in a tile
_AT_ONCE = 16  # examples that are paired with themselves
_COPIES = 3  # arrays that XLA keeps for each that is asked for


class Finite(AbstractKernelFunction):
    """The empirical kernels of one network of finite width, as a kernel function.

    Both are means over the output channels `a`: the NNGP of `f_a(x) f_a(x')`, the NTK of the products of the gradients
    of `f_a(x)` and `f_a(x')`. Frozen parameters have none. Dropout is inactive. Computed in the dtype of the data.

    Args:
        net: A network.
        params: Its parameters, from `net.init`.
        input_shape: The shape of one example, `(*sites, channels)`.
        pairs: Which pairs of sites to return where the network leaves sites.
        width: As in `net.init`; needed where branches of open width are put side by side.

    >>> import everwide as ew, jax, numpy as np
    >>> from everwide.empirical import Finite
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> params = net.init(jax.random.key(0), (3,), width=64)
    >>> ew.gram(Finite(net, params, (3,)), np.eye(3)).ntk.shape
    (3, 3)

    """

    net: AbstractLayer
    params: PyTree
    input_shape: tuple[int, ...] = eqx.field(static=True)
    pairs: Pairs = eqx.field(static=True)
    sites: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        net: AbstractLayer,
        params: PyTree,
        input_shape: tuple[int, ...],
        *,
        pairs: Pairs = Pairs.ALL_SITES,
        width: int | None = None,
    ):
        self.net = net
        self.params = params
        self.input_shape = tuple(input_shape)
        self.pairs = pairs
        self.sites = net.describe(Signal(self.input_shape, width=width, readouts=frozenset())).sites

    def block(self, x1: Inputs, x2: Inputs) -> Block:
        batches = as_example(x1), as_example(x2)
        params = jax.tree.map(lambda p: p.astype(batches[0].x.dtype) if _is_floating(p) else p, self.params)
        y1, y2 = (jax.vmap(lambda e: self._places(params, e))(batch) for batch in batches)
        rule = "iac,jbc->ijab" if self.pairs is Pairs.ALL_SITES else "iac,jac->ija"
        nngp = jnp.einsum(rule, y1, y2, precision=lax.Precision.HIGHEST) / y1.shape[-1]
        ntk = self._tangent_kernel(params, *batches, y1.shape[-1]) if _learns(params) else jnp.zeros_like(nngp)
        return Block(*(a.reshape(*a.shape[:2], *self.site_shape()) for a in (nngp, ntk)))

    def diagonal(self, x: Inputs) -> Block:
        def one(example: Inputs) -> Block:
            alone = jax.tree.map(lambda a: a[None], example)
            return jax.tree.map(lambda a: a[0, 0], self.block(alone, alone))

        arrays = jax.tree.map(jnp.asarray, x)
        return lax.map(one, arrays, batch_size=min(len(x.x), _AT_ONCE))

    def site_shape(self) -> tuple[int, ...]:
        return self.sites * (2 if self.pairs is Pairs.ALL_SITES else 1)

    def examples_per_tile(self, itemsize: int) -> int:
        return largest_tile(self, _WORKSPACE, itemsize)

    def tile_bytes(self, n1: int, n2: int, itemsize: int) -> int:
        kernels = 2 * n1 * n2 * math.prod(self.site_shape())
        return itemsize * (_COPIES * kernels + self._derivatives(max(n1, n2)))

    def _places(self, params: PyTree, example: Example) -> Float[Array, "places channels"]:
        """The outputs of one example; all sites as one axis."""
        y = self.net.apply(params, example)
        return y.reshape(-1, y.shape[-1])

    def _tangent_kernel(self, params: PyTree, x1: Example, x2: Example, channels: int) -> Float[Array, "n1 n2 *places"]:
        """The NTK, averaged over the channels: `(n1, n2, places, places)`, or `(n1, n2, places)` of equal places.

        Examples are stacked. The derivatives of one channel are in memory at a time.
        """

        def one(channel: Array) -> Array:
            left, right = ((x, jnp.full(len(x.x), channel)) for x in (x1, x2))
            return ntk_block(self._channel, params, left, right, _outputs(self.pairs))

        return mean_of(one, channels)

    def _channel(self, params: PyTree, numbered: tuple[Example, Array]) -> Float[Array, " places"]:
        """One channel of the outputs."""
        return self._places(params, numbered[0])[:, numbered[1]]

    def _derivatives(self, n: int) -> int:
        """Numbers that describe the derivatives of `n` examples on each side of a tile."""
        if not _learns(self.params):
            return 0
        params = jax.tree.map(
            lambda p: jax.ShapeDtypeStruct(p.shape, jnp.float32 if _is_floating(p) else p.dtype), self.params
        )
        one = jax.ShapeDtypeStruct(self.input_shape, jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
        try:
            tangents = traced(lambda params, one: self._channel(params, (Example(one[0]), one[1])), params, one)
        except ArchitectureError:  # a network over graphs, and none is at hand: all derivatives that there could be
            return _COPIES * 2 * n * math.prod(self.sites) * sum(leaf.size for leaf in jax.tree.leaves(params))
        job = Job(n, n, _outputs(self.pairs), tuple((name, "") for name in tangents.names))
        return estimated(tangents, job, Size(n, tangents.outputs)).of(2) // 4


def largest_tile(kernel: Finite, budget: int, itemsize: int) -> int:
    """Examples of a square tile that stays within a budget of bytes; one at least."""
    size = _LARGEST_TILE
    while size > 1 and kernel.tile_bytes(size, size, itemsize) > budget:
        size //= 2
    return size


def mean_of(numbered: Callable[[Array], PyTree], count: int) -> PyTree:
    """The mean of `numbered(0)`, `numbered(1)`, ..., of which one is in memory at a time."""

    def add(total: PyTree, number: Array) -> tuple[PyTree, None]:
        return jax.tree.map(jnp.add, total, numbered(number)), None

    start = jax.tree.map(jnp.zeros_like, jax.eval_shape(numbered, jnp.array(0)))
    return jax.tree.map(lambda a: a / count, lax.scan(add, start, jnp.arange(count))[0])


def _outputs(pairs: Pairs) -> Outputs:
    return Outputs.FULL if pairs is Pairs.ALL_SITES else Outputs.DIAGONAL


def _is_floating(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _learns(params: PyTree) -> bool:
    """Whether there is anything to learn."""
    return any(_is_floating(leaf) for leaf in jax.tree.leaves(params))
