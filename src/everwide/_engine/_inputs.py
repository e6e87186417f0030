"""From what people have to what is computed with: rows and kernel matrices are checked, memory is counted first."""

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._checks import InputError, complex_fault, refuse_complex
from ..kernel import Edges, Inputs

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None

_COPIES = 4  # a kernel matrix, its decomposition, and what LAPACK works in
_ROUNDING = 1e3  # units of rounding by which entries may differ from their mirror images


@dataclass(frozen=True)
class Rows:
    """Checked examples on the host: `Inputs` before they become JAX arrays, with tiles still to be cut."""

    x: np.ndarray
    mask: np.ndarray | None = None
    graph: np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.x)

    def part(self, rows: slice) -> "Rows":
        """Some of the examples, without a copy."""
        return Rows(*jax.tree.map(lambda a: a[rows], (self.x, self.mask, self.graph)))

    def cut(self, start: int, size: int) -> Inputs:
        """`size` examples from `start` on; a ragged end repeats its last example, so that shapes never change."""
        index = np.minimum(np.arange(start, start + size), len(self.x) - 1)
        part = slice(start, start + size) if start + size <= len(self.x) else index
        x, mask, graph = jax.tree.map(lambda a: jax.numpy.asarray(a[part]), (self.x, self.mask, self.graph))
        return Inputs(x, mask, Edges(*graph) if isinstance(graph, tuple) else graph)


def as_rows(data: Any, label: str = "x") -> Rows:
    """Arrays, data frames, nested lists or `Inputs` as checked rows of float32 or float64."""
    inputs = data if isinstance(data, Inputs) else None
    x = _floats(data if inputs is None else inputs.x, label)
    if x.ndim < 2:
        raise InputError(
            f"{label} has shape {x.shape}, expected (n, channels) or (n, *sites, channels). "
            f"Use {label}.reshape(-1, 1) for one feature, {label}.reshape(1, -1) for one example."
        )
    if 0 in x.shape:
        raise InputError(f"{label} is empty: its shape is {x.shape}. Pass at least one example with one channel.")
    mask = None if inputs is None or inputs.mask is None else _mask(inputs.mask, x, label)
    graph = None if inputs is None or inputs.graph is None else _graph(inputs.graph, x, label)
    _all_finite(x, mask, data, label)
    return Rows(x, mask, graph)


def matching(x1: Rows, x2: Rows) -> tuple[Rows, Rows]:
    """Two batches that can be paired, in one dtype."""
    if x1.x.shape[1:] != x2.x.shape[1:]:
        raise InputError(
            f"x1 holds examples of shape {x1.x.shape[1:]} and x2 of shape {x2.x.shape[1:]}: they must agree. "
            "Sites and channels come after the first axis."
        )
    if (x1.graph is None) != (x2.graph is None):
        raise InputError("One of x1 and x2 has a graph and the other has none. Give both or neither.")
    dtype = np.result_type(x1.x.dtype, x2.x.dtype)
    return replace(x1, x=x1.x.astype(dtype, copy=False)), replace(x2, x=x2.x.astype(dtype, copy=False))


def paired(x1: Any, x2: Any) -> tuple[Rows, Rows | None]:
    """The two sides of a kernel matrix; `x2=None` pairs `x1` with itself."""
    if x2 is None:
        return as_rows(x1), None
    return matching(as_rows(x1, "x1"), as_rows(x2, "x2"))


def _floats(data: Any, label: str) -> np.ndarray:
    try:
        x = np.asarray(data)
    except jax.errors.TracerArrayConversionError:
        raise InputError(
            f"{label} is traced by JAX, and this function works on the host, tile by tile. "
            "Inside jit or grad use everwide.Infinite(net, input_shape).block(...)."
        ) from None
    except ValueError as fault:
        raise InputError(f"{label} is not a rectangular array of numbers: {fault}") from None
    kind = np.dtype(x.dtype).kind
    refuse_complex(x, label)
    if kind in "OSUMmT":
        raise InputError(f"{label} holds {x.dtype}, expected numbers. Encode text and categories as numbers first.")
    if x.dtype in (np.float32, np.float64):
        return x
    low = x.dtype.itemsize == 2 and kind not in "biu"  # float16 and bfloat16
    return x.astype(np.float32 if low else np.float64)


def _mask(mask: Any, x: np.ndarray, label: str) -> np.ndarray:
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != x.shape[:-1]:
        raise InputError(
            f"The mask of {label} is {mask.dtype} of shape {mask.shape}, expected bool of shape {x.shape[:-1]}: "
            "true where a site exists."
        )
    empty = np.flatnonzero(~mask.reshape(len(mask), -1).any(1))
    if len(empty):
        raise InputError(f"The mask of {label} leaves no site of example {empty[0]}. Drop that example.")
    return mask


def _graph(graph: Any, x: np.ndarray, label: str) -> Any:
    if isinstance(graph, Edges):
        senders, receivers, weights = (np.asarray(a) for a in (graph.senders, graph.receivers, graph.weights))
        sites = int(np.prod(x.shape[1:-1]))
        if {len(senders), len(receivers), len(weights)} != {len(x)}:
            raise InputError(f"The graph of {label} has {len(senders)} examples, {label} has {len(x)}.")
        if senders.max(initial=-1) >= sites or receivers.max(initial=-1) >= sites:
            raise InputError(f"The graph of {label} names node {max(senders.max(), receivers.max())} of {sites}.")
        return senders, receivers, weights.astype(x.dtype)
    graph = np.asarray(graph)
    if len(graph) != len(x) or not np.isfinite(graph).all():
        raise InputError(
            f"The graph of {label} has shape {graph.shape}, expected a finite adjacency for each of {len(x)} examples."
        )
    return graph.astype(x.dtype)


def _all_finite(x: np.ndarray, mask: np.ndarray | None, data: Any, label: str) -> None:
    bad = ~np.isfinite(x)
    bad = bad if mask is None else bad & mask[..., None]
    if not bad.any():
        return
    row, *where = (int(i) for i in np.argwhere(bad)[0])
    columns = list(getattr(data, "columns", []))
    place = repr(columns[where[0]]) if columns else ", ".join(map(str, where))
    place = f", column {place}" if place else ""
    raise InputError(
        f"{label} has {int(bad.sum())} values that are not finite; the first is {x[row, *where]} in row {row}{place}. "
        "Drop or impute them (sklearn.impute.SimpleImputer), or mask the sites that do not exist."
    )


class KernelError(InputError):
    """A matrix that is no kernel: not square, not finite, not symmetric, or not positive semidefinite.

    >>> import everwide.spectral as sp, numpy as np
    >>> sp.Spectrum.of(np.diag([1.0, -0.5]))
    Traceback (most recent call last):
        ...
    everwide._engine._inputs.KernelError: The kernel is not positive semidefinite: its smallest eigenvalue is -0.5, \
the largest 1. Was it computed in float32, or is it a difference of kernels? Add a ridge of at least 0.5.
    """


def checked_kernel(kernel: Any, what: str = "The kernel") -> Float[np.ndarray, "n n"]:
    """A symmetric float64 copy, or a `KernelError`."""
    shape = np.shape(kernel)
    if len(shape) != 2 or shape[0] != shape[1] or not shape[0]:
        raise KernelError(f"{what} has shape {shape}, expected (n, n): training rows with themselves.")
    if np.iscomplexobj(kernel):
        raise KernelError(complex_fault(what, np.asarray(kernel).dtype))
    way_out = "Use fewer rows, or everwide.training.train, which only reads the rows of its batches."
    require(_COPIES * 8 * shape[0] ** 2, None, f"{what} of shape {shape}, decomposed in float64,", way_out)
    matrix = np.array(kernel, np.float64)
    if not np.isfinite(matrix).all():
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise KernelError(f"{what} holds {matrix[row, column]} at ({row}, {column}). Compute it from finite data.")
    size = float(np.abs(matrix).max())
    off = np.abs(matrix - matrix.T)
    if off.max() > _ROUNDING * precision(kernel) * size:
        row, column = np.unravel_index(np.argmax(off), off.shape)
        raise KernelError(
            f"{what} is not symmetric: ({row}, {column}) holds {matrix[row, column]:.6g} and ({column}, {row}) "
            f"{matrix[column, row]:.6g}. Pass the kernel of the training rows with themselves."
        )
    return (matrix + matrix.T) / 2


def eigenvalue_noise(kernel: Any) -> float:
    """What rounding, of the entries as they came and of a decomposition in float64, may have done to eigenvalues."""
    matrix, eps = np.asarray(kernel, np.float64), precision(kernel)
    n, size = len(matrix), max(float(np.abs(matrix).max()), np.finfo(np.float64).tiny)
    largest = float(np.abs(matrix).sum(0).max())  # at least the largest eigenvalue
    return 4 * n**0.5 * eps * size + n * float(np.finfo(np.float64).eps) * largest


def precision(array: Any) -> float:
    """The unit of rounding of the numbers as they came."""
    dtype = np.asarray(array).dtype
    return float(np.finfo(dtype).eps) if np.issubdtype(dtype, np.floating) else float(np.finfo(np.float64).eps)


class MemoryBudgetError(MemoryError):
    """A request that does not fit into memory.

    >>> import everwide as ew, numpy as np
    >>> try:
    ...     ew.gram(ew.Dense(), np.ones((1000, 2)), memory=1000)
    ... except ew.MemoryBudgetError as fault:
    ...     print(str(fault)[:51])
    2 kernel matrices of shape (1000, 1000) in float64
    """


def available_memory() -> int:
    """Bytes that can be allocated now."""
    limits = [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")] if hasattr(os, "sysconf") else []
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():  # free pages do not count caches, which can be given back
        fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
        limits = [int(fields["MemAvailable"].split()[0]) * 1024] if "MemAvailable" in fields else limits
    cap, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if cap.exists() and used.exists() and cap.read_text().strip().isdigit():
        limits.append(int(cap.read_text()) - int(used.read_text()))
    return max(0, min([*limits, *_limit_of_process()], default=1 << 62))


def _limit_of_process() -> list[int]:
    """What `ulimit -v` leaves, where there is one: numpy and XLA would fail with words of their own."""
    statm = Path("/proc/self/statm")
    if resource is None or not statm.exists():
        return []
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return []
    return [most - int(statm.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")]


def budget(memory: int | None) -> int:
    """Bytes that may be used: those, or half of what is free on the host and, where it has its own, on the device."""
    if memory is not None:
        return memory
    stats = jax.local_devices()[0].memory_stats() or {}
    return min(available_memory(), stats.get("bytes_limit", 1 << 62) - stats.get("bytes_in_use", 0)) // 2


def require(needed: int, memory: int | None, what: str, way_out: str) -> None:
    """Raise unless `needed` bytes stay within the budget."""
    have = budget(memory)
    if needed > have:
        raise MemoryBudgetError(f"{what} needs {human(needed)}, {human(have)} are available. {way_out}")


def most_rows(memory: int | None, itemsize: int) -> int:
    """Of a square matrix that stays within the budget."""
    return math.isqrt(max(0, budget(memory)) // itemsize)


def human(size: int) -> str:
    """Bytes as people read them."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size = size / 1000  # pyright: ignore[reportAssignmentType]
    raise AssertionError


@dataclass(frozen=True)
class Batches:
    """Examples on the host, leading axis first; without `x2`, `x1` is paired with itself. Made by `as_batches`."""

    x1: Any
    x2: Any = None

    def sizes(self) -> tuple[int, int]:
        """Examples on both sides."""
        return count(self.x1), count(self.x1 if self.x2 is None else self.x2)


def as_batches(x1: Any, x2: Any) -> Batches:
    """Both batches as trees of host arrays, checked: examples first, the same tree and shapes on both sides."""
    if x2 is None:
        return Batches(as_batch(x1, "x1"))
    a, b = as_batch(x1, "x1"), as_batch(x2, "x2")
    if jax.tree.structure(a) != jax.tree.structure(b):
        raise InputError(f"x1 is a tree {jax.tree.structure(a)} and x2 {jax.tree.structure(b)}: they must agree.")
    one, other = ([leaf.shape[1:] for leaf in jax.tree.leaves(batch)] for batch in (a, b))
    if one != other:
        raise InputError(f"x1 holds examples of shape {one} and x2 of shape {other}: they must agree.")
    dtypes = jax.tree.map(lambda p, q: np.result_type(p.dtype, q.dtype), a, b)
    return Batches(*(jax.tree.map(lambda leaf, dtype: leaf.astype(dtype, copy=False), x, dtypes) for x in (a, b)))


def as_batch(x: Any, label: str) -> Any:
    """A tree of host arrays, checked: finite numbers, examples first."""
    arrays = jax.tree.map(lambda a: _host(a, label), x)
    count(arrays, label)
    masks: dict[int, Any] = {id(arrays.x): arrays.mask} if isinstance(arrays, Inputs) else {}
    for array, given in zip(jax.tree.leaves(arrays), jax.tree.leaves(x), strict=True):
        if array.dtype.kind not in "biu":
            _all_finite(array, masks.get(id(array)), given, label)
    return arrays


def _host(a: Any, label: str) -> np.ndarray:
    try:
        array = np.asarray(a)
    except jax.errors.TracerArrayConversionError:
        raise InputError(
            f"{label} is traced by JAX, and this function works on the host, block by block. "
            "Inside jit use everwide.empirical.ntk_block."
        ) from None
    if array.dtype.kind in "OSUMmT":
        raise InputError(f"{label} holds {array.dtype}, expected numbers. Encode text and categories as numbers first.")
    return array


def count(x: Any, label: str = "x") -> int:
    """The number of examples, at least one: the first axis of all leaves."""
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(x)]
    if not shapes:
        raise InputError(f"{label} has no arrays. Pass examples along the first axis.")
    if () in shapes:
        raise InputError(
            f"{label} holds numbers where arrays with one row for each example were expected: lists, tuples and "
            f"dictionaries are trees of arrays. Use numpy.asarray({label})."
        )
    sizes = sorted({shape[0] for shape in shapes})
    if len(sizes) > 1:
        raise InputError(f"The arrays of {label} have {sizes} rows: the first axis of all of them is the examples.")
    if sizes[0] == 0:
        raise InputError(f"{label} is empty. Pass at least one example.")
    return sizes[0]
