"""Networks drawn layer by layer have the law of drawn weights; estimates and verdicts, on made-up numbers."""

import csv
import math

import jax.random as jr
import numpy as np
import pytest
import scipy.stats

import everwide as ew
from everwide.theory.criticality import phase_diagram
from everwide_lab._claims import Verdict
from everwide_lab.criticality import reproduce
from everwide_lab.criticality._claims import claims_of
from everwide_lab.criticality._experiments import (
    GELU,
    HALF_STABLE,
    LENGTH,
    TANH,
    TRAINED,
    Measured,
    critical_weight,
    mish,
)
from everwide_lab.criticality._fit import decay_length, mean_of, relative_variance
from everwide_lab.criticality._networks import Block, first_layer, gradient_sizes, layers
from everwide_lab.criticality._training import Digits, digits, tanh_network, trained_accuracy

pytestmark = pytest.mark.once


def test_the_first_layer_has_exactly_the_asked_moments():
    layer = first_layer(np.random.default_rng(0), 3, 16, 2.5, np.array([[0.6, 0.8], [1.1, 0.0]]))
    np.testing.assert_allclose(layer.variance, 2.5)
    np.testing.assert_allclose(layer.complement(0), 0.4)
    np.testing.assert_allclose(layer.complement(1), 0, atol=1e-12)
    np.testing.assert_allclose(layer.gain(1), 2.5 * (1.21 - 1))


def test_drawing_layers_is_drawing_weights():
    block, width, nets, depth = Block(np.tanh, 1.5, 0.2), 6, 4000, 3
    rng = np.random.default_rng(1)
    directions = np.array([[0.5, math.sqrt(0.75)]])
    first = first_layer(rng, nets, width, 1.0, directions)
    *_, last = layers(rng, block, first, depth)
    z = np.stack([first.base, first.base + first.apart[:, 0]], 1)
    for _ in range(depth):
        weights = rng.standard_normal((nets, width, width)) * math.sqrt(block.weight / width)
        z = np.tanh(z) @ weights + math.sqrt(block.bias) * rng.standard_normal((nets, 1, width))
    numbers = lambda u, v: {"variance": (u**2).mean(-1), "product": (u * v).mean(-1), "fourth": (u**2 * v**2).mean(-1)}
    ours, theirs = numbers(last.base, last.base + last.apart[:, 0]), numbers(z[:, 0], z[:, 1])
    for name in ours:
        assert scipy.stats.ks_2samp(ours[name], theirs[name]).pvalue > 1e-3, name


def test_nearly_equal_inputs_do_not_cancel():
    rng = np.random.default_rng(2)
    tiny = 1e-6
    first = first_layer(rng, 2, 64, 1.0, np.array([[math.sqrt(1 - tiny**2), tiny]]))
    *_, last = layers(rng, Block(lambda z: z, 1.0, 0.0), first, 5)
    np.testing.assert_array_less(last.complement(0), 1e-11)
    assert (last.complement(0) > 1e-14).all()  # 5e-13, up to the fluctuations of a linear network


def test_gradients_of_a_linear_network_change_by_the_variance_of_its_weights():
    rng, depth = np.random.default_rng(3), 4
    block = Block(lambda z: z, 0.7, 0.1)
    sizes = np.array([gradient_sizes(rng, block, np.ones_like, 1.0, 40, depth) for _ in range(400)])
    found, expected = sizes.mean(0), 0.7 ** np.arange(depth, -1, -1)
    error = sizes.std(0) / math.sqrt(400)
    assert (np.abs(found - expected) <= 4 * error + 1e-12).all()


@pytest.mark.parametrize("length", [0.8, 12.0])
def test_decay_lengths_are_found_above_the_noise(length):
    rng = np.random.default_rng(4)
    depth = np.arange(40)
    values = np.exp(-depth / length) * (1 + 0.1 * rng.standard_normal((500, 1))) + 1e-3 * rng.standard_normal((500, 40))
    found = decay_length(values, math.inf)
    assert abs(found.value - length) <= 2 * found.error
    assert found.error < 0.1 * length
    assert math.isinf(decay_length(1e-9 * rng.standard_normal((50, 40)), math.inf).value)  # noise has no length


def test_errors_are_those_of_the_mean_and_of_a_variance():
    values = np.random.default_rng(5).exponential(size=(4000,))
    found = mean_of(values)
    np.testing.assert_allclose(found.error, 2 * values.std() / math.sqrt(4000), rtol=0.5)
    assert abs(relative_variance(values).value - 1) <= 2 * relative_variance(values).error
    assert math.isinf(mean_of(values[:1]).error)


def test_the_slope_of_gelu_and_the_critical_weight_are_right():
    z, h = np.linspace(-3, 3, 31), 1e-6
    np.testing.assert_allclose(mish(z), z * np.tanh(np.log1p(np.exp(z))), rtol=1e-12)
    np.testing.assert_allclose(GELU.slope(z), (GELU.fn(z + h) - GELU.fn(z - h)) / (2 * h), atol=1e-8)
    assert critical_weight(TANH, 0.05) == pytest.approx(1.76, abs=0.01)  # Schoenholz et al., Figure 1: sigma_w^2 = 1.76


def row(experiment, predicted, measured, error, *, activation="tanh", weight=1.0):
    return Measured(experiment, activation, weight, 0.0, "ordered", predicted, measured, error)


@pytest.mark.parametrize(
    ("rows", "claim", "verdict"),
    [
        ([row(LENGTH, 2.0, 2.15, 0.1), row(LENGTH, 5.0, 4.7, 0.1)], 0, Verdict.HOLDS),
        ([row(LENGTH, 2.0, 2.15, 0.1), row(LENGTH, 5.0, 8.0, 0.1)], 0, Verdict.PARTLY),
        ([row(LENGTH, 2.0, 3.0, 0.1), row(LENGTH, 5.0, 8.0, 0.1)], 0, Verdict.FAILS),
        ([row(LENGTH, 2.0, 2.0, 1.9)], 0, Verdict.UNDECIDED),
        ([], 0, Verdict.UNDECIDED),
        ([row(HALF_STABLE, 1.0, 0.9, 0.1), row(HALF_STABLE, 1.0, 0.8, 0.1)], 5, Verdict.HOLDS),
        ([row(HALF_STABLE, 1.0, 0.9, 0.1), row(HALF_STABLE, 1.0, -0.8, 0.1)], 5, Verdict.FAILS),
        ([row(HALF_STABLE, 1.0, 0.9, 0.1), row(HALF_STABLE, 1.0, 0.8, 1.1)], 5, Verdict.UNDECIDED),
        ([row(TRAINED, 1.0, 0.9, 0.0), row(TRAINED, 0.1, 0.2, 0.0)], 7, Verdict.HOLDS),
        ([row(TRAINED, 1.0, 0.9, 0.0), row(TRAINED, 0.1, 0.8, 0.0)], 7, Verdict.PARTLY),
        ([row(TRAINED, 1.0, 0.3, 0.0), row(TRAINED, 0.1, 0.8, 0.0)], 7, Verdict.FAILS),
    ],
)
def test_verdicts_follow_the_numbers(rows, claim, verdict):
    assert claims_of(rows)[claim].verdict is verdict


@pytest.mark.slow
def test_images_arrive_at_the_fixed_point_and_stay_there():
    weight, bias, fixed = 1.2, 0.05, float(phase_diagram(np.tanh, C_w=1.2, C_b=0.05).K_star)
    net, x = tanh_network(weight, bias, fixed, 4, 32), digits().x[:3].astype(np.float64)
    np.testing.assert_allclose(np.mean(x**2, 1), 1, rtol=1e-5)
    first, others, _ = net.layers
    assert others.times == 3
    before = [first.layers[:1], *([first, *[others.layer] * depth, others.layer.layers[0]] for depth in range(3))]
    for part in before:  # each activation
        np.testing.assert_allclose(np.diag(ew.nngp(ew.Serial(*part), x)), fixed, rtol=1e-4)
    params = net.init(jr.key(0), (64,), parametrization="standard")
    second, deeper = (affine.weight for affine, _ in params[1])
    assert (second.shape, deeper.shape) == ((32, 32), (2, 32, 32))
    np.testing.assert_allclose([np.var(second), np.var(deeper)], weight / 32, rtol=0.1)  # of standard networks
    assert not np.any(params[-1].bias)


def test_shallow_networks_learn_digits():
    data = digits()
    few = Digits(data.x[:200], data.labels[:200])
    found = trained_accuracy(tanh_network(1.2, 0.05, 0.3, 2, 32), few, 60, 0.03, seeds=2, stream=(0, 2))
    assert found.shape == (2,)
    assert (found > 0.6).all()
    untrained = trained_accuracy(tanh_network(1.2, 0.05, 0.3, 2, 32), few, 60, 0.0, seeds=2, stream=(0, 2))
    assert (untrained < 0.35).all()


@pytest.mark.parametrize("sizes", [{"width": 4}, {"draws": 0.0}, {"draws": math.nan}, {"steps": 0}])
def test_sizes_that_mean_nothing_are_refused(sizes):
    with pytest.raises(ValueError, match="expected at least 8, above 0 and at least 1"):
        reproduce(**sizes)


@pytest.mark.slow
def test_all_of_it_runs_and_is_written(tmp_path):
    stages = []
    found = reproduce(width=32, draws=0.02, steps=2, out=tmp_path, progress=stages.append)
    assert [stage.done for stage in stages] == list(range(0, stages[-1].total + 1, 1000))
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(found.rows) == len(found.table())
    assert all(math.isfinite(float(r["predicted"])) for r in rows)
    assert len(found.claims()) == 8
    assert (tmp_path / "figure.png").stat().st_size > 10_000
