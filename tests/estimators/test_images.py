"""Images: how they are shown, and the networks that `auto` compares for them."""

import itertools

import numpy as np
import pytest

import everwide as ew
from everwide._kernels import seconds
from everwide.estimators import WideClassifier, _images, _whitening
from everwide.estimators._images import image_networks, image_scaling, pooled
from everwide.estimators._scaling import InputScaling
from everwide.estimators._whitening import WINDOW, Whitening, filtered

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)


def blurred(n, side=12, channels=2):
    """Images whose neighbouring pixels and whose channels are alike."""
    x = RNG.standard_normal((n, side + 2, side + 2, 1)) + 0.3 * RNG.standard_normal((n, side + 2, side + 2, channels))
    return sum(x[:, i : i + side, j : j + side] for i, j in itertools.product(range(3), range(3))) + 3.0


def correlations(x):
    """Between a pixel and its neighbour, and between two channels."""
    x = x - x.mean((0, 1, 2))
    size = np.mean(x**2)
    return np.mean(x[:, 1:] * x[:, :-1]) / size, np.mean(x[..., 0] * x[..., 1]) / size


def test_whitened_pixels_say_nothing_of_each_other():
    x = blurred(300)
    raw, white = correlations(x), correlations(Whitening.of(x, np.ones(300), 1e-3)(x))
    assert min(raw) > 0.5
    assert np.abs(white).max() < 0.1


def test_a_patch_is_multiplied_by_the_root_of_its_inverse_covariance():
    x, floor = blurred(50, channels=3), 0.1
    white = Whitening.of(x, np.ones(50), floor)
    scaled = white.plain(x)
    every = [
        scaled[:, i : i + WINDOW, j : j + WINDOW][:, ::a, ::b].reshape(50, -1)
        for i, j in np.ndindex(12 - WINDOW + 1, 12 - WINDOW + 1)
        for a, b in itertools.product((1, -1), repeat=2)
    ]
    cov = np.mean([p.T @ p / 50 for p in every], axis=0)
    values, vectors = np.linalg.eigh(cov + floor * np.trace(cov) / len(cov) * np.eye(len(cov)))
    patch = scaled[7, 2 : 2 + WINDOW, 4 : 4 + WINDOW].reshape(-1)
    expected = (vectors @ ((vectors.T @ patch) / np.sqrt(values))).reshape(WINDOW, WINDOW, 3)
    middle = WINDOW // 2
    np.testing.assert_allclose(filtered(scaled, white.taps)[7, 2 + middle, 4 + middle], expected[middle, middle])
    assert np.mean(white(x) ** 2) == pytest.approx(1)


def test_mirror_images_stay_mirror_images():
    x = blurred(20)
    white = Whitening.of(x, np.ones(20), 0.1)
    np.testing.assert_allclose(white(x[:, :, ::-1]), white(x)[:, :, ::-1], atol=1e-12)
    np.testing.assert_allclose(white(x[:, ::-1]), white(x)[:, ::-1], atol=1e-12)


def test_a_row_of_weight_two_is_two_rows():
    x = blurred(12)
    twice = Whitening.of(np.concatenate([x, x[:4]]), np.ones(16), 0.1)
    weighted = Whitening.of(x, np.array([2.0] * 4 + [1.0] * 8), 0.1)
    np.testing.assert_allclose(twice(x), weighted(x), atol=1e-10)


def test_images_with_nothing_in_them_stay_finite():
    assert not Whitening.of(np.full((5, 8, 8, 1), 3.0), np.ones(5), 0.1)(np.full((2, 8, 8, 1), 3.0)).any()


def test_of_many_places_some_are_looked_at(monkeypatch):
    x = blurred(200)
    every = Whitening.of(x, np.ones(200), 0.1).taps
    monkeypatch.setattr(_whitening, "_MOST_PATCHES", 5000)
    some = Whitening.of(x, np.ones(200), 0.1).taps
    assert 0 < np.abs(some - every).max() < 0.1 * np.abs(every).max()


@pytest.mark.parametrize("shape", [(8, 8, 1), (28, 28, 1), (32, 32, 3), (9, 30, 2)])
@pytest.mark.parametrize("mirrored", [False, True])
def test_pooled_networks_are_legal_and_compiled(shape, mirrored):
    net = pooled(shape, mirrored=mirrored).network
    kernel = ew.Infinite(net, shape)
    assert 0 < seconds(kernel, 1.0) < 1.0
    assert ew.explain(net, shape)


def test_networks_that_would_take_hours_are_left_out():
    few, many = ([one.description for one in image_networks((32, 32, 3), rows)] for rows in (100, 60_000))
    assert set(many) < set(few)
    assert any("mirror" in words for words in few)
    assert not any("means over" in words for words in many)


def test_small_images_are_not_pooled():
    assert len(list(image_networks((7, 9, 1), 100))) == 4
    assert isinstance(image_scaling(np.ones((300, 7, 9, 1)), np.ones((300, 1)), np.ones(300), "ntk", 0), InputScaling)


@pytest.mark.slow
def stripes(n, side=8):
    """Lying or standing stripes somewhere in a bright or dark image, under a smooth light that says nothing."""
    label = np.arange(n) % 2
    at = np.arange(side)
    wave = np.where((at + RNG.integers(2, size=(n, 1))) % 2, 1.0, -1.0)
    lying = np.broadcast_to(wave[:, :, None], (n, side, side))
    x = np.where(label[:, None, None] == 1, lying, lying.transpose(0, 2, 1))
    light = RNG.standard_normal((n, 3, 1, 1))
    x = x + 10 * (light[:, 0] + light[:, 1] * at[:, None] / side + light[:, 2] * at / side)
    return x[..., None], label


def test_what_smooth_light_hides_is_whitened_if_rows_tell(monkeypatch):
    x, label = stripes(40)
    y = np.eye(2)[label] - 0.5
    assert isinstance(image_scaling(x, y, np.ones(40), "ntk", 0), InputScaling)
    monkeypatch.setattr(_images, "_ENOUGH", 40)
    assert isinstance(image_scaling(x, y, np.ones(40), "ntk", 0), Whitening)


@pytest.mark.slow  # several networks are compiled
def test_what_is_chosen_is_a_network_that_reads_what_is_shown(monkeypatch):
    monkeypatch.setattr(_images, "_DEPTHS", ())
    monkeypatch.setattr(_images, "_ENOUGH", 40)
    x, label = stripes(80)
    model = WideClassifier(random_state=0).fit(x[:40], label[:40])
    assert "means over" in model.choice_.description
    k = ew.ntk(model.network_, model.transform_inputs(x[40:]), model.transform_inputs(x[:40]))
    scores = np.asarray(k) @ model.dual_coef_ + 0.5
    np.testing.assert_allclose(model.decision_function(x[40:]), scores[:, 1] - scores[:, 0], rtol=1e-3, atol=1e-3)
    assert model.score(x[40:], label[40:]) > 0.9
