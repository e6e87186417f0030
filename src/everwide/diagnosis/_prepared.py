"""Products of a matrix with flat vectors: cut and joined on the host, and of some rows on each core."""

import functools
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._checks import InputError, refuse_complex
from ._merged import merged

Parts = list[Array]  # a vector of parameters as the arrays that they are, or many with a leading axis
Shapes = tuple[tuple[int, ...], ...]

_ALIGNED = 64  # bytes: what begins at a multiple of them is read by XLA where it is
_WORTH = 2**20  # bytes of activations of a piece, below which threads do not pay
_ADDED = 4  # times the parameters: activations of a piece, so that adding up products does not count


class Prepared(eqx.Module):
    """A matrix whose products begin with work that was done before, as a sum over pieces of the rows."""

    linear: tuple[Any, ...]
    shape: tuple[int, int] = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)
    shapes: Shapes = eqx.field(static=True)
    scale: Array | None

    def __matmul__(self, v: Any) -> Array:
        return multiplied(v, self, lambda parts: _summed(self.linear, parts, self.shapes))


def at_once(parameters: int, each: int, examples: int) -> int:
    """In how many pieces rows are taken at the same time, from the bytes of the parameters and of an example.

    XLA runs a convolution, and most of what is not a product of matrices, on one core: rows are divided among cores.
    Every piece gives a product of its own, so that parameters must be few.
    """
    if jax.default_backend() != "cpu":
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, examples, each * examples // max(_WORTH, _ADDED * parameters)))


def multiplied(v: Any, op: Any, product: Callable[[Parts], Parts]) -> Array:
    """A vector, or columns, through a product of arrays; flat ones are cut and joined on the host, which is fast."""
    vectors = as_columns(v, op.shape, op.dtype)
    try:
        if vectors.ndim == 2 and isinstance(op, Prepared):  # one after the other: a loop of XLA's is slower
            images = _aligned((vectors.shape[1], op.shape[0]), op.dtype)
            for column, image in zip(np.asarray(vectors).T, images, strict=True):
                _on_host(column, op, product, image)
            return _shared(images).T
        rows = np.asarray(vectors).T  # (p,), or (m, p)
        return _shared(_on_host(rows, op, product, _aligned(rows.shape, op.dtype))).T
    except jax.errors.TracerArrayConversionError:  # inside a program that is compiled
        return _traced(vectors, op, product)


def _on_host(rows: np.ndarray, op: Any, product: Callable[[Parts], Parts], out: np.ndarray) -> np.ndarray:
    scale = None if op.scale is None else np.asarray(op.scale)
    rows = rows if scale is None else rows * scale
    for image, (a, b, _) in zip(product(_cut(rows, op.shapes, _shared)), _cuts(op.shapes), strict=True):
        out[..., a:b] = np.asarray(image).reshape(*rows.shape[:-1], -1)
    return out if scale is None else np.multiply(out, scale, out=out)


def _traced(vectors: Array, op: Any, product: Callable[[Parts], Parts]) -> Array:
    rows = vectors.T if op.scale is None else vectors.T * op.scale
    images = product(_cut(rows, op.shapes, jnp.asarray))
    joined = jnp.concatenate([image.reshape(*rows.shape[:-1], -1) for image in images], axis=-1)
    return (joined if op.scale is None else joined * op.scale).T


def _cut(rows: Any, shapes: Shapes, made: Callable[[Any], Array]) -> Parts:
    return [made(rows[..., a:b].reshape((*rows.shape[:-1], *shape))) for a, b, shape in _cuts(shapes)]


def _cuts(shapes: Shapes) -> list[tuple[int, int, tuple[int, ...]]]:
    ends = [0, *np.cumsum([math.prod(shape) for shape in shapes]).tolist()]
    return list(zip(ends[:-1], ends[1:], shapes, strict=True))


def _aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array for which XLA needs no copy."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + _ALIGNED, np.uint8)
    start = -raw.ctypes.data % _ALIGNED
    return raw[start : start + size].view(dtype).reshape(shape)


def _shared(array: np.ndarray) -> Array:
    """For XLA, in place if it is aligned: it must not change while it is read."""
    return jax.device_put(array, may_alias=True)


def as_columns(v: Any, shape: tuple[int, int], dtype: Any) -> Any:
    """A vector, or columns, checked."""
    refuse_complex(v, "The vector")
    try:
        vectors = v.astype(dtype, copy=False) if isinstance(v, np.ndarray) else jnp.asarray(v, dtype)
    except (TypeError, ValueError):  # a tree
        vectors = None
    if vectors is None or vectors.ndim not in (1, 2) or vectors.shape[0] != shape[1]:
        came = f"a {type(v).__name__}" if vectors is None else f"an array of shape {vectors.shape}"
        raise InputError(
            f"A matrix {shape} is multiplied with {came}, expected ({shape[1]},), or "
            f"({shape[1]}, m) for m vectors. Flatten trees with jax.flatten_util.ravel_pytree."
        )
    return vectors


def applied(linear: Callable[[Parts], Parts], parts: Parts, shapes: Shapes) -> Parts:
    """Of each vector, one after the other: products with different weights share little that a batch would save."""
    many = parts[0].ndim > len(shapes[0])
    return lax.map(merged(linear), parts) if many else merged(linear)(parts)


@eqx.filter_jit
def _apply(linear: Any, parts: Parts, shapes: Shapes) -> Parts:
    return applied(linear, parts, shapes)


def _summed(linear: tuple[Any, ...], parts: Parts, shapes: Shapes) -> Parts:
    """The pieces on threads, but for those inside a program that is compiled."""
    if len(linear) == 1:
        return _apply(linear[0], parts, shapes)
    known = _known((linear, parts))
    images = _on_threads(linear, parts, shapes) if known else [_apply(one, parts, shapes) for one in linear]
    return [functools.reduce(jnp.add, each) for each in zip(*images, strict=True)]


def _known(arrays: Any) -> bool:
    """They are numbers, which a program that is being compiled does not have."""
    try:
        for leaf in jax.tree.leaves(arrays):
            np.asarray(leaf)  # no copy: pieces are for the CPU
    except jax.errors.TracerArrayConversionError:
        return False
    return True


def _on_threads(linear: tuple[Any, ...], parts: Parts, shapes: Shapes) -> list[Parts]:
    config: Any = jax.config  # settings of a `with` belong to a thread
    x64, precision, device = config.jax_enable_x64, config.jax_default_matmul_precision, config.jax_default_device

    def run(one: Any) -> Parts:
        with jax.enable_x64(x64), jax.default_matmul_precision(precision), jax.default_device(device):
            return jax.block_until_ready(_apply(one, parts, shapes))

    return list(_pool(len(linear)).map(run, linear))


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)
