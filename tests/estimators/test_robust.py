"""Targets that lie far from what all other rows say of them."""

from dataclasses import replace

import numpy as np
import pytest

from everwide.estimators import WideClassifier, WideRegressor, _robust, _tables
from everwide.estimators._choice import Goal, Task
from everwide.estimators._solve import squared_error

pytestmark = pytest.mark.once

RNG = np.random.default_rng(3)
X = RNG.normal(size=(400, 3))
CLEAN = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
GOAL = Goal("ntk", None, np.inf, squared_error, "", robust=True)


def spoiled(y, share=0.06, size=8.0, seed=0):
    rng = np.random.default_rng(seed)
    bad = rng.random(len(y)) < share
    return y + 0.1 * rng.normal(size=len(y)) + bad * size * rng.normal(size=len(y)), bad


def calmed(y, rows=None, weights=None):
    ones = np.ones(len(y)) if weights is None else weights
    task = Task(X[: len(y)], y.reshape(len(y), -1), ones, ones, ones)
    rows = np.arange(len(y)) if rows is None else rows
    best = _tables._alike(task.rows(rows), GOAL)[1]
    return _robust.calmed(task, rows, best.candidate.reader, best.ridge, best.outputs, GOAL)


def error(model):
    return np.sqrt(np.mean((model.predict(X[200:]) - CLEAN[200:]) ** 2))


def test_rows_are_predicted_as_if_few_targets_had_not_been_spoiled(monkeypatch):
    y, _ = spoiled(CLEAN[:200])
    robust = WideRegressor().fit(X[:200], y)
    assert "targets lie far from what all other rows say" in robust.choice_.notes[-1]
    monkeypatch.setattr(_tables, "calmed", lambda *_: None)
    plain = WideRegressor().fit(X[:200], y)
    assert not plain.choice_.notes
    assert error(robust) < 0.5 * error(plain)
    assert error(robust) < 1.5 * error(WideRegressor().fit(X[:200], spoiled(CLEAN[:200], share=0.0)[0]))


def test_spoiled_targets_are_drawn_near_and_others_stay_also_where_nothing_was_compared():
    y, bad = spoiled(CLEAN)
    for rows in (np.arange(400), np.arange(0, 400, 2)):
        calm = calmed(y, rows)[:, 0]
        far = np.abs(y - CLEAN) > 4
        assert far.sum() > 10
        assert np.all(np.abs(calm - CLEAN)[far] < 2.5)
        assert np.mean(calm[~bad] == y[~bad]) > 0.8
        assert np.abs(calm - y)[calm != y].min() > 1e-9  # what is told as drawn near is no rounding


@pytest.mark.parametrize(
    "y",
    [
        CLEAN + RNG.normal(size=400),
        CLEAN + RNG.laplace(size=400),
        (RNG.random(400) < 0.08).astype(float),  # rare, not wrong: the mean is asked for
        RNG.lognormal(0, 1.5, 400),
        np.where(X[:, 0] > 1.3, 20.0, 0.0),
        np.zeros(400),
        spoiled(CLEAN[:99])[0],
    ],
    ids=["gaussian", "laplace", "rare", "skewed", "corner", "constant", "few"],
)
def test_targets_stay_where_nothing_is_wrong_with_them_or_rows_are_few(y):
    assert calmed(y) is None


def test_a_ridge_that_was_fixed_means_the_same_in_all_units_of_the_kernel():
    y, goal = spoiled(CLEAN)[0][:, None], GOAL._replace(ridge=0.03)
    task, rows = Task(X, y, *np.ones((3, 400))), np.arange(0, 400, 2)
    best = _tables._alike(task.rows(rows), goal)[1]
    reader, numbers = best.candidate.reader, best.candidate.reader.numbers
    louder = replace(numbers, metric=5**0.5 * numbers.metric, bias=5 * numbers.bias)  # five times the kernel
    calm, same = (
        _robust.calmed(task, rows, each, best.ridge, best.outputs, goal)
        for each in (reader, replace(reader, numbers=louder))
    )
    assert np.any(calm != y)
    np.testing.assert_allclose(calm, same, atol=1e-8)


LAWS = {
    "lognormal": lambda rng, f: np.exp(f + rng.normal(size=len(f))),
    "mostly zero": lambda rng, f: (rng.random(len(f)) < 0.12) * rng.exponential(np.exp(1 + f)),
    "rare claims": lambda rng, f: (
        f + 0.1 * rng.normal(size=len(f)) + (rng.random(len(f)) < 0.06) * rng.exponential(6, len(f))
    ),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_the_mean_of_skewed_targets_is_kept_in_most_draws(law):
    moved = 0
    for seed in range(12):
        y = law(np.random.default_rng(seed), CLEAN[:150])
        moved += calmed((y - y.mean()) / y.std()) is not None
    assert moved <= 4  # where as many seem to lie below


def test_targets_spoiled_on_both_sides_are_drawn_near_in_most_draws():
    assert sum(calmed(spoiled(CLEAN[:300], seed=seed)[0]) is not None for seed in range(6)) >= 5


def test_each_output_is_looked_at_on_its_own():
    y, _ = spoiled(CLEAN)
    calm = calmed(np.stack([y, CLEAN], axis=1))
    np.testing.assert_array_less(np.abs(calm[:, 0] - CLEAN)[np.abs(y - CLEAN) > 4], 2.5)
    np.testing.assert_array_equal(calm[:, 1], CLEAN)


def test_targets_of_all_outputs_are_counted_in_the_note():
    y, _ = spoiled(CLEAN[:200])
    note = WideRegressor().fit(X[:200], np.stack([y, CLEAN[:200]], axis=1)).choice_.notes[-1]
    assert " of 400 targets lie far" in note


def test_limits_count_a_row_as_often_as_it_weighs():
    residuals, copies = RNG.normal(size=(30, 2)), RNG.integers(1, 4, 30).astype(float)
    many = np.repeat(residuals, copies.astype(int), axis=0)
    np.testing.assert_allclose(_robust._limit(residuals, copies), _robust._limit(many, np.ones(len(many))))


def test_hubers_loss_is_the_square_within_the_limit_and_a_tangent_beyond():
    far = np.array([0.5, 1.0, 3.0])
    np.testing.assert_allclose(_robust._huber(far, 1.0), [0.25, 1.0, 1.0 + 2 * (3 - 1)])


def test_classes_and_rows_that_come_in_parts_are_taken_as_they_are(monkeypatch):
    def refuse(*_):
        raise AssertionError("was asked")

    monkeypatch.setattr(_tables, "calmed", refuse)
    WideClassifier().fit(X[:40], X[:40, 0] > 0)
    WideRegressor().partial_fit(X[:40], CLEAN[:40])
