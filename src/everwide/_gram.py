"""Kernel matrices of networks: the functions that most people call."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ._checks import InputError
from ._engine import AbstractBackend, Field, Gram, Progress, Rows, Size, as_rows, fill, fitted, matching, plan_memory
from ._engine import diagonal as exact_diagonal
from .kernel import AbstractKernelFunction
from .kernels import Infinite, compiled
from .layers import AbstractLayer
from .signal import Parametrization

Network = AbstractLayer | AbstractKernelFunction
BOTH: tuple[Field, ...] = ("nngp", "ntk")


def gram(
    net: Network,
    x1: Any,
    x2: Any = None,
    *,
    parametrization: Parametrization | str = Parametrization.NTK,
    width: int | None = None,
    tile: int | None = None,
    memory: int | None = None,
    out: Gram | None = None,
    backend: AbstractBackend | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Gram:
    """Both kernels of an infinitely wide network between the examples of `x1` and `x2`.

    `x2=None` pairs `x1` with itself: the result is bitwise symmetric, and exact on its diagonal.

    - `net`: a network, or a kernel function such as `Infinite(net, shape)`.
    - `x1`, `x2`: `(n, channels)` or `(n, *sites, channels)`; numpy, JAX, pandas, lists, or `Inputs` with masks or
      graphs. float32 data give float32 kernels, float64 (and integers) give float64, whatever JAX's global flag says.
    - `parametrization`, `width`: as in `net.init`; the width matters only where the limit depends on it.
    - `tile`: examples in a tile. `memory`: bytes that may be used (default: what is available).
    - `out`: arrays to write into, for example on disk. `progress`: called after every tile.

    >>> import everwide as ew, numpy as np
    >>> net = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(1))
    >>> k = ew.gram(net, np.eye(3))
    >>> k.ntk.shape
    (3, 3)
    """
    a, b = _batches(x1, x2)
    kernel = _kernel(net, a, _entries(a, b), parametrization, width)
    size = _tile(kernel, a, b, tile)
    given = None if out is None else {"nngp": out.nngp, "ntk": out.ntk}
    matrices = _allocate(kernel, a, b, BOTH, given, size, memory)
    fill(kernel, a, b, matrices, size=size, backend=backend, progress=progress)
    return Gram(matrices["nngp"], matrices["ntk"])


def nngp(
    net: Network,
    x1: Any,
    x2: Any = None,
    *,
    width: int | None = None,
    tile: int | None = None,
    memory: int | None = None,
    out: np.ndarray | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> np.ndarray:
    """The NNGP kernel alone: the covariance of outputs at initialization. Arguments as in `gram`.

    >>> import everwide as ew, numpy as np
    >>> ew.nngp(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), np.eye(3)).shape
    (3, 3)
    """
    return _one("nngp", net, x1, x2, Parametrization.NTK, width, tile, memory, out, progress)


def ntk(
    net: Network,
    x1: Any,
    x2: Any = None,
    *,
    parametrization: Parametrization | str = Parametrization.NTK,
    width: int | None = None,
    tile: int | None = None,
    memory: int | None = None,
    out: np.ndarray | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> np.ndarray:
    """The neural tangent kernel alone. Arguments as in `gram`.

    >>> import everwide as ew, numpy as np
    >>> ew.ntk(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), np.eye(3), np.ones((2, 3))).shape
    (3, 2)
    """
    return _one("ntk", net, x1, x2, parametrization, width, tile, memory, out, progress)


def diagonal(
    net: Network,
    x: Any,
    *,
    parametrization: Parametrization | str = Parametrization.NTK,
    width: int | None = None,
) -> Gram:
    """Both kernels of every example with itself, `(n,)`, exact to a few units in the last place.

    >>> import everwide as ew, numpy as np
    >>> ew.diagonal(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), np.eye(3)).ntk.shape
    (3,)
    """
    rows = as_rows(x)
    return exact_diagonal(_kernel(net, rows, len(rows), parametrization, width), rows)


def _one(field: Field, net, x1, x2, parametrization, width, tile, memory, out, progress) -> np.ndarray:
    a, b = _batches(x1, x2)
    kernel = _kernel(net, a, _entries(a, b), parametrization, width)
    size = _tile(kernel, a, b, tile)
    matrices = _allocate(kernel, a, b, (field,), None if out is None else {field: out}, size, memory)
    fill(kernel, a, b, matrices, size=size, progress=progress)
    return matrices[field]


def _batches(x1: Any, x2: Any) -> tuple[Rows, Rows | None]:
    if x2 is None:
        return as_rows(x1), None
    return matching(as_rows(x1, "x1"), as_rows(x2, "x2"))


def _kernel(
    net: Network, x: Rows, entries: int, parametrization: Parametrization | str, width: int | None
) -> AbstractKernelFunction:
    if isinstance(net, AbstractKernelFunction):
        return net
    if not isinstance(net, AbstractLayer):
        raise TypeError(f"Expected a network (everwide.Serial, everwide.Dense, ...), got {type(net).__name__}.")
    return compiled(Infinite(net, x.x.shape[1:], parametrization=parametrization, width=width), entries)


def _entries(a: Rows, b: Rows | None) -> int:
    """Numbers to compute: half of a symmetric matrix."""
    return len(a) * (len(a) + 1) // 2 if b is None else len(a) * len(b)


def _tile(kernel: AbstractKernelFunction, a: Rows, b: Rows | None, tile: int | None) -> Size:
    if tile is not None and tile < 1:
        raise InputError(f"tile={tile}: expected at least one example.")
    most = kernel.examples_per_tile(a.x.itemsize) if tile is None else tile
    return Size(fitted(len(a), most), fitted(len(a if b is None else b), most))


def _allocate(kernel, a: Rows, b: Rows | None, fields, given, size: Size, memory: int | None) -> dict:
    """Arrays for the result, after a look at what they and the tiles will need."""
    shape = (len(a), len(a if b is None else b), *kernel.site_shape())
    plan_memory(kernel, shape, a.x.dtype, 0 if given else len(fields), size, memory)
    if given is None:
        return {field: np.empty(shape, a.x.dtype) for field in fields}
    for field, array in given.items():
        if array.shape != shape or array.dtype != a.x.dtype:
            raise InputError(f"out for {field} is {array.dtype} {array.shape}, expected {a.x.dtype} {shape}.")
    return given
