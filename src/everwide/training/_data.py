"""What all ways to train share: targets, first outputs, and kernels with the training rows, checked."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ._losses import AbstractLoss


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
        raise ValueError(f"y has {y} rows and the kernel {kernel}: they must agree.")


def first_outputs(f0: Any, n: int, k: int, which: str) -> Float[np.ndarray, "n k"]:
    """Outputs before training, 0 if not given."""
    if f0 is None:
        return np.zeros((n, k))
    found = np.asarray(f0, np.float64)
    found = found[:, None] if found.ndim == 1 and k == 1 else found
    if found.shape != (n, k):
        raise ValueError(
            f"f0 has shape {np.shape(f0)}, expected {(n, k)}: outputs of the {which} rows before training."
        )
    if not np.isfinite(found).all():
        raise ValueError(f"f0 of the {which} rows holds values that are not finite.")
    return found


def cross_kernel(kernel: Any, n: int, k: int, *, mixed: bool) -> np.ndarray:
    """Test rows with training rows: `(m, n)`, or `(m, n, k, k)` where outputs are `mixed`."""
    found, shape = np.asarray(kernel), (n, k, k) if mixed else (n,)
    if found.shape[1:] != shape or not found.ndim:
        expected = ", ".join(("m", *map(str, shape)))
        raise ValueError(f"k_test_train has shape {found.shape}, expected ({expected}): test rows with training rows.")
    if not np.isfinite(found).all():
        row, column = np.argwhere(~np.isfinite(found))[0][:2]
        raise ValueError(f"k_test_train is not finite at ({row}, {column}). Compute it from finite data.")
    return found


def predicted(
    coefficients: Float[np.ndarray, "*times n k"], kernel: Any, f0: Any, share: Any = 1.0
) -> Float[np.ndarray, "*times m k"]:
    """`share * f0 + K coefficients` at other rows."""
    n, k = coefficients.shape[-2:]
    cross = cross_kernel(kernel, n, k, mixed=np.ndim(kernel) == 4)
    moved = cross @ coefficients if cross.ndim == 2 else np.einsum("mnij,...nj->...mi", cross, coefficients)
    return moved if f0 is None else share * first_outputs(f0, len(cross), k, "test") + moved
