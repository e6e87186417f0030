"""Layers that only modules of other frameworks have: their finite networks have the kernels of their limits."""

import numpy as np
import pytest

import everwide as ew
from everwide.layers import Product
from everwide.translation._parts import Everywhere, Line, Part, Shuffle, shared_draws
from layers.quick_conformance import assert_conforms

pytestmark = pytest.mark.once
HALF = 48


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (ew.Serial(ew.Relu(), Part(0, HALF)), (3,)),
        (Product(Part(0, HALF), ew.Serial(Part(HALF, 2 * HALF), ew.Relu())), (3,)),
        (ew.Serial(ew.Relu(), ew.Concat(Part(0, HALF), ew.Dense(HALF)), Shuffle(2, mixes=True), Part(0, HALF)), (3,)),
        (ew.Serial(ew.Relu(), Line()), (2, 2, 3)),
        (ew.Serial(ew.Relu(), ew.GlobalAvgPool(), Everywhere((3,)), ew.Conv((2,))), (2, 3)),
    ],
)
def test_finite_networks_agree_with_their_limit(layer, shape):
    assert_conforms(layer, shape, width=2 * HALF)


def test_parts_need_channels_of_one_law():
    with pytest.raises(ew.ArchitectureError, match="without one law"):
        ew.explain(ew.Serial(Part(0, 2), ew.Dense(1)), (3,))


def drawn(*parts):
    """The signal behind a layer with weights, and parts of its channels one after the other."""
    signal = ew.Dense(8).describe(ew.signal.Signal((3,)))
    for start, stop in parts:
        signal = Part(start, stop).describe(signal)
    return signal


def test_equal_parts_share_draws_and_others_do_not():
    def both(start):
        return ew.Serial(ew.Dense(8), ew.Sum(Part(0, 4), ew.Serial(Part(start, start + 4), ew.Relu())), ew.Dense(1))

    assert ew.gram(both(4), np.eye(3)).ntk.shape == (3, 3)
    assert shared_draws(*(drawn(*parts) for parts in (((2, 8), (0, 4)), ((2, 6),))))  # a part of a part
    assert shared_draws(drawn(), drawn((2, 6)))  # all, and a part
    assert not shared_draws(drawn((0, 4)), drawn((4, 8)))
    with pytest.raises(ew.ArchitectureError, match="share"):
        ew.explain(both(0), (3,))
