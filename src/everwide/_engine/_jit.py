"""Compiled functions, and what their compiler must be told."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import equinox as eqx
import jax

# Sums that these versions hand to YNNPACK may be silently wrong on a CPU: https://github.com/jax-ml/jax/issues/39103.
_BROKEN = ("0.10.2", "0.11.0")
_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT"}  # products only, no sums
_USED = _OPTIONS if version("jaxlib") in _BROKEN else {}
# Layers are dozens of operations a number, and XLA takes half of the vectors that a CPU with AVX-512 has.
_WIDE = {"xla_cpu_prefer_vector_width": 512}


def trusted_jit(fn: Callable[..., Any], *, wide: bool = False, **options: Any) -> Any:
    """`jax.jit` without what the compiler of this version is known to get wrong. Not for use inside another `jit`.

    `wide`: with the longest vectors that the CPU has, for programs that are mostly arithmetic number by number.
    """
    return jax.jit(fn, compiler_options=_USED | _WIDE if wide else _USED, **options)


def trusted_filter_jit(fn: Callable[..., Any]) -> Any:
    """`equinox.filter_jit` likewise."""
    return eqx.filter_jit(fn, compiler_options=_USED)  # pyright: ignore[reportCallIssue]
