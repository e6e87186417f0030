"""The kernels of networks of finite width, averaged over random draws: Monte Carlo with standard errors."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array

from .._checks import InputError, positive
from .._engine import Field, Progress, Rows, Size, Tile, Values, finished, fitted, paired, require, tiles, write
from ..kernel import AbstractKernelFunction, Block, Inputs
from ..layers import AbstractLayer
from ..signal import Pairs, Parametrization
from ._ntk import Finite, largest_tile, mean_of

_WORKSPACE = 256 << 20  # bytes of gradients, of all networks that are drawn at once
_AT_ONCE = 32  # networks, at the most
_FEWEST = 16  # networks before a standard error is believed
_FIELDS: tuple[Field, ...] = ("nngp", "ntk")


class SampledKernel(NamedTuple):
    """Kernels averaged over random networks: what `sample_kernel` returns.

    - `nngp`, `ntk`: means, float64 arrays `(n1, n2)`; sites that the network leaves follow.
    - `nngp_error`, `ntk_error`: standard errors of the means.
    - `draws`: the number of networks.
    """

    nngp: np.ndarray
    ntk: np.ndarray
    nngp_error: np.ndarray
    ntk_error: np.ndarray
    draws: int


def sample_kernel(
    net: AbstractLayer,
    x1: Any,
    x2: Any = None,
    *,
    key: Array,
    width: int | None = None,
    parametrization: Parametrization | str = Parametrization.NTK,
    max_draws: int = 1000,
    tolerance: float | None = None,
    pairs: Pairs = Pairs.ALL_SITES,
    memory: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    resume: SampledKernel | None = None,
) -> SampledKernel:
    """The expected kernels of random networks of finite width, by Monte Carlo, with standard errors.

    The result does not depend on how many networks are drawn at once.

    Args:
        net: A network.
        x1: Examples, as in `everwide.gram`.
        x2: Examples for the columns; `None` pairs `x1` with itself.
        key: A JAX key.
        width: As in `net.init`.
        parametrization: As in `net.init`.
        max_draws: Networks to draw.
        tolerance: Stop when the largest standard error of each kernel is at most that, in units of its largest entry.
        pairs: Which pairs of sites to return where the network leaves sites.
        memory: Bytes for the gradients of the networks that are drawn at once, and for the result; `None`: half of
            what is free.
        progress: Called after every few networks, which it counts.
        resume: A result to go on from, with the same key and the same data.

    Returns:
        Means `nngp`, `ntk`, their standard errors `nngp_error`, `ntk_error`, and the number of `draws`.

    >>> import everwide as ew, jax, numpy as np
    >>> from everwide.empirical import sample_kernel
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> k = sample_kernel(net, np.eye(3), key=jax.random.key(0), width=16, max_draws=20)
    >>> k.ntk.shape, k.draws
    ((3, 3), 20)

    """
    _check_draws("max_draws", max_draws)
    tolerance = None if tolerance is None else positive(tolerance, "tolerance")
    rows, cols = paired(x1, x2)
    wide, start = rows.x.dtype == np.float64, time.perf_counter()
    with jax.enable_x64(wide):
        ensemble = Ensemble(net, key, rows.x.shape[1:], width, Parametrization(parametrization), pairs)
        plan = _plan(ensemble.typical(), rows, cols, memory)
    sums = _Sums(plan.shape, pairs if cols is None else None, resume)
    while sums.draws < max_draws and not sums.precise(tolerance):
        with jax.enable_x64(wide):
            _draw(ensemble, plan, rows, cols, sums, min(plan.at_once, max_draws - sums.draws))
        if progress is not None:
            progress(Progress(sums.draws, max_draws, time.perf_counter() - start))
    return sums.result()


class Sampled(AbstractKernelFunction):
    """The mean of the empirical kernels (`Finite`) of random networks of a finite width, as a kernel function.

    A pure JAX function, and a kernel function for `everwide.gram`. `sample_kernel` gives standard errors too, and stops
    when it is precise enough.

    Args:
        net: A network.
        input_shape: The shape of one example.
        key: A JAX key.
        draws: The number of networks.
        width: As in `net.init`.
        parametrization: As in `net.init`.
        pairs: Which pairs of sites to return where the network leaves sites.

    >>> import everwide as ew, jax, numpy as np
    >>> from everwide.empirical import Sampled
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> ew.gram(Sampled(net, (3,), jax.random.key(0), draws=4, width=16), np.eye(3)).nngp.shape
    (3, 3)

    """

    ensemble: "Ensemble"
    draws: int = eqx.field(static=True)

    def __init__(
        self,
        net: AbstractLayer,
        input_shape: tuple[int, ...],
        key: Array,
        *,
        draws: int,
        width: int | None = None,
        parametrization: Parametrization | str = Parametrization.NTK,
        pairs: Pairs = Pairs.ALL_SITES,
    ):
        _check_draws("draws", draws)
        self.ensemble = Ensemble(net, key, tuple(input_shape), width, Parametrization(parametrization), pairs)
        self.draws = draws

    def block(self, x1: Inputs, x2: Inputs) -> Block:
        return self._mean(lambda network: network.block(x1, x2))

    def diagonal(self, x: Inputs) -> Block:
        return self._mean(lambda network: network.diagonal(x))

    @property
    def pairs(self) -> Pairs:
        return self.ensemble.pairs

    def site_shape(self) -> tuple[int, ...]:
        return self.ensemble.typical().site_shape()

    def examples_per_tile(self, itemsize: int) -> int:
        return self.ensemble.typical().examples_per_tile(itemsize)

    def tile_bytes(self, n1: int, n2: int, itemsize: int) -> int:
        return self.ensemble.typical().tile_bytes(n1, n2, itemsize)

    def _mean(self, read: Callable[[Finite], Block]) -> Block:
        return mean_of(lambda number: read(self.ensemble.network(number)), self.draws)


class Ensemble(eqx.Module):
    """Independent networks of one architecture and width, numbered from 0."""

    net: AbstractLayer
    key: Array
    input_shape: tuple[int, ...] = eqx.field(static=True)
    width: int | None = eqx.field(static=True)
    parametrization: Parametrization = eqx.field(static=True)
    pairs: Pairs = eqx.field(static=True)

    def __check_init__(self):
        self.typical()  # what cannot be sampled is seen now

    def network(self, number: Array) -> Finite:
        """The kernels of one of them."""
        key = jr.fold_in(self.key, number)
        params = self.net.init(key, self.input_shape, width=self.width, parametrization=self.parametrization)
        return Finite(self.net, params, self.input_shape, pairs=self.pairs, width=self.width)

    def typical(self) -> Finite:
        """The shapes of any of them, without numbers."""
        return eqx.filter_eval_shape(self.network, jnp.array(0))


class _Plan(NamedTuple):
    """Tiles of the matrix, networks at once, and the shape of the result."""

    size: Size
    at_once: int
    shape: tuple[int, ...]


def _plan(network: Finite, rows: Rows, cols: Rows | None, memory: int | None) -> _Plan:
    other, itemsize = rows if cols is None else cols, rows.x.itemsize
    shape = (len(rows), len(other), *network.site_shape())
    result = 16 * 8 * int(np.prod([float(n) for n in shape]))  # sums, a result, and what is being merged
    workspace = _WORKSPACE if memory is None else max(memory - result, 0)
    most = largest_tile(network, workspace, itemsize)
    size = Size(fitted(len(rows), most), fitted(len(other), most))
    tile = network.tile_bytes(size.rows, size.cols, itemsize)
    what = f"Kernels of shape {shape} with the gradients of {size.rows} and {size.cols} examples"
    require(result + tile, memory, what, "Pass fewer examples or a smaller width.")
    return _Plan(size, min(max(workspace // tile, 1), _AT_ONCE), shape)


class _Sums:
    """Means and sums of squared deviations of both kernels, updated batch by batch.

    Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
    """

    def __init__(self, shape: tuple[int, ...], pairs: Pairs | None, start: SampledKernel | None):
        self.draws, self.pairs = 0, pairs
        self.mean, self.squares = ({field: np.zeros(shape) for field in _FIELDS} for _ in range(2))
        if start is None:
            return
        if start.nngp.shape != shape:
            raise InputError(f"resume holds kernels of shape {start.nngp.shape}, the data ask for {shape}.")
        self.draws = start.draws
        for field, mean, error in (("nngp", start.nngp, start.nngp_error), ("ntk", start.ntk, start.ntk_error)):
            self.mean[field][:] = mean
            self.squares[field][:] = np.square(error) * start.draws * (start.draws - 1)

    def merge(self, tile: Tile, count: int, moments: dict[str, np.ndarray]) -> None:
        """Add `count` draws of a tile to those before; `draws` grows when all tiles have them."""
        at, total = tile.place(), self.draws + count
        for field in _FIELDS:
            mean, squares = self.mean[field], self.squares[field]
            apart = moments[field] - mean[at]
            more = moments[f"{field}_squares"] + apart * apart * (self.draws * count / total)
            write(squares, tile, squares[at] + more, self.pairs)
            write(mean, tile, mean[at] + apart * (count / total), self.pairs)

    def error(self, field: Field) -> np.ndarray:
        """Standard errors of the means."""
        return np.sqrt(self.squares[field] / (self.draws * max(self.draws - 1, 1)))

    def result(self) -> SampledKernel:
        """What is known so far."""
        return SampledKernel(self.mean["nngp"], self.mean["ntk"], self.error("nngp"), self.error("ntk"), self.draws)

    def precise(self, tolerance: float | None) -> bool:
        """Whether the largest standard error, in units of the largest entry, is small enough for both kernels."""
        if tolerance is None or self.draws < _FEWEST:
            return False
        return all(self.error(f).max() <= tolerance * max(np.abs(self.mean[f]).max(), 1e-300) for f in _FIELDS)


def _draw(ensemble: Ensemble, plan: _Plan, rows: Rows, cols: Rows | None, sums: _Sums, count: int) -> None:
    """Add `count` more networks to the sums, tile by tile."""
    other, numbers = rows if cols is None else cols, sums.draws + jnp.arange(plan.at_once)

    def started() -> Iterator[tuple[Tile, Values]]:
        for tile in tiles(len(rows), len(other), plan.size, symmetric=cols is None):
            left = rows.cut(tile.rows.start, plan.size.rows)
            own = cols is None and tile.rows == tile.cols
            right = None if own else other.cut(tile.cols.start, plan.size.cols)
            yield tile, _moments(ensemble, numbers, jnp.array(count), left, right)

    for tile, moments in finished(started(), in_flight=1):
        sums.merge(tile, count, moments)
    sums.draws += count


@eqx.filter_jit
def _moments(ensemble: Ensemble, numbers: Array, count: Array, x1: Inputs, x2: Inputs | None) -> dict[str, Array]:
    """Means and sums of squared deviations of both kernels over the first `count` networks."""
    blocks = jax.vmap(lambda number: ensemble.network(number).block(x1, x1 if x2 is None else x2))(numbers)
    moments = {}
    for field in _FIELDS:
        values = getattr(blocks, field)
        drawn = (jnp.arange(len(numbers)) < count).reshape(-1, *(1,) * (values.ndim - 1))
        mean = jnp.sum(jnp.where(drawn, values, 0), 0) / count.astype(values.dtype)
        moments[field] = mean
        moments[f"{field}_squares"] = jnp.sum(jnp.where(drawn, jnp.square(values - mean), 0), 0)
    return moments


def _check_draws(label: str, draws: int) -> None:
    """Raise unless there is something to average."""
    if draws < 2:
        raise InputError(
            f"{label}={draws}: expected at least 2 random networks, for a mean with a standard error. "
            "The kernels of one network are everwide.empirical.Finite(net, params, input_shape)."
        )
