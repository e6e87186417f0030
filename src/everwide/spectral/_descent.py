"""Conjugate gradients, step by step, for many columns at once. Who follows them decides when it is enough."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from .._engine import Coarse, KernelOperator

_TINY = float(np.finfo(np.float64).tiny)


class Step(NamedTuple):
    """After an iteration: `x`, the residual of each column relative to where it began, and `K x` for all rows.

    The arrays are those that the next iteration changes.
    """

    x: Float[np.ndarray, "n c"]
    residuals: Float[np.ndarray, " c"]
    seen: Float[np.ndarray, "n c"]


@dataclass(frozen=True)
class System:
    """`K + noise` for the rows that are `there`, each column with its own noise, and nearly its inverse.

    `fast`: the kernel as descents multiply with it; what its rounding leaves, the residual of `kernel` tells.
    """

    kernel: KernelOperator
    fast: KernelOperator | Coarse
    noise: Float[np.ndarray, "n c"]
    inverse: Callable[[np.ndarray], np.ndarray]
    there: Bool[np.ndarray, " n"] | None = None

    def product(self, v: Float[np.ndarray, "n c"], dtype: type) -> Float[np.ndarray, "n c"]:
        """`(K + noise) v`, computed in this precision."""
        return self.kernel @ v.astype(dtype) + self.noise * v


def descend(system: System, y: Float[np.ndarray, "n c"], goal: Float[np.ndarray, " c"]) -> Iterator[Step]:
    """From 0. Each column has steps of its own, and all are multiplied together; those at their goal stay there."""
    x, seen, rest = np.zeros_like(y), np.zeros_like(y), y.copy()
    sizes = np.maximum(np.linalg.norm(y, axis=0), _TINY)
    way = near = system.inverse(rest)
    size, residuals = np.sum(rest * near, axis=0), np.linalg.norm(y, axis=0) / sizes
    while (residuals > goal).any():
        raw = _moving(system.fast, way, residuals > goal)
        product = raw if system.there is None else np.where(system.there[:, None], raw, 0)
        product = product + system.noise * way
        curvature = np.sum(way * product, axis=0)
        goes = (residuals > goal) & (curvature > 0) & (size > 0)  # rounding may leave no direction downwards
        length = np.divide(size, curvature, out=np.zeros_like(size), where=goes)
        if not length.any():
            return
        x += length * way
        seen += length * raw
        rest -= length * product
        residuals = np.linalg.norm(rest, axis=0) / sizes
        yield Step(x, residuals, seen)
        near = system.inverse(rest)
        before, size = size, np.sum(rest * near, axis=0)
        way = near + np.divide(size, before, out=np.zeros_like(size), where=before > 0) * way


def _moving(
    kernel: KernelOperator | Coarse, way: Float[np.ndarray, "n c"], moves: Bool[np.ndarray, " c"]
) -> Float[np.ndarray, "n c"]:
    """The product with columns that still move; zeros for those that stay."""
    right = way.astype(np.float32)
    if moves.all():
        return kernel @ right
    raw = np.zeros_like(right)
    raw[:, moves] = kernel @ right[:, moves]
    return raw
