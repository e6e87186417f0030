"""Budgets of seconds: more of them, more work; and what is being done is said."""

import time

import numpy as np
import pytest

import everwide as ew
from everwide.estimators import WideClassifier, WideRegressor, _columns, _tables
from everwide.estimators._choice import Goal, Task
from everwide.estimators._effort import _LEVELS, USUAL, Clock, Effort, effort_for
from everwide.estimators._solve import squared_error
from everwide.layers import Columns

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4))
Y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * RNG.normal(size=300)


def test_without_a_budget_the_usual_effort_and_nothing_is_timed():
    def ready(rows):
        raise AssertionError

    assert effort_for(1000, Clock(None, verbose=False), ready, 2, 700) == USUAL


def test_more_seconds_buy_more_work():
    def chosen(budget, n):
        ready = lambda rows: lambda: time.sleep(0.005)
        return _LEVELS.index(effort_for(n, Clock(budget, verbose=False), ready, 2, 700))

    levels = [chosen(budget, 5000) for budget in (0.1, 60.0, 1e5)]
    assert levels[0] == 0 < levels[1] < levels[2] == len(_LEVELS) - 1
    assert chosen(60.0, 10**6) < levels[1]


def test_of_many_columns_as_few_rows_are_timed_as_are_learned_from(monkeypatch):
    shapes, x, ones = [], RNG.normal(size=(300, 3000)), np.ones(300)
    monkeypatch.setattr(_tables, "evaluation", lambda columns, x, *_: shapes.append(x.shape) or (lambda: None))
    goal = Goal("ntk", None, np.inf, squared_error, "")
    _tables._effort(Task(x, Y[:, None], ones, ones, ones), goal, Clock(9.0, verbose=False))
    ((rows, columns),) = shapes
    assert 50 <= rows < 300
    assert 8 * rows**2 * columns <= _tables._BYTES


def test_forecasts_grow_with_work_and_with_rows():
    def seconds(effort, n):
        return effort.seconds(n, lambda rows: 1e-6 * rows**2, 1e10, 2)

    by_level = [seconds(level, 20_000) for level in _LEVELS]
    assert by_level == sorted(by_level)
    by_rows = [seconds(USUAL, n) for n in (100, 1000, 12_000, 100_000, 1_000_000)]
    assert by_rows == sorted(by_rows)
    assert by_rows[-1] / by_rows[-2] < 11  # leaves are many, not large


@pytest.mark.parametrize("n", [90, 300, 800])
def test_forecasts_know_how_often_a_criterion_is_evaluated(monkeypatch, n):
    rows, evidence = [], _columns.evidence
    monkeypatch.setattr(
        _columns, "evidence", lambda kernel, *rest, **how: rows.append(len(kernel)) or evidence(kernel, *rest, **how)
    )
    _columns.evaluation(Columns.of(X), X, Y[:, None], "ntk")()
    assert rows.pop() == len(X)
    assert not rows
    x = RNG.normal(size=(n, 3))
    WideRegressor().fit(x, np.sin(2 * x[:, 0]) * x[:, 1] + 0.1 * RNG.normal(size=n))
    forecast = USUAL.seconds(n, float, np.inf, 1) - USUAL.seconds(n, float, np.inf, 10**9)
    assert 0.7 < forecast / sum(rows) < 1.5
    assert {*rows} == {*USUAL.parts(n)}


def test_a_small_budget_leaves_numbers_of_columns_alone(capsys):
    model = WideRegressor(budget_seconds=0.01, verbose=True).fit(X, Y)
    assert all("alike" in member.candidate.description for member in model._learned.members)
    assert model.score(X, Y) > 0.8
    said = capsys.readouterr().err
    assert "of 0.01 s  learns how to look at columns" in said
    assert "solves for 300 rows" in said


def test_learning_stops_when_it_is_late(monkeypatch):
    calls = []
    monkeypatch.setattr(Clock, "late", lambda self, share=1.0: calls.append(share) or True)
    short = WideRegressor().fit(X, Y)
    monkeypatch.undo()
    assert calls
    assert short.choice_.score > WideRegressor().fit(X, Y).choice_.score


def test_levels_are_more_and_more_work():
    assert Effort() == USUAL
    assert [level.rows for level in _LEVELS] == sorted(level.rows for level in _LEVELS)


@pytest.mark.parametrize("budget", [0, -1, True, "10", np.inf, np.nan])
def test_budgets_that_are_none(budget):
    with pytest.raises(ew.InputError, match=r"budget_seconds=.*expected None or a number of seconds above 0"):
        WideClassifier(budget_seconds=budget).fit(X, Y > 0)
