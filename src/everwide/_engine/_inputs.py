"""From what people have to what the kernels take: checked, on the host, never changed."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from .._checks import InputError
from ..kernel import Edges, Inputs


@dataclass(frozen=True)
class Rows:
    """Checked examples on the host: `Inputs` before they become JAX arrays, with tiles still to be cut."""

    x: np.ndarray
    mask: np.ndarray | None = None
    graph: np.ndarray | tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(self.x)

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
    if kind == "c":
        raise InputError(f"{label} is complex ({x.dtype}). Pass real and imaginary parts as channels.")
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
    where = tuple(int(i) for i in np.argwhere(bad)[0])
    columns = list(getattr(data, "columns", []))
    place = f"column {columns[where[1]]!r}" if columns else f"column {', '.join(str(i) for i in where[1:])}"
    raise InputError(
        f"{label} has {int(bad.sum())} values that are not finite; the first is {x[where]} in row {where[0]}, {place}. "
        "Drop or impute them (sklearn.impute.SimpleImputer), or mask the sites that do not exist."
    )
