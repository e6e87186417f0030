"""Kernels of networks between so many rows that they are never whole."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ._checks import InputError
from ._engine import Field, KernelOperator, Progress, RowBlocks, as_rows
from ._gram import Network, diagonal, kernel_of, matrices_of
from .scale import AbstractBackend, Store, product
from .signal import Parametrization

_FEW, _MANY = 128, 512  # rows are padded to multiples of these, so that few shapes are compiled


@dataclass(frozen=True)
class NetworkKernel:
    """One kernel of a network as a function of rows, for operators."""

    net: Network
    which: Field
    parametrization: Parametrization
    width: int | None
    backend: AbstractBackend | None = None

    def cross(self, x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
        """Of some rows with others."""
        law = (self.parametrization, self.width, None, None, self.backend, None)
        matrix = matrices_of({self.which: None}, self.net, _more(x1), _more(x2), *law)[0][self.which]
        return matrix[: len(x1), : len(x2)]

    def diagonal(self, x: np.ndarray) -> np.ndarray:
        """Of every row with itself."""
        both = diagonal(self.net, x, parametrization=self.parametrization, width=self.width)
        return getattr(both, self.which)


def _more(x: np.ndarray) -> np.ndarray:
    """Copies of the last row at the end: of few rows, and of more where an entry costs nothing beside a compilation."""
    few, step = (_FEW, _MANY) if x.ndim == 2 else (_MANY, 1)
    more = -len(x) % (_FEW if len(x) <= few else step)
    return np.concatenate([x, np.repeat(x[-1:], more, axis=0)]) if more else x


def operator(
    net: Network,
    x: Any,
    *,
    which: str = "ntk",
    parametrization: Parametrization | str = Parametrization.NTK,
    width: int | None = None,
    memory: int | None = None,
    tile: int | None = None,
    out: Store | None = None,
    backend: AbstractBackend | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> KernelOperator:
    """A kernel between very many rows as something to multiply with, which is never whole.

    The first product computes one triangle, tile by tile, and keeps it as float32 if it fits: 7.2 GB for 60 000 rows.
    Otherwise each product reads the tiles from a store, if there is one, or computes them again.

    Args:
        net: A network, or a kernel function.
        x: Examples, an array as in `gram`; float32 ones are the fastest.
        which: `"ntk"` or `"nngp"`.
        parametrization: As in `net.init`.
        width: As in `gram`.
        memory: Bytes that may be kept; `None`: half of what is free.
        tile: Rows of a tile.
        out: A `scale.Store`, which is filled now, or goes on; `Store(path, triangle=True)` is enough.
        backend: Where tiles are computed, as in `gram`. What lies in a store and does not fit into memory is multiplied
            there, too: with `scale.Dask(client)`, by the workers.
        progress: Called after every new tile.

    Returns:
        An operator: `shape`; `@`; `diagonal()`; `block(rows, columns)`; `predict(new, coefficients)`; `keeps`: whether
        tiles are kept. `everwide.spectral.solve` takes it, and so do `leading` and `density` there.

    >>> import everwide as ew, numpy as np
    >>> kernel = ew.operator(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), np.eye(3))
    >>> np.allclose(kernel @ np.ones(3), ew.ntk(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), np.eye(3)).sum(0))
    True

    """
    if which not in ("ntk", "nngp"):
        raise InputError(f"which={which!r}: expected 'ntk' or 'nngp'.")
    rows = as_rows(x)
    if rows.mask is not None or rows.graph is not None:
        raise InputError("x has masks or graphs, which operators do not know. Use everwide.ntk or everwide.nngp.")
    law = Parametrization(parametrization)
    if kernel_of(net, rows, len(rows), law, width).site_shape():
        raise InputError("The network has outputs at sites, which no operator has. End it with Flatten or pooling.")
    if out is None:
        reader = NetworkKernel(net, which, law, width, backend)
        return KernelOperator(RowBlocks(reader, rows.x), memory=memory, tile=tile, progress=progress)
    stored = matrices_of({which: out}, net, rows.x, None, law, width, tile, None, backend, progress)[0][which]
    blocks = RowBlocks(NetworkKernel(net, which, law, width), rows.x, stored)
    there = None if backend is None else partial(product, out, which=which, backend=backend)
    return KernelOperator(blocks, memory=memory, tile=stored.chunks[0], elsewhere=there)
