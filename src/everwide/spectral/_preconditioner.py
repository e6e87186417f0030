"""A kernel matrix with its noise, nearly: few pivots and a diagonal, which can be inverted at once."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .._engine import KernelOperator, side_by_side
from ._decompositions import Factor
from ._pivots import Pivots, pivoted

_STRIP, _CACHED = 1 << 14, 256  # rows whose features are float64 at once; in the cache of a core


def operator_pivots(kernel: KernelOperator, size: int, seed: int) -> Pivots:
    """Of a kernel that is never whole: its columns are computed as they are needed, features are float32."""
    everything = slice(0, len(kernel))
    return pivoted(lambda some: kernel.block(everything, some), kernel.diagonal(), size, dtype=np.float32, seed=seed)


@dataclass(frozen=True)
class Preconditioner:
    """`P = F F^T + D`: `D` is the noise, and what pivots leave of the kernel, spread evenly; infinite without a row.

    Spread as it is left, row by row, it takes more iterations. Features are float32 and taken as they are: everything
    else is float64, since inverses cancel.
    """

    features: Float[np.ndarray, "n r"]
    weights: Float[np.ndarray, " n"]  # 1 / D
    inner: Factor  # of I + F^T D^-1 F

    @classmethod
    def of(cls, pivots: Pivots, noise: Float[np.ndarray, " n"], there: np.ndarray | None = None) -> "Preconditioner":
        """For this noise; `there` says which rows exist."""
        even = max(float(pivots.left.mean()), float(np.finfo(np.float32).eps) * float(pivots.features.max()) ** 2)
        weights = 1 / (noise + even)
        weights = weights if there is None else np.where(there, weights, 0.0)
        inner = np.eye(pivots.features.shape[1])
        for rows, part in _strips(pivots.features, size=_STRIP):
            inner += part.T @ (weights[rows, None] * part)
        return cls(pivots.features, weights, Factor.with_jitter(inner, float(np.diagonal(inner).mean())))

    def solve(self, b: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """`P^-1 b`."""
        scaled = self.weights[:, None] * b

        def seen(rows: slice) -> np.ndarray:
            total = np.zeros((self.features.shape[1], b.shape[1]))
            for some, part in _strips(self.features, rows):
                total += part.T @ scaled[some]
            return total

        inside = np.asarray(self.inner.solve(np.sum(side_by_side(seen, len(b)), axis=0)))

        def subtract(rows: slice) -> None:
            for some, part in _strips(self.features, rows):
                scaled[some] -= self.weights[some, None] * (part @ inside)

        side_by_side(subtract, len(b))
        return scaled

    def precision(self) -> Float[np.ndarray, " n"]:
        """The diagonal of `P^-1`."""
        precision = self.weights.copy()
        for rows, part in _strips(self.features, size=_STRIP):
            white = np.asarray(self.inner.whiten(part.T))
            precision[rows] -= self.weights[rows] ** 2 * np.einsum("ij,ij->j", white, white)
        return precision


def _strips(
    features: np.ndarray, rows: slice = slice(None), size: int = _CACHED
) -> Iterator[tuple[slice, Float[np.ndarray, "s r"]]]:
    """Some of the rows, few at a time, in float64."""
    start, stop, _ = rows.indices(len(features))
    for begin in range(start, stop, size):
        some = slice(begin, min(begin + size, stop))
        yield some, features[some].astype(np.float64)
