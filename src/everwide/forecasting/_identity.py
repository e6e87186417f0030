"""What tells the fits that are kept in a file from those of other rows, other models, other optimizers."""

import hashlib
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_STEPS = (1, 9, 90, 900, 9000)  # after each of which an optimizer is looked at


def digest(parts: Iterable[Any]) -> str:
    """Of the numbers, or the text, of some arrays; `None` is one of them."""
    total = hashlib.sha256()
    for part in parts:
        array = np.ascontiguousarray(np.asarray(part))
        total.update(f"{array.shape} {array.dtype}".encode())
        total.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
    return total.hexdigest()


def optimizer_digest(optimizer: Any, params: Any) -> str:
    """Of what an optimizer does: where it gets, along fixed slopes, after 1 to 10 000 steps.

    Optimizers are functions and have no name; rates, schedules, decay and masks show in their steps. Parameters are a
    corner of those given, so that masks find what they know. Four digits count: others differ between machines.
    """
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        here = jax.tree.map(lambda a: jnp.ones([min(2, size) for size in a.shape], jnp.float32), params)
        memory, at, told = optimizer.init(here), 0, []

        @jax.jit
        def walk(here: Any, memory: Any, start: Any, end: Any) -> tuple[Any, Any]:
            def step(at: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
                params, memory = carry
                slopes = jax.tree.map(lambda p: _slopes(at, p.size).reshape(p.shape), params)
                change, memory = optimizer.update(slopes, memory, params)
                return jax.tree.map(jnp.add, params, change), memory

            return lax.fori_loop(start, end, step, (here, memory))

        for steps in _STEPS:
            here, memory = walk(here, memory, at, at + steps)
            at += steps
            told += [f"{value:.4g}" for leaf in jax.tree.leaves(here) for value in np.ravel(leaf).tolist()]
    return hashlib.sha256(" ".join(told).encode()).hexdigest()


def _slopes(at: Any, size: int) -> Any:
    """From about 1 to 1e-6, so that what keeps optimizers from dividing by 0 shows, too."""
    places = jnp.arange(size)
    return jnp.sin((at + places).astype(jnp.float32)) * 0.01 ** (places % 4)
