"""Compiled code, and the memory that it needs: estimated, and read from the code itself where it is close."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from .._compile import trusted_jit
from ._factors import AbstractTangents, Factor, Lookup, Plain
from ._forms import Job, Outputs, Recipe, decide, own_tile, ready, strips, tile
from ._schedule import Bytes, Size
from ._tangents import JaxTangents


@functools.cache  # at the first call: the backend is not chosen before
def compiled_tile() -> Any:
    """`tile` of two blocks, as a function of them and the outputs."""
    return trusted_jit(tile, static_argnames="outputs")


@functools.cache
def compiled_own_tile() -> Any:
    """The tile of a block with itself, as a function of it, the outputs, the examples, and the number of strips."""
    run = lambda block, outputs, n, count: own_tile(strips(block, n, count), outputs)
    return trusted_jit(run, static_argnames=("outputs", "n", "count"))


def compiled_ready(tangents: JaxTangents, recipe: Recipe) -> Any:
    """`ready`, as a function of the arrays of the tangents, examples and cotangents."""
    structure = jax.tree.structure(tangents)
    run = lambda arrays, x, cot: ready(jax.tree.unflatten(structure, arrays).factors(x, cot), recipe)
    return tangents.plan.remembered(("ready", recipe), lambda: trusted_jit(run))


def compiled_whole(tangents: JaxTangents, recipe: Recipe, outputs: Outputs, n: int, count: int) -> Any:
    """The kernel of `n` examples in that many strips, as a function of the same."""
    structure = jax.tree.structure(tangents)

    def run(arrays: list[Any], x: Any, cotangents: Any) -> dict[str, jax.Array]:
        parts = jax.tree.unflatten(structure, arrays).factors(x, cotangents)
        return own_tile([ready(strip, recipe) for strip in strips(parts, n, count)], outputs)

    return tangents.plan.remembered(("whole", recipe, outputs, n, count), lambda: trusted_jit(run))


def recipe_for(tangents: JaxTangents, x: Any, job: Job, k: int) -> Recipe:
    """What to do with the factors of examples such as `x`, with `k` cotangents at a time."""
    structure = jax.tree.structure(tangents)
    found: list[Recipe] = []
    run = lambda arrays, *args: found.append(decide(jax.tree.unflatten(structure, arrays).factors(*args), job))

    def make() -> Recipe:
        jax.eval_shape(run, *_arguments(tangents, x, Size(1, k)))
        return found[0]

    return tangents.plan.remembered(("recipe", job, k), make)


def estimated(tangents: AbstractTangents, x: Any, job: Job, size: Size) -> Bytes:
    """The bytes of blocks of examples such as `x`."""
    if isinstance(tangents, JaxTangents):
        return tangents.plan.remembered(("bytes", job, size), lambda: _traced(tangents, x, job, size))
    each, itemsize = size.examples * tangents.example_bytes(x, size.outputs), 8
    return Bytes(each, each, each + 3 * _tile_size(size, job) * itemsize)


def _traced(tangents: JaxTangents, x: Any, job: Job, size: Size) -> Bytes:
    made = size.examples * tangents.example_bytes(x, size.outputs)
    fn = compiled_ready(tangents, recipe_for(tangents, x, job, size.outputs))
    found = jax.eval_shape(fn, *_arguments(tangents, x, size))
    kept = bytes_of(found)
    itemsize = max(a.dtype.itemsize for a in jax.tree.leaves(found)) if kept else 4
    inside = max((_inside(f, job.outputs) for factors in found.values() for f in factors), default=0)
    return Bytes(kept, made + kept, itemsize * (3 * len(found) * _tile_size(size, job) + inside))


def measured(tangents: AbstractTangents, x: Any, job: Job, size: Size, guess: Bytes) -> Bytes:
    """The same from the compiled code, as far as there is any."""
    if not isinstance(tangents, JaxTangents):
        return guess
    fn, args = compiled_ready(tangents, recipe_for(tangents, x, job, size.outputs)), _arguments(tangents, x, size)
    blocks = jax.eval_shape(fn, *args)
    made, met = _peak(fn.lower(*args)), _peak(compiled_tile().lower(blocks, blocks, outputs=job.outputs))
    return Bytes(guess.kept, made or guess.made, met or guess.met)


def whole_bytes(tangents: JaxTangents, x: Any, job: Job, size: Size, count: int) -> int:
    """Bytes of a kernel that is computed at once, from the compiled code."""
    recipe = recipe_for(tangents, x, job, size.outputs)
    fn = compiled_whole(tangents, recipe, job.outputs, size.examples, count)
    return _peak(fn.lower(*_arguments(tangents, x, size)))


def _peak(lowered: Any) -> int:
    """Bytes of results and everything between."""
    found = lowered.compile().memory_analysis()
    return 0 if found is None else found.temp_size_in_bytes + found.output_size_in_bytes


def _arguments(tangents: JaxTangents, x: Any, size: Size) -> tuple[list[Any], Any, Any]:
    """What `compiled_ready` takes, for a block of that size."""
    dtype = jax.dtypes.canonicalize_dtype  # of numpy arrays
    rows = jax.tree.map(lambda a: jax.ShapeDtypeStruct((size.examples, *a.shape[1:]), dtype(a.dtype)), x)
    cotangents = jax.ShapeDtypeStruct((size.outputs, tangents.outputs), jnp.float32)
    return jax.tree.leaves(tangents), rows, cotangents


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
