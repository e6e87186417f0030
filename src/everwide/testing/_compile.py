"""Compilation for functions that run once or twice."""

from collections.abc import Callable

import jax


def quick_jit(fn: Callable) -> Callable:
    """`jax.jit` without the optimizations whose time a check never earns back; the mathematics is the same."""
    return jax.jit(fn, compiler_options={"xla_backend_optimization_level": 0})
