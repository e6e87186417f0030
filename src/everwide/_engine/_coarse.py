"""One triangle of a kernel in 16 bits an entry: for products whose rounding somebody mends.

Entries of a tile are whole numbers of equal steps between its least and its largest one. Steps are 30 times as fine as
those of float16 near the top of its range, where most entries of a kernel are.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int16

from ._matrix import Tile
from ._operator import KernelOperator, RowBlocks, multiplied

_TOP = 32_767  # of 16 bits with a sign


class Steps(NamedTuple):
    """Entries are `middle + step * numbers`."""

    numbers: Int16[np.ndarray, "r c"]
    middle: float
    step: float

    @classmethod
    def of(cls, values: Float[np.ndarray, "r c"]) -> "Steps":
        """The nearest ones."""
        low, high = float(values.min()), float(values.max())
        middle, step = (low + high) / 2, (high - low) / (2 * _TOP) or 1.0
        return cls(np.rint((values - middle) / step).astype(np.int16), middle, step)


class Coarse:
    """The matrix of an operator to multiply with, kept in 16 bits; its first product computes it."""

    def __init__(self, kernel: KernelOperator):
        self._kernel, self._kept = kernel, dict[int, Steps]()

    @property
    def bytes(self) -> int:
        """That are kept."""
        return self._kernel.bytes // 2

    def __matmul__(self, v: Float[np.ndarray, "n c"]) -> Float[np.ndarray, "n c"]:
        """In float32 within a tile."""
        if not self._kept:
            kept = {at: Steps.of(values) for at, (_, values) in enumerate(self._kernel.tiles(keep=False))}
            self._kept = kept
        pairs = ((place, self._kept[at]) for at, place in enumerate(self._kernel.places))
        return multiplied(pairs, np.ascontiguousarray(v, np.float32), _add).astype(np.float32)


def _add(out: np.ndarray, place: Tile, kept: Steps, right: np.ndarray) -> None:
    numbers = kept.numbers.astype(np.float32)
    both = [(place.rows, place.cols, numbers)]
    both += [(place.cols, place.rows, numbers.T)] if place.rows != place.cols else []
    for rows, columns, entries in both:
        out[rows] += kept.step * (entries @ right[columns]) + kept.middle * right[columns].sum(0, dtype=np.float64)


def coarse(kernel: KernelOperator) -> Coarse | None:
    """Where float32 tiles do not fit into the memory of an operator, and half of their bytes do.

    Not where products are computed elsewhere, which would bring all tiles here, nor of a matrix that is there already.
    """
    computed = isinstance(kernel.blocks, RowBlocks) and kernel.elsewhere is None
    return Coarse(kernel) if computed and not kernel.keeps and kernel.bytes // 2 <= kernel.memory else None
