"""What goes wrong gets an error that names the object, what was expected, what came, and the way out."""

import subprocess
import sys

import equinox as eqx
import jax
import ml_dtypes
import numpy as np
import pandas as pd
import pytest

import everwide as ew
from everwide import ArchitectureError, Dense, InputError, Relu, Serial, _checks

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

KEY = jax.random.key(0)
COMPLEX = X + 1j
PARAMS = NET.init(KEY, (3,), width=4)
LIMIT = ew.Infinite(NET, (3,))
INPUTS = ew.Inputs(jax.numpy.asarray(X))
TURNED = eqx.tree_at(lambda one: one.x, INPUTS, jax.numpy.asarray(COMPLEX))  # as without checks of types
KERNEL = np.eye(4) + 0j
ROWS = np.arange(4.0)
DOORS = {
    "gram": lambda: ew.gram(NET, COMPLEX),
    "gram of inputs": lambda: ew.gram(NET, TURNED),
    "the second batch": lambda: ew.ntk(NET, X, COMPLEX),
    "diagonal": lambda: ew.diagonal(NET, COMPLEX),
    "a block": lambda: LIMIT.block(TURNED, INPUTS),
    "a diagonal block": lambda: LIMIT.diagonal(TURNED),
    "a finite network": lambda: NET.apply(PARAMS, jax.numpy.asarray(COMPLEX[0])),
    "a finite kernel": lambda: ew.empirical_ntk(NET, PARAMS, COMPLEX),
    "sampled kernels": lambda: ew.empirical.sample_kernel(NET, COMPLEX, key=KEY, width=4),
    "a spectrum": lambda: ew.spectral.Spectrum.of(KERNEL),
    "a factor": lambda: ew.spectral.Factor.of(KERNEL),
    "a solution": lambda: ew.spectral.solve(np.eye(4), ROWS + 1j, ridge=0.1),
    "rows of an estimator": lambda: ew.estimators.WideRegressor().fit(COMPLEX, ROWS),
    "targets of an estimator": lambda: ew.estimators.WideRegressor().fit(X, ROWS + 1j),
    "rows to choose from": lambda: ew.selection.query(COMPLEX, np.array([0, 1, None, None], dtype=object)),
    "a pilot": lambda: ew.forecasting.forecast(NET, COMPLEX, ROWS),
}


@pytest.mark.parametrize("door", DOORS)
def test_complex_numbers_are_refused_with_one_sentence(door):
    with pytest.raises(InputError, match=r" is complex \(complex\d+\)\. Complex data not supported: pass real and"):
        DOORS[door]()


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_half_precision_is_computed_in_single(dtype):
    """Numbers of half precision are float32 numbers too: kernels are those of these, to the last bit."""
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(dtype)
    exact = x.astype(np.float32)
    for name in ("nngp", "ntk"):
        np.testing.assert_array_equal(getattr(ew.gram(NET, x), name), getattr(ew.gram(NET, exact), name))
        half, single = (LIMIT.block(ew.Inputs(jax.numpy.asarray(one)), INPUTS) for one in (x, exact))
        assert getattr(half, name).dtype == getattr(single, name).dtype
        np.testing.assert_array_equal(getattr(half, name), getattr(single, name))
    y = ROWS.astype(dtype)
    fitted = [ew.estimators.WideRegressor("mlp").fit(a, b).predict(exact) for a, b in ((x, y), (exact, ROWS))]
    np.testing.assert_allclose(*fitted, rtol=1e-6, atol=1e-6)


SIZES = {
    "a width below 0": (lambda: ew.ntk(NET, X, parametrization="standard", width=-1), "width=-1: expected a whole"),
    "a width of 0": (lambda: ew.ntk(NET, X, parametrization="standard", width=0), "width=0: expected a whole"),
    "a kernel function of width 0": (lambda: ew.Infinite(NET, (3,), width=0), "width=0: expected a whole"),
    "a sample of width below 0": (lambda: NET.init(KEY, (3,), width=-1), "width=-1: expected a whole"),
    "samples of width below 0": (lambda: ew.empirical.sample_kernel(NET, X, key=KEY, width=-2), "width=-2: expected"),
    "a layer of width below 0": (lambda: ew.gram(Serial(Dense(-3), Relu(), Dense(1)), X), r"shape \(-3,\).*size=-3"),
    "a layer of width 0": (lambda: ew.explain(Serial(Dense(0)), (3,)), r"shape \(0,\).*size=0: expected a whole"),
    "a window of width 0": (lambda: ew.explain(ew.Conv((3,), width=0), (8, 3)), r"shape \(8, 0\).*size=0"),
    "channels below 0": (lambda: ew.explain(NET, (-3,)), r"shape \(-3,\) of an input.*size=-3: expected a whole"),
    "no channels": (lambda: ew.explain(NET, ()), "no channels"),
    "no heads": (lambda: ew.SelfAttention(heads=0).init(KEY, (4, 3), width=8), "heads=0: expected a whole"),
    "a tile of no examples": (lambda: ew.explain(NET, (3,), examples=0), "examples=0: expected a whole"),
}

# The types are checked first where jaxtyping is on, as it is here: what people see without it.
WITHOUT_JAXTYPING = """
import everwide as ew, jax, numpy as np
net, x, key = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), np.ones((4, 3)), jax.random.key(0)
for call in (
    lambda: ew.ntk(net, x, parametrization="standard", width=2.5),
    lambda: ew.ntk(net, x, parametrization="standard", width="8"),
    lambda: net.init(key, (3,), width=2.5),
    lambda: net.init(key, None, width=8),
    lambda: ew.empirical.sample_kernel(net, x, key=key, width=2.5),
    lambda: ew.explain(ew.Serial(ew.Dense(2.5)), (3,)),
    lambda: ew.explain(net, (2.5,)),
    lambda: ew.explain(net, 3),
    lambda: ew.gram([ew.Dense()], x),
    lambda: ew.diagonal(None, x),
):
    try:
        call()
    except ew.InputError as fault:
        print(fault)
"""

NUMBERS = {
    "positive": [-1, 0, np.inf],
    "not_negative": [-1, np.inf],
    "probability": [-1, 0, 1],
    "share": [-1, 1],
    "whole": [-1, 0, 2.5, True],
}
NO_NUMBERS = ["3", b"3", None, [], [1.0], np.array([]), np.ones(2), np.nan, 1j, {}, [[1], [1, 2]]]
NO_ARRAYS = ["3", ["a"], None, [], np.zeros((0, 3)), [[1.0], [1.0, 2.0]], 1j, [1j], {}, [np.nan], [np.inf], object()]
NO_WIDTHS = ["8", None, 3, 2.5, np.array(3), [2.5], [0], [None], ["8"], {"a": 1}]

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
    "a product of two concatenations": (
        Serial(ew.Product(ew.Concat(Dense(2), Dense(2, w_std=4.0)), ew.Concat(Dense(2), Dense(2, w_std=4.0)))),
        (3,),
        "which one meets which",
    ),
    "a sum of two concatenations that are not centred": (
        Serial(ew.Sum(*[ew.Concat(Serial(Dense(2), Relu()), Serial(Dense(2, w_std=2.0), Relu()))] * 2)),
        (3,),
        "which one meets which",
    ),
    "a product of two flattened images": (
        Serial(ew.Product(*[Serial(ew.Conv((3,), width=2), ew.Flatten())] * 2)),
        (4, 3),
        "which one meets which",
    ),
    "a concatenation of open widths": (Serial(ew.Concat(Dense(), Dense(3))), (3,), "Concat weighs its branches"),
    "a repetition that changes its shape": (Serial(ew.Repeat(ew.AvgPool((2,)), 2)), (8, 3), "Repeat needs a layer"),
    "softmax with the square root": (Serial(ew.SelfAttention(scaling="sqrt")), (4, 3), "no known limit"),
    "a matrix of another size": (Serial(ew.layers.SiteMap(np.ones((2, 3)))), (4, 3), "needs 3 sites"),
    "an index beyond the sites": (Serial(ew.layers.Index(7)), (4, 3), r"Index\(7,\)"),
    "mirror images along no axis": (Serial(ew.layers.Mirror(1)), (4, 3), r"Mirror\(1,\)"),
    "an index of the channels": (Serial(ew.layers.Index(0, 0)), (4, 3), "Channels cannot be indexed"),
    "a drop rate of one": (Serial(Dense(), ew.Dropout(1.0)), (3,), r"Dropout\(rate=1.0\)"),
}

CONSTRUCTORS = {
    "padding": (lambda: ew.Conv((3,), padding="BOTH"), "padding='BOTH'.*SAME"),
    "padding of another rank": (lambda: ew.Conv((3, 3), padding=((1, 1),)), "2 pairs"),
    "strides": (lambda: ew.Conv((3, 3), strides=(1, 0)), "2 positive integers"),
    "times": (lambda: ew.Repeat(Dense(), 0), "at least 1"),
    "mirror": (lambda: ew.layers.Mirror(), "expected site axes"),
    "mirror twice": (lambda: ew.layers.Mirror(0, 0), "each of them once"),
    "resize": (lambda: ew.layers.Resize((3,), method="magic"), "method='magic'"),
    "a cube": (lambda: ew.layers.SiteMap(np.ones((2, 2, 2))), "matrix"),
}


@pytest.mark.parametrize("case", DATA)
def test_data(case):
    run, message = DATA[case]
    with pytest.raises(InputError, match=message):
        run()


@pytest.mark.parametrize("case", SIZES)
def test_sizes(case):
    run, message = SIZES[case]
    with pytest.raises(InputError, match=message):
        run()


def test_types_where_nobody_checks_them():
    done = subprocess.run([sys.executable, "-c", WITHOUT_JAXTYPING], capture_output=True, text=True, check=False)
    told = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(told) == 10
    assert all("xpected" in line for line in told), told


@pytest.mark.parametrize("check", NUMBERS)
def test_numbers(check):
    for value in (*NUMBERS[check], *NO_NUMBERS):
        with pytest.raises(InputError, match=r"rate=.*expected a"):
            getattr(_checks, check)(value, "rate")
    good = 1 if check in ("positive", "not_negative", "whole") else 0.5
    for value in (good, np.asarray(good)[()]):
        assert getattr(_checks, check)(value, "rate") == good


@pytest.mark.parametrize("check", ["finite_array", "at_least_zero", "row_weights", "row_variances"])
def test_arrays(check):
    rest = (1,) if check.startswith("row") else ()
    for value in NO_ARRAYS:
        if value is not None or check != "row_weights":
            with pytest.raises(InputError, match=r"^y"):
                getattr(_checks, check)(value, *rest, "y")
    np.testing.assert_array_equal(getattr(_checks, check)([1], *rest, "y"), [1.0])


def test_widths():
    for value in NO_WIDTHS:
        with pytest.raises(InputError, match=r"hidden_widths.*expected"):
            _checks.hidden_widths(value)
        with pytest.raises(InputError, match=r"layer_widths.*expected"):
            _checks.layer_widths(value)
    assert _checks.hidden_widths([]) == ()


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
    with pytest.raises((InputError, TypeError), match=r"Expected a network|Type-check"):  # jaxtyping looks first
        ew.gram([Dense()], X)  # pyright: ignore[reportArgumentType]


def test_a_graph_that_is_missing():
    net = Serial(Dense(), ew.Aggregate(), ew.GlobalAvgPool(), Dense(1))
    with pytest.raises(ArchitectureError, match="Aggregate needs a graph"):
        ew.gram(net, np.ones((2, 4, 3)))


def test_a_tile_that_cannot_fit():
    net = Serial(ew.Conv((3, 3)), Relu(), ew.GlobalAvgPool(), Dense(1))
    with pytest.raises(ew.MemoryBudgetError, match="tiles of 1 x 1 examples"):
        ew.gram(net, np.ones((1, 64, 64, 3), np.float32), memory=1 << 20)
