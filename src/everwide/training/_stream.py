"""Learning from a stream of rows, with a budget."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from .._checks import InputError
from .._kernels import Infinite
from .._losses import AbstractLoss
from ..kernel import AbstractHostKernelFunction, AbstractKernelFunction
from ..spectral import Factor, KernelError
from ._kernels import FunctionKernel, map_elements, unvalued
from ._optimizers import AbstractOptimizer, stepped_on_batch


def rounding(gram: np.ndarray, dtype: np.dtype) -> float:
    """What cannot be told from 0 in a kernel that was computed in that precision."""
    own = gram.diagonal()
    noise = max(len(gram) * float(np.finfo(dtype).eps) * float(own.max()), float(np.finfo(np.float64).tiny))
    if own.min() < -noise:
        raise KernelError(f"The kernel is not positive semidefinite: of a row with itself it is {own.min():.3g}.")
    return noise


def pivots(gram: np.ndarray, kept: int, most: int, noise: float) -> np.ndarray:
    """At most `most` rows in order, the last `kept` among them; the others by pivoted Cholesky, as long as they add."""
    old = len(gram) - kept
    rest = gram[:old, :old]
    if kept:
        known = Factor.of(gram[old:, old:], noise).whiten(gram[old:, :old])
        rest = rest - known.T @ known
    order, rank = Factor.pivots(rest, noise)
    some = np.sort(order[: max(min(rank, most - kept), 1 - kept)])
    return np.concatenate([some, np.arange(old, len(gram))]).astype(int)


def projected(gram: np.ndarray, chosen: np.ndarray, coefficients: np.ndarray, noise: float) -> np.ndarray:
    """Coefficients of the chosen rows for the nearest function, in the norm of the kernel's own space."""
    among = gram[np.ix_(chosen, chosen)]
    wanted = gram[chosen] @ coefficients
    factor = Factor.of(among, noise)
    near = np.zeros_like(wanted)
    for _ in range(3):  # refined, so that the ridge which keeps the factor finite leaves no trace
        near = near + factor.solve(wanted - among @ near)
    return near


def relative_error(gram: np.ndarray, old: np.ndarray, chosen: np.ndarray, new: np.ndarray) -> float:
    """The norm of the difference of two functions over that of the old one."""
    apart = old.copy()
    apart[chosen] -= new
    apart_squared, squared = (max(float(np.sum(a * (gram @ a))), 0.0) for a in (apart, old))
    return math.sqrt(apart_squared / squared) if squared else 0.0


_ALL_AT_ONCE = 1 << 20


def plain_kernel(kernel: Any, which: str) -> tuple[Callable[[Any, Any], Any], tuple[int, ...] | None, int]:
    """A function of two arrays of rows, the shape of a row where it is known, and the rows of a good tile."""
    if isinstance(kernel, AbstractHostKernelFunction) or not callable(getattr(kernel, "block", kernel)):
        raise InputError(f"kernel={kernel!r}: expected an everwide.Infinite, or a JAX function k(x1, x2) -> (n1, n2).")
    if not isinstance(kernel, AbstractKernelFunction):
        return kernel, None, _ALL_AT_ONCE
    if kernel.site_shape():
        raise KernelError(
            f"The network leaves sites {kernel.site_shape()}, and one number is needed for a pair of rows. "
            "Put Flatten or GlobalAvgPool before its last layer."
        )
    tile = 1 << (kernel.examples_per_tile(8).bit_length() - 1)
    known = kernel.input_shape if isinstance(kernel, Infinite) else None
    return FunctionKernel.of(kernel, np.zeros((1, 1)), which).fn, known, tile


class Weights(NamedTuple):
    """What takes the place of parameters: coefficients of the rows, what is left of `f0`, the optimizer's memory."""

    coefficients: Array
    start: Array
    memory: Any
    step: Array


class Move(NamedTuple):
    """A batch, where its rows go, and where the rows begin that still carry momentum."""

    x: Any  # arrays of the host until they are traced: no step is spent on moving them
    y: Any
    shares: Any
    at: Any
    live_from: Any


class Rules(eqx.Module):
    """What stays the same along the stream."""

    kernel: Callable[[Any, Any], Any]
    shape: tuple[int, ...] | None = eqx.field(static=True)
    tile: int = eqx.field(static=True)
    f0: Callable[[Any], Any] | None
    loss: AbstractLoss
    optimizer: AbstractOptimizer

    def first(self, x: Array) -> Any:
        """`f0`."""
        if self.f0 is None:
            return 0
        start = self.f0(x)
        if jnp.ndim(start) != 2 or len(start) != len(x):
            raise InputError(f"f0 has shape {jnp.shape(start)} for {len(x)} rows, expected ({len(x)}, outputs).")
        return start

    def cross(self, a: Array, b: Array) -> Array:
        """The kernel `(a, b)`, in tiles that fit; both numbers of rows are powers of two."""
        if len(a) > self.tile:
            parts = lax.map(lambda some: self.cross(some, b), a.reshape(-1, self.tile, *a.shape[1:]))
            return parts.reshape(len(a), len(b))
        if len(a) * len(b) > self.tile**2:
            parts = lax.map(lambda some: self.cross(a, some), b.reshape(-1, self.tile**2 // len(a), *b.shape[1:]))
            return jnp.moveaxis(parts, 0, 1).reshape(len(a), len(b))
        block = self.kernel(a, b)
        if jnp.shape(block) != (len(a), len(b)):
            raise KernelError(f"The kernel has shape {jnp.shape(block)}, expected {(len(a), len(b))}: one for a pair.")
        return block

    def advance(self, weights: Weights, x: Array, move: Move, window: int) -> Weights:
        """One step: only the last `window` rows are touched, unless weights decay."""
        move = jax.tree.map(jnp.asarray, move)
        n = len(move.x)
        outputs = self.cross(move.x, x) @ weights.coefficients + weights.start * self.first(move.x)
        delta = jax.vmap(jax.grad(self.loss))(outputs, move.y) * move.shares[:, None]
        # On its own: beside the other rows, equal rows would make all of them pay for the accuracy that they need.
        own = self.cross(move.x, move.x)
        begin = jnp.maximum(move.at + n - window, 0)
        live = (begin + jnp.arange(window, dtype=begin.dtype) >= move.live_from)[:, None]

        def cut(whole: Array) -> Array:
            return lax.dynamic_slice_in_dim(whole, begin, window)

        def put(whole: Array, part: Array) -> Array:
            return lax.dynamic_update_slice_in_dim(whole, part, begin, 0)

        memory = map_elements(
            lambda e: e._replace(coefficients=jnp.where(live, cut(e.coefficients), 0)), weights.memory
        )
        zeros = jnp.zeros((window, delta.shape[1]), delta.dtype)
        placed = lax.dynamic_update_slice_in_dim(zeros, delta, move.at - begin, 0)
        here = unvalued(cut(weights.coefficients), weights.start, 1.0)
        here, memory = stepped_on_batch(self.optimizer, here, placed, memory, jnp.sum(delta * (own @ delta), 0))
        kept = map_elements(
            lambda old, new: new._replace(coefficients=put(old.coefficients, new.coefficients)), weights.memory, memory
        )
        decayed = weights.coefficients * here.values[:, 0]
        return Weights(put(decayed, here.coefficients), here.start, kept, weights.step + 1)
