"""The kernels of one network of finite width."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ..kernel import AbstractKernelFunction, Block, Example, Inputs
from ..layers import AbstractLayer
from ..layers._base import Params, examples
from ..signal import Pairs, Signal

_LARGEST_TILE = 512
_WORKSPACE = 256 << 20  # bytes of gradients in a tile
_COPIES = 3  # arrays that XLA keeps for each that is asked for

Outputs = Callable[[Params, Example], Float[Array, "places channels"]]


class Finite(AbstractKernelFunction):
    """The empirical kernels of a network with the parameters `params`, for inputs of shape `(*sites, channels)`.

    Both are means over the output channels `a`: the NNGP of `f_a(x) f_a(x')`, the NTK of the products of the gradients
    of `f_a(x)` and `f_a(x')`. Frozen parameters have none. Dropout is inactive.

    - `pairs`: which pairs of sites to return where the network leaves sites.
    - `width`: as in `net.init`; needed where branches of open width are put side by side.

    Kernels are computed in the dtype of the data.

    >>> import everwide as ew, jax, numpy as np
    >>> from everwide.empirical import Finite
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> params = net.init(jax.random.key(0), (3,), width=64)
    >>> ew.gram(Finite(net, params, (3,)), np.eye(3)).ntk.shape
    (3, 3)
    """

    net: AbstractLayer
    params: Params
    shape: tuple[int, ...] = eqx.field(static=True)
    pairs: Pairs = eqx.field(static=True)
    sites: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        net: AbstractLayer,
        params: Params,
        shape: tuple[int, ...],
        *,
        pairs: Pairs = Pairs.ALL_SITES,
        width: int | None = None,
    ):
        self.net = net
        self.params = params
        self.shape = tuple(shape)
        self.pairs = pairs
        self.sites = net.describe(Signal(self.shape, width=width, readouts=frozenset())).sites

    def block(self, x1: Inputs, x2: Inputs) -> Block:
        same, x1 = x2 is x1, _on_device(x1)
        x2, params = x1 if same else _on_device(x2), self._cast(x1)
        y1, y2 = (examples(x, lambda e: self._places(params, e)) for x in (x1, x2))
        rule = "iac,jbc->ijab" if self.pairs is Pairs.ALL_SITES else "iac,jac->ija"
        nngp = jnp.einsum(rule, y1, y2, precision=lax.Precision.HIGHEST) / y1.shape[-1]
        learns = any(eqx.is_inexact_array(p) for p in jax.tree.leaves(params))
        read = lambda: tangent_kernel(self._places, params, x1, x2, channels=y1.shape[-1], pairs=self.pairs)
        ntk = read() if learns else jnp.zeros_like(nngp)
        shaped = lambda a: a.reshape(*a.shape[:2], *self.site_shape())
        return Block(shaped(nngp), shaped(ntk))

    def diagonal(self, x: Inputs) -> Block:
        def one(example: Inputs) -> Block:
            alone = jax.tree.map(lambda a: a[None], example)
            return jax.tree.map(lambda a: a[0, 0], self.block(alone, alone))

        x = _on_device(x)
        return lax.map(one, x, batch_size=min(len(x.x), self.examples_per_tile(x.x.dtype.itemsize)))

    def site_shape(self) -> tuple[int, ...]:
        return self.sites * (2 if self.pairs is Pairs.ALL_SITES else 1)

    def examples_per_tile(self, itemsize: int) -> int:
        return largest_tile(self, _WORKSPACE, itemsize)

    def tile_bytes(self, n1: int, n2: int, itemsize: int) -> int:
        parameters = sum(leaf.size for leaf in jax.tree.leaves(self.params))
        places = math.prod(self.sites)
        gradients, kernels = (n1 + n2) * places * parameters, 2 * n1 * n2 * math.prod(self.site_shape())
        return itemsize * _COPIES * (gradients + kernels)

    def _places(self, params: Params, example: Example) -> Float[Array, "places channels"]:
        """The outputs of one example; all sites as one axis."""
        y = self.net.apply(params, example)
        return y.reshape(-1, y.shape[-1])

    def _cast(self, x: Inputs) -> Params:
        """The parameters in the dtype of the data."""
        return jax.tree.map(lambda p: p.astype(x.x.dtype) if eqx.is_inexact_array(p) else p, self.params)


def largest_tile(kernel: AbstractKernelFunction, budget: int, itemsize: int) -> int:
    """Examples of a square tile that stays within a budget of bytes; one at least."""
    size = _LARGEST_TILE
    while size > 1 and kernel.tile_bytes(size, size, itemsize) > budget:
        size //= 2
    return size


def tangent_kernel(
    outputs: Outputs, params: Params, x1: Inputs, x2: Inputs, *, channels: int, pairs: Pairs
) -> Float[Array, "n1 n2 *places"]:
    """The NTK, averaged over the channels: `(n1, n2, places, places)`, or `(n1, n2, places)` of equal places.

    The gradients of one channel are in memory at a time.
    """
    free, fixed = eqx.partition(params, eqx.is_inexact_array)
    rule = "iap,jbp->ijab" if pairs is Pairs.ALL_SITES else "iap,jap->ija"

    def gradients(x: Inputs, channel: Array) -> list[Array]:
        """`(n, places, parameters)` for each leaf."""
        of_one = lambda e: jax.jacrev(lambda p: outputs(eqx.combine(p, fixed), e)[:, channel])(free)
        return [leaf.reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(examples(x, of_one))]

    def of_channel(channel: Array) -> Array:
        left = gradients(x1, channel)
        right = left if x2 is x1 else gradients(x2, channel)
        products = (jnp.einsum(rule, a, b, precision=lax.Precision.HIGHEST) for a, b in zip(left, right, strict=True))
        return sum(products, jnp.zeros((), x1.x.dtype))

    shape = jax.eval_shape(of_channel, jnp.array(0))
    start = jnp.zeros(shape.shape, shape.dtype)
    return lax.scan(lambda sums, c: (sums + of_channel(c), None), start, jnp.arange(channels))[0] / channels


def _on_device(x: Inputs) -> Inputs:
    return jax.tree.map(jnp.asarray, x)
