"""Estimators in the hands of scikit-learn and pandas."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import everwide as ew
from estimators.tables_to_fit import LABELS, NET, TEST, TRAIN, X, Y
from everwide.estimators import WideClassifier, WideGPClassifier, WideGPRegressor, WideRegressor, preset

pytestmark = pytest.mark.once

COLUMNS = ["length", "weight", "age", "price"]
HALVES = KFold(2)
ERF = ew.Serial(ew.Dense(w_std=2.0), ew.Erf(), ew.Dense(1))
CONVOLUTION = ew.Serial(ew.Conv((2, 2)), ew.Relu(), ew.Flatten(), ew.Dense(1))
IMAGES = np.random.default_rng(2).normal(size=(24, 3, 3, 1)).cumsum(1)
BRIGHT = IMAGES.mean((1, 2, 3))


@pytest.fixture(scope="module")
def model():
    return WideRegressor(NET, relative_ridge=0.01).fit(X[TRAIN], Y[TRAIN])


def test_tables_of_pandas(model):
    table, target = pd.DataFrame(X, columns=COLUMNS), pd.Series(Y, name="value")
    found = WideRegressor(NET, relative_ridge=0.01).fit(table[TRAIN], target[TRAIN])
    np.testing.assert_array_equal(found.feature_names_in_, COLUMNS)
    assert found.n_features_in_ == 4
    np.testing.assert_array_equal(found.predict(table[TEST]), model.predict(X[TEST]))
    with pytest.raises(ValueError, match="feature names"):
        found.predict(table[TEST][COLUMNS[::-1]])
    labels = pd.Series(LABELS, dtype="category")
    assert set(WideClassifier(NET).fit(table[TRAIN], labels[TRAIN]).predict(table[TEST])) <= set(LABELS)


def test_in_a_pipeline(model):
    found = make_pipeline(StandardScaler(), WideRegressor(NET, relative_ridge=0.01)).fit(X[TRAIN], Y[TRAIN])
    np.testing.assert_allclose(found.predict(X[TEST]), model.predict(X[TEST]), rtol=1e-9)


def test_in_a_grid_search_over_networks_and_ridges():
    grid = {"architecture": [NET, ERF], "relative_ridge": [1e-3, 1e3]}
    search = GridSearchCV(WideRegressor(), grid, cv=HALVES).fit(X[TRAIN], Y[TRAIN])
    assert search.best_params_["relative_ridge"] == 1e-3
    assert len(search.cv_results_["mean_test_score"]) == 4
    by_hand = WideRegressor(search.best_params_["architecture"], relative_ridge=1e-3)
    assert search.best_score_ == pytest.approx(cross_val_score(by_hand, X[TRAIN], Y[TRAIN], cv=HALVES).mean(), rel=1e-9)


def test_cross_validation_of_probabilities():
    found = cross_val_predict(WideClassifier(NET), X[TRAIN], LABELS[TRAIN], cv=2, method="predict_proba")
    assert np.mean(np.unique(LABELS)[found.argmax(1)] == LABELS[TRAIN]) > 0.6


def test_a_clone_knows_nothing_and_a_pickle_everything(model):
    copy = clone(model)
    assert copy.get_params()["relative_ridge"] == 0.01
    assert not copy.__sklearn_is_fitted__()
    read = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(read.predict(X[TEST]), model.predict(X[TEST]))
    process = WideGPRegressor(NET, relative_noise=0.1).fit(X[TRAIN], Y[TRAIN])
    read = pickle.loads(pickle.dumps(process))
    np.testing.assert_array_equal(read.predict_interval(X[TEST]), process.predict_interval(X[TEST]))


def test_arguments_that_are_set_later_wait_for_the_next_fit(model):
    changed = clone(model).fit(X[TRAIN], Y[TRAIN]).set_params(architecture="auto", relative_ridge=5.0)
    np.testing.assert_array_equal(changed.predict(X[TEST]), model.predict(X[TEST]))


def test_inputs_are_not_touched():
    x, y, weights = X[TRAIN].copy(), Y[TRAIN].copy(), np.ones(48)
    for array in (x, y, weights):
        array.setflags(write=False)
    WideGPRegressor(NET).fit(x, y, sample_weight=weights).predict(x, return_std=True)  # must not raise


@pytest.mark.parametrize("architecture", [CONVOLUTION, pytest.param("cnn", marks=pytest.mark.slow)], ids=["own", "cnn"])
def test_images_and_flat_rows_that_are_images(architecture):
    images = WideRegressor(architecture, relative_ridge=0.1).fit(IMAGES[:16], BRIGHT[:16])
    flat = WideRegressor(architecture, relative_ridge=0.1, input_shape=(3, 3, 1)).fit(
        IMAGES[:16].reshape(16, -1), BRIGHT[:16]
    )
    assert images.transform_inputs(IMAGES).shape == (24, 3, 3, 1)
    found = images.predict(IMAGES[16:])
    np.testing.assert_array_equal(flat.predict(IMAGES[16:].reshape(8, -1)), found)
    shown = (IMAGES - IMAGES[:16].mean()) / IMAGES[:16].std()  # one channel: one mean for all places
    net = preset("cnn", (3, 3, 1)) if architecture == "cnn" else architecture
    k, cross = np.asarray(ew.ntk(net, shown[:16])), np.asarray(ew.ntk(net, shown[16:], shown[:16]))
    mean = BRIGHT[:16].mean()
    solved = np.linalg.solve(k + 0.1 * np.mean(np.diag(k)) * np.eye(16), BRIGHT[:16] - mean)
    np.testing.assert_allclose(found, mean + cross @ solved, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_networks_for_images_are_chosen():
    model = WideGPClassifier().fit(IMAGES[:16], BRIGHT[:16] > 0)
    convolves = "Conv(" in repr(model.network_)
    assert convolves == ("convolutions" in model.choice_.description)
    assert convolves != ("dense" in model.choice_.description)
    shares = model.predict_proba(IMAGES[16:])
    assert shares.shape == (8, 2)
    np.testing.assert_allclose(shares.sum(1), 1)


def test_networks_by_name():
    assert isinstance(WideRegressor("mlp", relative_ridge=0.1).fit(X[:8], Y[:8]).network_, ew.Serial)
    with pytest.raises(ValueError, match=r"reads images(.|\n)*input_shape="):
        WideRegressor("cnn").fit(X[:8], Y[:8])
