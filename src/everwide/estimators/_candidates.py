"""Networks among which `architecture="auto"` chooses, with their kernels on the training rows."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..activations import Erf, Relu
from ..kernels._tower import Tower
from ..layers import AbstractLayer, Dense
from ._presets import cnn, mlp
from ._reader import Field, KernelReader

# A tower, and its networks: hidden layers, and how many of them may be frozen.
_TOWERS = (
    (Tower(Dense(w_std=2**0.5, b_std=0.1), Relu(), 5), {1: (0, 1), 2: (0, 2), 3: (0, 3), 5: (0, 3, 5)}),
    (Tower(Dense(w_std=2.0, b_std=0.1), Erf(), 3), {1: (0,), 3: (0,)}),
)
_CONVOLUTIONS = (2, 4, 7)


class Candidate(NamedTuple):
    """A network, and in words what it is. The first family is preferred until another one is clearly better."""

    network: AbstractLayer
    field: Field
    description: str
    depth: int | None
    activation: str | None
    frozen: int | None
    family: int


Kernels = Iterator[tuple[Candidate, Float[np.ndarray, "n n"]]]


def dense_candidates(x: Float[np.ndarray, "n d"], field: Field) -> Kernels:
    """Dense networks of several depths and activations, with some of their layers frozen."""
    for family, (tower, depths) in enumerate(_TOWERS):
        floors = tower.floors(x)
        activation = type(tower.activation).__name__
        for depth, some in depths.items():
            for frozen in some if field == "ntk" else (depth,):
                shown = 0 if field == "nngp" else frozen
                candidate = Candidate(
                    tower.network(depth, shown),
                    field,
                    f"dense network, {depth} hidden layer{'s' * (depth > 1)}, {activation}",
                    depth,
                    activation,
                    shown,
                    family,
                )
                yield candidate, floors.ntk(depth, frozen)


def image_candidates(x: Float[np.ndarray, "n h w c"], field: Field) -> Kernels:
    """Convolutions of several depths, and a dense network."""
    nets = [(cnn(depth), f"{depth} convolutions of 3 x 3, flattened, Relu", depth) for depth in _CONVOLUTIONS]
    nets.append((mlp(3, flatten=True), "dense network, 3 hidden layers, Relu", 3))
    for net, description, depth in nets:
        found = KernelReader(net, field, rounds=False).among(x)
        yield Candidate(net, field, description, depth, "Relu", 0, 0), found


def given_candidate(net: AbstractLayer, x: np.ndarray, field: Field) -> Kernels:
    """The user's own."""
    found = KernelReader(net, field, rounds=x.ndim == 2).among(x)
    yield Candidate(net, field, f"given network {type(net).__name__}", None, None, None, 0), found
