"""Kernel matrices of networks: the functions that most people call."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, overload

import numpy as np

from ._checks import InputError, positive, whole
from ._engine import (
    Field,
    Gram,
    MemoryBudgetError,
    Progress,
    Rows,
    Size,
    as_rows,
    fitted,
    human,
    paired,
    plan_memory,
)
from ._engine import diagonal as exact_diagonal
from ._engine import fill as fill_here
from ._estimates import DRAWS, Asked, averaged
from ._kernels import Infinite, compiled
from .kernel import AbstractKernelFunction
from .layers import AbstractLayer
from .scale import AbstractBackend, Store
from .signal import ArchitectureError, Parametrization

Network = AbstractLayer | AbstractKernelFunction
_UNRELIABLE = "The Gaussian moments of "  # how the message of `activations` begins


@contextlib.contextmanager
def _in_a_sentence() -> Iterator[None]:
    """Moments that are not reliable show only at run time: our own line of what JAX then raises, without its trace."""
    try:
        yield
    except RuntimeError as fault:
        text = str(fault)
        begin = text.find(_UNRELIABLE)
        if begin < 0:
            raise
        raise ArchitectureError(text[begin:].splitlines()[0]) from None


def gram(
    net: Network,
    x1: Any,
    x2: Any = None,
    *,
    parametrization: Parametrization | str = Parametrization.NTK,
    width: int | None = None,
    tile: int | None = None,
    memory: int | None = None,
    out: Gram | Store | None = None,
    backend: AbstractBackend | None = None,
    progress: Callable[[Progress], None] | None = None,
    draws: int = DRAWS,
    tolerance: float | None = None,
) -> Gram:
    """Both kernels of an infinitely wide network between the examples of `x1` and `x2`.

    `x2=None` pairs `x1` with itself: the result is bitwise symmetric, and exact on its diagonal.

    Args:
        net: A network, or a kernel function such as `Infinite(net, input_shape)`.
        x1: Examples `(n, channels)` or `(n, *sites, channels)`: numpy, JAX, pandas, lists, or `Inputs` with masks or
            graphs. float32 data give float32 kernels, float64 (and integers) give float64, whatever JAX's global flag
            says.
        x2: Examples for the columns.
        parametrization: As in `net.init`.
        width: As in `net.init`; it matters only where the limit depends on it.
        tile: Examples in a tile.
        memory: Bytes that may be used; `None`: half of what is free.
        out: A pair of arrays to write into; or a `scale.Store`, a folder that keeps what was computed.
        backend: Where tiles are computed: `scale.Devices()`, `scale.Dask(client)`; by default here.
        progress: Called after every tile.
        draws: How often layers that are sampled are drawn anew; without such layers, nothing is drawn.
        tolerance: The largest standard error that is asked for, as a share of the largest entry: more is drawn until it
            is reached.

    Returns:
        The matrices `nngp` and `ntk`, `(n1, n2)`; sites that the network leaves follow. `error` has the standard
        errors of both where layers are sampled (`layers.Sampled`), and is `None` elsewhere. Of a store they are `zarr`
        arrays: slices of them are read from disk.

    >>> import everwide as ew, numpy as np
    >>> net = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(1))
    >>> k = ew.gram(net, np.eye(3))
    >>> k.ntk.shape
    (3, 3)

    """
    nngp, ntk = (out, out) if out is None or isinstance(out, Store) else out
    asked = Asked(whole(draws, "draws", 2), None if tolerance is None else positive(tolerance, "tolerance"))
    both, error = matrices_of(
        {"nngp": nngp, "ntk": ntk}, net, x1, x2, parametrization, width, tile, memory, backend, progress, asked
    )
    return Gram(both["nngp"], both["ntk"], None if error is None else Gram(error["nngp"], error["ntk"]))


@overload
def nngp(
    net: Network,
    x1: Any,
    x2: Any = None,
    *,
    width: int | None = None,
    tile: int | None = None,
    memory: int | None = None,
    out: np.ndarray | None = None,
    backend: AbstractBackend | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> np.ndarray: ...


@overload
def nngp(
    net: Network,
    x1: Any,
    x2: Any = None,
    *,
    width: int | None = None,
    tile: int | None = None,
    memory: int | None = None,
    out: Store,
    backend: AbstractBackend | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Any: ...


def nngp(
    net: Network,
    x1: Any,
    x2: Any = None,
    *,
    width: int | None = None,
    tile: int | None = None,
    memory: int | None = None,
    out: np.ndarray | Store | None = None,
    backend: AbstractBackend | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Any:
    """The NNGP kernel alone: the covariance of outputs at initialization, which no parametrization changes.

    Args:
        net: A network, or a kernel function.
        x1: Examples, as in `gram`.
        x2: Examples for the columns.
        width: As in `gram`.
        tile: Examples in a tile.
        memory: Bytes that may be used; `None`: half of what is free.
        out: An array to write into, or a `scale.Store`.
        backend: As in `gram`.
        progress: Called after every tile.

    Returns:
        The matrix `(n1, n2)`; sites that the network leaves follow.

    >>> import everwide as ew, numpy as np
    >>> ew.nngp(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), np.eye(3)).shape
    (3, 3)

    """
    law = Parametrization.NTK
    return matrices_of({"nngp": out}, net, x1, x2, law, width, tile, memory, backend, progress)[0]["nngp"]


@overload
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
    backend: AbstractBackend | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> np.ndarray: ...


@overload
def ntk(
    net: Network,
    x1: Any,
    x2: Any = None,
    *,
    parametrization: Parametrization | str = Parametrization.NTK,
    width: int | None = None,
    tile: int | None = None,
    memory: int | None = None,
    out: Store,
    backend: AbstractBackend | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Any: ...


def ntk(
    net: Network,
    x1: Any,
    x2: Any = None,
    *,
    parametrization: Parametrization | str = Parametrization.NTK,
    width: int | None = None,
    tile: int | None = None,
    memory: int | None = None,
    out: np.ndarray | Store | None = None,
    backend: AbstractBackend | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Any:
    """The neural tangent kernel alone.

    Args:
        net: A network, or a kernel function.
        x1: Examples, as in `gram`.
        x2: Examples for the columns.
        parametrization: As in `net.init`.
        width: As in `gram`.
        tile: Examples in a tile.
        memory: Bytes that may be used; `None`: half of what is free.
        out: An array to write into, or a `scale.Store`.
        backend: As in `gram`.
        progress: Called after every tile.

    Returns:
        The matrix `(n1, n2)`; sites that the network leaves follow.

    >>> import everwide as ew, numpy as np
    >>> ew.ntk(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), np.eye(3), np.ones((2, 3))).shape
    (3, 2)

    """
    return matrices_of({"ntk": out}, net, x1, x2, parametrization, width, tile, memory, backend, progress)[0]["ntk"]


def diagonal(
    net: Network,
    x: Any,
    *,
    parametrization: Parametrization | str = Parametrization.NTK,
    width: int | None = None,
) -> Gram:
    """Both kernels of every example with itself, exact to a few units in the last place.

    Args:
        net: A network, or a kernel function.
        x: Examples, as in `gram`.
        parametrization: As in `net.init`.
        width: As in `gram`.

    Returns:
        The vectors `nngp` and `ntk`, `(n,)`, with `error` as in `gram`.

    >>> import everwide as ew, numpy as np
    >>> ew.diagonal(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), np.eye(3)).ntk.shape
    (3,)

    """
    rows = as_rows(x)
    kernel = kernel_of(net, rows, len(rows), parametrization, width)
    if not (isinstance(kernel, Infinite) and kernel.sampled):
        with _in_a_sentence():
            return exact_diagonal(kernel, rows)

    def draw(seeded: Infinite) -> dict[Field, np.ndarray]:
        with _in_a_sentence():
            both = exact_diagonal(seeded, rows)
        return {"nngp": both.nngp, "ntk": both.ntk}

    mean, error = averaged(draw, kernel, Asked())
    return Gram(mean["nngp"], mean["ntk"], Gram(error["nngp"], error["ntk"]))


@_in_a_sentence()
def matrices_of(
    out: dict[Field, np.ndarray | Store | None],
    net: Network,
    x1: Any,
    x2: Any,
    parametrization: Parametrization | str,
    width: int | None,
    tile: int | None,
    memory: int | None,
    backend: AbstractBackend | None,
    progress: Callable[[Progress], None] | None,
    asked: Asked = Asked(),  # noqa: B008 - a tuple of numbers
) -> tuple[dict[Field, Any], dict[Field, np.ndarray] | None]:
    """The kernels that `out` names, in its arrays or its store, and standard errors; the rest is as in `gram`."""
    if not isinstance(backend, AbstractBackend | None):
        raise InputError(f"backend={backend!r}: expected everwide.scale.Devices() or everwide.scale.Dask(client).")
    left, right = paired(x1, x2)
    n1, n2 = len(left), len(left if right is None else right)
    kernel = kernel_of(net, left, n1 * (n1 + 1) // 2 if right is None else n1 * n2, parametrization, width)
    store = next((one for one in out.values() if isinstance(one, Store)), None)
    if store is not None:
        if isinstance(kernel, Infinite) and kernel.sampled:
            raise InputError("The network has sampled layers, and a store keeps exact kernels only. Leave it out.")
        given = {"tile": tile, "memory": memory, "backend": backend, "progress": progress}
        return store.fill(kernel, left, right, tuple(out), **given), None
    most = kernel.examples_per_tile(left.x.itemsize) if tile is None else whole(tile, "tile")
    size, shape = Size(fitted(n1, most), fitted(n2, most)), (n1, n2, *kernel.site_shape())
    plan_memory(kernel, shape, left.x.dtype, sum(array is None for array in out.values()), size, memory)
    matrices: dict[Field, Any] = {field: _matrix(field, array, shape, left.x.dtype) for field, array in out.items()}

    def fill(one: AbstractKernelFunction) -> dict[Field, np.ndarray]:
        (fill_here if backend is None else backend.fill)(one, left, right, matrices, size=size, progress=progress)
        return matrices

    if not (isinstance(kernel, Infinite) and kernel.sampled):
        return fill(kernel), None
    mean, error = averaged(fill, kernel, asked)
    for field, matrix in matrices.items():
        matrix[...] = mean[field]
    return matrices, error


def _matrix(field: Field, given: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The array that was given, or a new one."""
    if given is None:
        try:
            return np.empty(shape, dtype)
        except MemoryError:  # a limit that nobody can ask for
            needed = human(int(np.prod([float(size) for size in shape])) * dtype.itemsize)
            raise MemoryBudgetError(
                f"A kernel matrix of shape {shape} in {dtype} needs {needed}, which this process cannot have. Let it "
                "grow on disk: out=everwide.scale.Store(path)."
            ) from None
    if given.shape != shape or given.dtype != dtype:
        raise InputError(f"out for {field} is {given.dtype} {given.shape}, expected {dtype} {shape}.")
    return given


def kernel_of(
    net: Network, x: Rows, entries: int, parametrization: Parametrization | str, width: int | None
) -> AbstractKernelFunction:
    """A network as a kernel function, for so many numbers to compute."""
    if isinstance(net, AbstractKernelFunction):
        return net
    if not isinstance(net, AbstractLayer):
        raise InputError(f"Expected a network (everwide.Serial, everwide.Dense, ...), got {type(net).__name__}.")
    kernel = Infinite(net, x.x.shape[1:], parametrization=parametrization, width=width)
    if x.x.ndim == 2 or kernel.sampled:
        return kernel
    return compiled(kernel, entries)  # its loops are over sites


def kernel_matrix(kernel: Any, x: Any, which: str = "ntk") -> np.ndarray:
    """Of a network, a kernel function of the library, a function of two batches, or a matrix already; as it comes.

    Not checked, and in its own precision, which tells what rounding may have done: see `everwide.spectral`.
    """
    if which not in ("ntk", "nngp"):
        raise InputError(f"which={which!r}: expected 'ntk' or 'nngp'.")
    network = isinstance(kernel, Network)
    if x is None and (network or callable(kernel)):
        what = type(kernel).__name__ if network else "a kernel function"
        raise InputError(f"x is missing: the kernel of {what} depends on the data. Or pass a kernel matrix.")
    if network:
        matrix = getattr(gram(kernel, x), which)
        if matrix.ndim > 2:
            raise InputError(
                f"The network has outputs at sites: its kernel has shape {matrix.shape}. End it with Flatten or "
                "pooling."
            )
        return matrix
    if callable(kernel):
        return np.asarray(kernel(x, x))
    matrix = np.asarray(kernel)
    if x is not None and matrix.shape[:1] != (len(x),):
        raise InputError(f"The kernel has shape {matrix.shape} and x {len(x)} rows. With a kernel matrix, pass x=None.")
    return matrix
