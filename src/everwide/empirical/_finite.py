"""The kernels of one network of finite width."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from ..kernel import AbstractKernelFunction, Block, Example, Inputs
from ..layers import AbstractLayer
from ..signal import ArchitectureError, Pairs, Signal
from ._factors import Job, as_outputs
from ._ntk import ntk_block
from ._tiles import Size, estimated
from ._trace import traced

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
        batches = _stacked(x1), _stacked(x2)
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

        def add(sums: Array | None, channel: Array) -> tuple[Array, None]:
            left, right = ((x, jnp.full(len(x.x), channel)) for x in (x1, x2))
            ntk = ntk_block(self._channel, params, left, right, _outputs(self.pairs))
            return ntk if sums is None else sums + ntk, None

        start = jnp.zeros_like(jax.eval_shape(lambda channel: add(None, channel)[0], jnp.array(0)))
        return lax.scan(add, start, jnp.arange(channels))[0] / channels

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
        job = Job(n, n, as_outputs(_outputs(self.pairs)), tuple((name, "") for name in tangents.names))
        return estimated(tangents, job, Size(n, tangents.outputs)).of(2) // 4


def largest_tile(kernel: Finite, budget: int, itemsize: int) -> int:
    """Examples of a square tile that stays within a budget of bytes; one at least."""
    size = _LARGEST_TILE
    while size > 1 and kernel.tile_bytes(size, size, itemsize) > budget:
        size //= 2
    return size


def _stacked(x: Inputs) -> Example:
    """All examples as one, with an axis in front."""
    mask = None if x.mask is None else jnp.asarray(x.mask)
    return Example(jnp.asarray(x.x), mask, jax.tree.map(jnp.asarray, x.graph))


def _outputs(pairs: Pairs) -> str:
    return "full" if pairs is Pairs.ALL_SITES else "diagonal"


def _is_floating(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _learns(params: PyTree) -> bool:
    """Whether there is anything to learn."""
    return any(_is_floating(leaf) for leaf in jax.tree.leaves(params))
