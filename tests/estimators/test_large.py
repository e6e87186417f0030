"""More rows than are solved for in float64: all are learned, within memory, and how is said."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import clone

import everwide as ew
import everwide.spectral as sp
from estimators.tables_to_fit import LABELS, NET, TEST, TRAIN, X, Y
from everwide.estimators import WideClassifier, WideGPRegressor, WideRegressor, _base, _effort, _large, _learn
from everwide.estimators._choice import Candidate, Goal, Task
from everwide.estimators._readers import KernelReader

pytestmark = pytest.mark.once

RIDGE = 0.05


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch):
    monkeypatch.setattr(_learn, "_COMPARED_ROWS", 24)
    monkeypatch.setattr(_large, "DOUBLE", 30)


def by_hand(model, ridge, unit_of=TRAIN):
    """Predictions at the other rows, and the exact leave-one-out of the training rows."""
    old, new = model.transform_inputs(X[TRAIN]), model.transform_inputs(X[TEST])
    k, cross = np.asarray(ew.ntk(NET, old)), np.asarray(ew.ntk(NET, new, old))
    mean = Y[unit_of].mean()
    inverse = np.linalg.inv(k + ridge * np.diag(k)[unit_of].mean() * np.eye(len(k)))
    a = inverse @ (Y[TRAIN] - mean)
    return mean + cross @ a, Y[TRAIN] - a / np.diag(inverse)


@pytest.mark.parametrize(("most", "words"), [(8000, "cholesky, float32"), (10, "conjugate gradients")])
def test_all_rows_are_learned_by_what_fits_and_it_is_said(monkeypatch, most, words):
    monkeypatch.setattr(_large, "_FACTORED", most)
    model = WideRegressor(NET, relative_ridge=RIDGE).fit(X[TRAIN], Y[TRAIN])
    predicted, left_out = by_hand(model, RIDGE)
    np.testing.assert_allclose(model.predict(X[TEST]), predicted, atol=3e-3 * Y.std(), rtol=0)
    np.testing.assert_allclose(model.leave_one_out_, left_out, atol=(1e-3 if most > 10 else 0.2) * Y.std(), rtol=0)
    assert model.choice_.relative_ridge == pytest.approx(RIDGE)
    assert model.choice_.solver.startswith(f"{words} on 48 rows: ")
    for part in ("residual", " s, ", "B held"):
        assert part in model.choice_.solver
    assert ("estimated" in model.choice_.solver) == (most == 10)
    assert model.choice_.solver in str(model.choice_)
    assert model.dual_coef_.shape == (48, 1)


def test_nothing_as_large_as_a_kernel_stays(monkeypatch):
    model = WideRegressor(NET, relative_ridge=RIDGE).fit(X[TRAIN], Y[TRAIN])
    assert not model._learned.first.solution.kernel._kept
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X[TEST]), model.predict(X[TEST]))


def test_classes_are_learned_by_iterations(monkeypatch):
    monkeypatch.setattr(_large, "_FACTORED", 10)
    model = WideClassifier(NET, relative_ridge=RIDGE).fit(X[TRAIN], LABELS[TRAIN])
    small = WideClassifier(NET, relative_ridge=RIDGE).fit(X[TRAIN], LABELS[TRAIN], np.ones(48))
    assert "iterations" in model.choice_.solver
    assert model.score(X[TEST], LABELS[TEST]) > 0.6
    np.testing.assert_allclose(model.predict_proba(X[TEST]), small.predict_proba(X[TEST]), atol=1e-6)


def test_where_the_plan_says_so_some_rows_stand_for_all(monkeypatch):
    monkeypatch.setattr(_large, "_SURE", 0)
    asked = []

    def plan(net, n, shape, **how):
        asked.append((n, shape, how))
        return SimpleNamespace(chosen=SimpleNamespace(exact=False, solver=sp.Nystrom(centres=40)))

    monkeypatch.setattr(_large, "plan", plan)
    model = WideRegressor(NET, relative_ridge=RIDGE, memory="2GB").fit(X[TRAIN], Y[TRAIN])
    assert asked == [(48, X.shape[1:], {"which": "ntk", "outputs": 1, "memory": 2 * 10**9})]
    assert "nystrom on 48 rows" in model.choice_.solver
    assert "40 rows stand for all" in model.choice_.solver
    assert int((model.dual_coef_ != 0).sum()) == 40
    np.testing.assert_allclose(model.predict(X[TEST]), by_hand(model, RIDGE)[0], atol=0.2 * Y.std())


def test_a_kernel_that_does_not_fit_is_computed_again_for_each_product(monkeypatch):
    whole = WideRegressor(NET, relative_ridge=RIDGE).fit(X[TRAIN], Y[TRAIN])
    chosen = SimpleNamespace(exact=True)
    monkeypatch.setattr(_large, "plan", lambda *args, **how: SimpleNamespace(chosen=chosen))
    model = WideRegressor(NET, relative_ridge=RIDGE, memory="1kB").fit(X[TRAIN], Y[TRAIN])
    assert "conjugate gradients" in model.choice_.solver
    np.testing.assert_allclose(model.predict(X[TEST]), whole.predict(X[TEST]), atol=1e-3 * Y.std())


def test_a_ridge_below_rounding_is_raised_and_it_is_said():
    model = WideRegressor(NET, relative_ridge=1e-12).fit(X[TRAIN], Y[TRAIN])
    assert model.choice_.relative_ridge == pytest.approx(4 * 6e-8 * 48**0.5)
    assert "instead of 1e-12, as kernels are kept in float32" in model.choice_.solver
    assert "instead of" not in WideRegressor(NET, relative_ridge=0.1).fit(X[TRAIN], Y[TRAIN]).choice_.solver


@pytest.mark.parametrize("memory", ["4 gigabytes", "", -1, 0, True, float("nan"), [1]])
def test_memory_is_bytes(memory):
    with pytest.raises(ValueError, match=r"memory=(.|\n)*expected None, a number of bytes, or a text such as \"4GB\""):
        WideRegressor(NET, memory=memory).fit(X[TRAIN], Y[TRAIN])


@pytest.mark.parametrize("most", [8000, 10])
def test_rows_beyond_the_limit_of_growth_are_solved_for_again(monkeypatch, most):
    monkeypatch.setattr(_large, "_FACTORED", most)
    monkeypatch.setattr(_base, "MOST_DOUBLE", 40)
    starts, solve = [], _large.solve
    monkeypatch.setattr(
        _large,
        "solve",
        lambda *args, **how: (starts.append(getattr(how["solver"], "start", None)), solve(*args, **how))[1],
    )
    first, later = slice(0, 28), slice(28, 48)
    model = WideRegressor(NET, relative_ridge=RIDGE).partial_fit(X[first], Y[first])
    known = model.dual_coef_
    model.partial_fit(X[later], Y[later])
    expected, _ = by_hand(model, RIDGE, first)
    np.testing.assert_allclose(model.predict(X[TEST]), expected, atol=3e-3 * Y.std(), rtol=0)
    assert model.choice_.rows == 48
    assert "on 48 rows" in model.choice_.solver
    assert model.leave_one_out_.shape == (48,)
    if most == 10:  # iterations begin where the last solution was
        np.testing.assert_array_equal(starts[-1][:28], known)
        assert not starts[-1][28:].any()


def test_what_does_not_fit_into_memory_is_read_from_a_store(monkeypatch, tmp_path):
    pytest.importorskip("zarr")
    whole = WideRegressor(NET, relative_ridge=RIDGE).fit(X[TRAIN], Y[TRAIN])
    model = WideRegressor(NET, relative_ridge=RIDGE, memory="1kB", store=tmp_path).fit(X[TRAIN], Y[TRAIN])
    np.testing.assert_allclose(model.predict(X[TEST]), whole.predict(X[TEST]), atol=1e-3 * Y.std())
    assert len(list(tmp_path.iterdir())) == 1
    other = WideRegressor(NET, relative_ridge=RIDGE, memory="1kB", store=str(tmp_path)).fit(X[TEST], Y[TEST])
    assert len(list(tmp_path.iterdir())) == 2  # rows do not mix
    assert "conjugate gradients" in other.choice_.solver
    assert pickle.loads(pickle.dumps(model)).predict(X[TEST]).shape == (48,)
    WideRegressor(NET, relative_ridge=RIDGE, store=tmp_path / "unused").fit(X[TRAIN], Y[TRAIN])
    assert not (tmp_path / "unused").exists()  # it fits


class Elsewhere(ew.scale.AbstractBackend):
    """Another machine."""

    def __init__(self):
        self.ran = []

    def fill(self, *args, **how):
        raise AssertionError("nothing is gathered")

    def run(self, task, items):
        self.ran.append(type(task).__name__)
        with task.elsewhere() as sent:
            yield from map(sent, items)


def test_a_backend_computes_and_multiplies(tmp_path):
    pytest.importorskip("zarr")
    backend, whole = Elsewhere(), WideRegressor(NET, relative_ridge=RIDGE).fit(X[TRAIN], Y[TRAIN])
    how = {"relative_ridge": RIDGE, "memory": "1kB", "store": tmp_path, "backend": backend}
    model = WideRegressor(NET, **how).fit(X[TRAIN], Y[TRAIN])
    np.testing.assert_allclose(model.predict(X[TEST]), whole.predict(X[TEST]), atol=1e-3 * Y.std())
    assert backend.ran[0] == "Work"
    assert set(backend.ran[1:]) == {"_Product"}
    with pytest.raises(ValueError, match=r"backend=Elsewhere needs store=, a folder that all"):
        WideRegressor(NET, backend=backend).fit(X[TRAIN], Y[TRAIN])
    here = WideRegressor(NET, relative_ridge=RIDGE, backend=ew.scale.Devices()).fit(X[TRAIN], Y[TRAIN])
    np.testing.assert_allclose(here.predict(X[TEST]), whole.predict(X[TEST]), rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "message"), [({"store": 3}, "store=3: expected None or a folder"), ({"backend": "dask"}, "scale.Devices")]
)
def test_places_and_backends_are_checked(given, message):
    with pytest.raises(ValueError, match=message):
        WideRegressor(NET, **given).fit(X[TRAIN], Y[TRAIN])


def test_estimators_with_a_client_can_be_cloned():
    client = ew.scale.Dask(object())
    assert clone(WideRegressor(NET, backend=client)).backend is client


def test_rows_may_be_mapped_from_a_file(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped, make = np.load(tmp_path / "x.npy", mmap_mode="r"), WideRegressor(NET, max_rows=40, random_state=0)
    np.testing.assert_array_equal(clone(make).fit(mapped, Y).predict(mapped), make.fit(X, Y).predict(X))


def test_residuals_are_small_beside_the_errors_of_rows_that_were_left_out():
    task = Task(X[TRAIN], Y[TRAIN][:, None], *[np.ones(48)] * 3)
    size = float(np.mean(Y[TRAIN] ** 2))
    middle = _large.tolerance_of(np.full(48, 0.01 * size), task)
    assert middle == pytest.approx(3e-4)
    assert _large.tolerance_of(np.zeros(48), task) == 1e-4
    assert _large.tolerance_of(np.full(48, size), task) == 1e-3
    assert _large.tolerance_of(np.zeros(48), task._replace(y=0 * task.y)) == 1e-4


def test_of_ridges_that_are_as_good_the_largest_is_taken(monkeypatch):
    """Targets are noise: all large ridges are alike, and none is clearly worse than the best one."""
    asked, solved = [], _learn.solved_on_all

    def watched(reader, task, ridge, *rest, **how):
        asked.append(ridge)
        return solved(reader, task, ridge, *rest, **how)

    monkeypatch.setattr(_learn, "solved_on_all", watched)
    model = WideRegressor(NET).fit(X[TRAIN], np.random.default_rng(0).normal(size=48))
    assert "instead of" not in model.choice_.solver
    WideRegressor(NET, relative_ridge=RIDGE).fit(X[TRAIN], Y[TRAIN])
    assert asked[0] == pytest.approx(10.0)
    assert asked[1] == RIDGE


def test_a_gain_that_is_clear_and_tiny_is_worth_no_small_ridge():
    """Every row loses by the ridge, nearly alike: a paired test finds the smallest ones clearly better."""
    task = Task(X[TRAIN], Y[TRAIN][:, None], *[np.ones(48)] * 3)
    at = lambda ridge, time: SimpleNamespace(ridge=ridge, at=at)
    score = lambda solution, task: 1 + solution.ridge * np.linspace(0.9, 1.1, 48)
    goal = Goal("ntk", None, None, score, "loss")
    one = Candidate(KernelReader(NET, "ntk", rounds=True), "a network", None, None, None, 0)
    best = _learn._scored(one, at(1e-9, np.inf), 1.0, task, goal)
    assert _learn._steadiest(best, task, goal) == pytest.approx(1e-3)


def test_where_variances_are_asked_for_tables_are_solved_for_at_once(monkeypatch):
    monkeypatch.setattr(_effort, "USUAL", replace(_effort.USUAL, exact=30))
    model = WideGPRegressor().fit(X[TRAIN], Y[TRAIN])
    assert all(member.exact for member in model._learned.members)
    assert (model.predict(X[TEST], return_std=True)[1] > 0).all()
    assert not all(member.exact for member in WideRegressor().fit(X[TRAIN], Y[TRAIN])._learned.members)
