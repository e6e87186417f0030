"""Kernels between rows, as estimators ask for them: few shapes to compile, and no more memory than needed."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from .._gram import diagonal, nngp, ntk
from ..layers import AbstractLayer

Field = Literal["nngp", "ntk"]
_LENGTHS = (64, 256, 512)  # numbers of rows and of columns are rounded up to these, then to multiples of the last
_WIDTHS = tuple(2**k for k in range(2, 11))  # the same for the numbers of features
_BATCH_BYTES = 1 << 28  # of a kernel with new rows that is held at once


def rounded(n: int, lengths: tuple[int, ...]) -> int:
    """The next larger one of few numbers."""
    return next((length for length in lengths if n <= length), -(-n // lengths[-1]) * lengths[-1])


def padded(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n more"]:
    """More columns, all zero, that change no kernel: sizes of inputs are means over the columns.

    A dense network is compiled for each number of columns. So there are few of these.
    """
    d = x.shape[1]
    columns = rounded(d, _WIDTHS)
    return np.pad(x * np.sqrt(columns / d), ((0, 0), (0, columns - d)))


@dataclass(frozen=True)
class KernelReader:
    """One kernel of a network, between rows of scaled inputs."""

    network: AbstractLayer
    field: Field
    rounds: bool  # dense networks, of which many small ones are read: other numbers of rows compile nothing

    def among(self, x: np.ndarray, dtype: type = np.float64) -> Float[np.ndarray, "n n"]:
        """Of rows with themselves, in float64, computed in `dtype`."""
        read = ntk if self.field == "ntk" else nngp
        found = read(self.network, self._more_rows(x.astype(dtype)))
        return np.asarray(found, np.float64)[: len(x), : len(x)]

    def cross(self, x1: np.ndarray, x2: np.ndarray, dtype: type = np.float64) -> Float[np.ndarray, "n1 n2"]:
        """Of new rows with old ones."""
        read = ntk if self.field == "ntk" else nngp
        found = read(self.network, self._more_rows(x1.astype(dtype)), self._more_rows(x2.astype(dtype)))
        return np.asarray(found, np.float64)[: len(x1), : len(x2)]

    def diagonal(self, x: np.ndarray) -> Float[np.ndarray, " n"]:
        """Of every row with itself."""
        return np.asarray(getattr(diagonal(self.network, self._more_rows(x)), self.field), np.float64)[: len(x)]

    def _more_rows(self, x: np.ndarray) -> np.ndarray:
        more = rounded(len(x), _LENGTHS) - len(x) if self.rounds else 0
        return np.pad(x, ((0, more), *((0, 0),) * (x.ndim - 1))) if more else x


def batches(rows: int, columns: int) -> list[slice]:
    """New rows, so many at a time that their kernel with `columns` old ones stays small."""
    size = max(_BATCH_BYTES // (8 * max(columns, 1)), 64)
    size = size // _LENGTHS[-1] * _LENGTHS[-1] or size
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
