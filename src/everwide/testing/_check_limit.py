"""Properties that the limit of a layer must have by itself."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._kernels import Infinite
from ..kernel import Block, Inputs
from ..layers import AbstractLayer
from ..signal import Pairs, Parametrization
from ..spectral import Spectrum
from ._draws import (
    SAMPLED,
    ConformanceError,
    Exact,
    cancelling_for,
    derivative_for,
    exact_for,
    quick_jit,
    require,
    require_equal,
    standard_error,
)

_SEEDS = 64  # estimates of a limit that is sampled


@dataclass(frozen=True)
class Limit:
    """A network and the facts that its limit may depend on."""

    net: AbstractLayer
    shape: tuple[int, ...]
    parametrization: Parametrization = Parametrization.NTK
    width: int = 1  # read in the standard parametrization only

    def kernel(self, net: AbstractLayer | None = None, pairs: Pairs = Pairs.ALL_SITES) -> Infinite:
        """The kernel function; a width is fixed only where the limit depends on it."""
        width = self.width if self.parametrization is Parametrization.STANDARD else None
        chosen = self.net if net is None else net
        return Infinite(chosen, self.shape, pairs=pairs, width=width, parametrization=self.parametrization)

    @property
    def seeds(self) -> range:
        """Of the estimates, where layers are sampled; one is enough where none is."""
        return range(_SEEDS if self.kernel().sampled else 1)

    def truth(self, inputs: Inputs) -> "Truth":
        """Both kernels of a batch with itself."""
        run = quick_jit(self.blocks)
        return Truth.of([run(inputs, np.uint32(seed)) for seed in self.seeds])

    def blocks(self, inputs: Inputs, seed: Array | np.uint32) -> "Computed":
        """Everything about a batch and itself, in one compilation."""
        kernel, same = (replace(self.kernel(pairs=pairs), seed=seed) for pairs in (Pairs.ALL_SITES, Pairs.SAME_SITE))
        few = same.block(inputs, inputs) if kernel.output().sites else None
        return Computed(kernel.block(inputs, inputs), kernel.diagonal(inputs), few)


class Computed(NamedTuple):
    """Kernels of a batch with itself; `few` tracks the same site only, where the network leaves sites."""

    block: Block
    diagonal: Block
    few: Block | None

    def kernels(self) -> tuple[np.ndarray, np.ndarray]:
        """Both kernels, `(n, n, *sites, *sites)`, in float64; an example with itself is one pass of the network."""
        out = []
        for matrix, exact in ((self.block.nngp, self.diagonal.nngp), (self.block.ntk, self.diagonal.ntk)):
            filled = np.array(matrix, np.float64)
            filled[np.arange(len(filled)), np.arange(len(filled))] = np.asarray(exact)
            out.append(filled)
        return out[0], out[1]


class Truth(NamedTuple):
    """Both kernels `(n, n, *sites, *sites)` in float64, and their standard errors: 0 where no layer is sampled."""

    nngp: np.ndarray
    ntk: np.ndarray
    nngp_error: np.ndarray
    ntk_error: np.ndarray

    @classmethod
    def of(cls, draws: list[Computed]) -> "Truth":
        """Of one computation, or of estimates with seeds of their own."""
        nngp, ntk = (np.stack(kernels) for kernels in zip(*(one.kernels() for one in draws), strict=True))
        return cls(nngp.mean(0), ntk.mean(0), standard_error(nngp), standard_error(ntk))


def check(layer: AbstractLayer, limit: Limit, inputs: Inputs, *, noisy: bool) -> Truth:
    """Raise `ConformanceError` unless the kernels of an infinitely wide network are what kernels must be.

    They are symmetric and positive semidefinite; the diagonal is that of twins; tracking more pairs of sites, masks of
    sites that all exist, and what a masked site holds change nothing; gradients in all numbers of the network are
    finite where examples coincide or vanish, and equal to difference quotients elsewhere. Faults are those of `layer`,
    which is part of the network. `noisy`: two passes of one example differ, so that its own kernel is larger than that
    of a twin.

    Where layers are sampled, all of this holds in the mean over draws, up to standard errors; pairs of sites and masks
    change nothing in any single draw. Gradients of estimates are no limits of difference quotients, and not checked.
    """
    tolerance, cancelling = exact_for(inputs.x.dtype), cancelling_for(inputs.x.dtype)
    run = quick_jit(limit.blocks)
    first, *others = (run(inputs, np.uint32(seed)) for seed in limit.seeds)
    draws = [first, *others]
    blocks = [Block(_flat(one.block.nngp), _flat(one.block.ntk)) for one in draws]
    transposed = [Block(one.nngp.T, one.ntk.T) for one in blocks]
    _equal(layer, "block(x1, x2) is block(x2, x1) transposed", blocks, transposed, tolerance)
    truth = Truth.of(draws)
    _positive(layer, truth, cancelling)
    if first.few is not None:
        _tracked(layer, first.few, first.block, cancelling)
    if not noisy:
        own = np.arange(len(inputs.x))
        twins = [Block(one.block.nngp[own, own], one.block.ntk[own, own]) for one in draws]
        _equal(layer, "diagonal is block of twins", twins, [one.diagonal for one in draws], cancelling)
    if inputs.mask is not None:
        _masked(layer, inputs, first.block, lambda batch: run(batch, np.uint32(0)).block)
    if not others:
        _gradients(layer, limit, inputs)
    return truth


def _equal(layer: AbstractLayer, claim: str, got: list[Block], expected: list[Block], tolerance: Exact) -> None:
    """Up to rounding; estimates, of which there are several, in the mean and up to standard errors too."""
    for name in ("nngp", "ntk"):
        a, b = (np.stack([np.asarray(getattr(one, name), np.float64) for one in draws]) for draws in (got, expected))
        chance = SAMPLED.max_z * standard_error(a - b)
        apart = np.sign(a.mean(0) - b.mean(0)) * (np.abs(a.mean(0) - b.mean(0)) - chance).clip(0)
        require_equal(layer, f"{claim} ({name})", b.mean(0) + apart, b.mean(0), tolerance)


def _masked(layer: AbstractLayer, inputs: Inputs, block: Block, run: Callable[[Inputs], Block]) -> None:
    tolerance, exists = exact_for(inputs.x.dtype), jnp.asarray(inputs.mask)
    full, bare = (run(replace(inputs, mask=mask)) for mask in (jnp.ones_like(exists), None))
    other = run(replace(inputs, x=jnp.where(exists[..., None], inputs.x, 7.0)))
    _equal(layer, "a mask of sites that all exist changes nothing", [full], [bare], tolerance)
    _equal(layer, "what a masked site holds changes nothing", [other], [block], tolerance)


def _flat(kernel):
    """`(n1, n2, *sites, *sites) -> (n1 P, n2 P)`."""
    rank = (kernel.ndim - 2) // 2
    n1, n2 = kernel.shape[:2]
    size = math.prod(kernel.shape[2 : 2 + rank])
    return kernel.reshape(n1, n2, size, size).transpose(0, 2, 1, 3).reshape(n1 * size, n2 * size)


def _positive(layer: AbstractLayer, truth: Truth, tolerance: Exact) -> None:
    for name, kernel, error in (("nngp", truth.nngp, truth.nngp_error), ("ntk", truth.ntk, truth.ntk_error)):
        matrix, chance = _flat(kernel), SAMPLED.max_z * float(np.linalg.norm(error))  # no eigenvalue moves further
        low, high = Spectrum.smallest(matrix), Spectrum.largest(matrix)
        claim = f"the {name} is positive semidefinite (smallest eigenvalue {low:.2g} of {high:.2g})"
        require(layer, claim, max(0.0, -low) / (tolerance.relative * max(high, 1e-30) + chance))


def _tracked(layer: AbstractLayer, few: Block, many: Block, tolerance: Exact) -> None:
    size = math.prod(few.nngp.shape[2:])
    square = (kernel.reshape(*kernel.shape[:2], size, size) for kernel in (many.nngp, many.ntk))
    same = (jnp.diagonal(kernel, axis1=2, axis2=3).reshape(few.nngp.shape) for kernel in square)
    claim = "tracking all pairs of sites changes nothing for the same site"
    _equal(layer, claim, [few], [Block(*same)], tolerance)


def _others(x: Array) -> Array:
    """Examples without twins among the given ones, which round badly; whole numbers are tokens, and stay such."""
    if bool(jnp.array_equal(x, jnp.round(x))):
        return (x[::-1] + 1) % (jnp.max(x) + 1)
    return x[::-1] * 0.9 + 0.1


def _gradients(layer: AbstractLayer, limit: Limit, inputs: Inputs) -> None:
    """Finite where examples coincide or vanish; equal to difference quotients elsewhere."""
    dtype = inputs.x.dtype
    numbers = jax.tree.map(lambda a: jnp.asarray(a, dtype) if isinstance(a, float) else a, limit.net)
    free, fixed = eqx.partition(numbers, lambda a: isinstance(a, jax.Array) and eqx.is_inexact_array(a))

    @quick_jit
    @jax.value_and_grad
    def total(t: Array, x1: Inputs, x2: Inputs) -> Array:
        """All kernels, weighed, as a function of a shift `t` of all its numbers; small ones stay positive."""
        shifted = jax.tree.map(lambda a: a + t * jnp.where(a > 0, jnp.minimum(a, 1), 1), free)
        kernel = limit.kernel(eqx.combine(shifted, fixed))
        cross, own = kernel.block(x1, x2), kernel.diagonal(x2)
        kernels = jnp.concatenate([a.ravel() for a in (cross.nngp, cross.ntk, own.nngp, own.ntk)])
        return kernels @ jnp.cos(jnp.arange(kernels.size, dtype=dtype))

    hard = replace(inputs, x=jnp.asarray(inputs.x).at[1].set(inputs.x[0]).at[2].set(0))
    value, slope = total(jnp.zeros((), dtype), hard, hard)
    if not np.isfinite([float(value), float(slope)]).all():
        raise ConformanceError(
            f"{type(layer).__name__}: kernels and their gradients in its numbers must be finite for equal and "
            f"vanishing examples, got {float(value)} with gradient {float(slope)}."
        )
    other = replace(inputs, x=_others(jnp.asarray(inputs.x)))
    tolerance, h = derivative_for(dtype)
    (value, slope), (up, _), (down, _) = (total(jnp.asarray(t, dtype), inputs, other) for t in (0.0, h, -h))
    size = max(abs(float(value)), abs(float(slope)))
    claim = "gradients in its numbers are limits of difference quotients"
    require(layer, claim, abs(float(slope - (up - down) / (2 * h))) / (tolerance.relative * size))
