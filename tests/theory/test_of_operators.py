"""Rates, times, modes and forecasts of kernels that are never a matrix, beside those of the matrix."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import everwide as ew
import everwide.forecasting as fc
import everwide.training as tr
from everwide.theory import eigenlearning, rates

pytestmark = pytest.mark.once

NET = ew.Serial(ew.Dense(b_std=0.1), ew.Relu(), ew.Dense(1))


@pytest.fixture(scope="module")
def digits():
    x, labels = load_digits(return_X_y=True)
    return (x[:300] / 16).astype(np.float32), np.eye(10)[labels[:300]]


def test_times_and_rates_are_those_of_the_matrix(digits):
    x, y = digits
    kernel, matrix = ew.operator(NET, x, tile=128), ew.gram(NET, x).ntk
    ours, theirs = rates.fit_times(kernel, None, y), rates.fit_times(matrix, None, y)
    for fraction in (0.3, 0.8, 0.95):
        assert ours.time(fraction) == pytest.approx(theirs.time(fraction), rel=2e-3)
    for loss in (tr.Mse(), tr.SoftmaxCrossEntropy()):
        ours, theirs = rates.stable_rates(kernel, y=y, loss=loss), rates.stable_rates(matrix, y=y, loss=loss)
        for name in ("gradient_descent", "momentum", "adam_star", "lambda_max", "sharpness", "at_start"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-5), name
        assert ours.lambda_min == 0
        assert ours.condition_number == np.inf


def test_strongest_modes_are_those_of_the_matrix_and_the_rest_acts_as_a_ridge(digits):
    x, y = digits
    whole = eigenlearning.mercer(ew.gram(NET, x).ntk)
    some = eigenlearning.mercer(ew.operator(NET, x, tile=128), modes=60)
    np.testing.assert_allclose(some.eigenvalues, whole.eigenvalues[:60], rtol=1e-3)
    assert some.rest == pytest.approx(whole.eigenvalues[60:].sum(), rel=1e-3)
    np.testing.assert_allclose(some.eigenfunctions.T @ some.eigenfunctions / 300, np.eye(60), atol=1e-4)
    target = y[:, 0] - y[:, 0].mean()
    n = np.array([5, 20])
    expected = eigenlearning.learning_curve(whole.eigenvalues, whole.coefficients(target), n, ridge=0.1)
    known = some.coefficients(target)
    noise = np.sqrt(np.mean(target**2) - np.sum(known**2))
    found = eigenlearning.learning_curve(some.eigenvalues, known, n, ridge=0.1 + some.rest, noise=noise)
    np.testing.assert_allclose(found.kappa, expected.kappa, rtol=0.02)
    np.testing.assert_allclose(found.test_error, expected.test_error, rtol=0.02)
    without = eigenlearning.learning_curve(some.eigenvalues, known, n, ridge=0.1, noise=noise)
    assert np.all(np.abs(without.kappa / expected.kappa - 1) > 0.04)


def test_a_forecast_takes_an_operator(digits, monkeypatch):
    x, y = digits
    whole = fc.forecast(NET, x, y, n=[300])
    kernel = ew.operator(NET, x, tile=128)
    assert fc.forecast(kernel, None, y, n=[300]).error == pytest.approx(whole.error, rel=1e-3)
    monkeypatch.setattr("everwide.forecasting._forecast._OF_AN_OPERATOR", 200)
    part = fc.forecast(kernel, None, y, n=[300])
    assert part.rows == 200
    assert part.low[0] < whole.error[0] < part.high[0]


def test_what_an_operator_cannot_do_is_said(digits):
    x, y = digits
    kernel = ew.operator(NET, x)
    with pytest.raises(ew.InputError, match="modes= says how many"):
        eigenlearning.mercer(kernel)
    with pytest.raises(ew.InputError, match="equal weights"):
        eigenlearning.mercer(kernel, np.full(300, 1 / 300), modes=3)
    with pytest.raises(ew.InputError, match="y has shape"):
        fc.forecast(kernel, None, y[:-1])
    with pytest.raises(ew.InputError, match="rows"):
        rates.fit_times(kernel, None, y[:-1])
    for start in (np.zeros((4, 1)), np.zeros((4, 0)), np.ones(4), np.full((4, 1), np.nan)):
        with pytest.raises(ew.InputError, match="none of them 0"):
            ew.spectral.density(np.eye(4), start=start)
    weights = ew.spectral.density(np.diag([1.0, 4.0]), start=[[3], [1]]).weights
    np.testing.assert_allclose(weights, [[0.9, 0.1]])
