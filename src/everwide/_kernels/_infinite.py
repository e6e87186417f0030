"""The kernels of a network at infinite width; and of dense networks of all depths at once, which share their way."""

import functools
import math
from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from .._checks import example_shape, refuse_complex
from .._engine import Remembered, Size, as_rows, tiles, trusted_jit, write
from .._trees import squared
from .._walk import Step, peak_bytes, planned
from ..activations import AbstractActivation
from ..gaussian import clamp, hasty
from ..kernel import AbstractKernelFunction, Block, Covariance, Graph, Inputs, Kernel
from ..layers import AbstractLayer, Dense, Serial, step
from ..signal import Demand, Pairs, Parametrization, Signal

# Below this complement of the correlation, float32 products lose the angle (its error is eps / angle).
_NEARLY_PARALLEL = 1e-2
_FEW_PARALLEL = 32  # rows of a tile that have such partners: theirs alone are multiplied again
_EQUAL = 32 * float(np.finfo(np.float64).eps)  # examples whose squared distance is below this part of their norms
_PIECES = 8  # of the channels, in sums of squares
_LARGEST_TILE = 512
_WORKSPACE = 48 << 20  # bytes of temporaries in a tile: larger ones fall out of the caches
_TILES = (64, 256)  # of a tower: few shapes, so that another number of rows compiles nothing
_READ = Demand(Pairs.SAME_SITE, Pairs.SAME_SITE)


class _Static(NamedTuple):
    """The output, what is read of it, and the plan of the layers."""

    sites: tuple[int, ...]
    sampled: bool
    wanted: Demand
    steps: tuple[Step, ...]


_STATIC = Remembered[_Static](64)


class Infinite(AbstractKernelFunction):
    """NNGP and NTK of a network, as a pure JAX function.

    `jax.jit`, `jax.grad` (in the data and in the network's numbers) and `jax.vmap` apply. `everwide.gram` is the same
    for whole data sets, tile by tile.

    Args:
        net: A network.
        input_shape: The shape of one example, `(*sites, channels)`.
        pairs: Which pairs of sites to return where the network leaves sites.
        width: As in `net.init`; it matters only where the limit depends on it.
        parametrization: As in `net.init`.
        seed: Of layers that are sampled; another one gives another estimate. `None` is 0.

    >>> import everwide as ew, jax.numpy as jnp
    >>> kernel = ew.Infinite(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), (3,))
    >>> kernel.block(ew.Inputs(jnp.ones((4, 3))), ew.Inputs(jnp.ones((2, 3)))).ntk.shape
    (4, 2)
    """

    net: AbstractLayer
    input_shape: tuple[int, ...] = eqx.field(static=True, converter=example_shape)
    pairs: Pairs = eqx.field(static=True, kw_only=True, default=Pairs.ALL_SITES)
    width: int | None = eqx.field(static=True, kw_only=True, default=None)
    parametrization: Parametrization = eqx.field(
        static=True, kw_only=True, converter=Parametrization, default=Parametrization.NTK
    )
    seed: int | Array | np.ndarray | None = eqx.field(kw_only=True, default=None)

    def __check_init__(self) -> None:
        self.output()

    def output(self) -> Signal:
        """What comes out of the network; raises if it is not legal."""
        return self.net.describe(self._input())

    def _input(self) -> Signal:
        return Signal(self.input_shape, width=self.width, parametrization=self.parametrization)

    @property
    def sampled(self) -> bool:
        """Whether layers are sampled, so that kernels are estimates."""
        return self._static().sampled

    @property
    def wanted(self) -> Demand:
        """What is read of the network's output."""
        return self._static().wanted

    def block(self, x1: Inputs, x2: Inputs) -> Block:
        return self._read(step(self.net, self.start(x1, x2), self.wanted))

    def quick(self) -> "Quick":
        return Quick(whole=self, pairs=self.pairs)

    def start(self, x1: Inputs, x2: Inputs) -> Kernel:
        """The second moments of the inputs, as far as the network reads them."""
        demand = self.net.demand(self.wanted)
        a, b = _zero_absent(x1), _zero_absent(x2)
        cross = _cross_moments(a, b, demand.cross)
        own1 = _own_moments(a, demand.own, lambda v: v[..., :, None])
        own2 = _own_moments(b, demand.own, lambda v: v[..., None, :])
        return self._kernel(cross, own1, own2, (x1, lambda v: v[..., :, None]), (x2, lambda v: v[..., None, :]))

    def diagonal(self, x: Inputs) -> Block:
        demand = self.net.demand(self.wanted)
        own = _own_moments(_zero_absent(x), max(demand.cross, demand.own), lambda v: v)
        assert own is not None
        own = replace(own, ntk=jnp.zeros_like(own.nngp))
        k = self._kernel(own, None, None, (x, lambda v: v), (x, lambda v: v))
        return self._read(step(self.net, k, self.wanted))

    def site_shape(self) -> tuple[int, ...]:
        return self._static().sites * (2 if self.pairs is Pairs.ALL_SITES else 1)

    def examples_per_tile(self, itemsize: int) -> int:
        size, steps = _LARGEST_TILE, self._static().steps
        while size > 1 and peak_bytes(steps, size, size, itemsize) > _WORKSPACE:
            size //= 2
        return size

    def tile_bytes(self, n1: int, n2: int, itemsize: int) -> int:
        return peak_bytes(self._static().steps, n1, n2, itemsize)

    def _static(self) -> "_Static":
        """What is known before any array exists, remembered: without it, small matrices would wait for little else."""
        leaves, structure = jax.tree.flatten(self)
        return _STATIC.get((structure, tuple(np.shape(leaf) for leaf in leaves)), self._decided)

    def _decided(self) -> "_Static":
        output = self.output()
        wanted = Demand(self.pairs if output.sites else Pairs.SAME_SITE, Pairs.NONE)
        return _Static(output.sites, output.sampled, wanted, tuple(planned(self.net, self._input(), wanted)))

    def _kernel(self, cross: Covariance, own1, own2, first, second) -> Kernel:
        (x1, place1), (x2, place2) = first, second

        def mean(inputs, place):
            return place(jnp.moveaxis(jnp.mean(_zero_absent(inputs), -1), 0, -1))

        def mask(inputs, place):
            return None if inputs.mask is None else place(jnp.moveaxis(inputs.mask, 0, -1))

        data = [None, None]
        if self.net.demand(self.wanted).data:
            data = [place(jnp.moveaxis(_numbers(x), 0, -1)) for x, place in (first, second)]
        masks = [mask(x1, place1), mask(x2, place2)]
        if any(m is not None for m in masks):  # a batch without a mask meets one with
            masks = [_all_there(x, p) if m is None else m for m, (x, p) in zip(masks, (first, second), strict=True)]
        return Kernel(
            cross,
            own1,
            own2,
            mean(x1, place1),
            mean(x2, place2),
            masks[0],
            masks[1],
            _trailing(x1.graph, place1),
            _trailing(x2.graph, place2),
            data[0],
            data[1],
            jax.random.key(0 if self.seed is None else self.seed) if self.sampled else None,
            sites=self.input_shape[:-1],
            channels=self.input_shape[-1],
            width=self.width,
            parametrization=self.parametrization,
        )

    def _read(self, k: Kernel) -> Block:
        cross = k.cross.restrict(self.pairs, k.rank)
        assert cross.ntk is not None
        lead = cross.nngp.ndim - (1 if cross.same else 2)

        def front(a):
            return jnp.moveaxis(a, tuple(range(lead)), tuple(range(-lead, 0))) if lead else a

        return Block(front(cross.nngp), front(cross.ntk))


class Quick(AbstractKernelFunction):
    """A kernel whose numeric moments are computed the usual way alone, and are NaN where that is not good enough."""

    whole: Infinite
    pairs: Pairs = eqx.field(static=True)

    def block(self, x1: Inputs, x2: Inputs) -> Block:
        with hasty():
            return self.whole.block(x1, x2)

    def diagonal(self, x: Inputs) -> Block:
        return self.whole.diagonal(x)

    def site_shape(self) -> tuple[int, ...]:
        return self.whole.site_shape()

    def examples_per_tile(self, itemsize: int) -> int:
        return self.whole.examples_per_tile(itemsize)

    def tile_bytes(self, n1: int, n2: int, itemsize: int) -> int:
        return self.whole.tile_bytes(n1, n2, itemsize)


def _numbers(inputs: Inputs) -> Array:
    """Real numbers in which kernels can be computed: half precision is not enough for angles, and becomes float32."""
    x = jnp.asarray(inputs.x)
    refuse_complex(x, "x")
    return x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4 else x


def _zero_absent(inputs: Inputs) -> Array:
    x = _numbers(inputs)
    return x if inputs.mask is None else jnp.where(inputs.mask[..., None], x, 0)


def _all_there(inputs: Inputs, place) -> Array:
    return place(jnp.ones((*inputs.x.shape[1:-1], len(inputs.x)), bool))


def _trailing(graph: Graph | None, place) -> Graph | None:
    """Graphs, like all that belongs to an example, carry the examples last."""
    return jax.tree.map(lambda a: place(jnp.moveaxis(a, 0, -1)), graph)


def _own_moments(x: Array, pairs: Pairs, place) -> Covariance | None:
    """Second moments of each example with itself."""
    if not pairs:
        return None
    if pairs is Pairs.ALL_SITES and x.ndim > 2:
        flat = x.reshape(len(x), -1, x.shape[-1])
        cov = jnp.einsum("iac,ibc->abi", flat, flat, precision=lax.Precision.HIGHEST)
        cov = cov.reshape(*x.shape[1:-1], *x.shape[1:-1], len(x)) / x.shape[-1]
    else:
        cov = jnp.moveaxis(_mean_square(x), 0, -1).astype(x.dtype)
    return Covariance(place(cov), None, pairs=pairs, same=True)


def _widened(x: Array) -> Array:
    """In float64 where JAX allows it."""
    return x.astype(jax.dtypes.canonicalize_dtype(np.float64))


def _mean_square(x: Array) -> Array:
    """Over the channels, in float64 where JAX allows it.

    Pieces of the channels are added first, number by number: XLA would write the squares down and add them one by one.
    """
    size = x.shape[-1] // _PIECES
    ends = range(size, size * _PIECES + 1, size) if size else ()
    pieces = [jnp.square(_widened(x[..., end - size : end])) for end in ends]
    rest = jnp.sum(jnp.square(_widened(x[..., size * _PIECES :])), -1)
    return (rest + jnp.sum(sum(pieces), -1) if pieces else rest) / x.shape[-1]


def _cross_moments(x1: Array, x2: Array, pairs: Pairs) -> Covariance:
    """Second moments of each example of one batch with each of the other."""
    channels, sites = x1.shape[-1], x1.shape[1:-1]
    if not sites:
        return _cross_without_sites(x1, x2)
    a, b = (x.reshape(len(x), math.prod(sites), channels) for x in (x1, x2))
    rule = "iac,jbc->abij" if pairs is Pairs.ALL_SITES else "iac,jac->aij"
    cov = jnp.einsum(rule, a, b, precision=lax.Precision.HIGHEST) / channels
    lead = (*sites, *sites) if pairs is Pairs.ALL_SITES else sites
    cov = cov.reshape(*lead, len(x1), len(x2))
    return Covariance(cov, jnp.zeros_like(cov), pairs=pairs)


def _cross_without_sites(x1: Array, x2: Array) -> Covariance:
    """With the squared distances `minus` and `plus`.

    In float32 they are sums of a rounded number and its rounding error; the errors of the products, which take a
    multiplication in float64, are looked up only where some pair of examples is nearly parallel.
    """
    cov = _product(x1, x2)
    own1, own2 = _mean_square(x1), _mean_square(x2)
    high1, high2 = own1.astype(cov.dtype)[:, None], own2.astype(cov.dtype)[None, :]
    # differences are exact for nearly parallel examples, sums for nearly antipodal ones
    minus, plus = (high1 - cov) + (high2 - cov), (high1 + cov) + (high2 + cov)
    if _widened(cov).dtype != cov.dtype:

        def lost(own, high):
            return (own - _widened(high)).astype(cov.dtype)

        low = lost(own1[:, None], high1) + lost(own2[None, :], high2)
        parallel = 2 * jnp.abs(cov) > (1 - _NEARLY_PARALLEL) * (high1 + high2)  # of `minus` or `plus`: not to keep both
        parallel = parallel & ~jnp.eye(len(x1), dtype=bool) if x1 is x2 else parallel  # the engine knows the diagonal

        rest = 2 * _rounded_off(x1, x2, cov, parallel)
        minus, plus = minus + (low - rest), plus + (low + rest)
    elif cov.dtype == np.float64:  # rounding would part equal examples by its square root
        rounding = _EQUAL * (high1 + high2)
        minus, plus = (jnp.where(apart < rounding, 0, apart) for apart in (minus, plus))
    limits = (clamp(apart, 0.0, jnp.inf) for apart in (minus, plus))
    return Covariance(cov, jnp.zeros_like(cov), *limits, pairs=Pairs.SAME_SITE)


def _rounded_off(x1: Array, x2: Array, cov: Array, asked: Array) -> Array:
    """What products in float32 lack where it is `asked` for: of few rows alone, of all where there are more."""
    few = min(_FEW_PARALLEL, len(x1))
    concerned = jnp.any(asked, axis=1)

    def lacking(rows: Array, products: Array) -> Array:
        return (_product(_widened(rows), _widened(x2)) - _widened(products)).astype(cov.dtype)

    def of_few() -> Array:
        rows = lax.top_k(concerned.astype(cov.dtype), few)[1]  # `nonzero` takes twice as long to compile
        return jnp.zeros_like(cov).at[rows].set(lacking(x1[rows], cov[rows]))

    some = jnp.count_nonzero(concerned)
    ways = [lambda: jnp.zeros_like(cov), of_few, lambda: lacking(x1, cov)]
    return lax.switch(jnp.where(some == 0, 0, jnp.where(some <= few, 1, 2)), ways)


def _product(x1: Array, x2: Array) -> Array:
    return jnp.matmul(x1, x2.T, precision=lax.Precision.HIGHEST) / x1.shape[-1]


class Floors(eqx.Module):
    """Covariances `K_0 .. K_L` of what the affine layers give, and what multiplies tangents on the way to the next."""

    nngp: Float[np.ndarray, "floors n1 n2"]
    slope: Float[np.ndarray, "depth n1 n2"]

    def ntk(self, depth: int, frozen: int = 0) -> Float[np.ndarray, "n1 n2"]:
        """The tangent kernel of the network with `depth` hidden layers, the first `frozen` of which are not trained.

        With all hidden layers frozen, it is the NNGP kernel.
        """
        kernel = self.nngp[frozen].copy()
        for floor in range(frozen, depth):
            kernel *= self.slope[floor]
            kernel += self.nngp[floor + 1]
        return kernel


class Tower(eqx.Module):
    """Networks `dense, activation, ..., dense` of up to `depth` hidden layers; all affine layers have the same law.

    A deep one computes the kernels of the shallow ones on its way.
    """

    dense: Dense
    activation: AbstractActivation
    depth: int = eqx.field(static=True)

    def network(self, depth: int, frozen: int = 0) -> Serial:
        """One of them, with one output."""
        law = self.dense.affine
        hidden = [Dense(w_std=law.w_std, b_std=law.b_std, frozen=floor < frozen) for floor in range(depth)]
        layers = [layer for dense in hidden for layer in (dense, self.activation)]
        return Serial(*layers, Dense(1, w_std=law.w_std, b_std=law.b_std))

    def floors(self, x1: Float[np.ndarray, "n1 d"], x2: Float[np.ndarray, "n2 d"] | None = None) -> Floors:
        """In float64, tile by tile; `x2=None` is symmetric."""
        left = as_rows(np.asarray(x1, np.float64))
        right = left if x2 is None else as_rows(np.asarray(x2, np.float64))
        stacks = tuple(np.empty((depth, len(left), len(right))) for depth in (self.depth + 1, self.depth))
        size = Size(*(next((n for n in _TILES if len(x) <= n), _TILES[-1]) for x in (left, right)))
        pairs = Pairs.SAME_SITE if x2 is None else None
        for tile in tiles(len(left), len(right), size, symmetric=x2 is None):
            with jax.enable_x64(True):
                parts = _floors(self, left.cut(tile.rows.start, size.rows), right.cut(tile.cols.start, size.cols))
            for stack, part in zip(stacks, parts, strict=True):
                for matrix, values in zip(stack, np.asarray(part), strict=True):
                    inside = values[: tile.rows.stop - tile.rows.start, : tile.cols.stop - tile.cols.start]
                    write(matrix, tile, inside, pairs)
        return Floors(*stacks)


@functools.partial(trusted_jit, wide=True)
def _floors(tower: Tower, x1: Inputs, x2: Inputs) -> tuple[Array, Array]:
    nngp, slope = [], []
    k = Infinite(Serial(tower.dense, tower.activation), jnp.shape(x1.x)[1:]).start(x1, x2)
    for _ in range(tower.depth):
        k = step(tower.dense, k, _READ)
        nngp.append(k.cross.nngp)
        one = replace(k.cross, ntk=jnp.ones_like(k.cross.nngp))
        k = step(tower.activation, replace(k, cross=one), _READ)
        assert k.cross.ntk is not None
        slope.append(squared(tower.dense.affine.w_std, k.cross.nngp) * k.cross.ntk)
    nngp.append(step(tower.dense, k, _READ).cross.nngp)
    return jnp.stack(nngp), jnp.stack(slope)
