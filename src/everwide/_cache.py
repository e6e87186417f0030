"""Results that are remembered between calls, from any thread."""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


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
