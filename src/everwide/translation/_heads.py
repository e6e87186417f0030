"""What attention does between the weights that make queries, keys and values and those that read its heads."""

import math
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import nn
from jaxtyping import Array

from ..kernel import Example, Kernel
from ..layers import AbstractLayer, Affine, Dense
from ..signal import ArchitectureError, Demand, Signal


class Relative(eqx.Module):
    """Numbers of a learned table that are added to the scores: `entries` says which, for every head and pair of sites.

    `entries` are whole numbers `(heads, P, P)`, as bytes: of two tables that are read alike nothing compiles twice.
    `table` makes all of its numbers from a 1.
    """

    entries: bytes = eqx.field(static=True)
    table: Dense

    def read(self, params: Affine, heads: int, dtype: Any) -> Array:
        """The numbers `(heads, P, P)`."""
        entries = np.frombuffer(self.entries, np.int32)
        sites = math.isqrt(len(entries) // heads)
        return self.table.forward(params, Example(jnp.ones(1, dtype))).x[entries].reshape(heads, sites, sites)


class Heads(AbstractLayer):
    """Softmax attention of queries, keys and values that stand side by side in the channels, head by head.

    - `heads`: of as many channels each. `queries`, `values`: channels of all queries, and of all values.
    - `factor`: of the scores. `causal`: a site sees itself and those before it. `relative`: what is added to scores.

    The heads of a module are as few and as narrow as it has them, so they stay random, and are sampled.
    """

    heads: int = eqx.field(static=True)
    queries: int = eqx.field(static=True)
    values: int = eqx.field(static=True)
    factor: float = eqx.field(static=True)
    causal: bool = eqx.field(static=True, default=False)
    relative: Relative | None = None

    def describe(self, signal: Signal) -> Signal:
        if signal.infinite:
            raise ArchitectureError("softmax attention of finitely many heads has no known limit: it is sampled")
        if signal.channels != 2 * self.queries + self.values:
            raise ArchitectureError(f"attention reads {2 * self.queries + self.values} channels, got {signal.shape}")
        return replace(signal, gaussian=False, one_law=True, centred=False).reshaped(signal.sites, self.values)

    def demand(self, wanted: Demand) -> Demand:
        return wanted.all_sites()

    def sample(self, key: Array, signal: Signal) -> Affine | tuple[()]:
        if self.relative is None:
            return ()
        one = Signal((1,), parametrization=signal.parametrization, readouts=signal.readouts, concrete=signal.concrete)
        return self.relative.table.sample(key, one)

    def forward(self, params: Affine | tuple[()], example: Example) -> Example:
        sites = example.x.shape[:-1]
        x = example.x.reshape(math.prod(sites), -1)
        cut = self.queries, 2 * self.queries
        query, key, value = (a.reshape(len(x), self.heads, -1) for a in jnp.split(x, cut, -1))
        scores = self.factor * jnp.einsum("phd,qhd->hpq", query, key)
        if self.relative is not None and isinstance(params, Affine):
            scores = scores + self.relative.read(params, self.heads, x.dtype)
        allowed = jnp.tri(len(x), dtype=bool) if self.causal else jnp.ones((len(x), len(x)), bool)
        allowed = allowed if example.mask is None else allowed & example.mask.reshape(-1)
        weights = nn.softmax(jnp.where(allowed, scores, -jnp.inf), -1)
        out = jnp.einsum("hpq,qhv->phv", jnp.where(jnp.isfinite(weights), weights, 0), value)
        return example.with_values(out.reshape(*sites, -1))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        raise AssertionError("`describe` refuses it at infinite width")
