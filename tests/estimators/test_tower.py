"""All depths at once, against one network at a time."""

import equinox as eqx
import numpy as np
import pytest

import everwide as ew
from everwide._kernels import Tower, _infinite
from everwide.activations import Erf, Relu

pytestmark = [pytest.mark.once, pytest.mark.as_users]

X = np.random.default_rng(0).normal(size=(7, 4))
RELU = Tower(ew.Dense(w_std=1.4, b_std=0.3), Relu(), 2)
ERF = Tower(ew.Dense(w_std=2.0, b_std=0.1), Erf(), 2)


def close(found, expected):
    """Relu's angles of a row with itself are known to a root of rounding, in one formula or the other."""
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-7)


def by_layer(tower, depth, frozen):
    """The network, written out."""
    law = {"w_std": tower.dense.affine.w_std, "b_std": tower.dense.affine.b_std}
    hidden = [part for floor in range(depth) for part in (ew.Dense(**law, frozen=floor < frozen), tower.activation)]
    return ew.Serial(*hidden, ew.Dense(1, **law))


@pytest.mark.parametrize(
    ("tower", "depth", "frozen"), [(RELU, 1, 0), (RELU, 2, 1), (ERF, 2, 0)], ids=["shallow", "frozen", "erf"]
)
def test_every_floor_is_a_network(tower, depth, frozen):
    floors, net = tower.floors(X), by_layer(tower, depth, frozen)
    assert floors.nngp.dtype == floors.slope.dtype == np.float64
    kernels = ew.gram(net, X)
    close(floors.ntk(depth, frozen), kernels.ntk)
    close(floors.nngp[depth], kernels.nngp)
    close(floors.ntk(depth, depth), kernels.nngp)
    assert eqx.tree_equal(tower.network(depth, frozen), net)


@pytest.mark.once
def test_between_other_rows():
    whole, part = RELU.floors(X), RELU.floors(X[:3], X[3:])
    for name in ("nngp", "slope"):
        close(getattr(part, name), getattr(whole, name)[:, :3, 3:])


@pytest.mark.once
def test_tiles_make_no_difference(monkeypatch):
    whole = RELU.floors(X)
    monkeypatch.setattr(_infinite, "_TILES", (2, 3))
    found = RELU.floors(X)
    for name in ("nngp", "slope"):
        close(getattr(found, name), getattr(whole, name))
        for matrix in getattr(found, name):
            np.testing.assert_array_equal(matrix, matrix.T)
