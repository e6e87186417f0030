"""Networks that learn how to look at columns: against the layers that they are, difference quotients, and truths."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import everwide as ew
from everwide.estimators import WideClassifier, WideGPRegressor, WideRegressor
from everwide.estimators import _columns as columns
from everwide.estimators import _tables as tables
from everwide.estimators._readers import ColumnsReader, Numbers

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
X[5, :3] = X[6, :3]
Y = np.sin(2 * X[:, 0]) + X[:, 0] * X[:, 2]
TARGETS = ((Y - Y.mean()) / Y.std())[:, None]
FIRST = tables.scaled_columns(X)
LEARN = {
    "by evidence": lambda which: columns.learn_columns(FIRST, X, TARGETS, which, by="likelihood"),
    "by leave-one-out": lambda which: columns.learn_columns(FIRST, X, TARGETS, which, by="left_out"),
    "trees": lambda which: columns.learn_trees(ew.layers.Trees.of(X), X, TARGETS, which),
    "all alike, one layer": lambda which: ColumnsReader(
        FIRST, Numbers(np.full(4, 0.5), np.zeros(4), 0.01, 0.0, 0.0), which, 1
    ),
}


@pytest.fixture(scope="module")
def model():
    return WideRegressor().fit(X, Y)


@pytest.mark.parametrize("which", ["ntk", "nngp"])
@pytest.mark.parametrize("way", list(LEARN))
def test_the_kernel_is_that_of_the_network(which, way):
    reader = LEARN[way](which)
    new = X[:7] + 0.1
    kernel = getattr(ew, which)
    exact = np.float64 if ew.ntk(reader.network, X[:2]).dtype == np.float64 else np.float32
    close = {"rtol": 1e-9 if exact is np.float64 else 2e-4}
    np.testing.assert_allclose(reader.among(X), kernel(reader.network, X), **close)
    np.testing.assert_allclose(reader.cross(new, X), kernel(reader.network, new, X), **close)
    np.testing.assert_allclose(reader.diagonal(X), np.diagonal(reader.among(X)), rtol=1e-12)


def test_tiles_make_no_difference(monkeypatch):
    reader = LEARN["by evidence"]("ntk")
    whole, cross = reader.among(X), reader.cross(X[:7], X)
    monkeypatch.setattr("everwide.estimators._host._TILE", 9)
    np.testing.assert_allclose(reader.among(X), whole, rtol=1e-12)
    np.testing.assert_allclose(reader.cross(X[:7], X), cross, rtol=1e-12)


@pytest.mark.parametrize("by", ["likelihood", "left_out"])
@pytest.mark.parametrize("trained", [True, False])
def test_slopes_are_limits_of_difference_quotients(monkeypatch, by, trained):
    """Of all numbers at once, along random ways, for diagonal and full metrics; two of the rows are nearly equal."""
    tried = []
    descended = columns._descended
    monkeypatch.setattr(
        columns, "_descended", lambda value, start, *pace: tried.append(value) or descended(value, start, 2, pace[1])
    )
    pairs = columns.Pairs(FIRST, X, TARGETS, trained)
    columns._full(pairs, columns._diagonal(pairs, by, columns.Pace()), by, columns.Pace())
    columns.learn_trees(ew.layers.Trees.of(X), X, TARGETS, "ntk")
    for value, size in zip(tried, (2 * 4 + 3, 4 * 4 + 4 + 3, 4 + 1), strict=True):
        at, way, h = 0.3 * RNG.normal(size=size) - 1, RNG.normal(size=size), 1e-6
        quotient = (value(at + h * way)[0] - value(at - h * way)[0]) / (2 * h)
        np.testing.assert_allclose(value(at)[1] @ way, quotient, rtol=2e-4, atol=1e-3)


def test_columns_that_matter_are_found(model):
    seen = model.feature_importances_
    assert seen.sum() == pytest.approx(1)
    assert min(seen[0], seen[2]) > 1.5 * max(seen[1], seen[3])
    assert "weighed and mixed" in str(model.choice_)


def test_it_learns_what_is_beyond_columns_that_weigh_the_same(model):
    new = RNG.normal(size=(200, 4))
    truth = np.sin(2 * new[:, 0]) + new[:, 0] * new[:, 2]
    errors = [np.mean((one.predict(new) - truth) ** 2) for one in (model, WideRegressor("mlp").fit(X, Y))]
    assert errors[0] < 0.75 * errors[1]


def test_it_is_an_estimator_as_the_others(model):
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(clone(model).fit(X, Y).predict(X), model.predict(X))
    labels = np.where(Y > 0, "yes", "no")
    assert WideClassifier().fit(X, labels).score(X, labels) > 0.9
    mean, std = WideGPRegressor().fit(X, Y).predict(X[:3], return_std=True)
    assert np.isfinite(mean).all()
    assert (std > 0).all()


def test_rows_that_come_later_join_every_network():
    grown = WideRegressor(random_state=0).partial_fit(X[:40], Y[:40])
    grown._support = None
    before = {id(member.reader): member.share for member in grown._learned.members}
    grown.partial_fit(X[40:], Y[40:])
    assert {id(member.reader): member.share for member in grown._learned.members} == before
    assert len(grown.leave_one_out_) == 60
    x, whole = grown.transform_inputs(X), np.zeros(60)
    for member in grown._learned.members:
        kernel = member.reader.among(x)
        ridge = member.solution.ridge * member.scale * np.eye(60)
        whole += member.share * kernel @ np.linalg.solve(kernel + ridge, (Y - Y[:40].mean()) / Y[:40].std())
    np.testing.assert_allclose(grown.predict(X), whole * Y[:40].std() + Y[:40].mean(), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.*far beyond all training targets")
def test_rows_that_are_hard(model):
    hard = np.concatenate([X, np.full((60, 1), 3.0), RNG.integers(0, 2, (60, 1))], axis=1)
    hard[7, 1], hard[8:12] = 1e3, hard[8]  # far away; repeated; a column that never varies, and two values
    predictions = WideRegressor().fit(hard, Y).predict(hard)
    assert np.isfinite(predictions).all()
    exact = WideRegressor().fit(X, X[:, 0]).predict(X)  # no noise at all, and steps that go far
    np.testing.assert_allclose(exact, X[:, 0], atol=0.05)
    tiny = WideRegressor().fit(X[:5, :1], Y[:5])
    assert np.isfinite(tiny.predict(X[:, :1])).all()


def test_steps_stay_where_numbers_are_neither_zero_nor_infinite():
    """The noise of targets that have none falls without end."""
    falling = columns._descended(lambda t: (1e6 * t[0], np.array([1e6])), np.zeros(1), 15, lambda: False)
    assert 0 < np.exp(falling[0]) < 1e-6


def test_frames_have_importances_of_their_own_columns():
    kind = pd.Categorical(np.where(X[:, 1] > 0, "x", "y"))
    frame = pd.DataFrame({"a": X[:, 0], "kind": kind, "b": X[:, 2], "same": np.ones(60)})
    assert WideRegressor().fit(frame, Y).feature_importances_.shape == (4,)


def test_what_it_cannot_do_is_said(model):
    single = WideRegressor("mlp").fit(X, Y)
    assert not hasattr(single, "feature_importances_")
    assert single.dual_coef_.shape == (60, 1)
    assert not hasattr(model, "dual_coef_")
    with pytest.raises(ValueError, match="architecture='dense': expected 'auto', 'dense' \\(of flat rows\\)"):
        WideRegressor("dense").fit(RNG.normal(size=(20, 4, 4, 1)), Y[:20])
