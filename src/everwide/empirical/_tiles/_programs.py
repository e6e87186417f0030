"""Tiles: their sizes from the memory, and what is compiled for one."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from ..._engine import fitted, require, trusted_jit
from .._factors import AbstractTangents, Job, Outputs, Ready, Recipe, decide, inside, own_tile, ready, strips, tile
from .._trace import JaxTangents, Plan

T = TypeVar("T")
_ROWS = 1024  # examples times outputs in a block: enough for a matrix product to run at full speed
_LARGEST = 512  # examples in a block
_WHOLE = 5120  # rows of a kernel that is computed at once, memory permitting
_STRIP = 64  # rows of a strip, at the least
# Seconds for each multiplication, and for each strip, roughly: on two cores of a CPU.
_MULTIPLY, _STRIPPED = 2e-11, 2e-3


class Block(NamedTuple):
    """Some examples and some outputs: the unit of work. `examples` and `outputs` are slices of the whole."""

    examples: slice
    outputs: slice


class Size(NamedTuple):
    """Examples and outputs of a block; the last ones are padded to it."""

    examples: int
    outputs: int

    def smaller(self) -> "Size":
        """Half of the examples, or of the outputs if there is one example left."""
        if self.examples > 1:
            return Size(-(-self.examples // 2), self.outputs)
        return Size(1, -(-self.outputs // 2))


class Bytes(NamedTuple):
    """What a block needs: to be kept, while it is made, and while it meets another one."""

    kept: int
    made: int
    met: int

    def of(self, blocks: int) -> int:
        """With that many blocks in memory."""
        return blocks * self.kept + max(self.made, self.met)


class Fit(NamedTuple):
    """A size that fits, and how many such blocks may be kept."""

    size: Size
    held: int


def strips_of(rows: int, work: float) -> int:
    """Strips into which a symmetric tile is cut, so that half of it is spared; each makes the compiler work, too."""
    return min(
        (b for b in (1, 2, 3, 4) if b == 1 or rows >= b * _STRIP),
        key=lambda b: work * (b + 1) / (2 * b) * _MULTIPLY + b * _STRIPPED,
    )


def at_once(n: int, k: int) -> bool:
    """Whether a symmetric kernel is small enough to be one block."""
    return n <= _LARGEST and n * k <= _WHOLE


def largest(n: int, k: int) -> Size:
    """Blocks of `n` examples and all `k` outputs that work well."""
    return Size(fitted(n, max(1, min(_LARGEST, _ROWS // k))), k)


def fit(size: Size, room: int, cost: Callable[[Size], Bytes]) -> Fit:
    """The largest blocks, not above `size`, of which two fit into `room` bytes at a time."""
    while (need := cost(size)).of(2) > room and size != Size(1, 1):
        size = size.smaller()
    require(
        need.of(2),
        room,
        "The kernel of single examples and single outputs, beside the result,",
        "Pass a larger memory=, use float32, or take fewer parameters: close over the others in f.",
    )
    spare = room - max(need.made, need.met)
    return Fit(size, max(2, spare // max(1, need.kept)))


def blocks(n: int, size: int) -> list[slice]:
    """`n` cut into pieces of that size; the last one may be smaller."""
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def pairs(
    rows: Sequence[Block], columns: Sequence[Block] | None, held: int, make: Callable[[Block, bool], T]
) -> Iterator[tuple[Block, Block, T, T]]:
    """All pairs of blocks with what `make(block, is_column)` makes of them; without `columns`, every pair once.

    As many rows as may be held are made and kept, then the columns stream past.
    """
    everything = columns is None and held >= len(rows)
    step = len(rows) if everything else max(1, held - 1)
    for start in range(0, len(rows), step):
        yield from _stretch(rows, columns, range(start, min(start + step, len(rows))), make)


def _stretch(
    rows: Sequence[Block], columns: Sequence[Block] | None, held: range, make: Callable[[Block, bool], T]
) -> Iterator[tuple[Block, Block, T, T]]:
    """The pairs of some rows, which are forgotten at the end."""
    kept = {i: make(rows[i], False) for i in held}
    others = rows if columns is None else columns
    for j in range(held.start if columns is None else 0, len(others)):
        second = kept[j] if columns is None and j in kept else make(others[j], columns is not None)
        for i, first in kept.items():
            if columns is not None or i <= j:
                yield rows[i], others[j], first, second


_KEPT = 64  # programs of each kind; those that were not used for the longest time go first


compiled_tile = trusted_jit(tile, static_argnames="outputs")


@functools.partial(trusted_jit, static_argnames=("outputs", "n", "count"))
def compiled_own_tile(block: Ready, outputs: Outputs, n: int, count: int) -> dict[str, jax.Array]:
    """The tile of a block of `n` examples with itself, in that many strips."""
    return own_tile(strips(block, n, count), outputs)


@functools.lru_cache(_KEPT)
def compiled_ready(plan: Plan, recipe: Recipe) -> Any:
    """`ready`, as a function of the leaves, the arrays of some examples, and cotangents."""
    return trusted_jit(lambda leaves, x, cot: ready(JaxTangents(leaves, plan).factors(x, cot), recipe))


@functools.lru_cache(_KEPT)
def compiled_whole(plan: Plan, recipe: Recipe, outputs: Outputs, n: int, count: int) -> Any:
    """The kernel of `n` examples in that many strips, as a function of the same."""

    def run(leaves: list[Any], x: Any, cotangents: Any) -> dict[str, jax.Array]:
        parts = JaxTangents(leaves, plan).factors(x, cotangents)
        return own_tile([ready(strip, recipe) for strip in strips(parts, n, count)], outputs)

    return trusted_jit(run)


@functools.lru_cache(_KEPT)
def recipe_for(plan: Plan, job: Job, k: int) -> Recipe:
    """What to do with the factors of examples, with `k` cotangents at a time."""
    decided: list[Recipe] = []
    jax.eval_shape(
        lambda leaves, *args: decided.append(decide(JaxTangents(leaves, plan).factors(*args), job)),
        *_arguments(plan, Size(1, k)),
    )
    return decided[0]


def estimated(tangents: AbstractTangents, job: Job, size: Size) -> Bytes:
    """The bytes of blocks."""
    if isinstance(tangents, JaxTangents):
        return _estimated(tangents.plan, job, size)
    each, itemsize = size.examples * tangents.example_bytes(size.outputs), 8
    return Bytes(each, each, each + 3 * _tile_size(size, job) * itemsize)


@functools.lru_cache(_KEPT)
def _estimated(plan: Plan, job: Job, size: Size) -> Bytes:
    made = size.examples * JaxTangents([], plan).example_bytes(size.outputs)
    blocks = _blocks(plan, job, size)
    arrays = jax.tree.leaves(blocks)
    kept = sum(a.size * a.dtype.itemsize for a in arrays)
    itemsize = max((a.dtype.itemsize for a in arrays), default=4)
    between = max((inside(f, job.outputs) for factors in blocks.values() for f in factors), default=0)
    return Bytes(kept, made + kept, itemsize * (3 * len(blocks) * _tile_size(size, job) + between))


def measured(plan: Plan, job: Job, size: Size, guess: Bytes) -> Bytes:
    """The same from the compiled code."""
    blocks = _blocks(plan, job, size)
    made = compiled_ready(plan, recipe_for(plan, job, size.outputs)).lower(*_arguments(plan, size))
    met = compiled_tile.lower(blocks, blocks, outputs=job.outputs)
    return Bytes(guess.kept, _peak(made) or guess.made, _peak(met) or guess.met)


def whole_bytes(plan: Plan, job: Job, size: Size, count: int) -> int:
    """Bytes of a kernel that is computed at once, from the compiled code."""
    recipe = recipe_for(plan, job, size.outputs)
    return _peak(compiled_whole(plan, recipe, job.outputs, size.examples, count).lower(*_arguments(plan, size)))


def _blocks(plan: Plan, job: Job, size: Size) -> Ready:
    """The shapes of factors that are ready."""
    return jax.eval_shape(compiled_ready(plan, recipe_for(plan, job, size.outputs)), *_arguments(plan, size))


def _peak(lowered: Any) -> int:
    """Bytes of results and everything between."""
    analysis = lowered.compile().memory_analysis()
    return 0 if analysis is None else analysis.temp_size_in_bytes + analysis.output_size_in_bytes


def _arguments(plan: Plan, size: Size) -> tuple[list[Any], list[Any], Any]:
    """What `compiled_ready` takes, for a block of that size."""
    leaves, one = plan.shapes()
    rows = [jax.ShapeDtypeStruct((size.examples, *a.shape), a.dtype) for a in one]
    return leaves, rows, jax.ShapeDtypeStruct((size.outputs, plan.outputs), jnp.float32)


def _tile_size(size: Size, job: Job) -> int:
    return math.prod(job.outputs.shape(size.examples, size.examples, size.outputs))
