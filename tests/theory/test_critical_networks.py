"""Signals on their way down, against closed recursions and finite networks; networks that keep them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

import everwide as ew
from everwide import activations as act
from everwide.signal import ArchitectureError
from everwide.theory.criticality import critical, critical_init, propagate
from everwide.theory.criticality._propagate import _check as check_propagation

pytestmark = pytest.mark.once

GELU = (3 + math.sqrt(17)) / 2, 1.98305826, 0.17292239  # K*, C_w, C_b


# --- propagation -------------------------------------------------------------------------------------------------


def test_the_recursion_is_that_of_the_arc_cosine_kernel():
    found = propagate(ew.Serial(ew.Relu(), ew.Dense(w_std=2**0.5, b_std=0.5)), 30, variance=1.7, correlation=-0.3)
    k, q = 1.7, -0.3 * 1.7
    for depth in range(31):
        np.testing.assert_allclose([found.variance[depth], found.covariance[depth]], [k, q], rtol=1e-9)
        c = min(q / k, 1.0)
        q = 0.25 + k * (math.sqrt(1 - c * c) + c * (math.pi - math.acos(c))) / math.pi
        k = 0.25 + k
    np.testing.assert_allclose(found.correlation, found.covariance / found.variance)


def test_a_linear_network_multiplies_variances_by_the_variance_of_its_weights():
    found = propagate(ew.Dense(w_std=0.9**0.5), 20, correlation=0.3)
    np.testing.assert_allclose(found.variance, 0.9 ** np.arange(21), rtol=1e-12)
    np.testing.assert_allclose(found.correlation, 0.3, rtol=1e-12)


def test_at_zero_angles_fall_as_the_power_of_both_coefficients():
    point = critical_init(ew.Erf())
    found = propagate(ew.Serial(ew.Erf(), ew.Dense(w_std=point.C_w**0.5)), 400, correlation=0.9)
    apart = found.variance - found.covariance
    measured = math.log(apart[400] / apart[100]) / math.log(4)
    assert measured == pytest.approx(-point.b1 / point.a1, rel=0.02)


def test_finite_networks_follow():
    depth, width, nets = 8, 256, 40
    weight, bias, start = 1.6, 0.05, 0.4
    found = propagate(ew.Serial(ew.Erf(), ew.Dense(w_std=weight**0.5, b_std=bias**0.5)), depth, correlation=start)
    rng = np.random.default_rng(0)
    seen = np.empty((nets, depth + 1, 2))
    for net in range(nets):
        u, v = rng.normal(size=(2, width))
        z = np.stack([u, start * u + math.sqrt(1 - start**2) * v])
        for layer in range(depth + 1):
            seen[net, layer] = (z[0] ** 2).mean(), (z[0] * z[1]).mean()
            z = erf(z) @ rng.normal(size=(width, width)) * math.sqrt(weight / width)
            z = z + math.sqrt(bias) * rng.normal(size=width)
    error = seen.std(0, ddof=1) / math.sqrt(nets)
    for column, expected in enumerate((found.variance, found.covariance)):
        z_scores = (seen.mean(0)[:, column] - expected) / error[:, column]
        assert np.abs(z_scores).max() < 4
        assert (error[:, column] / expected).max() < 0.05  # sharp enough to mean something


def test_a_network_is_read_layer_by_layer_and_a_block_pass_by_pass():
    block = ew.Serial(ew.Relu(), ew.Dense(w_std=1.2, b_std=0.3))
    whole = propagate(ew.Serial(ew.Repeat(block, 2), block))
    passes = propagate(block, 3)
    assert whole.variance.shape == (7,)
    np.testing.assert_allclose(whole.variance[::2], passes.variance, rtol=1e-12)
    np.testing.assert_allclose(whole.correlation[::2], passes.correlation, rtol=1e-12)
    assert propagate(block, 0).variance.tolist() == [1.0]


def test_sites_are_independent_at_first_and_pooling_averages_them():
    found = propagate(ew.Serial(ew.Dense(w_std=2.0), ew.AvgPool((4,)), ew.Flatten()), sites=(8,), correlation=0.25)
    np.testing.assert_allclose(found.variance, [1.0, 4.0, 1.0, 1.0])
    np.testing.assert_allclose(found.covariance, [0.25, 1.0, 0.25, 0.25])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"depth": -1}, "depth=-1"),
        ({"variance": -1.0}, "variance=-1.0"),
        ({"variance": math.inf}, "variance=inf"),
        ({"correlation": 1.5}, "correlation=1.5"),
        ({"net": ew.Serial(ew.Dense(), ew.Relu(), ew.Relu()), "depth": 2}, "needs a Gaussian signal"),
        ({"net": ew.Conv((3,), padding="VALID"), "depth": 2, "sites": (8,)}, "output can be its input"),
        ({"net": ew.Conv((3,)), "depth": 2}, "needs 1 site axes"),
    ],
)
def test_propagation_refuses(arguments, message):
    with pytest.raises(ValueError, match=message):
        propagate(**({"net": ew.Dense(), "depth": 1} | arguments))


@pytest.mark.parametrize(
    ("net", "depth", "message"),
    [
        (ew.Dense(), 2.5, "depth=2.5: expected a whole number"),
        (ew.Dense(), True, "depth=True"),
        (np.tanh, 3, "expected a network.*Elementwise"),
    ],
)
def test_what_is_no_network_and_no_depth_is_named(net, depth, message):
    with pytest.raises(ValueError, match=message):
        check_propagation(net, depth, 1.0, 0.5)


# --- critical networks -------------------------------------------------------------------------------------------


def deep(activation, times=50):
    return ew.Serial(ew.Repeat(ew.Serial(ew.Dense(w_std=1.7, b_std=0.3), activation), times), ew.Dense(1))


def preactivations(net, **inputs):
    return propagate(net, **inputs).variance[1::2]


def test_a_relu_network_keeps_its_variance():
    np.testing.assert_allclose(preactivations(deep(ew.Relu()).critical()), 1.0, rtol=1e-12)


def test_a_gelu_network_is_at_its_half_stable_point():
    np.testing.assert_allclose(preactivations(deep(ew.Gelu()).critical()), GELU[0], rtol=1e-8)


@pytest.mark.parametrize(
    ("activation", "fn"), [(ew.Erf(), erf), pytest.param(act.Tanh(), np.tanh, marks=pytest.mark.slow)]
)
def test_an_odd_network_falls_as_one_over_depth(activation, fn):
    found = preactivations(deep(activation).critical())
    x, w = np.polynomial.hermite_e.hermegauss(120)
    k, expected = 1.0, []
    for _ in found:
        expected.append(k)
        k = critical_init(fn).C_w * np.sum(w * fn(math.sqrt(k) * x) ** 2) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    assert len(found) * found[-1] == pytest.approx(0.5, rel=0.1)


def test_a_convolutional_network_keeps_its_variance():
    block = ew.Serial(ew.Conv((3, 3), padding="CIRCULAR"), ew.Gelu())
    net = ew.Serial(ew.Repeat(block, 50), ew.Flatten(), ew.Dense(10)).critical()
    found = propagate(net, sites=(3, 3))
    np.testing.assert_allclose(found.variance[1:101:2], GELU[0], rtol=1e-8)
    np.testing.assert_allclose(found.variance[-1], GELU[0], rtol=1e-8)


def test_what_is_not_a_variance_stays_as_it_was():
    net = ew.Serial(
        ew.Conv((3,), width=7, strides=2, dilation=2, padding="VALID", frozen=True),
        ew.Relu(),
        ew.layers.ConvLocal((2,), b_std=0.5),
        ew.LeakyRelu(0.2),
        ew.GlobalAvgPool(),
        ew.Dense(3),
        ew.Dense(2, w_std=5.0),
    )
    tuned = net.critical()
    assert isinstance(tuned, ew.Serial)
    first, _, second, _, _, third, last = tuned.layers
    stds = [(layer.affine.w_std**2, layer.affine.b_std) for layer in (first, second, third, last)]
    np.testing.assert_allclose([std[0] for std in stds], [1.0, 2.0, 2 / 1.04, 1.0])
    assert [std[1] for std in stds] == [None, 0.0, None, None]
    assert (first.width, first.strides, first.dilation, first.padding) == (7, (2,), (2,), "VALID")
    assert first.affine.frozen
    assert not second.affine.frozen
    assert net.layers[0].affine.w_std == 1.0  # the network that was given has not changed
    assert ew.explain(tuned, (9, 2)).steps[-1].after.shape == (2,)


def test_branches_side_by_side_are_tuned_one_by_one():
    chain = lambda width: ew.Serial(ew.Dense(width), ew.Gelu())
    net = ew.Serial(chain(8), ew.Concat(chain(4), chain(12)), ew.Dense(1)).critical()
    assert isinstance(net, ew.Serial)
    first, beside, last = net.layers
    dense = [first.layers[0], *(branch.layers[0] for branch in beside.branches), last]
    np.testing.assert_allclose([d.affine.b_std**2 for d in dense], GELU[2], atol=1e-8)
    np.testing.assert_allclose([d.affine.w_std**2 for d in dense], [GELU[0] - GELU[2], *[GELU[1]] * 3], atol=1e-8)


def test_a_repetition_that_is_like_the_others_is_not_written_out():
    block = ew.Repeat(ew.Serial(ew.Dense(), ew.Relu()), 5)
    tuned = critical(ew.Serial(ew.Dense(), ew.Relu(), block))
    assert isinstance(tuned, ew.Serial)
    assert isinstance(tuned.layers[2], ew.Repeat)
    assert tuned.layers[2].times == 5


# --- sums, normalization and attention ---------------------------------------------------------------------------


def scaled_block(activation, skip=0.8):
    branch = ew.Serial(activation, ew.Dense(), ew.layers.Scale(math.sqrt(1 - skip**2)))
    return ew.Sum(ew.layers.Scale(skip), branch)


TRANSFORMER = ew.Serial(
    ew.Dense(),
    ew.Residual(ew.LayerNorm(), ew.SelfAttention(heads=8, key_width=96, value_width=8)),
    ew.Residual(ew.LayerNorm(), ew.Dense(w_std=1.2, b_std=0.1), ew.Gelu(), ew.Dense()),
    ew.layers.RmsNorm(),
    ew.GlobalAvgPool(),
)
WITH_BRANCHES = {
    "residual": (ew.Serial(ew.Dense(), ew.Repeat(ew.Residual(ew.Relu(), ew.Dense(w_std=1.3, b_std=0.2)), 3)), ()),
    "scaled": (ew.Serial(ew.Dense(), scaled_block(ew.Erf()), scaled_block(ew.Erf())), ()),
    "normalized": (ew.Serial(ew.Dense(), ew.LayerNorm(), ew.Gelu(), ew.Dense(), ew.Relu(), ew.layers.RmsNorm()), ()),
    "attention": (TRANSFORMER, (3,)),
}


def two_inputs(correlation, sites):
    """Two examples of unit variance whose sites are orthogonal: what `propagate` begins with."""
    places = math.prod(sites)
    x = np.zeros((2, places, 2 * places))
    for p in range(places):
        x[0, p, 2 * p] = 1.0
        x[1, p, 2 * p : 2 * p + 2] = correlation, math.sqrt(1 - correlation**2)
    return (x * math.sqrt(2 * places)).reshape(2, *sites, 2 * places)


@pytest.mark.parametrize("name", WITH_BRANCHES)
def test_propagation_is_that_of_the_kernels_and_of_finite_networks(name):
    """Against `everwide.nngp`, and the outputs of 200 random networks within 4 standard errors."""
    body, sites = WITH_BRANCHES[name]
    net, x = ew.Serial(body, ew.Dense(16)), two_inputs(0.6, sites)
    signals = propagate(net, sites=sites, correlation=0.6)
    moments = [signals.variance[-1], signals.covariance[-1]]
    kernel = ew.nngp(net, x)
    np.testing.assert_allclose([kernel[0, 0], kernel[0, 1]], moments, rtol=1e-5)

    def products(key):
        params = net.init(key, x.shape[1:], width=96)
        y = jax.vmap(lambda one: net.apply(params, one))(jnp.asarray(x))
        return jnp.stack([jnp.mean(y[0] ** 2), jnp.mean(y[0] * y[1])])

    keys = jax.random.split(jax.random.key(0), 200)
    draws = np.asarray(jax.jit(lambda keys: jax.lax.map(products, keys, batch_size=20))(keys), np.float64)
    error = draws.std(0, ddof=1) / math.sqrt(len(draws))
    assert (error < 0.06 * moments[0]).all()  # sharp enough to mean something
    assert np.abs((draws.mean(0) - moments) / error).max() < 4


def test_a_plain_residual_relu_network_doubles_with_every_block():
    net = ew.Serial(ew.Dense(), ew.Repeat(ew.Residual(ew.Relu(), ew.Dense()), 6)).critical()
    np.testing.assert_allclose(propagate(net).variance[1:], 2.0 ** np.arange(7), rtol=1e-12)


def test_a_plain_residual_erf_network_grows_like_the_depth():
    """`K' = K + C_w E[erf^2]` with `E[erf(z)^2] = 2/pi arcsin(2K / (1 + 2K))`: at most `pi/4` a block."""
    net = ew.Serial(ew.Dense(), ew.Repeat(ew.Residual(ew.Erf(), ew.Dense()), 100)).critical()
    k, expected = 1.0, []
    for _ in range(101):
        expected.append(k)
        k += math.asin(2 * k / (1 + 2 * k)) / 2
    np.testing.assert_allclose(propagate(net).variance[1:], expected, rtol=1e-9)
    assert 50 < expected[-1] < 100


def test_branches_whose_squared_factors_add_up_to_1_keep_variances_and_distances():
    deep = ew.Serial(ew.Dense(), ew.Repeat(scaled_block(ew.Gelu()), 30)).critical()
    signals = propagate(deep, correlation=1 - 1e-5)
    np.testing.assert_allclose(signals.variance[1:], GELU[0], rtol=1e-8)
    apart = 1 - signals.correlation[1:]
    np.testing.assert_allclose(apart, apart[0], rtol=1e-3)
    untuned = propagate(ew.Serial(ew.Dense(), ew.Repeat(scaled_block(ew.Gelu()), 30)), correlation=1 - 1e-5)
    assert untuned.variance[-1] < 0.1


@pytest.mark.parametrize(
    "block",
    [
        ew.Serial(ew.LayerNorm(), ew.Gelu(), ew.Dense()),
        ew.Serial(ew.layers.RmsNorm(), ew.Erf(), ew.Dense(w_std=3.0)),
        ew.Serial(act.Softplus(), ew.LayerNorm(), ew.Dense()),
        ew.Serial(ew.Relu(), ew.LayerNorm(), ew.Dense()),
        ew.Serial(ew.Erf(), ew.layers.RmsNorm(), ew.Dense()),
    ],
)
@pytest.mark.slow
def test_under_normalization_biases_make_the_slope_of_the_correlation_map_1(block):
    net = ew.Serial(ew.Dense(), ew.Repeat(block, 30))
    apart = {name: 1 - propagate(n, correlation=1 - 1e-5).correlation for name, n in (("", net), ("*", net.critical()))}
    np.testing.assert_allclose(apart["*"][1::3], 1e-5, rtol=0.05)
    assert not 0.5 < apart[""][-1] / 1e-5 < 2  # as it was, it is not critical
    np.testing.assert_allclose(propagate(net.critical()).variance[1::3], 1.0, rtol=1e-4)


def test_relu_under_normalization_needs_no_biases():
    tuned = ew.Serial(ew.Dense(), ew.LayerNorm(), ew.Relu(), ew.Dense(w_std=0.3)).critical()
    assert isinstance(tuned, ew.Serial)
    assert tuned.layers[3].affine.w_std ** 2 == pytest.approx(2.0)
    assert tuned.layers[3].affine.b_std is None


def test_a_normalized_branch_brings_its_own_variance():
    block = ew.Residual(ew.LayerNorm(), ew.Dense(), ew.Gelu(), ew.Dense())
    tuned = ew.Serial(ew.Dense(), ew.Repeat(block, 5)).critical()
    np.testing.assert_allclose(propagate(tuned).variance[1:], GELU[0] * np.arange(1, 7), rtol=1e-5)


def test_attention_keeps_its_keys_and_gives_its_values_unit_variance():
    net = ew.Serial(ew.Dense(), ew.SelfAttention(w_query_std=0.7, w_value_std=3.0, w_out_std=5.0), ew.LayerNorm())
    tuned = net.critical()
    assert isinstance(tuned, ew.Serial)
    stds = {name: affine.w_std for name, affine in tuned.layers[1].weights().items()}
    assert (stds["value"], stds["out"]) == (1.0, 1.0)
    assert stds["query"] == stds["key"] == pytest.approx(0.7**0.5)
    one_place = propagate(tuned, sites=(1,)).variance  # nothing to average over: what comes in goes out
    np.testing.assert_allclose(one_place, 1.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (ew.Serial(ew.Dense(), act.Softplus(), ew.Dense(1)), r"Softplus\(\) has no critical point: .*s\(0\) = 0.69"),
        (
            ew.Serial(ew.Dense(), ew.Residual(ew.Gelu(), ew.Dense()), ew.Dense(), ew.Gelu(), ew.Dense()),
            r"Serial\[1\] Sum changes variances .*Gelu\(\) keeps 3.56155 only",
        ),
        (
            ew.Serial(ew.Dense(), ew.Gelu(), ew.AvgPool((2,)), ew.Dense(), ew.Gelu()),
            r"Serial\[2\] AvgPool changes variances",
        ),
        (
            ew.Serial(ew.Dense(), ew.layers.RmsNorm(), act.Softplus(), ew.Dense()),
            r"Serial\[3\] Dense cannot be made critical: Softplus\(\) under normalization",
        ),
        (ew.Sum(ew.Dense(), ew.Serial(ew.Dense(), ew.Relu())), "end in different ways"),
        (ew.Serial(ew.Dense(), ew.Relu(), ew.Dropout(0.1), ew.Dense()), "Dropout cannot be made critical"),
        (ew.Serial(ew.Dense(), ew.layers.Scale(2.0), ew.Relu()), "Relu cannot be made critical after a Scale"),
        (ew.Serial(ew.Dense(), ew.layers.Scale(2.0)), "a factor is a part of the weights"),
        (ew.Product(ew.Dense(), ew.Dense()), "Product cannot be made critical"),
        (
            ew.Serial(ew.Dense(), ew.SelfAttention(mechanism="relu", scaling="sqrt")),
            r"Serial\[1\] SelfAttention cannot be made critical: only softmax",
        ),
        (ew.Serial(ew.Dense(), ew.Gelu(), ew.Dense(), act.Silu()), "cannot share a critical network"),
        (ew.Serial(ew.Dense(), ew.Gelu(), ew.Dense(), act.Tanh()), "cannot share a critical network"),
        (ew.Serial(ew.Conv((3,)), ew.AvgPool((2,)), ew.Gelu(), ew.Dense()), "AvgPool changes variances"),
        (ew.Concat(ew.Dense(3), ew.Serial(ew.Dense(3), ew.Relu())), "end in different ways"),
        (ew.Serial(ew.Dense(), ew.Erf(), ew.Relu(), ew.Dense(1)), r"Relu\(\) follows Erf\(\) with no weights"),
        (ew.Repeat(ew.Serial(ew.Relu(), ew.Flatten()), 2), r"Relu\(\) follows Relu\(\) with no weights"),
    ],
)
def test_networks_that_cannot_be_tuned_are_refused_by_name(net, message):
    with pytest.raises(ArchitectureError, match=message):
        net.critical()
