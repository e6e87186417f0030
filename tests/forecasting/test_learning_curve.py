"""Curves that are measured and continued: which rows, against refits; what fails, what is kept, what is refused."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge, RidgeClassifier

import everwide as ew
import everwide.forecasting as fc
from everwide._checks import InputError
from everwide.forecasting._beside import kernel_errors
from everwide.forecasting._fits import design_of
from everwide.forecasting._pilot import targets_of

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 20))
LINE = X.sum(1) + RNG.normal(size=120)
LABELS = np.where(X[:, 0] + 0.5 * RNG.normal(size=120) > 0, "yes", "no")


def ridge(x, y):
    """A function of the rows, as good as `Ridge(1.0)`."""
    mean, shift = y.mean(), x.mean(0)
    slope = np.linalg.solve((x - shift).T @ (x - shift) + np.eye(x.shape[1]), (x - shift).T @ (y - mean))
    return lambda new: (new - shift) @ slope + mean


def test_every_row_is_tested_once_at_every_size():
    design = design_of(targets_of(LABELS, "auto"), seed=3)
    assert sorted(np.concatenate(design.tests)) == list(range(120))
    for order, test in zip(design.orders, design.tests, strict=True):
        assert sorted(np.concatenate([order, test])) == list(range(120))
        assert len(set(LABELS[order[:2]])) == 2
    assert design.sizes[0] == 16
    assert design.sizes[-1] == 96


def test_the_measured_beginning_is_that_of_refits_and_functions_are_models():
    curve = fc.learning_curve_of(Ridge(), X, LINE, n=[500], learner="linear", seed=1)
    same = fc.learning_curve_of(ridge, X, LINE, n=[500], learner="linear", seed=1)
    np.testing.assert_allclose(curve.errors, same.errors, rtol=1e-8)
    design = design_of(targets_of(LINE, "auto"), seed=1)
    rows, test = design.orders[2][: design.sizes[3]], design.tests[2]
    refit = np.mean((Ridge().fit(X[rows], LINE[rows]).predict(X[test]) - LINE[test]) ** 2)
    assert curve.errors[2, 3] == pytest.approx(refit, rel=1e-9)
    alone = fc.extrapolate(
        curve.sizes, curve.errors.mean(0), [500], stderr=curve.errors.std(0) / 5**0.5, learner="linear"
    )
    np.testing.assert_allclose((curve.low, curve.error, curve.high), (alone.low, alone.error, alone.high), rtol=1e-12)
    assert curve.unit == "mean squared error"
    small = fc.learning_curve_of(Ridge(), X, 1e-3 * LINE, n=[500], learner="linear", seed=1)
    np.testing.assert_allclose(small.high, 1e-6 * curve.high, rtol=1e-9)
    assert curve.samples_needed(float(curve.error[0])) == pytest.approx(500, abs=1)


def test_classes_frames_and_threads():
    model = RidgeClassifier()
    one = fc.learning_curve_of(model, X, LABELS, n=[500], learner="ridge")
    frame = fc.learning_curve_of(model, pd.DataFrame(X), LABELS, n=[500], learner="ridge", threads=3)
    np.testing.assert_array_equal(one.errors, frame.errors)
    assert one.unit == "share of wrong classes"
    assert 0 < one.low[0] < one.error[0] < one.high[0] < 1
    assert "share of wrong classes; measured by 30 fits with 16 to 96 rows" in str(one)
    assert not hasattr(model, "coef_")


def test_the_kernel_learns_from_the_same_rows():
    kernel = X @ X.T + 1.0
    for y in (LINE, LABELS):
        targets = targets_of(y, "auto")
        design = design_of(targets, seed=0)
        errors = kernel_errors(kernel, targets, 0.7, design)
        train, test = design.orders[1][: design.sizes[2]], design.tests[1]
        dual = np.linalg.solve(kernel[np.ix_(train, train)] + 0.7 * np.eye(len(train)), targets.values[train])
        guess = kernel[np.ix_(test, train)] @ dual
        wrong = (
            (guess - targets.values[test]) ** 2
            if y is LINE
            else np.argmax(guess + targets.mean, 1) != targets.labels[test]
        )
        assert errors[1, 2] == pytest.approx(np.mean(wrong), rel=1e-8)


@pytest.mark.filterwarnings("ignore::everwide.forecasting.ForecastWarning")
def test_a_curve_falls_half_as_its_beginning_says_and_half_as_the_kernel():
    net, n = ew.Dense(1), [60, 96, 240, 960]
    own, both = (fc.learning_curve_of(ridge, X, LINE, n=n, learner="linear", kernel=one) for one in (None, net))
    kernel = fc.forecast(net, X, LINE, n=n).error
    np.testing.assert_allclose(both.error[:2], own.error[:2], rtol=1e-9)  # what was measured
    falls = [curve[2:] / curve[1] for curve in (own.error, kernel)]
    np.testing.assert_allclose(both.error[2:] / both.error[1], (falls[0] * falls[1]) ** 0.5, rtol=1e-6)
    np.testing.assert_allclose(both.high / both.error, own.high / own.error, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::everwide.forecasting.ForecastWarning")
def test_a_model_that_is_the_kernel_has_its_curve():
    net = ew.Dense(1)
    kernel = np.asarray(ew.ntk(net, X), np.float64)
    alone = fc.forecast(net, X, LINE, n=[240])

    def machine(x, y):
        mean = LINE.mean()  # which is known of a pilot
        dual = np.linalg.solve(x @ x.T / 20 + alone.ridge * np.eye(len(y)), y - mean)
        return lambda new: new @ x.T / 20 @ dual + mean

    np.testing.assert_allclose(kernel, X @ X.T / 20, rtol=1e-5)
    curve = fc.learning_curve_of(machine, X, LINE, n=[240], kernel=net, learner="kernel")
    own = fc.learning_curve_of(machine, X, LINE, n=[240], learner="kernel")
    low, high = sorted((own.error[0], alone.error[0]))
    assert 0.95 * low < curve.error[0] < 1.05 * high


def test_fits_that_fail_are_named_and_the_others_go_on():
    def fragile(x, y):
        if len(y) == 16:
            raise RuntimeError("too few")
        return ridge(x, y)

    curve = fc.learning_curve_of(fragile, X, LINE, n=[500])
    assert np.isnan(curve.errors[:, 0]).all()
    assert np.isfinite(curve.errors[:, 1:]).all()
    assert curve.failures[0] == "16 rows, fold 0: RuntimeError: too few"
    assert "Failed: 16 rows" in str(curve)
    with pytest.raises(InputError, match=r"30 of 30 fits failed.*16 rows, fold 0: InputError: predictions have shape"):
        fc.learning_curve_of(lambda x, y: lambda new: np.zeros(3), X, LINE, n=[500])
    with pytest.raises(InputError, match="not finite"):
        fc.learning_curve_of(lambda x, y: lambda new: np.full(len(new), np.nan), X, LINE, n=[500])


def test_finished_fits_are_kept(tmp_path):
    path, calls, broken = tmp_path / "fits.jsonl", [], [True]

    def counted(x, y):
        calls.append(len(y))
        if len(y) == 96 and broken[0]:
            raise RuntimeError("the machine stopped")
        return ridge(x, y)

    cut = fc.learning_curve_of(counted, X, LINE, n=[500], path=path)
    assert (len(calls), len(cut.failures)) == (30, 5)
    broken[0] = False
    whole = fc.learning_curve_of(counted, X, LINE, n=[500], path=path)
    assert (len(calls), len(whole.failures)) == (35, 0)
    np.testing.assert_array_equal(whole.errors, fc.learning_curve_of(ridge, X, LINE, n=[500]).errors)
    assert len([json.loads(line) for line in path.read_text().splitlines()]) == 31
    with pytest.raises(InputError, match="other rows or another seed"):
        fc.learning_curve_of(counted, X, LINE, n=[500], path=path, seed=1)
    with pytest.raises(InputError, match="is a folder"):
        fc.learning_curve_of(counted, X, LINE, n=[500], path=path.parent)


def test_progress_counts_the_fits():
    seen = []
    fc.learning_curve_of(ridge, X, LINE, n=[500], progress=seen.append)
    assert [one.done for one in seen] == list(range(1, 31))
    assert seen[-1].total == 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": 3}, "expected an estimator with fit and predict"),
        ({"x": X[:60], "y": LINE[:60]}, "60 labelled rows, expected 64 or more"),
        ({"x": X[:80]}, "y has 120 rows and x 80"),
        ({"y": np.array(["same"] * 120)}, "nothing to learn"),
        ({"y": np.where(np.arange(120) == 7, np.nan, LINE)}, "Row 7 of y is not finite"),
        ({"threads": 0}, "threads=0"),
        ({"seed": -1}, "seed=-1"),
        ({"learner": "gnome"}, "learner='gnome'"),
        ({"n": 0}, "whole numbers from 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(change, message):
    asked = {"model": ridge, "x": X, "y": LINE, "n": [500]} | change
    with pytest.raises(InputError, match=message):
        fc.learning_curve_of(asked.pop("model"), asked.pop("x"), asked.pop("y"), **asked)
