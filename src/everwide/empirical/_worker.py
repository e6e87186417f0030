"""Blocks of examples and outputs become factors."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._factors import AbstractTangents
from ._forms import Job, Outputs, Ready, decide, ready
from ._schedule import Block, Bytes, Size, at_once, strips_of
from ._tangents import JaxTangents
from ._workspace import compiled_ready, compiled_whole, estimated, measured, recipe_for, whole_bytes

_FAR = 4  # an estimate this far below the budget needs no proof


@dataclass(frozen=True)
class Batches:
    """Examples on the host, leading axis first; without `x2`, `x1` is paired with itself."""

    x1: Any
    x2: Any = None

    def sizes(self) -> tuple[int, int]:
        """Examples on both sides."""
        n1 = len(jax.tree.leaves(self.x1)[0])
        return n1, n1 if self.x2 is None else len(jax.tree.leaves(self.x2)[0])


@dataclass(frozen=True)
class Worker:
    """Makes the factors of blocks, and knows what they need."""

    tangents: AbstractTangents
    batches: Batches
    job: Job

    @property
    def k(self) -> int:
        """Outputs of a kernel: their sum is one."""
        return 1 if self.job.outputs is Outputs.SUM else self.tangents.outputs

    def make(self, block: Block, is_column: bool, size: Size) -> Ready:
        """The factors of a block, padded to `size`."""
        x = _cut(self.batches.x2 if is_column else self.batches.x1, block.examples, size.examples)
        cotangents = self._cotangents(block.outputs, size.outputs)
        if not isinstance(self.tangents, JaxTangents):
            parts = self.tangents.factors(x, cotangents)
            return ready(parts, decide(parts, self.job))
        recipe = recipe_for(self.tangents, self.batches.x1, self.job, size.outputs)
        fn = compiled_ready(self.tangents, recipe)
        return jax.block_until_ready(fn(jax.tree.leaves(self.tangents), x, cotangents))  # one at a time

    def whole(self) -> dict[str, Array]:
        """The kernels of all examples with themselves, at once."""
        assert isinstance(self.tangents, JaxTangents)
        size = self._everything()
        recipe = recipe_for(self.tangents, self.batches.x1, self.job, self.k)
        fn = compiled_whole(self.tangents, recipe, self.job.outputs, size.examples, self.strips(size))
        x = jax.tree.map(jnp.asarray, self.batches.x1)
        return fn(jax.tree.leaves(self.tangents), x, self._cotangents(slice(0, self.k), self.k))

    def whole_fits(self, room: int) -> bool:
        """Whether there is code for that, and it stays within `room` bytes."""
        if self.batches.x2 is not None or not isinstance(self.tangents, JaxTangents):
            return False
        size = self._everything()
        if not at_once(*size):
            return False
        guess = estimated(self.tangents, self.batches.x1, self.job, size)
        if _FAR * guess.of(1) <= room or guess.of(1) > room:
            return guess.of(1) <= room
        return whole_bytes(self.tangents, self.batches.x1, self.job, size, self.strips(size)) <= room

    def strips(self, size: Size) -> int:
        """Strips of a symmetric tile of that size."""
        numbers = estimated(self.tangents, self.batches.x1, self.job, size).kept / 4
        full = self.job.outputs is Outputs.FULL
        rows = size.examples * (size.outputs if full else 1)
        return strips_of(rows, numbers * rows)

    def cost(self, size: Size, room: int) -> Bytes:
        """Bytes of blocks of that size."""
        guess = estimated(self.tangents, self.batches.x1, self.job, size)
        near = guess.of(2) <= room < _FAR * guess.of(2)
        return measured(self.tangents, self.batches.x1, self.job, size, guess) if near else guess

    def _everything(self) -> Size:
        return Size(self.batches.sizes()[0], self.k)

    def _cotangents(self, outputs: slice, size: int) -> Array:
        """Rows of the identity, or one row of ones."""
        if self.job.outputs is Outputs.SUM:
            return jnp.ones((1, self.tangents.outputs), jnp.float32)
        rows = np.arange(outputs.start, outputs.start + size)
        return jnp.asarray(rows[:, None] == np.arange(self.tangents.outputs), jnp.float32)


def _cut(x: Any, part: slice, size: int) -> Any:
    """Some examples; a ragged end repeats its last one, so that shapes never change."""
    index = np.minimum(np.arange(part.start, part.start + size), part.stop - 1)
    whole = part.stop - part.start == size
    return jax.tree.map(lambda a: jnp.asarray(a[part] if whole else a[index]), x)
