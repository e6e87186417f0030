"""Widths and probabilities of largest likelihood, against samples from the law that is sought."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special
import scipy.stats

from estimators.tables_to_fit import NET
from everwide.estimators import WideGPRegressor
from everwide.estimators._uncertainty import Spread, Temperature, weighted_quantile

pytestmark = pytest.mark.once

RNG = np.random.default_rng
ONES = np.ones(4000)
CERTAIN = np.zeros((1, 1))


def test_the_spread_of_samples_with_known_noise():
    variance, noise = RNG(0).uniform(0, 1, 4000), np.full(4000, 0.2)
    residuals = RNG(1).normal(size=(4000, 2)) * np.sqrt(variance + noise)[:, None] * np.sqrt([4.0, 0.01])
    found = Spread.of(residuals, variance, noise, ONES)
    np.testing.assert_allclose(found.amplitude, [4.0, 0.01], rtol=4 * np.sqrt(2 / 4000))
    np.testing.assert_array_equal(found.noise, 0.2)
    np.testing.assert_allclose(found.std(np.array([0.0, 0.8])) ** 2, found.amplitude * [[0.2], [1.0]], rtol=1e-12)


def test_the_spread_of_samples_with_unknown_noise():
    variance = RNG(0).uniform(0, 1, 4000)
    total = 4.0 * (variance + np.array([[0.3], [1e-9]]))
    residuals = (RNG(1).normal(size=(2, 4000)) * np.sqrt(total)).T
    found = Spread.of(residuals, variance, None, ONES)
    std = found.std(np.array([0.05, 0.5, 1.0]))
    exact = 4.0 * (np.array([0.05, 0.5, 1.0])[:, None] + np.array([0.3, 0.0]))
    np.testing.assert_allclose(std**2, exact, rtol=0.1)


def test_weights_of_residuals_are_copies():
    rng = RNG(2)
    residuals, variance, times = rng.normal(size=(30, 1)), rng.uniform(0.1, 1, 30), rng.integers(1, 5, 30)
    for noise in (None, np.full(30, 0.5)):
        once = Spread.of(residuals, variance, noise, times.astype(float))
        many = (np.repeat(part, times, axis=0) if part is not None else None for part in (residuals, variance, noise))
        repeated = Spread.of(*many, np.ones(times.sum()))
        np.testing.assert_allclose(once.std(variance), repeated.std(variance), rtol=1e-9)


def repeated_table():
    """Few values in each column, noisy targets, and a quarter of all rows there twice."""
    rng = RNG(5)
    x = rng.integers(0, 12, size=(120, 4)).astype(float)
    y = np.round(0.3 * x[:, 0] + rng.normal(size=120))
    return np.concatenate([x, x[:40]]), np.concatenate([y, y[:40]])


def test_the_noise_of_several_networks_has_the_largest_likelihood():
    model = WideGPRegressor().fit(*repeated_table())
    learned, spread = model._learned, model._spread
    assert len(learned.members) > 1
    rows, weights = learned.judged, learned.task.weights[learned.judged]
    squares = (learned.task.y - learned.left_out)[rows, 0] ** 2
    variance = model._uncertainty.left_out(learned)[rows]

    def loss(noise):
        total = variance + noise
        amplitude = np.average(squares / total, weights=weights)
        return np.average(np.log(amplitude * total) + squares / (amplitude * total), weights=weights)

    found = loss(spread.noise[0])
    assert found <= min(loss(spread.noise[0] * factor) for factor in (1e-4, 1e-2, 0.1, 0.5, 2, 10, 100)) + 1e-4
    np.testing.assert_allclose(spread.amplitude, np.average(squares / (variance + spread.noise), weights=weights))


def test_the_noise_of_a_single_network_is_its_ridge():
    x, y = repeated_table()
    model = WideGPRegressor(NET, relative_noise=0.05).fit(x, y)
    assert model._spread.noise == pytest.approx(0.05)


def test_noise_that_is_no_better_stays_and_never_drowns_the_function():
    rng, weights = RNG(6), np.ones(200)
    variance = rng.uniform(0.5, 1.5, size=200)
    even = rng.normal(size=(200, 1))  # says nothing about how residuals grow with the variance
    kept = Spread.of(even, variance, np.full(200, 0.1), weights, certain=False)
    np.testing.assert_allclose(kept.noise, 0.1)
    wild = np.where(np.arange(200) < 100, 1e-6, 1.0)
    mended = Spread.of(np.sign(even), wild, np.full(200, 1e-9), weights, certain=False)  # most likely: noise alone
    assert 1e-3 < mended.noise[0] <= 100 * wild.mean() * (1 + 1e-9)
    assert mended.std(np.array([1e4]))[0, 0] > 5 * mended.std(np.array([0.5]))[0, 0]  # far from all rows


def test_residuals_that_vanish_leave_no_nan():
    for noise in (None, np.full(3, 0.1)):
        found = Spread.of(np.zeros((3, 1)), np.zeros(3), noise, np.ones(3)).std(np.zeros(3))
        assert np.isfinite(found).all()
        assert (found < 1e-100).all()


@pytest.mark.parametrize("sharpness", [0.5, 6.0, 50.0])
def test_the_sharpness_of_samples_is_found(sharpness):
    outputs = RNG(3).normal(size=(4000, 3)) / sharpness
    chances = scipy.special.softmax(sharpness * outputs, axis=1)
    classes = (chances.cumsum(1) < RNG(4).uniform(size=(4000, 1))).sum(1)
    found = Temperature.of(outputs, CERTAIN, classes, ONES)
    assert found.sharpness == pytest.approx(sharpness, rel=0.1)
    np.testing.assert_allclose(found(outputs, CERTAIN).sum(1), 1, rtol=1e-12)

    def loss(log_sharpness):
        logits = np.exp(log_sharpness) * outputs
        return -np.mean(scipy.special.log_softmax(logits, axis=1)[np.arange(4000), classes])

    best = np.exp(scipy.optimize.minimize_scalar(loss, (-3, 5)).x)
    assert found.sharpness == pytest.approx(best, rel=0.02)


def test_uncertain_outputs_are_blurred_as_an_average_over_them():
    draws = 0.8 + np.sqrt(0.6) * RNG(5).normal(size=200_000)
    averaged = np.mean(scipy.special.expit(2 * draws))
    two = Temperature(2.0)(np.array([[0.0, 0.8]]), np.array([[0.6]]))  # the difference of the outputs has the variance
    assert two[0, 1] == pytest.approx(averaged, abs=0.01)


def test_perfect_separation_stays_finite():
    outputs = np.eye(2)[np.array([0, 1] * 20)]
    few, many = (Temperature.of(outputs[:n], CERTAIN, outputs[:n].argmax(1), np.ones(n)) for n in (4, 40))
    assert 0 < few.sharpness < many.sharpness < 100


def test_quantiles_count_a_new_row_too():
    values = RNG(6).permutation(np.arange(1.0, 20.0))[:, None]
    assert weighted_quantile(values, np.ones(19), 0.9) == 18  # 18 of 19 and the new one: 18 of 20
    assert weighted_quantile(values, np.ones(19), 0.99) == 19  # too few rows for more
    assert weighted_quantile(values, np.full(19, 1e-3), 0.9) == 18
    times = RNG(7).integers(1, 4, 19)
    repeated = np.repeat(values, times, axis=0)
    for share in (0.3, 0.5, 0.9):
        assert weighted_quantile(values, times.astype(float), share) == weighted_quantile(
            repeated, np.ones(times.sum()), share
        )
