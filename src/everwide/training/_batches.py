"""Which rows a step sees."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.random as jr
import numpy as np

_TOGETHER = 4096  # steps of an iterator that are compiled and run together


def minibatches(key: jax.Array, n: int, batch_size: int, passes: int = 1) -> np.ndarray:
    """Rows in random order, `(steps, batch_size)`, each at most once in a pass; a rest that fills no batch is left out.

    >>> import everwide.training as tr, jax
    >>> tr.minibatches(jax.random.key(0), n=10, batch_size=4, passes=3).shape
    (6, 4)
    """
    if not 1 <= batch_size <= n:
        raise ValueError(f"minibatches(batch_size={batch_size}): expected from 1 to {n}, the number of rows.")
    if passes < 1:
        raise ValueError(f"minibatches(passes={passes}): expected at least 1.")
    steps = n // batch_size
    orders = [np.asarray(jr.permutation(k, n))[: steps * batch_size] for k in jr.split(key, passes)]
    return np.concatenate(orders).reshape(passes * steps, batch_size)


def chunks(batches: Any, steps: int | None, rows: int) -> Iterator[np.ndarray]:
    """Arrays `(steps, batch)` of checked rows, in order, `steps` steps in all."""
    if hasattr(batches, "ndim") or isinstance(batches, list | tuple):
        yield _checked(_array(batches), steps, rows)
        return
    if not isinstance(batches, Iterable):
        raise TypeError(f"batches={batches!r}: expected whole numbers (steps, batch), an iterator of rows, or None.")
    source = iter(batches) if steps is None else itertools.islice(iter(batches), steps)
    done = 0
    for _, group in itertools.groupby((np.asarray(b) for b in source), key=np.shape):
        while some := list(itertools.islice(group, _TOGETHER)):
            done += len(some)
            yield _checked(np.stack(some), None, rows)
    if done < (steps or 1):
        raise ValueError(f"steps={steps}, but the iterator of batches ended after {done}.")


def _array(batches: Any) -> np.ndarray:
    try:
        return np.asarray(batches)
    except ValueError as fault:
        raise ValueError("Batches have different lengths. Pass an iterator, or pad them with other rows.") from fault


def _checked(batches: np.ndarray, steps: int | None, rows: int) -> np.ndarray:
    if batches.ndim != 2 or not np.issubdtype(batches.dtype, np.integer):
        raise ValueError(f"batches are {batches.dtype} {batches.shape}, expected whole numbers (steps, batch).")
    if 0 in batches.shape:
        raise ValueError(f"batches have shape {batches.shape}: a batch needs at least one row, a run one step.")
    if batches.min() < 0 or batches.max() >= rows:
        raise ValueError(f"batches name the rows {batches.min()} to {batches.max()}, but there are 0 to {rows - 1}.")
    if steps is not None and steps > len(batches):
        raise ValueError(f"steps={steps}, but there are {len(batches)} batches. Repeat them for several passes.")
    return batches[:steps].astype(np.int32)
