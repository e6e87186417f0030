"""What is made once and used often: compiled functions that can be trusted, results that are remembered."""

import threading
from collections.abc import Callable, Hashable
from importlib.metadata import version
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax

T = TypeVar("T")

# Sums that these versions hand to YNNPACK may be silently wrong on a CPU: https://github.com/jax-ml/jax/issues/39103.
_BROKEN = ("0.10.2", "0.11.0")
_OPTIONS = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_DOT"}  # products only, no sums
_USED = _OPTIONS if version("jaxlib") in _BROKEN else None


def trusted_jit(fn: Callable[..., Any], **options: Any) -> Any:
    """`jax.jit` without what the compiler of this version is known to get wrong. Not for use inside another `jit`."""
    return jax.jit(fn, compiler_options=_USED, **options)


def trusted_filter_jit(fn: Callable[..., Any]) -> Any:
    """`equinox.filter_jit` likewise."""
    return eqx.filter_jit(fn, compiler_options=_USED)  # pyright: ignore[reportCallIssue]


class Remembered(Generic[T]):
    """The last `most` results by their keys; threads may ask at the same time, and then get the same object."""

    def __init__(self, most: int):
        self._most, self._results, self._lock = most, dict[Hashable, T](), threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result for this key, made where it is not known. Nobody waits while it is made."""
        with self._lock:
            if key in self._results:
                return self._results[key]
        result = make()
        with self._lock:
            while key not in self._results and len(self._results) >= self._most:
                self._results.pop(next(iter(self._results)))
            return self._results.setdefault(key, result)
