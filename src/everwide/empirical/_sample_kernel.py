"""Monte Carlo kernels with standard errors, as precise as they are asked to be."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import InputError
from .._engine import Rows, Size, Tile, as_rows, fitted, matching, require, tiles
from ..kernel import Inputs
from ..layers import AbstractLayer
from ..signal import Pairs, Parametrization
from ._finite import Finite, largest_tile
from ._sampled import Ensemble, check_draws

_WORKSPACE = 256 << 20  # bytes of gradients, of all networks that are drawn at once
_AT_ONCE = 32  # networks, at the most
_FEWEST = 16  # networks before a standard error is believed


class SampledKernel(NamedTuple):
    """Kernels averaged over `draws` random networks, with the standard errors of the means.

    Kernels are float64 arrays `(n1, n2)`; sites that the network leaves follow.

    >>> from everwide.empirical import SampledKernel
    >>> SampledKernel._fields
    ('nngp', 'ntk', 'nngp_error', 'ntk_error', 'draws')
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
    precision: float | None = None,
    pairs: Pairs = Pairs.ALL_SITES,
    memory: int | None = None,
    progress: Callable[[SampledKernel], None] | None = None,
    resume: SampledKernel | None = None,
) -> SampledKernel:
    """The expected kernels of random networks of finite width, by Monte Carlo, with standard errors.

    Draws `max_draws` networks; with a `precision`, only until the largest standard error of each kernel is at most
    that, in units of the kernel's largest entry.
    The result does not depend on how many are drawn at once. `x2=None` pairs `x1` with itself.

    - `x1`, `x2`: as in `everwide.gram`. `width`, `parametrization`: as in `net.init`.
    - `memory`: bytes for the gradients of the networks that are drawn at once, and for the result.
    - `progress`: called after every few networks with the result so far. It may raise to stop: nothing is lost.
    - `resume`: a result to go on from, with the same key and the same data.

    >>> import everwide as ew, jax, numpy as np
    >>> from everwide.empirical import sample_kernel
    >>> net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    >>> found = sample_kernel(net, np.eye(3), key=jax.random.key(0), width=16, max_draws=20)
    >>> found.ntk.shape, found.draws
    ((3, 3), 20)
    """
    check_draws("max_draws", max_draws)
    if precision is not None and not precision > 0:
        raise ValueError(f"precision={precision}: expected a relative standard error above 0, such as 0.01.")
    rows, cols = (as_rows(x1), None) if x2 is None else matching(as_rows(x1, "x1"), as_rows(x2, "x2"))
    shape = rows.x.shape[1:]
    with jax.enable_x64(rows.x.dtype == np.float64):
        ensemble = Ensemble(net, key, shape, width, Parametrization(parametrization), pairs)
        plan = _plan(ensemble.typical(), rows, cols, memory)
    sums = _Sums(plan.shape, resume)
    while sums.draws < max_draws and not _precise(sums, precision):
        with jax.enable_x64(rows.x.dtype == np.float64):
            _draw(ensemble, plan, rows, cols, sums, min(plan.at_once, max_draws - sums.draws))
        if progress is not None:
            progress(sums.result(pairs, symmetric=x2 is None))
    return sums.result(pairs, symmetric=x2 is None)


class _Plan(NamedTuple):
    """Tiles of the matrix, networks at once, and the shape of the result."""

    size: Size
    at_once: int
    shape: tuple[int, ...]


def _plan(network: Finite, rows: Rows, cols: Rows | None, memory: int | None) -> _Plan:
    other, itemsize = rows if cols is None else cols, rows.x.itemsize
    shape = (len(rows), len(other), *network.site_shape())
    result = 16 * 8 * int(np.prod([float(n) for n in shape]))  # sums, a result, and what is being merged
    budget = _WORKSPACE if memory is None else max(memory - result, 0)
    most = largest_tile(network, budget, itemsize)
    size = Size(fitted(len(rows), most), fitted(len(other), most))
    tile = network.tile_bytes(size.rows, size.cols, itemsize)
    what = f"Kernels of shape {shape} with the gradients of {size.rows} and {size.cols} examples"
    require(result + tile, memory, what, "Pass fewer examples or a smaller width.")
    return _Plan(size, min(max(budget // tile, 1), _AT_ONCE), shape)


class _Sums:
    """Means and sums of squared deviations of both kernels, updated batch by batch.

    Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
    """

    def __init__(self, shape: tuple[int, ...], start: SampledKernel | None):
        self.draws = 0 if start is None else start.draws
        self.mean, self.squares = np.zeros((2, *shape)), np.zeros((2, *shape))
        if start is None:
            return
        if start.nngp.shape != shape:
            raise InputError(f"resume holds kernels of shape {start.nngp.shape}, the data ask for {shape}.")
        self.mean[:] = start.nngp, start.ntk
        self.squares[:] = np.square((start.nngp_error, start.ntk_error)) * start.draws * (start.draws - 1)

    def merge(self, tile: Tile, count: int, mean: np.ndarray, squares: np.ndarray) -> None:
        """Add `count` draws of a tile to those before; `draws` grows when all tiles have them."""
        at = (slice(None), tile.rows, tile.cols)
        total = self.draws + count
        apart = mean - self.mean[at]
        self.mean[at] += apart * (count / total)
        self.squares[at] += squares + apart * apart * (self.draws * count / total)

    def errors(self) -> np.ndarray:
        """Standard errors of the means."""
        return np.sqrt(self.squares / (self.draws * max(self.draws - 1, 1)))

    def result(self, pairs: Pairs, *, symmetric: bool) -> SampledKernel:
        """What is known so far; a copy."""
        whole = lambda a: _mirrored(a, pairs) if symmetric else a.copy()
        (nngp, ntk), (nngp_error, ntk_error) = self.mean, self.errors()
        return SampledKernel(whole(nngp), whole(ntk), whole(nngp_error), whole(ntk_error), self.draws)

    def relative_error(self) -> float:
        """The largest standard error in units of the largest entry, of the less precise kernel."""
        return max(_largest(e) / max(_largest(m), 1e-300) for m, e in zip(self.mean, self.errors(), strict=True))


def _largest(a: np.ndarray) -> float:
    return float(np.abs(a).max())


def _precise(sums: _Sums, precision: float | None) -> bool:
    return precision is not None and sums.draws >= _FEWEST and sums.relative_error() <= precision


def _mirrored(a: np.ndarray, pairs: Pairs) -> np.ndarray:
    """The lower triangle, which was computed, in place of the upper one; sites of both examples swap too."""
    rank = (a.ndim - 2) // 2 if pairs is Pairs.ALL_SITES else 0
    left, right = tuple(range(2, 2 + rank)), tuple(range(2 + rank, a.ndim))
    lower = np.tril(np.ones(a.shape[:2], bool)).reshape(*a.shape[:2], *(1,) * (a.ndim - 2))
    return np.where(lower, a, a.transpose(1, 0, *right, *left))


def _draw(ensemble: Ensemble, plan: _Plan, rows: Rows, cols: Rows | None, sums: _Sums, count: int) -> None:
    """Add `count` more networks to the sums, tile by tile."""
    other = rows if cols is None else cols
    numbers = sums.draws + jnp.arange(plan.at_once)
    for tile in tiles(len(rows), len(other), plan.size, symmetric=cols is None):
        left = rows.cut(tile.rows.start, plan.size.rows)
        right = left if cols is None and tile.rows == tile.cols else other.cut(tile.cols.start, plan.size.cols)
        same = left is right
        found = _moments(ensemble, numbers, jnp.array(count), left, None if same else right)
        n1, n2 = tile.rows.stop - tile.rows.start, tile.cols.stop - tile.cols.start
        sums.merge(tile, count, *(np.asarray(a, np.float64)[:, :n1, :n2] for a in found))
    sums.draws += count


@eqx.filter_jit
def _moments(
    ensemble: Ensemble, numbers: Array, count: Array, x1: Inputs, x2: Inputs | None
) -> tuple[Float[Array, "kernels n1 n2 *sites"], Float[Array, "kernels n1 n2 *sites"]]:
    """Means and sums of squared deviations of both kernels over the first `count` networks."""
    blocks = jax.vmap(lambda number: ensemble.network(number).block(x1, x1 if x2 is None else x2))(numbers)
    both = jnp.stack((blocks.nngp, blocks.ntk), 1)
    drawn = (jnp.arange(len(numbers)) < count).reshape(-1, *(1,) * (both.ndim - 1))
    total = lambda a: jnp.sum(jnp.where(drawn, a, 0), 0)
    mean = total(both) / count.astype(both.dtype)
    return mean, total(jnp.square(both - mean))
