"""Blocks of examples and outputs become factors."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._batches import Batches
from .._factors import AbstractTangents, Job, Outputs, Ready, decide, ready
from .._trace import JaxTangents
from ._programs import compiled_ready, compiled_whole, estimated, measured, recipe_for, whole_bytes
from ._schedule import Block, Bytes, Size, at_once, strips_of

_FAR = 4  # an estimate this far below the budget needs no proof


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

    def make(self, size: Size, block: Block, is_column: bool) -> Ready:
        """The factors of a block, padded to `size`."""
        x = _cut(self.batches.x2 if is_column else self.batches.x1, block.examples, size.examples)
        cotangents = self._cotangents(block.outputs, size.outputs)
        if not isinstance(self.tangents, JaxTangents):
            parts = self.tangents.factors(x, cotangents)
            return ready(parts, decide(parts, self.job))
        fn = compiled_ready(self.tangents.plan, recipe_for(self.tangents.plan, self.job, size.outputs))
        return jax.block_until_ready(fn(self.tangents.leaves, jax.tree.leaves(x), cotangents))  # one at a time

    def whole(self) -> dict[str, Array]:
        """The kernels of all examples with themselves, at once."""
        assert isinstance(self.tangents, JaxTangents)
        size, plan = self.everything(), self.tangents.plan
        recipe = recipe_for(plan, self.job, self.k)
        fn = compiled_whole(plan, recipe, self.job.outputs, size.examples, self.strips(size))
        x = [jnp.asarray(a) for a in jax.tree.leaves(self.batches.x1)]
        return fn(self.tangents.leaves, x, self._cotangents(slice(0, self.k), self.k))

    def whole_fits(self, room: int) -> bool:
        """Whether there is code for that, and it stays within `room` bytes."""
        size = self.everything()
        if self.batches.x2 is not None or not isinstance(self.tangents, JaxTangents) or not at_once(*size):
            return False
        guess = estimated(self.tangents, self.job, size).of(1)
        if _FAR * guess <= room or guess > room:
            return guess <= room
        return whole_bytes(self.tangents.plan, self.job, size, self.strips(size)) <= room

    def strips(self, size: Size) -> int:
        """Strips of a symmetric tile of that size."""
        numbers = estimated(self.tangents, self.job, size).kept / 4
        rows = size.examples * (size.outputs if self.job.outputs is Outputs.FULL else 1)
        return strips_of(rows, numbers * rows)

    def cost(self, size: Size, room: int) -> Bytes:
        """Bytes of blocks of that size."""
        guess = estimated(self.tangents, self.job, size)
        near = guess.of(2) <= room < _FAR * guess.of(2)
        if not near or not isinstance(self.tangents, JaxTangents):
            return guess
        return measured(self.tangents.plan, self.job, size, guess)

    def everything(self) -> Size:
        """All examples of `x1`, and all outputs."""
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
