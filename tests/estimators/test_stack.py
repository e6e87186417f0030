"""Several networks together: their shares, rows that are there twice, columns and predictions far beyond all others."""

import numpy as np
import pytest
import scipy.optimize

from everwide.estimators import WideClassifier, WideRegressor, _effort, _stack, _tables
from everwide.estimators._choice import Goal, Task, is_clear
from everwide.estimators._rows import Support, distinct
from everwide.estimators._scaling import Fences, counted
from everwide.estimators._solve import ridge_of_neighbours, squared_error
from everwide.estimators._uncertainty import Temperature

pytestmark = pytest.mark.once

RNG = np.random.default_rng(1)
X = RNG.normal(size=(90, 3))
Y = X[:, 0] + 0.5 * np.abs(X[:, 1]) + 0.1 * RNG.normal(size=90)


def task(x, y, weights=None):
    ones = np.ones(len(x)) if weights is None else weights
    return Task(x, y.reshape(len(y), -1), ones, ones, ones)


def test_shares_are_the_constrained_minimum():
    """Against a general optimizer, of the penalized error itself."""
    y, weights = RNG.normal(size=(40, 2)), RNG.uniform(0.5, 2, 40)
    said = y + np.array([0.3, 0.5, 2.0])[:, None, None] * RNG.normal(size=(3, 40, 2))
    errors = np.average(np.mean((said - y) ** 2, 2), axis=1, weights=weights)

    def loss(w):
        apart = y - np.einsum("s,snk->nk", w, said)
        return np.sum(weights[:, None] * apart**2) + _stack._ROWS * errors.min() * 2 * np.sum((w - 1 / 3) ** 2)

    found = scipy.optimize.minimize(loss, np.full(3, 1 / 3), bounds=[(0, None)] * 3, tol=1e-14).x
    np.testing.assert_allclose(_stack.shares(said, y, weights), found, atol=1e-5)


def test_the_better_network_has_the_larger_share_and_few_rows_tell_little():
    y = RNG.normal(size=(2000, 1))
    said = y + np.array([0.1, 1.0])[:, None, None] * RNG.normal(size=(2, 2000, 1))
    many, few = (_stack.shares(said[:, :n], y[:n], np.ones(n)) for n in (2000, 5))
    assert many[0] > 0.9
    assert abs(few[0] - 0.5) < abs(many[0] - 0.5)


def test_shares_and_certainty_do_not_depend_on_the_unit_of_small_weights():
    y, weights = RNG.normal(size=(200, 1)), RNG.uniform(0.5, 1.0, 200)
    said = y + np.array([0.1, 1.0])[:, None, None] * RNG.normal(size=(2, 200, 1))
    many, small = (_stack.shares(said, y, unit * weights) for unit in (1.0, 1e-3))
    np.testing.assert_allclose(many, small, rtol=1e-6)
    scores, classes = RNG.normal(size=(200, 2)), RNG.integers(0, 2, 200)
    scores[np.arange(200), classes] += 2
    sharp, same = (Temperature.of(scores, np.zeros((1, 1)), classes, unit * weights) for unit in (1.0, 1e-3))
    assert sharp.sharpness == pytest.approx(same.sharpness, rel=1e-4)


def test_rows_that_weigh_next_to_nothing_make_nothing_clear():
    """Of sixteen rows that weigh something the mean errs as that of sixteen, whatever else is there."""
    weights = np.r_[np.ones(16), np.full(384, 1e-6)]
    assert counted(weights) == pytest.approx(16, rel=1e-3)
    assert counted(np.full(300, 1 / 300)) == pytest.approx(300)
    assert counted(np.full(10, 3.0)) == 30
    draws = np.random.default_rng(0).normal(size=(300, 400))
    assert np.mean([is_clear(gains, weights, errors=2) for gains in draws]) < 0.08


def test_rows_are_judged_by_what_has_not_learned_from_them(monkeypatch):
    """Noise alone: numbers that were learned from a row would seem to predict it."""
    x, y = RNG.normal(size=(80, 6)), RNG.normal(size=80)
    model = WideRegressor().fit(x, y)
    assert model.choice_.score > 0.9
    assert model.choice_.score == pytest.approx(np.mean((model.leave_one_out_ - y) ** 2) / y.var())
    seen = []
    learn = _tables.learn_trees
    monkeypatch.setattr(_tables, "learn_trees", lambda first, x, *rest: seen.append(len(x)) or learn(first, x, *rest))
    WideRegressor().fit(x, y)
    assert sorted(seen) == [53, 53, 54, 80]


def test_many_rows_are_compared_in_part_and_judged_where_nothing_was_learned(monkeypatch):
    monkeypatch.setattr(_tables, "FOLDED", 30)
    monkeypatch.setattr(_effort, "USUAL", _effort.Effort(rows=20, compared=50))
    model = WideRegressor(random_state=0).fit(X, Y)
    assert model.choice_.rows == 90
    assert len(model._learned.judged) == 70
    assert model.score(X, Y) > 0.9


def test_the_order_of_rows_does_not_matter():
    order = RNG.permutation(90)
    one, other = WideRegressor().fit(X, Y), WideRegressor().fit(X[order], Y[order])
    np.testing.assert_allclose(one.predict(X[:9]), other.predict(X[:9]), rtol=1e-6)
    np.testing.assert_allclose(one.leave_one_out_[order], other.leave_one_out_, rtol=1e-5, atol=1e-6)


def test_equal_rows_are_one_row_of_their_weight():
    again = np.concatenate([np.arange(90), np.arange(30), [3]])
    found = distinct(task(X[again], Y[again]))
    np.testing.assert_array_equal(found.task.x, X)
    np.testing.assert_array_equal(found.task.x[found.place], X[again])
    assert found.task.weights[3] == found.task.copies[3] == 3
    np.testing.assert_array_equal(found.task.left, 1)  # somebody has copied them
    assert "31 rows are repeated" in found.note
    few = np.round(X[again] / 3)
    natural = distinct(task(few, np.sign(Y[again])))
    np.testing.assert_array_equal(natural.task.left, natural.task.copies)


def test_copies_do_not_make_noise_look_learnable():
    x, y = RNG.normal(size=(60, 3)), RNG.normal(size=60)
    model = WideRegressor().fit(np.concatenate([x, x]), np.concatenate([y, y]))
    assert model.choice_.score > 0.8
    assert model.leave_one_out_.shape == (120,)
    assert any("repeated" in note for note in model.choice_.notes)


def test_fences_keep_order_and_leave_all_others_alone():
    x = RNG.normal(size=(200, 3))
    x[:, 1] = np.exp(x[:, 1])
    x[7, 0], x[8, 0], x[:, 2] = 1e3, 1e6, RNG.random(200) < 0.01
    fences = Fences.of(x, np.ones(200))
    near = fences(x)
    np.testing.assert_array_equal(np.argsort(near[:, 0]), np.argsort(x[:, 0]))
    assert near[8, 0] < 30
    inside = np.delete(x, [7, 8], axis=0)
    np.testing.assert_array_equal(fences(inside)[:, [0, 2]], inside[:, [0, 2]])
    np.testing.assert_array_equal(fences.beyond(x).sum(0)[[0, 2]], [2, 0])
    assert (fences(np.full((1, 3), 1e300)) < 1e6).all()


def test_weights_of_rows_are_copies_for_fences():
    x, weights = RNG.normal(size=(50, 1)) ** 3, RNG.integers(1, 4, 50)
    one = Fences.of(x, weights.astype(float))
    other = Fences.of(np.repeat(x, weights, axis=0), np.ones(weights.sum()))
    np.testing.assert_allclose([one.low, one.high], [other.low, other.high])


def test_predictions_stay_near_what_was_seen():
    support = Support.of(Y[:, None], np.full((90, 1), 0.1))
    inside = np.linspace(Y.min(), Y.max(), 7)[:, None]
    np.testing.assert_array_equal(support(inside), inside)
    far = support(np.array([[1e12], [-1e12]]))
    assert np.abs(far).max() < 20 * np.ptp(Y)
    assert support.shrinks(np.array([[0.0], [1e12]])).tolist() == [False, True]


@pytest.mark.filterwarnings("ignore:.*far beyond all training targets")
def test_a_few_wild_numbers_do_not_rule():
    """One cell in a hundred is a hundred times too large, in training and new rows: errors stay those of a mean."""

    def spoiled(x):
        return np.where(RNG.random(x.shape) < 0.01, 100 * x, x)

    new = RNG.normal(size=(300, 3))
    truth = new[:, 0] + 0.5 * np.abs(new[:, 1])
    model = WideRegressor().fit(spoiled(X), Y)
    error = np.sqrt(np.mean((model.predict(spoiled(new)) - truth) ** 2))
    assert error < 0.6 * truth.std()
    assert any("drawn near" in note for note in model.choice_.notes)


def test_predictions_that_are_shrunk_are_said():
    model = WideRegressor().fit(X, 5 * X[:, 0])
    model._support = Support(*(np.array([v]) for v in (-0.1, 0.1, 0.05)))
    with pytest.warns(UserWarning, match="of 9 predictions lay far beyond all training targets"):
        model.predict(X[:9])


def test_classes_that_are_repeated():
    labels = np.where(Y > 0, "a", "b")
    model = WideClassifier().fit(np.concatenate([X, X[:20]]), np.concatenate([labels, labels[:20]]))
    assert model.leave_one_out_.shape == (110, 2)
    np.testing.assert_array_equal(model.leave_one_out_[:20], model.leave_one_out_[90:])


def test_absurd_targets_are_drawn_near_and_rare_ones_are_not():
    spoiled = np.where(np.arange(90) == 4, 1e3, Y)
    model = WideRegressor().fit(X, spoiled)
    assert "1 target lies absurdly far" in str(model.choice_)
    assert np.sqrt(np.mean((model.predict(X) - Y)[5:] ** 2)) < 0.5 * Y.std()
    assert "absurdly" not in str(WideRegressor().fit(X, np.exp(2 * Y)).choice_)


def test_more_rows_than_are_solved_for_at_once_are_learned_leaf_by_leaf(monkeypatch):
    for name, value in {"FOLDED": 30, "MOST_EXACT": 80}.items():
        monkeypatch.setattr(_tables, name, value)
    monkeypatch.setattr(_effort, "USUAL", _effort.Effort(rows=20, compared=50, exact=80))
    monkeypatch.setattr(_effort.Effort, "leaf", 45)
    model = WideRegressor(random_state=0).fit(X, Y)
    assert len(model._learned.members) <= 3
    assert all(len(member.solution.leaves) == 2 for member in model._learned.members)
    assert model.score(X, Y) > 0.9
    left = np.mean((model.leave_one_out_ - Y) ** 2)
    assert np.mean((model.predict(X) - Y) ** 2) < left < 0.5 * Y.var()
    assert model.partial_fit(X[:5] + 0.01, Y[:5]).score(X, Y) > 0.9
    with pytest.raises(ValueError, match="relative_time=5 with 90 rows: training that stops early takes up to 80"):
        WideRegressor(relative_time=5.0).fit(X, Y)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_a_handful_of_rows(n):
    fences = Fences.of(X[:n], np.ones(n))
    assert np.isfinite(fences(X[:n])).all()
    labels = np.arange(n) % 2
    assert np.isfinite(WideClassifier().fit(X[:n], labels).predict_proba(X)).all()


def test_ridges_of_many_rows_are_chosen_where_rows_are_as_near_as_all():
    x = RNG.normal(size=(400, 2))
    first, goal = _tables.scaled_columns(x), Goal("ntk", None, np.inf, squared_error, "")
    reader = _tables._alike_candidates(first, "ntk")[1].reader
    weights = np.ones(400)
    smooth, noisy = np.sin(2 * x[:, :1]), RNG.normal(size=(400, 1))

    def chosen(y, start):
        return ridge_of_neighbours(reader, Task(x, y, *3 * (weights,)), goal, start, np.arange(100, 400), 150)

    assert chosen(smooth, 1.0) < 1e-2 < chosen(noisy, 1e-2)
    few = Task(x, smooth, *3 * (weights,))
    assert ridge_of_neighbours(reader, few, goal, 0.7, np.arange(0), 150) == 0.7  # nothing to judge by
