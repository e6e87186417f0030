"""What all ways to train share: targets, first outputs, kernels with the training rows, batches, all checked."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Float

from .._checks import InputError, whole
from .._losses import AbstractLoss

_TOGETHER = 4096  # steps of an iterator that are compiled and run together


class Data(NamedTuple):
    """Targets of the training rows, and their outputs before training, `(n, k)`."""

    y: np.ndarray
    f0: Float[np.ndarray, "n k"]


def data_of(loss: AbstractLoss, y: Any, f0: Any, outputs: int | None, rows: int, dtype: np.dtype) -> Data:
    """Of a kernel with that many rows; real numbers in its dtype."""
    if outputs is None and np.ndim(f0) == 2:
        outputs = np.shape(f0)[1]
    targets, k = loss.targets(y, outputs)
    same_rows(rows, len(targets))
    exact = targets if np.issubdtype(targets.dtype, np.integer) else targets.astype(dtype)
    return Data(exact, first_outputs(f0, rows, k, "training").astype(dtype))


def same_rows(kernel: int, y: int) -> None:
    """Raise unless the kernel and the targets have as many rows."""
    if kernel != y:
        raise InputError(f"y has {y} rows and the kernel {kernel}: they must agree.")


def first_outputs(f0: Any, n: int, k: int, which: str) -> Float[np.ndarray, "n k"]:
    """Outputs before training, 0 if not given."""
    if f0 is None:
        return np.zeros((n, k))
    first = np.asarray(f0, np.float64)
    first = first[:, None] if first.ndim == 1 and k == 1 else first
    if first.shape != (n, k):
        raise InputError(
            f"f0 has shape {np.shape(f0)}, expected {(n, k)}: outputs of the {which} rows before training."
        )
    if not np.isfinite(first).all():
        raise InputError(f"f0 of the {which} rows holds values that are not finite.")
    return first


def cross_kernel(kernel: Any, n: int, k: int, *, mixed: bool) -> np.ndarray:
    """Test rows with training rows: `(m, n)`, or `(m, n, k, k)` where outputs are `mixed`."""
    cross, shape = np.asarray(kernel), (n, k, k) if mixed else (n,)
    if cross.shape[1:] != shape or not cross.ndim:
        expected = ", ".join(("m", *map(str, shape)))
        raise InputError(f"k_test_train has shape {cross.shape}, expected ({expected}): test rows with training rows.")
    if not np.isfinite(cross).all():
        row, column = np.argwhere(~np.isfinite(cross))[0][:2]
        raise InputError(f"k_test_train is not finite at ({row}, {column}). Compute it from finite data.")
    return cross


def predicted(
    coefficients: Float[np.ndarray, "*times n k"], kernel: Any, f0: Any, share: Any = 1.0
) -> Float[np.ndarray, "*times m k"]:
    """`share * f0 + K coefficients` at other rows."""
    n, k = coefficients.shape[-2:]
    cross = cross_kernel(kernel, n, k, mixed=np.ndim(kernel) == 4)
    moved = cross @ coefficients if cross.ndim == 2 else np.einsum("mnij,...nj->...mi", cross, coefficients)
    return moved if f0 is None else share * first_outputs(f0, len(cross), k, "test") + moved


def minibatches(key: jax.Array, n: int, batch_size: int, passes: int = 1) -> np.ndarray:
    """Rows in random order for stochastic steps, each at most once in a pass; a rest that fills no batch is left out.

    Args:
        key: a JAX key.
        n: the number of rows.
        batch_size: rows of a step.
        passes: over all rows.

    Returns:
        `(steps, batch_size)` indices of rows, for `train(batches=...)`.

    >>> import everwide.training as tr, jax
    >>> tr.minibatches(jax.random.key(0), n=10, batch_size=4, passes=3).shape
    (6, 4)
    """
    if not 1 <= batch_size <= n:
        raise InputError(f"minibatches(batch_size={batch_size}): expected from 1 to {n}, the number of rows.")
    steps = n // batch_size
    orders = [np.asarray(jr.permutation(k, n))[: steps * batch_size] for k in jr.split(key, whole(passes, "passes"))]
    return np.concatenate(orders).reshape(passes * steps, batch_size)


def chunks(batches: Any, steps: int | None, rows: int) -> Iterator[np.ndarray]:
    """Arrays `(steps, batch)` of checked rows, in order, `steps` steps in all."""
    if hasattr(batches, "ndim") or isinstance(batches, list | tuple):
        yield _checked(_array(batches), steps, rows)
        return
    if not isinstance(batches, Iterable):
        raise InputError(f"batches={batches!r}: expected whole numbers (steps, batch), an iterator of rows, or None.")
    source = iter(batches) if steps is None else itertools.islice(iter(batches), steps)
    done = 0
    for _, group in itertools.groupby((np.asarray(b) for b in source), key=np.shape):
        while some := list(itertools.islice(group, _TOGETHER)):
            done += len(some)
            yield _checked(np.stack(some), None, rows)
    if done < (steps or 1):
        raise InputError(f"steps={steps}, but the iterator of batches ended after {done}.")


def _array(batches: Any) -> np.ndarray:
    try:
        return np.asarray(batches)
    except ValueError as fault:
        raise InputError("Batches have different lengths. Pass an iterator, or pad them with other rows.") from fault


def _checked(batches: np.ndarray, steps: int | None, rows: int) -> np.ndarray:
    if batches.ndim != 2 or not np.issubdtype(batches.dtype, np.integer):
        raise InputError(f"batches are {batches.dtype} {batches.shape}, expected whole numbers (steps, batch).")
    if 0 in batches.shape:
        raise InputError(f"batches have shape {batches.shape}: a batch needs at least one row, a run one step.")
    if batches.min() < 0 or batches.max() >= rows:
        raise InputError(f"batches name the rows {batches.min()} to {batches.max()}, but there are 0 to {rows - 1}.")
    if steps is not None and steps > len(batches):
        raise InputError(f"steps={steps}, but there are {len(batches)} batches. Repeat them for several passes.")
    return batches[:steps].astype(np.int32)
