"""What regressors predict, against kernel regression by hand and against `everwide.training`."""

import json

import numpy as np
import pytest

import everwide as ew
import everwide.training as tr
from estimators.tables_to_fit import NET, TEST, TRAIN, X, Y
from everwide.estimators import WideGPRegressor, WideRegressor
from everwide.spectral import gradient_flow

pytestmark = pytest.mark.once


class Scaled:
    """The training rows in the units of the estimator: kernels of mean diagonal 1, and targets of variance 1."""

    def __init__(self, model, outputs=Y):
        new, old = model.transform_inputs(X[TEST]), model.transform_inputs(X[TRAIN])
        self.old, self.cross, self.new = ew.gram(model.network_, old), ew.gram(model.network_, new, old), new
        self.mean, self.std = outputs[TRAIN].mean(0), outputs[TRAIN].std(0)
        self.y = (outputs[TRAIN] - self.mean) / self.std

    def unit(self, field):
        return np.mean(np.diag(getattr(self.old, field)))

    def kernels(self, field, unit):
        return [np.asarray(getattr(kernels, field), np.float64) / unit for kernels in (self.old, self.cross)]


@pytest.fixture(scope="module")
def auto():
    return WideRegressor().fit(X[TRAIN], Y[TRAIN])


def test_a_given_network_is_kernel_ridge_regression():
    model = WideRegressor(NET, relative_ridge=0.01).fit(X[TRAIN], Y[TRAIN])
    by_hand = Scaled(model)
    k, cross = by_hand.kernels("ntk", by_hand.unit("ntk"))
    expected = cross @ np.linalg.solve(k + 0.01 * np.eye(48), by_hand.y) * by_hand.std + by_hand.mean
    np.testing.assert_allclose(model.predict(X[TEST]), expected, rtol=1e-9)
    assert model.network_ is NET
    assert model.choice_.relative_ridge == 0.01
    assert model.choice_.tried == 1


def test_inputs_are_scaled_by_column(auto):
    shown = WideRegressor(NET, relative_ridge=0.01).fit(X[TRAIN], Y[TRAIN]).transform_inputs(X[TRAIN])
    np.testing.assert_allclose(shown, (X[TRAIN] - X[TRAIN].mean(0)) / X[TRAIN].std(0), atol=1e-12)


def test_a_stopping_time_is_gradient_flow():
    model = WideRegressor(NET, relative_time=7.0).fit(X[TRAIN], Y[TRAIN])
    by_hand = Scaled(model)
    k, cross = by_hand.kernels("ntk", by_hand.unit("ntk"))
    flow = gradient_flow(7.0 * len(k))
    expected = tr.Regression(k, by_hand.y).predict(cross, flow)[:, 0] * by_hand.std + by_hand.mean
    np.testing.assert_allclose(model.predict(X[TEST]), expected, rtol=1e-9)
    assert model.choice_.relative_time == 7.0
    assert "for the time 7" in str(model.choice_)


def test_the_choice_is_the_best_of_what_was_compared(auto):
    choice = auto.choice_
    error = np.mean((Y[TRAIN] - auto.leave_one_out_) ** 2) / Y[TRAIN].var()
    assert choice.score == pytest.approx(error, rel=1e-9)
    assert choice.rows == choice.rows_compared == 48
    for ridge in (1e-6, 1e-3, 0.1, 10.0):
        assert WideRegressor(NET, relative_ridge=ridge).fit(X[TRAIN], Y[TRAIN]).choice_.score >= choice.score
    assert auto.score(X[TEST], Y[TEST]) > 0.5


def test_the_choice_is_printed_and_is_json(auto, capsys):
    text = str(auto.choice_)
    for part in (auto.choice_.description, "ntk kernel", "48 rows", "squared error of rows"):
        assert part in text
    read = json.loads(json.dumps(auto.choice_.to_dict(), allow_nan=False))
    assert read["relative_time"] is None
    assert read["relative_ridge"] == auto.choice_.relative_ridge
    WideRegressor(NET, relative_ridge=0.01, verbose=True).fit(X[TRAIN], Y[TRAIN])
    assert "given network Serial" in capsys.readouterr().out


def test_several_targets_are_learned_with_one_network(auto):
    both = np.stack([Y, -3 * Y + 7], axis=1)
    model = WideRegressor().fit(X[TRAIN], both[TRAIN])
    alone = auto.predict(X[TEST])
    np.testing.assert_allclose(model.predict(X[TEST]), np.stack([alone, -3 * alone + 7], axis=1), rtol=1e-7)
    assert model.leave_one_out_.shape == (48, 2)


def test_units_of_inputs_and_targets_do_not_matter(auto):
    other = WideRegressor().fit(X[TRAIN] * 1e6 - 3, Y[TRAIN] * 1e-6)
    np.testing.assert_allclose(other.predict(X[TEST] * 1e6 - 3) * 1e6, auto.predict(X[TEST]), rtol=1e-6)


def test_a_process_is_that_of_everwide_training():
    model = WideGPRegressor(NET, relative_noise=0.02).fit(X[TRAIN], Y[TRAIN])
    by_hand = Scaled(model)
    unit = by_hand.unit("nngp")
    k, cross = by_hand.kernels("nngp", unit)
    own = np.asarray(ew.nngp(NET, by_hand.new)) / unit
    process = tr.GaussianProcess(k, by_hand.y, noise=0.02)
    found = process.predict(cross, own)
    left_out = process.leave_one_out()
    amplitude = np.mean(left_out.residual[:, 0] ** 2 / left_out.variance)  # of largest likelihood
    mean, std = model.predict(X[TEST], return_std=True)
    np.testing.assert_allclose(mean, found.mean[:, 0] * by_hand.std + by_hand.mean, rtol=1e-8)
    np.testing.assert_allclose(std, by_hand.std * np.sqrt(amplitude * (found.std**2 + 0.02)), rtol=1e-6)
    density = (
        np.log(amplitude) + np.log(left_out.variance) + left_out.residual[:, 0] ** 2 / left_out.variance / amplitude
    )
    assert model.choice_.score == pytest.approx(0.5 * np.mean(density), rel=1e-8)


def test_an_ensemble_is_that_of_everwide_training():
    model = WideGPRegressor(NET, which="ensemble", relative_noise=0.02).fit(X[TRAIN], Y[TRAIN])
    by_hand = Scaled(model)
    unit = by_hand.unit("ntk")
    (k, cross), (drawn, drawn_cross) = by_hand.kernels("ntk", unit), by_hand.kernels("nngp", unit)
    own = np.asarray(ew.nngp(NET, by_hand.new)) / unit
    ensemble = tr.Ensemble(drawn, k, by_hand.y, ridge=0.02)
    found = ensemble.predict(drawn_cross, cross, own, gradient_flow(np.inf))
    np.testing.assert_allclose(model.predict(X[TEST]), found.mean[:, 0] * by_hand.std + by_hand.mean, rtol=1e-8)
    variance = model._uncertainty.at(model._learned, by_hand.new)
    np.testing.assert_allclose(variance, found.std**2, rtol=1e-6)
    left_out = model._uncertainty.left_out(model._learned)
    for row in (0, 17):
        others = np.delete(np.arange(48), row)
        less = tr.Ensemble(drawn[np.ix_(others, others)], k[np.ix_(others, others)], by_hand.y[others], ridge=0.02)
        alone = less.predict(
            drawn[[row]][:, others], k[[row]][:, others], drawn[[row]][:, [row]], gradient_flow(np.inf)
        )
        assert left_out[row] == pytest.approx(alone.std[0] ** 2, rel=1e-6)


@pytest.mark.parametrize("kernel", ["nngp", "ensemble"])
def test_weights_are_copies_also_for_uncertainty(kernel):
    times = np.ones(48, int)
    times[:16] = 2
    rows = np.repeat(np.arange(48), times)
    fit = lambda rows, **more: WideGPRegressor(NET, which=kernel, relative_noise=0.02).fit(X[rows], Y[rows], **more)
    weighted, repeated = fit(np.arange(48), sample_weight=times), fit(rows)
    for read in (lambda model: model.predict(X[TEST], return_std=True), lambda model: model.predict_interval(X[TEST])):
        np.testing.assert_allclose(read(weighted), read(repeated), rtol=1e-6)
    doubled = fit(np.arange(48), sample_weight=np.full(48, 2.0)).predict(X[TEST], return_std=True)
    twice = fit(np.repeat(np.arange(48), 2)).predict(X[TEST], return_std=True)
    np.testing.assert_allclose(doubled, twice, rtol=1e-6)


def test_rows_without_weight_are_not_there():
    weights = np.where(np.arange(96) < 48, 1.0, 0.0)
    some = WideRegressor(NET, relative_ridge=0.01).fit(X[TRAIN], Y[TRAIN])
    all_rows = WideRegressor(NET, relative_ridge=0.01).fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(all_rows.predict(X[TEST]), some.predict(X[TEST]), rtol=1e-12)


@pytest.mark.parametrize("kernel", ["nngp", "ensemble"])
def test_intervals_hold_what_they_promise(kernel):
    """Targets with heavy tails: 90 of 100, give or take three standard deviations of a count."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(448, 4))
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.standard_t(3, 448)
    model = WideGPRegressor(NET, which=kernel).fit(x[:48], y[:48])
    inside = {}
    for coverage in (0.5, 0.9):
        low, high = model.predict_interval(x[48:], coverage)
        inside[coverage] = np.mean((low <= y[48:]) & (y[48:] <= high))
        error = np.sqrt(coverage * (1 - coverage) * (1 / 48 + 1 / 400))  # the calibration has 48 rows, the count 400
        assert abs(inside[coverage] - coverage) < 3 * error
    near, far = (model.predict(at, return_std=True)[1] for at in (np.zeros((1, 4)), np.full((1, 4), 9.0)))
    assert far > 2 * near
