"""The compiled path of spatial kernels on a CPU: the numbers of `Infinite`, many times faster."""

import functools
import importlib.util
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._engine import lower_twice, trusted_filter_jit
from ..kernel import AbstractHostKernelFunction, AbstractKernelFunction, Block, Covariance, Inputs, Kernel
from ..layers import AbstractLayer, step
from ..signal import Demand, Pairs
from ._compiled_plan import Work, buffers, pairs_of_sites, plan_for
from ._infinite import Infinite
from ._trunk import Match, Trunk, match

_CHUNKS = 8  # of work for each thread, so that one that is slow does not hold up the others


class Rows(NamedTuple):
    """A batch in blocks of lanes, with what belongs to single examples."""

    channels: int
    lanes: int
    x: np.ndarray  # blocks, channels, sites, lanes
    stats: np.ndarray  # blocks, standard deviations and 1 / them, steps, sites, lanes
    own: np.ndarray  # (2, examples) both kernels of each example with itself, after the trunk


def _run(*arguments: Any) -> None:
    """The compiled loops; numba is imported now, not before."""
    from ._compiled_loops import run

    run(*arguments)


def threads() -> int:
    """As many as numba would use: the processors of this process, or `NUMBA_NUM_THREADS`."""
    from ._compiled_loops import threads

    return threads()


def lanes_for(examples: int, itemsize: int) -> int:
    """Whole vectors of numbers, enough of them to make rows long, and few lanes left empty."""
    vector = 32 // itemsize
    blocks = -(-examples // (4 * vector))
    return max(1, -(-examples // (max(1, blocks) * vector))) * vector


def rows(trunk: Trunk, x: np.ndarray, lanes: int, *, full: bool) -> Rows:
    """Prepare a batch `(n, *sites, channels)`. Without `full`, `own` is not computed to its end."""
    plan = plan_for(trunk, x.dtype.name)
    n, channels, blocks = len(x), x.shape[-1], -(-len(x) // lanes)
    filled = np.zeros((blocks * lanes, math.prod(x.shape[1:-1]), channels), x.dtype)
    filled[:n] = x.reshape(filled[:n].shape)
    laid = filled.reshape(blocks, lanes, *filled.shape[1:]).transpose(0, 3, 2, 1).reshape(-1)
    stats, sums = np.zeros(blocks * 2 * plan.begins[-1] * lanes, x.dtype), np.zeros((blocks, 1, 2, lanes))

    def own(units, work):
        _run(plan, units, laid, stats, laid, stats, channels, True, full, sums, work, lanes)

    units = np.array([(block, block, block + 1) for block in range(blocks)], np.int64).reshape(-1, 3)
    _in_threads(own, units, lambda: buffers(trunk, channels, x.dtype, lanes))
    return Rows(channels, lanes, laid, stats, sums.transpose(2, 0, 1, 3).reshape(2, -1)[:, :n] * trunk.factor)


def cross(trunk: Trunk, first: Rows, second: Rows, *, symmetric: bool = False) -> np.ndarray:
    """`(2, n1, n2)`: both kernels after the trunk. Half of the work where `symmetric`: what is above is left undone."""
    dtype, lanes = first.x.dtype, second.lanes
    plan, channels = plan_for(trunk, dtype.name), first.channels
    n1, n2 = first.own.shape[1], second.own.shape[1]
    blocks = -(-n2 // lanes)
    sums = np.zeros((n1, blocks, 2, lanes))
    sides = first.x, first.stats, second.x, second.stats

    def pairs(units, work):
        _run(plan, units, *sides, channels, False, True, sums, work, lanes)

    units = _units(n1, blocks, lanes, symmetric=symmetric)
    _in_threads(pairs, units, lambda: buffers(trunk, channels, dtype, lanes))
    return sums.transpose(2, 0, 1, 3).reshape(2, n1, -1)[..., :n2] * trunk.factor


def tile_bytes(trunk: Trunk, channels: int, n1: int, n2: int, itemsize: int, copies: int = 1) -> int:
    """Bytes of all arrays of a tile: examples laid out, their statistics, the sums, and buffers for every thread."""
    lanes, dtype = lanes_for(max(n1, n2), itemsize), np.dtype(f"f{itemsize}")
    work = buffers(trunk, channels, dtype, lanes)
    per_example = (2 * work.x.nbytes + work.stats.nbytes) // lanes
    sums = (4 if copies == 1 else 8) * (n1 + lanes) * (n2 + lanes) * 8
    return copies * (n1 + n2 + 2 * lanes) * per_example + sums + threads() * sum(array.nbytes for array in work)


def _units(examples: int, blocks: int, lanes: int, *, symmetric: bool) -> np.ndarray:
    """Pieces of work `(example, first block, last block + 1)`; up to the diagonal where `symmetric`."""
    parts = min(blocks, -(-_CHUNKS * threads() // max(1, examples)))
    edges = [blocks * part // parts for part in range(parts + 1)]
    units = []
    for example in range(examples):
        stop = example // lanes + 1 if symmetric else blocks
        units.extend((example, a, min(b, stop)) for a, b in itertools.pairwise(edges) if a < stop)
    return np.array(units, np.int64).reshape(-1, 3)


def _in_threads(run: Callable[[np.ndarray, Work], None], units: np.ndarray, make: Callable[[], Work]) -> None:
    """Each thread has buffers of its own, and takes the next chunk of units when it is done with one."""
    many = min(threads(), len(units))
    chunks, lock = iter(np.array_split(units, max(1, min(len(units), _CHUNKS * many)))), threading.Lock()

    def remaining() -> Iterator[np.ndarray]:
        while True:
            with lock:
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk

    def worker() -> None:
        work = make()
        for chunk in remaining():
            run(chunk, work)

    if many <= 1:
        worker()
        return
    with ThreadPoolExecutor(many) as pool:
        for done in [pool.submit(worker) for _ in range(many)]:
            done.result()


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
    parts = match(kernel) if kernel.input_shape[-1] <= _MOST_CHANNELS else None
    if parts is None or entries * parts.defined_pairs() * _XLA_SECONDS < _WORTH_COMPILING:
        return kernel
    return Compiled(kernel, parts)


def seconds(kernel: Infinite, entries: float) -> float:
    """About how long so many entries of a kernel take on this machine; infinitely long where nothing is known of it.

    >>> import everwide as ew
    >>> pooled = ew.Infinite(ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.GlobalAvgPool()), (16, 16, 3))
    >>> flat = ew.Infinite(ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.Flatten()), (16, 16, 3))
    >>> seconds(pooled, 1e6) > 100 * seconds(flat, 1e6) > 0
    True
    """
    parts = match(kernel)
    if parts is None:
        return math.inf
    if not isinstance(compiled(kernel), Compiled):
        return entries * parts.defined_pairs() * _XLA_SECONDS
    return entries * parts.crosses * pairs_of_sites(parts.trunk) * _SECONDS / threads()


class Compiled(AbstractHostKernelFunction):
    """The kernels of `infinite`, with the part of the network that has sites in compiled loops; see `compiled`.

    `Infinite` stays the definition, and computes what the loops are not made for: masked inputs, half precision.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Conv((3,)), ew.Relu(), ew.Flatten(), ew.Dense(1))
    >>> compiled(ew.Infinite(net, (5, 3))).site_shape()  # flattened
    ()
    """

    infinite: Infinite
    pairs: Pairs = eqx.field(static=True)
    parts: Match  # what the loops compute and what is left to do

    def __init__(self, infinite: Infinite, parts: Match):
        self.infinite, self.pairs, self.parts = infinite, infinite.pairs, parts

    def block(self, x1: Inputs, x2: Inputs) -> Block:
        if not _plain(x1, x2):
            return _defined_block(self.infinite, x1, x2)
        parts, wanted = self.parts, self.infinite.wanted
        full = bool(parts.tail.demand(wanted).own)
        a, b, symmetric = np.asarray(x1.x), np.asarray(x2.x), x1.x is x2.x
        lanes = lanes_for(max(len(a), len(b)), a.itemsize)  # the longer batch fills them
        first = [rows(parts.trunk, one, lanes, full=full) for one in parts.copies(a)]
        second = first if symmetric else [rows(parts.trunk, one, lanes, full=full) for one in parts.copies(b)]
        both = self._cross(first, second, symmetric=symmetric)

        def own(values):
            return Covariance(_array(values, a.dtype), None, same=True) if full else None

        k = self._kernel(_pair(both, a.dtype), own(first[0].own[0][:, None]), own(second[0].own[0][None, :]))
        return _finished(parts.tail, k, wanted)

    def diagonal(self, x: Inputs) -> Block:
        if not _plain(x):
            return _defined_diagonal(self.infinite, x)
        a = np.asarray(x.x)
        own = self._own(a)
        return _finished(self.parts.tail, self._kernel(_pair(own, a.dtype, same=True)), self.infinite.wanted)

    def site_shape(self) -> tuple[int, ...]:
        return ()

    def tile_bytes(self, n1: int, n2: int, itemsize: int) -> int:
        copies = 1 if self.parts.mirror is None else 2 ** len(self.parts.mirror.axes)
        return tile_bytes(self.parts.trunk, self.infinite.input_shape[-1], n1, n2, itemsize, copies)

    def examples_per_tile(self, itemsize: int) -> int:
        """A square tile takes seconds, not minutes: it is a step of the progress that is reported."""
        pairs = _TILE_SECONDS * threads() / (_SECONDS * self.parts.crosses * pairs_of_sites(self.parts.trunk))
        return min(_LARGEST_TILE, 32 * max(1, round(math.sqrt(pairs) / 32)))

    def _cross(self, first: list[Rows], second: list[Rows], *, symmetric: bool) -> np.ndarray:
        """`(2, n1, n2)` after the trunk: the sum over pairs of copies, each with its share."""
        trunk, parts = self.parts.trunk, self.parts
        swapped = first[0].own.shape[1] > second[0].own.shape[1]
        left, right = (second, first) if swapped else (first, second)
        used = left[:1] if parts.alike else left
        both = _sum(cross(trunk, a, b, symmetric=symmetric) for a in used for b in right) * (
            parts.share * len(left) / len(used)
        )
        both = both.swapaxes(1, 2) if swapped else both
        return np.stack([lower_twice(one, one.T) for one in both]) if symmetric else both

    def _own(self, x: np.ndarray) -> np.ndarray:
        """`(2, n)` after the trunk, of each example with itself: with its mirror images in small tiles."""
        trunk, copies, few = self.parts.trunk, self.parts.copies(x), lanes_for(1, x.itemsize)
        own = _sum(rows(trunk, one, lanes_for(len(x), x.itemsize), full=True).own for one in copies)
        for start in range(0, len(x) if len(copies) > 1 else 0, few):
            some = [rows(trunk, one[start : start + few], few, full=False) for one in copies]
            for a, b in itertools.combinations(some, 2):
                own[:, start : start + few] += 2 * np.diagonal(cross(trunk, a, b), axis1=1, axis2=2)
        return own * self.parts.share

    def _kernel(self, cross: Covariance, own1: Covariance | None = None, own2: Covariance | None = None) -> Kernel:
        """What the tail reads."""
        signal, law = self.parts.signal, self.parts.signal.parametrization
        return Kernel(cross, own1, own2, channels=signal.channels, width=signal.width, parametrization=law)


def _sum(arrays: Iterable[np.ndarray]) -> np.ndarray:
    return functools.reduce(np.add, arrays)


def _plain(*inputs: Inputs) -> bool:
    """Whether the loops are made for these inputs: no masks or graphs, one dtype of full precision."""
    known = all(x.mask is None and x.graph is None and x.x.dtype in (jnp.float32, jnp.float64) for x in inputs)
    return known and len({x.x.dtype for x in inputs}) == 1


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
