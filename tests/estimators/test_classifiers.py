"""Classes: outputs against regression on indicators by hand, labels of any kind, rare classes, honest probabilities."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

import everwide as ew
from estimators.tables_to_fit import LABELS, NET, TEST, TRAIN, X, Z
from everwide.estimators import WideClassifier, WideGPClassifier

pytestmark = pytest.mark.once

BOTH = pytest.mark.parametrize("make", [WideClassifier, WideGPClassifier])


@pytest.fixture(scope="module")
def auto():
    return WideClassifier().fit(X[TRAIN], LABELS[TRAIN])


@pytest.fixture(scope="module", params=["nngp", "ensemble"])
def process(request):
    return WideGPClassifier(NET, which=request.param).fit(X[TRAIN], LABELS[TRAIN])


def test_outputs_are_regression_on_indicators():
    model = WideClassifier(NET, relative_ridge=0.05).fit(X[TRAIN], LABELS[TRAIN])
    new, old = model.transform_inputs(X[TEST]), model.transform_inputs(X[TRAIN])
    k, cross = np.asarray(ew.ntk(NET, old)), np.asarray(ew.ntk(NET, new, old))
    ones = (LABELS[TRAIN][:, None] == np.unique(LABELS)).astype(float)
    ridge = 0.05 * np.mean(np.diag(k)) * np.eye(48)
    expected = ones.mean(0) + cross @ np.linalg.solve(k + ridge, ones - ones.mean(0))
    np.testing.assert_allclose(model.decision_function(X[TEST]), expected, atol=1e-9)
    assert (model.predict(X[TEST]) == np.unique(LABELS)[expected.argmax(1)]).all()


def test_names_of_classes_come_back(auto):
    assert list(auto.classes_) == ["left", "middle", "right"]
    assert set(auto.predict(X[TEST])) <= set(auto.classes_)
    assert auto.score(X[TEST], LABELS[TEST]) > 0.75
    bools = WideClassifier(NET).fit(X[TRAIN], LABELS[TRAIN] == "left")
    assert bools.predict(X[TEST]).dtype == bool
    assert bools.decision_function(X[TEST]).shape == (48,)
    assert ((bools.decision_function(X[TEST]) > 0) == bools.predict(X[TEST])).all()


def test_probabilities_are_probabilities(auto, process):
    for model in (auto, process):
        for found in (model.predict_proba(X[TEST]), model.leave_one_out_):
            assert found.shape == (48, 3)
            assert ((found > 0) & (found < 1)).all()
            np.testing.assert_allclose(found.sum(1), 1, rtol=1e-12)
        most = model.classes_[model.predict_proba(X[TEST]).argmax(1)]
        assert (most == model.predict(X[TEST])).all()


@BOTH
def test_probabilities_are_sharpened_as_held_out_rows_need_it(make):
    """Classes overlap; neither the softmax of the outputs nor ten times as sharp a one tells the truth."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(448, 4))
    y = (2 * x[:, 0] + rng.logistic(size=448) > 0).astype(int)
    model = make(NET).fit(x[:48], y[:48])
    scores = model._scores(x[48:])
    softmax = lambda sharpness: 1 / (1 + np.exp(-sharpness * (scores[:, 1] - scores[:, 0])))
    found = log_loss(y[48:], model.predict_proba(x[48:]))
    assert found < log_loss(y[48:], softmax(1.0)) - 0.02
    assert found < log_loss(y[48:], softmax(40.0)) - 0.02
    assert found < min(log_loss(y[48:], softmax(sharpness)) for sharpness in np.geomspace(0.1, 100, 30)) + 0.05


def test_a_process_is_less_sure_where_it_has_seen_nothing(process):
    near, far = process.predict_proba([X[0], X[0] + 30 * (X[0] - X[TRAIN].mean(0))])
    assert near.max() > far.max()


@BOTH
@pytest.mark.parametrize("class_weight", ["balanced", {0: 1.0, 1: 12.0}])
def test_balance_raises_the_recall_of_a_rare_class(make, class_weight):
    rng = np.random.default_rng(11)
    x = rng.normal(size=(448, 4))
    rare = (x[:, 0] + 0.7 * rng.normal(size=448) > 1.6).astype(int)
    recall = lambda model: np.mean(model.fit(x[:96], rare[:96]).predict(x[96:])[rare[96:] == 1])
    assert recall(make(NET, class_weight=class_weight)) > recall(make(NET)) + 0.2


def test_balance_is_the_same_as_weights_by_hand():
    rare = Z[TRAIN, 0] > 1
    weights = np.where(rare, 24 / rare.sum(), 24 / (~rare).sum())
    for class_weight in ("balanced", {False: weights[~rare][0], True: weights[rare][0]}):
        found = WideClassifier(NET, relative_ridge=0.1, class_weight=class_weight).fit(X[TRAIN], rare)
        by_hand = found.transform_inputs(X[TRAIN])
        k = np.asarray(ew.ntk(NET, by_hand))
        unit = np.average(np.diag(k), weights=weights)
        ones = np.stack([~rare, rare], axis=1) - 0.5
        expected = k @ np.linalg.solve(k + np.diag(0.1 * unit / weights), ones)
        np.testing.assert_allclose(found.decision_function(X[TRAIN]), expected[:, 1] - expected[:, 0], atol=1e-9)


def test_weights_of_rows_are_copies():
    times = np.where(np.arange(48) < 16, 2, 1)
    rows = np.repeat(np.arange(48), times)
    for model in (WideClassifier(NET), WideGPClassifier(NET)):
        weighted = model.fit(X[TRAIN], LABELS[TRAIN], sample_weight=times).predict_proba(X[TEST])
        repeated = model.fit(X[rows], LABELS[rows]).predict_proba(X[TEST])
        np.testing.assert_allclose(weighted, repeated, rtol=1e-5)
