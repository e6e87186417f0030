"""The compiled path of spatial kernels on a CPU: the numbers of `Infinite`, many times faster."""

import importlib.util
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._compile import trusted_filter_jit
from ..kernel import AbstractHostKernelFunction, AbstractKernelFunction, Block, Covariance, Inputs, Kernel
from ..layers import AbstractLayer, step
from ..signal import Demand, Pairs
from ._compiled_plan import pairs_of_sites
from ._infinite import Infinite
from ._trunk import Match, match

_TILE_SECONDS, _SECONDS = 10.0, 2e-9  # of a tile; of one pair of sites in one layer, about
_LARGEST_TILE = 512
_XLA_SECONDS, _WORTH_COMPILING = 8e-9, 2.0  # of one pair of sites in one layer; below, XLA is done before numba is
_MOST_CHANNELS = 64  # beyond, second moments of the inputs cost more than the layers, and XLA multiplies matrices


def compiled(kernel: Infinite, entries: float = math.inf) -> AbstractKernelFunction:
    """The compiled form of a kernel, where there is one and `entries` of it are worth it; else the kernel.

    There is one for `Conv`, `Dense`, `AvgPool`, `SumPool` and two-slope activations such as `Relu` in a row, on one or
    two site axes, with `GlobalAvgPool`, `GlobalSumPool` or `Flatten` after them, and anything behind that; on the CPU,
    if numba is installed (`pip install everwide[cpu]`).

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(1))
    >>> type(compiled(ew.Infinite(net, (32, 32, 3)), 10**6)).__name__
    'Compiled'
    >>> type(compiled(ew.Infinite(net, (32, 32, 3)), 1)).__name__
    'Infinite'
    """
    if importlib.util.find_spec("numba") is None or jax.default_backend() != "cpu":
        return kernel
    if kernel.shape[-1] > _MOST_CHANNELS:
        return kernel
    faster = Compiled(kernel)
    worth = faster.parts and entries * pairs_of_sites(faster.parts.trunk) * _XLA_SECONDS >= _WORTH_COMPILING
    return faster if worth else kernel


class Compiled(AbstractHostKernelFunction):
    """The kernels of `infinite`, with the part of the network that has sites in compiled loops; see `compiled`.

    `Infinite` stays the definition, and computes what the loops are not made for: masked inputs, half precision.

    >>> import everwide as ew, jax.numpy as jnp
    >>> net = ew.Serial(ew.Conv((3,)), ew.Relu(), ew.Flatten(), ew.Dense(1))
    >>> x = ew.Inputs(jnp.ones((2, 5, 3)))
    >>> Compiled(ew.Infinite(net, (5, 3))).diagonal(x).ntk.shape
    (2,)
    """

    infinite: Infinite
    pairs: Pairs = eqx.field(static=True)
    parts: Match | None  # what the loops compute and what is left to do; `None` where they are not made for the network

    def __init__(self, infinite: Infinite):
        self.infinite, self.pairs, self.parts = infinite, infinite.pairs, match(infinite)

    def block(self, x1: Inputs, x2: Inputs) -> Block:
        parts = self._parts_for(x1, x2)
        if parts is None:
            return _defined_block(self.infinite, x1, x2)
        from ._compiled_run import cross, lanes_for, rows

        wanted = self.infinite.wanted
        full = bool(parts.tail.demand(wanted).own)
        a, b = np.asarray(x1.x), np.asarray(x2.x)
        lanes = lanes_for(max(len(a), len(b)), a.itemsize)  # the longer batch fills them
        first = rows(parts.trunk, a, lanes, full=full)
        second = first if x1.x is x2.x else rows(parts.trunk, b, lanes, full=full)
        swapped = len(a) > len(b)
        both = cross(parts.trunk, second, first).swapaxes(1, 2) if swapped else cross(parts.trunk, first, second)

        def own(values):
            return Covariance(_array(values, a.dtype), None, same=True) if full else None

        k = self._kernel(parts, _pair(both, a.dtype), own(first.own[0][:, None]), own(second.own[0][None, :]))
        return _finished(parts.tail, k, wanted)

    def diagonal(self, x: Inputs) -> Block:
        parts = self._parts_for(x)
        if parts is None:
            return _defined_diagonal(self.infinite, x)
        from ._compiled_run import lanes_for, rows

        a = np.asarray(x.x)
        own = rows(parts.trunk, a, lanes_for(len(a), a.itemsize), full=True).own
        return _finished(parts.tail, self._kernel(parts, _pair(own, a.dtype, same=True)), self.infinite.wanted)

    def site_shape(self) -> tuple[int, ...]:
        return ()

    def tile_bytes(self, n1: int, n2: int, itemsize: int) -> int:
        if self.parts is None:
            return self.infinite.tile_bytes(n1, n2, itemsize)
        from ._compiled_run import tile_bytes

        return tile_bytes(self.parts.trunk, self.infinite.shape[-1], n1, n2, itemsize)

    def examples_per_tile(self, itemsize: int) -> int:
        """A square tile takes seconds, not minutes: it is a step of the progress that is reported."""
        from ._compiled_loops import threads

        if self.parts is None:
            return self.infinite.examples_per_tile(itemsize)
        pairs = _TILE_SECONDS * threads() / (_SECONDS * pairs_of_sites(self.parts.trunk))
        return min(_LARGEST_TILE, 32 * max(1, round(math.sqrt(pairs) / 32)))

    def _parts_for(self, *inputs: Inputs) -> Match | None:
        plain = all(x.mask is None and x.graph is None and x.x.dtype in (jnp.float32, jnp.float64) for x in inputs)
        same = len({x.x.dtype for x in inputs}) == 1
        return self.parts if plain and same else None

    def _kernel(
        self, parts: Match, cross: Covariance, own1: Covariance | None = None, own2: Covariance | None = None
    ) -> Kernel:
        """What the tail reads."""
        return Kernel(
            cross,
            own1,
            own2,
            channels=parts.signal.channels,
            width=self.infinite.width,
            parametrization=self.infinite.parametrization,
        )


@trusted_filter_jit
def _defined_block(kernel: Infinite, x1: Inputs, x2: Inputs) -> Block:
    return kernel.block(x1, x2)


@trusted_filter_jit
def _defined_diagonal(kernel: Infinite, x: Inputs) -> Block:
    return kernel.diagonal(x)


def _array(values: np.ndarray, dtype: np.dtype) -> Array:
    return jnp.asarray(values.astype(dtype))


def _pair(both: np.ndarray, dtype: np.dtype, *, same: bool = False) -> Covariance:
    return Covariance(_array(both[0], dtype), _array(both[1], dtype), same=same)


@trusted_filter_jit
def _finished(tail: AbstractLayer, k: Kernel, wanted: Demand) -> Block:
    """The layers without sites, as XLA runs them."""
    cross = step(tail, k, wanted).cross
    assert cross.ntk is not None
    return Block(cross.nngp, cross.ntk)
