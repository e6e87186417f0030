"""What goes wrong gets an error that names the object, what was expected, what came, and the way out."""

import jax
import numpy as np
import pandas as pd
import pytest

import everwide as ew
from everwide import ArchitectureError, Dense, InputError, Relu, Serial

pytestmark = pytest.mark.once

NET = Serial(Dense(), Relu(), Dense(1))
X = np.ones((4, 3))


def with_value(value: float) -> np.ndarray:
    x = X.copy()
    x[2, 1] = value
    return x


DATA = {
    "nan": (lambda: ew.gram(NET, with_value(np.nan)), r"x has 1 values.*nan in row 2, column 1.*impute"),
    "infinity": (lambda: ew.gram(NET, X, with_value(-np.inf)), r"x2 has 1 values.*-inf in row 2, column 1"),
    "nan in a named column": (
        lambda: ew.gram(NET, pd.DataFrame(with_value(np.nan), columns=list("abc"))),
        "column 'b'",
    ),
    "complex": (lambda: ew.gram(NET, X + 1j), "complex.*real and imaginary"),
    "text": (lambda: ew.gram(NET, np.array([["a", "b"]])), "expected numbers.*Encode"),
    "objects": (lambda: ew.gram(NET, np.array([[1, None]], dtype=object)), "expected numbers"),
    "ragged lists": (lambda: ew.gram(NET, [[1.0, 2.0], [3.0]]), "not a rectangular array"),
    "one axis": (lambda: ew.gram(NET, np.ones(3)), r"shape \(3,\).*reshape\(-1, 1\)"),
    "no rows": (lambda: ew.gram(NET, np.ones((0, 3))), "x is empty"),
    "no channels": (lambda: ew.gram(NET, np.ones((3, 0))), "x is empty"),
    "different features": (lambda: ew.gram(NET, X, np.ones((4, 2))), r"\(3,\) and x2 of shape \(2,\)"),
    "a mask of another shape": (
        lambda: ew.gram(NET, ew.Inputs(jax.numpy.ones((2, 5, 3)), mask=jax.numpy.ones((2, 5), bool)[:, :4])),
        r"mask of x.*expected bool of shape \(2, 5\)",
    ),
    "a mask without sites": (
        lambda: ew.gram(NET, ew.Inputs(jax.numpy.ones((2, 5, 3)), mask=jax.numpy.zeros((2, 5), bool))),
        "no site of example 0",
    ),
    "a graph for one side only": (
        lambda: ew.gram(NET, ew.Inputs(jax.numpy.ones((2, 5, 3)), graph=jax.numpy.ones((2, 5, 5))), np.ones((2, 5, 3))),
        "graph",
    ),
    "traced": (lambda: jax.jit(lambda x: ew.gram(NET, x).ntk)(X), "Infinite"),
    "a tile of zero": (lambda: ew.gram(NET, X, tile=0), "tile=0"),
    "out of another shape": (lambda: ew.ntk(NET, X, out=np.empty((3, 3))), r"expected float64 \(4, 4\)"),
}

NETWORKS = {
    "negative w_std": (Serial(Dense(w_std=-1.0)), (3,), r"Dense\(w_std=-1.0\).*at least 0"),
    "negative b_std": (Serial(ew.Conv((3,), b_std=-0.5)), (4, 3), r"Conv\(b_std=-0.5\)"),
    "a nonlinearity on the raw input": (Serial(Relu()), (3,), "Relu needs a Gaussian signal.*Dense or Conv"),
    "a nonlinearity on a nonlinearity": (Serial(Dense(), Relu(), Relu()), (3,), "Relu needs a Gaussian signal"),
    "a window larger than the image": (
        Serial(ew.Conv((9,), padding="VALID")),
        (4, 3),
        "larger than the input.*4 sites",
    ),
    "a pool larger than the image": (Serial(ew.AvgPool((5, 5))), (4, 4, 3), r"AvgPool.*\(5, 5\).*larger"),
    "a convolution without sites": (Serial(ew.Conv((3, 3))), (3,), r"Conv needs 2 site axes.*shape \(3,\)"),
    "pooling without sites": (Serial(ew.GlobalAvgPool()), (3,), "GlobalAvgPool needs at least one site axis"),
    "branches of different shapes": (Serial(ew.Sum(Dense(3), Dense(4))), (3,), r"one shape, got \(3,\), \(4,\)"),
    "branches that share randomness": (Serial(Dense(), ew.Residual(Relu())), (3,), "share randomness"),
    "branches that share the input": (Serial(ew.Sum(ew.Identity(), ew.Identity())), (3,), "share randomness"),
    "a product of one signal with itself": (
        Serial(Dense(), ew.Product(ew.Identity(), Relu())),
        (3,),
        "share randomness",
    ),
    "a concatenation of open widths": (Serial(ew.Concat(Dense(), Dense(3))), (3,), "Concat weighs its branches"),
    "a repetition that changes its shape": (Serial(ew.Repeat(ew.AvgPool((2,)), 2)), (8, 3), "Repeat needs a layer"),
    "softmax with the square root": (Serial(ew.SelfAttention(scaling="sqrt")), (4, 3), "no known limit"),
    "a matrix of another size": (Serial(ew.layers.SiteMap(np.ones((2, 3)))), (4, 3), "needs 3 sites"),
    "an index beyond the sites": (Serial(ew.layers.Index(7)), (4, 3), r"Index\(7,\)"),
    "an index of the channels": (Serial(ew.layers.Index(0, 0)), (4, 3), "Channels cannot be indexed"),
    "a drop rate of one": (Serial(Dense(), ew.Dropout(1.0)), (3,), r"Dropout\(rate=1.0\)"),
}

CONSTRUCTORS = {
    "padding": (lambda: ew.Conv((3,), padding="BOTH"), "padding='BOTH'.*SAME"),
    "padding of another rank": (lambda: ew.Conv((3, 3), padding=((1, 1),)), "2 pairs"),
    "strides": (lambda: ew.Conv((3, 3), strides=(1, 0)), "2 positive integers"),
    "times": (lambda: ew.Repeat(Dense(), 0), "at least 1"),
    "resize": (lambda: ew.layers.Resize((3,), method="magic"), "method='magic'"),
    "a cube": (lambda: ew.layers.SiteMap(np.ones((2, 2, 2))), "matrix"),
}


@pytest.mark.parametrize("case", DATA)
def test_data(case):
    run, message = DATA[case]
    with pytest.raises(InputError, match=message):
        run()


@pytest.mark.parametrize("case", NETWORKS)
def test_networks(case):
    net, shape, message = NETWORKS[case]
    with pytest.raises(ArchitectureError, match=message):
        ew.explain(net, shape)
    with pytest.raises(ArchitectureError, match=message):
        ew.gram(net, np.ones((2, *shape)))


@pytest.mark.parametrize("case", CONSTRUCTORS)
def test_constructors(case):
    build, message = CONSTRUCTORS[case]
    with pytest.raises(ArchitectureError, match=message):
        build()


def test_open_widths_are_asked_for_where_they_matter():
    with pytest.raises(ArchitectureError, match="standard parametrization needs the number"):
        ew.gram(NET, X, parametrization="standard")
    assert np.isfinite(ew.ntk(NET, X, parametrization="standard", width=16)).all()
    with pytest.raises(ArchitectureError, match="Pass width= to init"):
        NET.init(jax.random.key(0), (3,))


def test_not_a_network():
    with pytest.raises(TypeError, match=r"Expected a network|Type-check"):
        ew.gram([Dense()], X)  # pyright: ignore[reportArgumentType]


def test_a_graph_that_is_missing():
    net = Serial(Dense(), ew.Aggregate(), ew.GlobalAvgPool(), Dense(1))
    with pytest.raises(ArchitectureError, match="Aggregate needs a graph"):
        ew.gram(net, np.ones((2, 4, 3)))


def test_a_tile_that_cannot_fit():
    net = Serial(ew.Conv((3, 3)), Relu(), ew.GlobalAvgPool(), Dense(1))
    with pytest.raises(ew.MemoryBudgetError, match="tiles of 1 x 1 examples"):
        ew.gram(net, np.ones((1, 64, 64, 3), np.float32), memory=1 << 20)
