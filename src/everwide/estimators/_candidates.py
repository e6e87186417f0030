"""Networks among which `architecture="auto"` chooses, with their kernels on the training rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from .._gram import diagonal, nngp, ntk
from .._kernels import Tower
from .._presets import cnn, mlp
from ..activations import Erf, Relu
from ..layers import AbstractLayer, Dense

Which = Literal["nngp", "ntk"]
_LENGTHS = (64, 256, 512)  # numbers of rows and of columns are rounded up to these, then to multiples of the last
_WIDTHS = tuple(2**k for k in range(2, 11))  # the same for the numbers of features
_BATCH_BYTES = 1 << 28  # of a kernel with new rows that is held at once
# A tower, and its networks: hidden layers, and how many of them may be frozen.
_TOWERS = (
    (Tower(Dense(w_std=2**0.5, b_std=0.1), Relu(), 5), {1: (0, 1), 2: (0, 2), 3: (0, 3), 5: (0, 3, 5)}),
    (Tower(Dense(w_std=2.0, b_std=0.1), Erf(), 3), {1: (0,), 3: (0,)}),
)
_CONVOLUTIONS = (2, 4, 7)


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
    which: Which
    rounds: bool  # dense networks, of which many small ones are read: other numbers of rows compile nothing

    def among(self, x: np.ndarray, dtype: type = np.float64) -> Float[np.ndarray, "n n"]:
        """Of rows with themselves, in float64, computed in `dtype`."""
        return self._read(x, x, self._more_rows(x.astype(dtype)))

    def cross(self, x1: np.ndarray, x2: np.ndarray, dtype: type = np.float64) -> Float[np.ndarray, "n1 n2"]:
        """Of new rows with old ones."""
        return self._read(x1, x2, self._more_rows(x1.astype(dtype)), self._more_rows(x2.astype(dtype)))

    def diagonal(self, x: np.ndarray) -> Float[np.ndarray, " n"]:
        """Of every row with itself."""
        return np.asarray(getattr(diagonal(self.network, self._more_rows(x)), self.which), np.float64)[: len(x)]

    def _read(self, x1: np.ndarray, x2: np.ndarray, *padded: np.ndarray) -> Float[np.ndarray, "n1 n2"]:
        matrix = (ntk if self.which == "ntk" else nngp)(self.network, *padded)
        return np.asarray(matrix, np.float64)[: len(x1), : len(x2)]

    def _more_rows(self, x: np.ndarray) -> np.ndarray:
        more = rounded(len(x), _LENGTHS) - len(x) if self.rounds else 0
        return np.pad(x, ((0, more), *((0, 0),) * (x.ndim - 1))) if more else x


def batches(rows: int, columns: int) -> list[slice]:
    """New rows, so many at a time that their kernel with `columns` old ones stays small."""
    size = max(_BATCH_BYTES // (8 * max(columns, 1)), 64)
    size = size // _LENGTHS[-1] * _LENGTHS[-1] or size
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


class Candidate(NamedTuple):
    """A network, and in words what it is. The first family is preferred until another one is clearly better."""

    network: AbstractLayer
    which: Which
    description: str
    depth: int | None
    activation: str | None
    frozen: int | None
    family: int


Kernels = Iterator[tuple[Candidate, Float[np.ndarray, "n n"]]]


def dense_candidates(x: Float[np.ndarray, "n d"], which: Which) -> Kernels:
    """Dense networks of several depths and activations, with some of their layers frozen."""
    for family, (tower, depths) in enumerate(_TOWERS):
        floors = tower.floors(x)
        activation = type(tower.activation).__name__
        for depth, some in depths.items():
            for frozen in some if which == "ntk" else (depth,):
                shown = 0 if which == "nngp" else frozen
                words = f"dense network, {depth} hidden layer{'s' * (depth > 1)}, {activation}"
                network = tower.network(depth, shown)
                yield Candidate(network, which, words, depth, activation, shown, family), floors.ntk(depth, frozen)


def image_candidates(x: Float[np.ndarray, "n h w c"], which: Which) -> Kernels:
    """Convolutions of several depths, and a dense network."""
    nets = [(cnn(depth), f"{depth} convolutions of 3 x 3, flattened, Relu", depth) for depth in _CONVOLUTIONS]
    nets.append((mlp(3, flatten=True), "dense network, 3 hidden layers, Relu", 3))
    for net, description, depth in nets:
        candidate = Candidate(net, which, description, depth, "Relu", 0, 0)
        yield candidate, KernelReader(net, which, rounds=False).among(x)


def given_candidate(net: AbstractLayer, x: np.ndarray, which: Which) -> Kernels:
    """The user's own."""
    candidate = Candidate(net, which, f"given network {type(net).__name__}", None, None, None, 0)
    yield candidate, KernelReader(net, which, rounds=x.ndim == 2).among(x)
