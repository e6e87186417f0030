"""Signals on their way down, against closed recursions and finite networks; networks that keep them."""

import math

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


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (ew.Serial(ew.Dense(), act.Softplus(), ew.Dense(1)), r"Softplus\(\) has no critical point: .*s\(0\) = 0.69"),
        (ew.Serial(ew.Dense(), ew.Residual(ew.Relu(), ew.Dense())), "Sum cannot be made critical: .*skip connection"),
        (ew.Serial(ew.Dense(), ew.LayerNorm(), ew.Relu()), "LayerNorm cannot be made critical"),
        (ew.Serial(ew.Dense(), ew.Relu(), ew.Dropout(0.1), ew.Dense()), "Dropout cannot be made critical"),
        (ew.Serial(ew.Dense(), ew.layers.Scale(2.0), ew.Relu()), "Scale cannot be made critical"),
        (ew.Product(ew.Dense(), ew.Dense()), "Product cannot be made critical"),
        (ew.Serial(ew.Dense(), ew.SelfAttention()), "SelfAttention cannot be made critical"),
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
