"""Kernels of many rows as operators: few shapes are compiled, and padding is seen nowhere."""

import numpy as np
import pytest

import everwide as ew
from everwide._engine import _matrix
from everwide._operator import NetworkKernel
from everwide.signal import Parametrization

pytestmark = pytest.mark.once

NET = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))


@pytest.fixture
def shapes(monkeypatch):
    """Of the blocks that are computed."""
    seen, block = set(), _matrix._block

    def watched(job, x1, x2):
        seen.add((*np.shape(x1.x)[:1], *np.shape(x2.x)[:1]))
        return block(job, x1, x2)

    monkeypatch.setattr(_matrix, "_block", watched)
    return seen


def test_flat_rows_of_any_number_are_cut_into_one_shape(shapes):
    x = np.random.default_rng(0).normal(size=(1300, 3)).astype(np.float32)
    kernel, v = ew.operator(NET, x, tile=1024), np.ones((1300, 2), np.float32)
    whole = np.asarray(ew.ntk(NET, x))
    shapes.clear()
    np.testing.assert_allclose(kernel @ v, whole @ v, rtol=1e-5)
    np.testing.assert_allclose(kernel.predict(x[:700], v), whole[:700] @ v, rtol=1e-5)
    assert shapes == {(512, 512)}
    assert kernel.block(slice(0, 600), np.array([3, 5])).shape == (600, 2)
    assert shapes == {(512, 512), (512, 128)}


def test_images_are_not_padded_to_hundreds(monkeypatch):
    """Their entries cost more than a compilation."""
    asked = []
    monkeypatch.setattr("everwide._operator.matrices_of", lambda out, net, x1, x2, *law: (
        asked.append((len(x1), len(x2))) or {"ntk": np.zeros((len(x1), len(x2)))}, None))  # fmt: skip
    reader = NetworkKernel(NET, "ntk", Parametrization.NTK, None)
    reader.cross(np.zeros((600, 4, 4, 1)), np.zeros((100, 4, 4, 1)))
    assert asked == [(600, 128)]
