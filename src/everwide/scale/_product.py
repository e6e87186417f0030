"""Products with a kernel that lies in a store: tiles are read where they are, vectors come back."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from .._checks import InputError, finite_array
from ._backends import HERE, AbstractBackend
from ._files import Files, kept
from ._store import Store
from ._work import AbstractTask


@dataclass(frozen=True)
class _Product(AbstractTask):
    """Rows of `K v`, a stretch as high as a tile at a time."""

    files: Files
    which: str
    vectors: np.ndarray | Path

    def __call__(self, item: slice) -> tuple[slice, np.ndarray]:
        header, matrix = self.files.header, self.files.arrays()[self.which]
        v = self.vectors if isinstance(self.vectors, np.ndarray) else np.load(self.vectors, mmap_mode="r")
        total = np.zeros((item.stop - item.start, v.shape[1]))
        for start in range(0, header.shape[1], header.tile.cols):
            cols = slice(start, min(start + header.tile.cols, header.shape[1]))
            above = header.triangle and start > item.start
            total += _read(matrix, cols, item).T @ v[cols] if above else _read(matrix, item, cols) @ v[cols]
        if not np.isfinite(total).all():
            raise InputError(
                f"Tiles of rows {item.start}:{item.stop} are not in the store {str(self.files.path)!r} yet. Call "
                "everwide.gram with it first."
            )
        return item, total

    def here(self, items: Sequence[slice], devices: Sequence[Any]) -> Iterator[tuple[slice, np.ndarray]]:
        return (self(item) for item in items)

    @contextmanager
    def elsewhere(self) -> Iterator["_Product"]:
        """The vectors go into the store, and out again: a worker that dies takes none with it."""
        assert isinstance(self.vectors, np.ndarray)
        file = self.files.path / f"vectors.{uuid.uuid4().hex}.npy"
        try:
            np.save(file, self.vectors)
            yield replace(self, vectors=file)
        finally:
            file.unlink(missing_ok=True)


def _read(matrix: Any, rows: slice, cols: slice) -> np.ndarray:
    try:
        return matrix[rows, cols].astype(np.float64)
    except ValueError as fault:
        raise InputError(
            f"The tile of rows {rows.start}:{rows.stop} and columns {cols.start}:{cols.stop} is damaged ({fault}). "
            "Call everwide.gram with the store again, which mends it."
        ) from None


def product(
    store: Store,
    v: Any,
    *,
    which: str = "ntk",
    backend: AbstractBackend | None = None,
    done: Callable[[int], None] | None = None,
) -> Float[np.ndarray, "..."]:
    """The product of a stored kernel with a vector or several: tile by tile, in float64, never the whole matrix.

    With `backend=Dask(client)` tiles are read by the workers, and only rows of the result travel. This is what
    iterative solvers ask of a kernel.

    Args:
        store: A store that `everwide.gram` has filled.
        v: One vector `(n,)`, or several `(n, k)`.
        which: "ntk" or "nngp".
        backend: Where tiles are read and multiplied; by default here.
        done: Called with the number of rows that are finished.

    Returns:
        `K v`, in the shape of `v`.

    >>> import everwide as ew, numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = ew.scale.Store(f"{folder}/run")
    ...     k = ew.ntk(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), np.eye(3), out=store)
    ...     bool(np.allclose(ew.scale.product(store, np.ones(3)), k[:].sum(1)))
    True

    """
    files = kept(store.folder)
    header, vectors = files.header, finite_array(v, "v")
    (n, m), sites = header.shape[:2], header.shape[2:]
    if which not in header.kernels:
        raise InputError(f"which={which!r}: the store {str(store.path)!r} holds {' and '.join(header.kernels)}.")
    if sites:
        raise InputError(
            f"The kernel has shape {header.shape}, with sites: expected (n, n). End the network with pooling."
        )
    if vectors.ndim not in (1, 2) or len(vectors) != m:
        raise InputError(f"v has shape {vectors.shape}, expected ({m},) or ({m}, k).")
    columns = vectors.reshape(len(vectors), -1)
    out = np.empty((n, columns.shape[1]))
    strips = [slice(i, min(i + header.tile.rows, n)) for i in range(0, n, header.tile.rows)]
    finished = 0
    for rows, values in (HERE if backend is None else backend).run(_Product(files, which, columns), strips):
        out[rows] = values
        finished += len(values)
        if done is not None:
            done(finished)
    return out.reshape(n, *vectors.shape[1:])
