"""Memory that blocks need, before it is spent: estimated, and read from the compiled code where it is close."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ._factors import AbstractTangents, Factor, Lookup, Plain
from ._forms import Job, Outputs, Ready, Recipe, decide, own_tile, ready, strips, tile
from ._schedule import Bytes, Size

compiled_tile = jax.jit(tile, static_argnames="outputs")


@functools.partial(jax.jit, static_argnames=("outputs", "n", "count"))
def compiled_own_tile(block: Ready, outputs: Outputs, n: int, count: int) -> dict[str, jax.Array]:
    """The tile of a block of `n` examples with itself, in that many strips."""
    return own_tile(strips(block, n, count), outputs)


class Shapes(NamedTuple):
    """A pytree without its numbers, hashable."""

    structure: Any
    avals: tuple[jax.ShapeDtypeStruct, ...]

    def tree(self) -> Any:
        """The pytree, with shapes for arrays."""
        return jax.tree.unflatten(self.structure, self.avals)


def shapes(tree: Any) -> Shapes:
    """The shapes and dtypes of a pytree of arrays."""
    leaves, structure = jax.tree.flatten(tree)
    return Shapes(
        structure, tuple(jax.ShapeDtypeStruct(a.shape, jax.dtypes.canonicalize_dtype(a.dtype)) for a in leaves)
    )


@functools.lru_cache(maxsize=16)  # compiled code is forgotten with its plan
def compiled_ready(structure: Any, recipe: Recipe) -> Any:
    """`ready` of tangents that may be traced; `structure` is theirs, without their arrays."""
    return jax.jit(lambda arrays, x, cot: ready(jax.tree.unflatten(structure, arrays).factors(x, cot), recipe))


@functools.lru_cache(maxsize=16)
def compiled_whole(structure: Any, recipe: Recipe, outputs: Outputs, n: int, count: int) -> Any:
    """From tangents that may be traced to the kernel of `n` examples, in that many strips."""

    def run(arrays: list[Any], x: Any, cotangents: Any) -> dict[str, jax.Array]:
        parts = jax.tree.unflatten(structure, arrays).factors(x, cotangents)
        return own_tile([ready(strip, recipe) for strip in strips(parts, n, count)], outputs)

    return jax.jit(run)


def recipe_for(tangents: AbstractTangents, x: Any, job: Job, k: int) -> Recipe:
    """What to do with the factors of tangents that may be traced, with `k` cotangents at a time."""
    return _recipe(shapes(tangents), shapes(x), job, k)


@functools.lru_cache(maxsize=64)
def _recipe(tangents: Shapes, x: Shapes, job: Job, k: int) -> Recipe:
    found: list[Recipe] = []
    run = lambda arrays, *args: found.append(decide(jax.tree.unflatten(tangents.structure, arrays).factors(*args), job))
    jax.eval_shape(run, *_arguments(tangents, x, Size(1, k)))
    return found[0]


def estimated(tangents: AbstractTangents, x: Any, job: Job, size: Size) -> Bytes:
    """The bytes of blocks of examples such as `x`."""
    if tangents.traceable:
        return _traced(shapes(tangents), shapes(x), job, size)
    each, itemsize = size.examples * tangents.example_bytes(x, size.outputs), 8
    return Bytes(each, each, each + 3 * _tile_size(size, job) * itemsize)


@functools.lru_cache(maxsize=64)
def _traced(tangents: Shapes, x: Shapes, job: Job, size: Size) -> Bytes:
    made = size.examples * tangents.tree().example_bytes(x.tree(), size.outputs)
    fn = compiled_ready(tangents.structure, _recipe(tangents, x, job, size.outputs))
    found = jax.eval_shape(fn, *_arguments(tangents, x, size))
    kept = bytes_of(found)
    itemsize = max(a.dtype.itemsize for a in jax.tree.leaves(found)) if kept else 4
    inside = max((_inside(f, job.outputs) for factors in found.values() for f in factors), default=0)
    return Bytes(kept, made + kept, itemsize * (3 * len(found) * _tile_size(size, job) + inside))


def measured(tangents: AbstractTangents, x: Any, job: Job, size: Size, guess: Bytes) -> Bytes:
    """The same from the compiled code, as far as there is any."""
    if not tangents.traceable:
        return guess
    recipe, args = recipe_for(tangents, x, job, size.outputs), _arguments(shapes(tangents), shapes(x), size)
    fn = compiled_ready(jax.tree.structure(tangents), recipe)
    blocks = jax.eval_shape(fn, *args)
    made, met = _peak(fn.lower(*args)), _peak(compiled_tile.lower(blocks, blocks, outputs=job.outputs))
    return Bytes(guess.kept, made or guess.made, met or guess.met)


def whole_bytes(tangents: AbstractTangents, x: Any, job: Job, size: Size, count: int) -> int:
    """Bytes of a kernel that is computed at once, from the compiled code."""
    recipe, args = recipe_for(tangents, x, job, size.outputs), _arguments(shapes(tangents), shapes(x), size)
    fn = compiled_whole(jax.tree.structure(tangents), recipe, job.outputs, size.examples, count)
    return _peak(fn.lower(*args))


def _peak(lowered: Any) -> int:
    """Bytes of results and everything between."""
    found = lowered.compile().memory_analysis()
    return 0 if found is None else found.temp_size_in_bytes + found.output_size_in_bytes


def _arguments(tangents: Shapes, x: Shapes, size: Size) -> tuple[list[Any], Any, Any]:
    """What `compiled_ready` takes, without numbers."""
    outputs = tangents.tree().outputs
    rows = jax.tree.map(lambda a: jax.ShapeDtypeStruct((size.examples, *a.shape[1:]), a.dtype), x.tree())
    return list(tangents.avals), rows, jax.ShapeDtypeStruct((size.outputs, outputs), jnp.float32)


def bytes_of(tree: Any) -> int:
    """Of all arrays."""
    return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(tree))


def _tile_size(size: Size, job: Job) -> int:
    n, k = size
    return n * n * {Outputs.FULL: k * k, Outputs.DIAGONAL: k}.get(job.outputs, 1)


def _inside(factor: Factor, outputs: Outputs) -> int:
    """Numbers that exist only while a tile is computed."""
    if isinstance(factor, Plain):
        return 0
    n, k, tokens, width = factor.right.shape[0], factor.right.shape[1], factor.right.shape[-2], factor.right.shape[-1]
    groups = 1 if isinstance(factor, Lookup) else factor.left.shape[1]
    inner = n * n * tokens * tokens
    if outputs is not Outputs.FULL:
        return 2 * inner * (groups if tokens == 1 else 1) * (k if outputs is Outputs.DIAGONAL else 1)
    return 0 if tokens == 1 and groups == 1 else inner + n * n * k * width * (groups if tokens == 1 else tokens)
