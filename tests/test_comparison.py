"""Finite networks beside their limit: the curves against other computations of them, and the laws of Lee et al."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide import compare
from everwide.comparison._compare import _problem
from everwide.linearization import linearize
from everwide.testing._draws import Slope, exact_for

pytestmark = pytest.mark.once

DTYPE = jnp.result_type(float)
AT_LEAST_ROOT = -0.45  # the theorems say O(n^-1/2); a measured exponent may be a little above, or far below


def unit(rng, n, d):
    x = rng.normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


RNG = np.random.default_rng(0)
X, Y, TEST = unit(RNG, 10, 5), 0.8 * RNG.normal(size=10), unit(RNG, 5, 5)
NET = ew.Serial(ew.Dense(w_std=5**0.5), ew.Erf(), ew.Dense(1))
WIDTHS = [32, 512]


@pytest.fixture(scope="module")
def ntk():
    return compare(NET, X, Y, WIDTHS, x_test=TEST, steps=200, seeds=6)


def test_outputs_and_kernel_approach_the_linear_model(ntk):
    slopes = ntk.slopes()
    assert not ntk.diverged
    assert slopes["gap_linearized"].exponent < AT_LEAST_ROOT
    assert slopes["kernel_change"].exponent < AT_LEAST_ROOT
    assert all(law.error < 0.2 for law in slopes.values())


def test_outputs_approach_the_infinitely_wide_network(ntk):
    assert abs(ntk.slopes()["gap_infinite"].exponent + 0.5) < 0.2
    assert ntk.curves.gap_infinite[-1, :, -1].mean() < 0.1 < np.sqrt(np.mean(ntk.infinite**2))


def test_parameters_move_by_as_much_at_any_width_in_the_ntk_parametrization(ntk):
    slopes = ntk.slopes()
    assert abs(slopes["movement"].exponent) < 0.1
    assert abs(slopes["relative_movement"].exponent + 0.5) < 0.1


@pytest.mark.slow
def test_parameters_move_less_in_the_standard_parametrization():
    found = compare(NET, X, Y, [64, 512], steps=50, seeds=4, parametrization="standard")
    slopes = found.slopes()
    assert abs(slopes["movement"].exponent + 0.5) < 0.1
    assert slopes["gap_linearized"].exponent < AT_LEAST_ROOT
    assert slopes["kernel_change"].exponent < AT_LEAST_ROOT
    assert found.rates[0] / found.rates[1] == pytest.approx(8, rel=0.2)  # rates fall like 1 / width


@pytest.mark.slow
def test_a_trained_readout_is_not_needed():
    """One hidden layer of ReLU under a fixed readout: trained networks approach regression with the NTK."""
    net = ew.Serial(ew.Dense(w_std=5**0.5), ew.Relu(), ew.Dense(1, frozen=True))
    found = compare(net, X, Y, [64, 1024], x_test=TEST, steps=2000, seeds=6)
    gaps = found.curves.gap_infinite[:, :, -1].mean(1)
    assert Slope(-0.5, 0.2).excess(found.widths, gaps) < 1
    assert found.curves.loss_finite[-1, :, -1].max() < 1e-3


@pytest.fixture(scope="module")
def rebuilt():
    """Width 32, seed 0 of `ntk`: its parameters at the start, and a function that trains them step by step."""
    start = NET.init(jr.split(jr.key(0), 6)[0], (5,), width=32)
    x, y = jnp.asarray(X, DTYPE), jnp.asarray(Y, DTYPE)
    rate = float(len(X) / np.linalg.eigvalsh(ew.ntk(NET, X))[-1])

    def train(f, steps):
        loss = lambda p: jnp.mean((jax.vmap(f, (None, 0))(p, x)[:, 0] - y) ** 2) / 2
        update = lambda _, p: jax.tree.map(lambda q, g: q - rate * g, p, jax.grad(loss)(p))
        return jax.jit(lambda p: jax.lax.fori_loop(0, steps, update, p))(start)

    return start, rate, train


def outputs(f, params, x):
    return np.asarray(jax.vmap(lambda one: f(params, one))(jnp.asarray(x, DTYPE)), float)[:, 0]


LOOK = -4  # any of the steps at which one looks


def test_curves_are_those_of_plain_gradient_descent(ntk, rebuilt):
    """The network, its linearization in its parameters, and the limit, step by step."""
    (start, rate, train), step = rebuilt, ntk.steps[LOOK]
    assert ntk.rates == pytest.approx([rate] * 2)
    f_lin = linearize(NET.apply, start)
    finite = outputs(NET.apply, train(NET.apply, step), TEST)
    linear = outputs(f_lin, train(f_lin, step), TEST)
    limit, on_train = (outputs(NET.apply, start, x) for x in (TEST, X))
    kernel, cross = ew.ntk(NET, X), ew.ntk(NET, TEST, X)
    for _ in range(step):
        limit = limit - rate / len(X) * cross @ (on_train - Y)
        on_train = on_train - rate / len(X) * kernel @ (on_train - Y)
    rms = lambda v: np.sqrt(np.mean(np.square(v)))
    tolerance = 1e-9 if jnp.float64 == DTYPE else 2e-5
    found = {name: values[0, 0, LOOK] for name, values in ntk.curves._asdict().items()}
    assert found["gap_infinite"] == pytest.approx(rms(finite - limit), abs=tolerance)
    assert found["gap_linearized"] == pytest.approx(rms(finite - linear), abs=tolerance)
    assert found["loss_infinite"] == pytest.approx(np.mean((on_train - Y) ** 2) / 2, abs=tolerance)


def test_movement_and_kernel_change_are_what_they_are_defined_as(ntk, rebuilt):
    start, _, train = rebuilt
    end = train(NET.apply, ntk.steps[LOOK])
    jacobian = jax.jit(jax.vmap(jax.jacrev(lambda p, one: NET.apply(p, one)), (None, 0)))
    rows = lambda p: [np.reshape(leaf, (10, -1)) for leaf in jax.tree.leaves(jacobian(p, jnp.asarray(X, DTYPE)))]
    before, after = (np.concatenate(rows(p), 1) for p in (start, end))
    change = np.linalg.norm(after @ after.T - before @ before.T) / np.linalg.norm(before @ before.T)
    moved = np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(*map(jax.tree.leaves, (start, end)), strict=True)))
    whole = np.sqrt(sum(np.sum(leaf**2) for leaf in jax.tree.leaves(start)))
    found = {name: values[0, 0, LOOK] for name, values in ntk.curves._asdict().items()}
    assert found["kernel_change"] == pytest.approx(change, rel=1e-3)
    assert found["movement"] == pytest.approx(moved, rel=1e-4)
    assert found["relative_movement"] == pytest.approx(moved / whole, rel=1e-4)
    assert found["loss_finite"] == pytest.approx(np.mean((outputs(NET.apply, end, X) - Y) ** 2) / 2, rel=1e-3)


def test_several_outputs_and_the_linear_network_which_is_its_own_limit():
    net = ew.Serial(ew.Dense(2))
    y = np.random.default_rng(1).normal(size=(10, 2))
    found = compare(net, X, y, [1], x_test=TEST, steps=30, seeds=2)
    tolerance = exact_for(DTYPE)
    assert tolerance.excess(found.curves.loss_finite, found.curves.loss_linearized) < 1
    assert tolerance.excess(found.curves.loss_finite, found.curves.loss_infinite) < 1
    assert found.curves.gap_infinite.max() < 1e-5
    assert found.finite.shape == found.infinite.shape == (1, 2, 5, 2)
    assert np.isnan(found.slopes()["gap_infinite"].exponent)  # one width has no slope
    own = compare(net, X, y, [1], steps=30, seeds=2)
    half_squares = np.mean(np.sum((own.finite[0] - y) ** 2, -1), -1) / 2
    np.testing.assert_allclose(own.curves.loss_finite[0, :, -1], half_squares, rtol=1e-5)


@pytest.mark.slow
def test_masks_reach_both_sides():
    net = ew.Serial(ew.Conv((3,)), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(1))
    x = np.random.default_rng(3).normal(size=(3, 6, 2))
    mask = np.arange(6) < np.array([[6], [4], [3]])
    shorter = compare(net, ew.Inputs(x, mask), np.ones(3), [256], steps=3, seeds=2)
    changed = np.where(mask[..., None], x, 7.0)  # what is masked is not read
    again = compare(net, ew.Inputs(changed, mask), np.ones(3), [256], steps=3, seeds=2)
    for a, b in zip(shorter.curves, again.curves, strict=True):
        assert exact_for(DTYPE).excess(a, b) < 1
    assert shorter.curves.gap_infinite.max() < 0.3


def test_tables_and_progress():
    seen = []
    found = compare(ew.Serial(ew.Dense(1)), X, Y, [1, 2], steps=3, seeds=2, progress=seen.append)
    assert [(p.done, p.total) for p in seen] == [(1, 2), (2, 2)]
    assert found.steps == (0, 1, 2, 3)
    rows = found.table()
    assert len(rows) == 2 * 2 * 4
    assert [rows[5][name] for name in ("width", "seed", "step")] == [1, 1, 1]
    assert rows[5]["time"] == found.rates[0]
    assert rows[-1]["loss_finite"] == found.curves.loss_finite[-1, -1, -1]


def test_slopes_are_least_squares_with_their_standard_error(ntk):
    largest = np.log(ntk.largest().movement).ravel()
    x = np.repeat(np.log(WIDTHS), 6)
    coefficients, covariance = np.polyfit(x, largest, 1, cov="unscaled")
    rest = largest - np.polyval(coefficients, x)
    law = ntk.slopes()["movement"]
    assert law.exponent == pytest.approx(coefficients[0])
    assert law.error == pytest.approx(np.sqrt(covariance[0, 0] * np.sum(rest**2) / (len(x) - 2)))


def test_divergence_is_said():
    with pytest.warns(ew.training.DivergenceWarning, match="diverged at width 1, 2: the rate 1e\\+30"):
        found = compare(ew.Serial(ew.Dense(1)), X, Y, [1, 2], steps=3, seeds=2, rate=1e30)
    assert found.diverged == (1, 2)


def test_the_rates_of_theory_are_those_of_the_loss_that_is_trained():
    """Half of the largest stable rate is the default one; a little above it, training diverges."""
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    net = ew.Serial(ew.Dense(), ew.Erf(), ew.Dense(1))
    largest = ew.theory.rates.stable_rates(net, x).gradient_descent
    half, usual = (compare(net, x, y, [64], rate=rate, steps=30, seeds=2) for rate in (largest / 2, None))
    assert not half.diverged
    assert half.rates == pytest.approx(usual.rates)
    assert exact_for(DTYPE).excess(half.curves.loss_finite, usual.curves.loss_finite) < 1
    assert np.all(half.curves.loss_infinite[..., -1] < 0.6 * half.curves.loss_infinite[..., 0])
    flat = ew.Serial(ew.Dense(1))  # is its own limit at every width
    largest = ew.theory.rates.stable_rates(flat, x).gradient_descent
    assert not compare(flat, x, y, [1], rate=0.98 * largest, steps=200).diverged
    with pytest.warns(ew.training.DivergenceWarning):
        assert compare(flat, x, y, [1], rate=1.05 * largest, steps=200).diverged == (1,)


def test_wide_networks_fit_random_labels():
    """Bad minima exist; a width of ten times the rows does not meet them."""
    rng = np.random.default_rng(6)
    x, y = unit(rng, 6, 8), rng.choice([-1.0, 1.0], 6)
    result = compare(NET, x, y, [2, 64], steps=600, seeds=2)
    assert 64 in result.interpolates()
    assert result.curves.loss_finite[-1, :, -1].max() < 1e-6 < result.curves.loss_finite[-1, :, 0].min()
    assert result.interpolates(0.0) == ()


def test_pictures(ntk):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert ntk.plot(ax) is ax
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["width 32", "width 512", "infinite width"]
    assert np.allclose(ax.lines[0].get_ydata(), ntk.curves.loss_finite[0].mean(0))
    gaps = ntk.plot_gaps(Figure().subplots())
    assert gaps.get_xscale() == gaps.get_yscale() == "log"
    alone = ntk.plot()
    assert alone.figure is not None
    matplotlib.pyplot.close(alone.figure)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"widths": []}, "expected at least one width"),
        ({"widths": [8, 8]}, "every width is trained once"),
        ({"widths": [0]}, "width=0"),
        ({"steps": 0}, "steps=0"),
        ({"seeds": 0}, "seeds=0"),
        ({"rate": -1.0}, "rate=-1.0"),
        ({"y": np.ones(3)}, r"y has shape \(3,\), expected \(10, 1\)"),
        ({"y": np.ones((10, 2))}, r"y has shape \(10, 2\), expected \(10, 1\)"),
        ({"y": np.full(10, np.nan)}, "y holds nan"),
        ({"x": np.ones(10)}, "expected"),
        ({"x_test": np.ones((2, 3))}, "must agree"),
        ({"net": ew.Serial(ew.Dense(), ew.Relu(), ew.Dense())}, "leaves its width open"),
        ({"net": ew.Serial(ew.Conv((3,), width=1)), "x": np.ones((10, 4, 2))}, "leaves sites"),
        ({"net": ew.Serial(ew.Dense(), ew.Relu(), ew.Dropout(0.5), ew.Dense(1))}, "Leave Dropout out"),
        ({"net": ew.Serial(ew.Dense(1, frozen=True))}, "tangent kernel of x is zero"),
        ({"parametrization": "nonsense"}, "nonsense"),
    ],
)
def test_what_cannot_be_compared(change, message):
    given = {"net": NET, "x": X, "y": Y, "widths": [8]} | change
    net, x, y, widths = (given.pop(name) for name in ("net", "x", "y", "widths"))
    with pytest.raises(ValueError, match=message):
        compare(net, x, y, widths, **given)


@pytest.mark.parametrize("law", [p for p in ew.Parametrization if p.value not in ("ntk", "standard")])
def test_networks_that_learn_features_have_no_kernel(law):
    with pytest.raises(ew.InputError, match="no kernel to compare with"):
        compare(NET, X, Y, [8], parametrization=law)


def test_what_is_no_network_is_refused():
    with pytest.raises(ew.InputError, match=r"Expected a network.*got list"):  # `compare` has its types checked here
        _problem([ew.Dense(1)], X, Y, None, 1, ew.Parametrization.NTK)
