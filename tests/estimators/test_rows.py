"""How many rows: more than are compared at once, a random part of them, too many, and rows that come later."""

import numpy as np
import pytest

import everwide as ew
from estimators.tables_to_fit import LABELS, NET, TEST, TRAIN, X, Y
from everwide.estimators import WideClassifier, WideGPClassifier, WideGPRegressor, WideRegressor, _base, _learn
from everwide.estimators._absurd import absurd

pytestmark = pytest.mark.once

FIRST, LATER = slice(0, 32), slice(32, 48)


def by_hand(model, ridge, field="ntk", first=TRAIN):
    """Predictions for the training rows and the others, with all scales those of the first rows."""
    read = getattr(ew, field)
    old, new = model.transform_inputs(X[TRAIN]), model.transform_inputs(X[TEST])
    k, cross = np.asarray(read(NET, old)), np.asarray(read(NET, new, old))
    unit, mean, std = np.mean(np.diag(k)[first]), Y[first].mean(), Y[first].std()
    return mean + cross @ np.linalg.solve(k + ridge * unit * np.eye(48), Y[TRAIN] - mean), unit, std


def test_networks_are_compared_on_some_rows_and_solved_on_all(monkeypatch):
    monkeypatch.setattr(_learn, "_COMPARED_ROWS", 24)
    model = WideRegressor(NET, random_state=0).fit(X[TRAIN], Y[TRAIN])
    choice = model.choice_
    assert (choice.rows, choice.rows_compared) == (48, 24)
    assert choice.tried == len(_learn.RIDGES) + len(_learn._NEIGHBOURS)
    expected, _, std = by_hand(model, choice.relative_ridge)
    np.testing.assert_allclose(model.predict(X[TEST]), expected, rtol=1e-8)
    assert choice.score == pytest.approx(np.mean((model.leave_one_out_ - Y[TRAIN]) ** 2) / std**2, rel=1e-9)
    for move in (0.1, 10):
        other = WideRegressor(NET, relative_ridge=choice.relative_ridge * move).fit(X[TRAIN], Y[TRAIN])
        assert other.choice_.score >= choice.score


def test_a_stopping_time_holds_for_all_rows(monkeypatch):
    whole = WideRegressor(NET, relative_time=5.0).fit(X[TRAIN], Y[TRAIN])
    monkeypatch.setattr(_learn, "_COMPARED_ROWS", 24)
    found = WideRegressor(NET, relative_time=5.0).fit(X[TRAIN], Y[TRAIN])
    np.testing.assert_allclose(found.predict(X[TEST]), whole.predict(X[TEST]), rtol=1e-9)
    np.testing.assert_allclose(found.leave_one_out_, whole.leave_one_out_, rtol=1e-7)


@pytest.mark.parametrize(("ridge", "dtype"), [(0.1, np.float32), (1e-6, np.float64)])
def test_large_kernels_are_read_in_float32_where_the_ridge_covers_it(monkeypatch, ridge, dtype):
    monkeypatch.setattr(_learn, "_COMPARED_ROWS", 24)
    monkeypatch.setattr(_learn, "_SMALL", 30)
    model = WideRegressor(NET, relative_ridge=ridge).fit(X[TRAIN], Y[TRAIN])
    assert model._learned.dtype is dtype
    expected, _, std = by_hand(model, ridge)
    np.testing.assert_allclose(model.predict(X[TEST]), expected, atol=1e-4 * std, rtol=0)


def test_early_stopping_is_tried_where_there_are_many_rows(monkeypatch):
    few = WideRegressor(NET).fit(X[TRAIN], Y[TRAIN]).choice_
    monkeypatch.setattr(_learn, "_MANY", 40)
    many = WideRegressor(NET).fit(X[TRAIN], Y[TRAIN]).choice_
    assert many.tried > few.tried == len(_learn.RIDGES)
    assert WideRegressor(NET, relative_time=np.inf).fit(X[TRAIN], Y[TRAIN]).choice_.tried == few.tried


def test_a_random_part_of_the_rows_has_every_class():
    labels = np.where(np.arange(96) < 4, "rare", np.where(np.arange(96) < 32, "some", "most"))
    model = WideClassifier(NET, relative_ridge=0.1, max_rows=24, random_state=0).fit(X, labels)
    kept = np.flatnonzero((model.transform_inputs(X)[:, None] == model._learned.task.x).all(-1).any(1))
    assert len(kept) == 24
    assert {name: int(np.sum(labels[kept] == name)) for name in ("rare", "some", "most")} == {
        "rare": 1,
        "some": 7,
        "most": 16,
    }
    three = WideClassifier(NET, relative_ridge=0.1, max_rows=3, random_state=0).fit(X, labels)
    assert list(three.classes_) == ["most", "rare", "some"]


def test_a_random_part_of_the_rows_is_chosen_by_the_seed():
    read = lambda seed: (
        WideRegressor(NET, relative_ridge=0.1, max_rows=24, random_state=seed).fit(X, Y).predict(X[TEST])
    )
    np.testing.assert_array_equal(read(1), read(1))
    assert not np.allclose(read(1), read(2))


def test_too_many_rows_for_uncertainty_are_refused_with_the_way_out(monkeypatch):
    monkeypatch.setattr(_base, "MOST_DOUBLE", 40)
    for make in (WideGPRegressor(NET), WideGPRegressor(NET, max_rows=60)):
        with pytest.raises(
            ValueError, match=r"rows: uncertainty is known of up to 40. Pass max_rows=40(.|\n)*any number"
        ):
            make.fit(X, Y)
    assert WideGPRegressor(NET, relative_noise=0.1, max_rows=40).fit(X, Y).choice_.rows == 40


def test_memory_is_estimated_first(monkeypatch):
    monkeypatch.setattr(_learn, "_COMPARED_ROWS", 24)
    with pytest.raises(MemoryError, match=r"Exact training on 48 rows needs 64.5 kB, 1.0 kB are(.|\n)*max_rows"):
        WideGPRegressor(NET, memory="1kB").fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(MemoryError, match=r"Exact training on 48 rows needs 110.6 kB"):
        WideRegressor(NET, relative_time=5.0, memory=1000).fit(X[TRAIN], Y[TRAIN])
    monkeypatch.setattr(_learn, "MOST_DOUBLE", 40)
    with pytest.raises(ValueError, match=r"relative_time=5 with 48 rows: training that stops early takes up to 40"):
        WideRegressor(NET, relative_time=5.0).fit(X[TRAIN], Y[TRAIN])


@pytest.mark.parametrize("ridge", [0.03, "auto"])
def test_rows_that_come_later_are_learned_as_if_they_had_been_there(ridge):
    model = WideRegressor(NET, relative_ridge=ridge).partial_fit(X[FIRST], Y[FIRST])
    before = model.predict(X[TEST])
    model.partial_fit(X[LATER], Y[LATER])
    expected, _, _ = by_hand(model, model.choice_.relative_ridge, first=FIRST)
    np.testing.assert_allclose(model.predict(X[TEST]), expected, rtol=1e-7)
    assert not np.allclose(before, expected)
    assert model.choice_.rows == 48
    assert model.leave_one_out_.shape == (48,)


def test_a_process_is_conditioned_on_rows_that_come_later():
    model = WideGPRegressor(NET, relative_noise=0.05).partial_fit(X[FIRST], Y[FIRST])
    for rows in (slice(32, 40), slice(40, 48)):
        model.partial_fit(X[rows], Y[rows])
    expected, unit, _ = by_hand(model, 0.05, "nngp", first=FIRST)
    np.testing.assert_allclose(model.predict(X[TEST]), expected, rtol=1e-8)
    old, new = model.transform_inputs(X[TRAIN]), model.transform_inputs(X[TEST])
    k, cross = np.asarray(ew.nngp(NET, old)) / unit, np.asarray(ew.nngp(NET, new, old)) / unit
    variance = np.diag(np.asarray(ew.nngp(NET, new)) / unit - cross @ np.linalg.solve(k + 0.05 * np.eye(48), cross.T))
    np.testing.assert_allclose(model._uncertainty.at(model._learned, new), variance, rtol=1e-7)


@pytest.mark.parametrize("make", [WideClassifier, WideGPClassifier])
def test_classes_may_be_named_before_they_come(make):
    first, later = np.flatnonzero(LABELS[TRAIN] != "right"), np.flatnonzero(LABELS[TRAIN] == "right")
    model = make(NET).partial_fit(X[first], LABELS[first], classes=["right", "left", "middle"])
    model.partial_fit(X[later], LABELS[later])
    assert list(model.classes_) == ["left", "middle", "right"]
    assert model.score(X[TEST], LABELS[TEST]) > 0.6
    assert np.isfinite(model.predict_proba(X[TEST])).all()
    assert model.leave_one_out_.shape == (48, 3)


REFUSED = {
    "a class that is new": ((X[LATER], np.full(16, "above")), "'above' was not among the first rows"),
    "another number of columns": ((X[LATER, :3], LABELS[LATER]), "3 features"),
    "fewer labels than rows": ((X[LATER], LABELS[TRAIN]), "inconsistent numbers of samples"),
    "too many rows": ((X, LABELS), "96 new rows and 32 old ones are more than 60"),
}


@pytest.mark.parametrize(("rows", "message"), REFUSED.values(), ids=REFUSED)
def test_rows_that_do_not_fit_are_refused_and_leave_no_trace(rows, message):
    model = WideGPClassifier(NET, relative_noise=0.1, max_rows=60).partial_fit(X[FIRST], LABELS[FIRST])
    with pytest.raises(ValueError, match=message):
        model.partial_fit(*rows)
    model.partial_fit(X[LATER], LABELS[LATER])
    assert model.leave_one_out_.shape == (48, 3)


def test_growth_is_refused_where_it_would_change_what_was_learned():
    stopped = WideRegressor(NET, relative_time=3.0).fit(X[FIRST], Y[FIRST])
    with pytest.raises(ValueError, match=r"stops at the time 3(.|\n)*relative_time=float\('inf'\)"):
        stopped.partial_fit(X[LATER], Y[LATER])
    with pytest.raises(ValueError, match=r"class_weight='balanced' changes with new rows. Pass a dict"):
        WideClassifier(NET, class_weight="balanced").partial_fit(X[FIRST], LABELS[FIRST])
    with pytest.raises(ValueError, match="y has 2 outputs, expected 1"):
        WideRegressor(NET, relative_ridge=0.1).fit(X[FIRST], Y[FIRST]).partial_fit(X[:2], np.ones((2, 2)))
    with pytest.raises(ValueError, match="'right', which is not among"):
        WideClassifier(NET).partial_fit(X[FIRST], LABELS[FIRST], classes=["left", "middle"])


def test_several_absurd_targets_are_told_from_rare_ones():
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(120, 3)), np.ones(120)
    y = x[:, :1] + 0.1 * rng.normal(size=(120, 1))
    wrong = np.isin(np.arange(120), [3, 40, 77, 80, 81, 99])[:, None]
    np.testing.assert_array_equal(absurd(x, np.where(wrong, 100.0, y), weights), wrong)
    rare = x[:, 1:2] > 1.5  # columns tell of these
    assert 4 < rare.sum() < 12
    assert not absurd(x, np.where(rare, 100.0, y), weights).any()
    assert not absurd(x, np.exp(y), weights).any()
    assert not absurd(x, np.where(rare, 1.0, 0.0), weights).any()  # most are equal
    assert not absurd(x[:9], y[:9], weights[:9]).any()
    both = np.concatenate([y, np.where(wrong, 100.0, y)], axis=1)
    np.testing.assert_array_equal(absurd(x, both, weights), np.concatenate([np.zeros_like(wrong), wrong], axis=1))
