"""Trained coefficients and directions against numpy; verdicts against made-up runs."""

import csv
import math

import numpy as np
import pytest

import everwide as ew
from everwide_lab._claims import Verdict
from everwide_lab.implicit_bias import ImplicitBias, reproduce
from everwide_lab.implicit_bias._claims import at_loss, claims_of
from everwide_lab.implicit_bias._separable import LATE, Descent, Separable, follow, rows
from everwide_lab.implicit_bias._sparse import SCALES, Sparse, problem, train

pytestmark = pytest.mark.once
NAMES = ("limit", "kernel", "sparsest", "log", "sparse", "direction", "loss", "growth", "test", "adam")


def made_up_sparse(*, off=0.001, unlike=1e-3, fall=0.5, small=0.01, large=0.6):
    """From every scale, two seeds that do as they are told: `fall` for two orders of magnitude."""
    pair = np.array([1.0, 1.01])
    out = []
    for place, scale in enumerate(SCALES):
        excess = 0.02 * (fall ** ((2 - place) / 2) if place < 2 else 1.0)
        lazy = scale == SCALES[-1]
        out.append(
            Sparse(
                scale,
                off * pair,
                excess * pair,
                (unlike if lazy else 1) * pair,
                (large if lazy else small) * pair,
                pair,
            )
        )
    return out


def made_up_separable(*, power=-1.0, exponent=-1.0, growth=1.0, rise=0.3, more=0.0, adam=0.5, apart=0.1):
    logs = np.linspace(0, 10, 21)
    losses = np.exp(exponent * logs)
    tested = np.where(logs < 5, 1.0 - 0.1 * logs, 0.5 + rise * (logs - 5))
    errors = np.where(logs <= 5, 0.02, 0.02 + more)
    runs = []
    for wobble in (1.0, 1.001):
        course = Descent(logs, losses, tested, errors * wobble, growth * 3 * logs, np.linspace(0.5, apart, 21) * wobble)
        other = course._replace(apart=np.linspace(0.8, adam, 21))
        runs.append(Separable(course, other, course.apart, np.array(LATE) ** power, 3.0))
    return runs


def verdicts(sparse, separable):
    return dict(zip(NAMES, (claim.verdict for claim in claims_of(sparse, separable)), strict=True))


def test_everything_holds_where_it_does():
    assert set(verdicts(made_up_sparse(), made_up_separable()).values()) == {Verdict.HOLDS}


def test_everything_fails_where_it_does():
    sparse = made_up_sparse(off=0.5, unlike=0.9, fall=0.01, small=0.7)
    sparse[0] = sparse[0]._replace(excess=sparse[0].excess + 1)
    other = made_up_separable(power=-0.5, exponent=-0.5, growth=0.4, rise=0.0, adam=0.01)
    told = verdicts(sparse, other)
    assert {name for name, verdict in told.items() if verdict is not Verdict.FAILS} == {"log"}
    assert verdicts(made_up_sparse(fall=0.01), other)["log"] is Verdict.FAILS


def test_descent_must_be_on_the_way():
    runs = [one._replace(predicted=1.5 * one.predicted) for one in made_up_separable()]
    assert verdicts(made_up_sparse(), runs)["direction"] is not Verdict.HOLDS


def test_more_errors_speak_against():
    assert verdicts(made_up_sparse(), made_up_separable(more=0.1))["test"] is not Verdict.HOLDS


def test_adam_is_compared_at_the_same_loss():
    run = made_up_separable()[0].adam
    assert at_loss(run, math.exp(-5.0)) == run.apart[10]
    assert math.isnan(at_loss(run, 0.0))
    slow = [one._replace(adam=one.adam._replace(losses=one.adam.losses + 1)) for one in made_up_separable()]
    assert verdicts(made_up_sparse(), slow)["adam"] is Verdict.UNDECIDED


def test_rows_are_not_shared():
    data = rows(60, 0)
    assert data.signed.shape == (60, 65)
    assert len(data.signed) + len(data.test) == 357
    assert not {tuple(row) for row in data.signed} & {tuple(row) for row in data.test}
    assert set(np.abs(data.signed[:, -1])) == {1.0}


def test_descent_is_that_of_numpy():
    one = follow(30, 100, 0)
    data, w = rows(30, 0).signed, np.zeros(65)
    rate = 4 * 30 / np.linalg.eigvalsh(data @ data.T)[-1]
    for _ in range(100):
        w = w + rate * (data.T @ (1 / (1 + np.exp(data @ w)))) / 30
    assert one.descent.losses[-1] == pytest.approx(np.mean(np.log1p(np.exp(-data @ w))))
    assert one.descent.sizes[-1] == pytest.approx(np.linalg.norm(w))
    assert one.descent.log_times[-1] == pytest.approx(np.log(100 * rate))


def test_coefficients_are_those_of_numpy():
    one = problem(40, 0)
    told = train([one], 1.0, 300)
    u = v = np.ones(100)
    rate = 0.5 / (4 * np.linalg.eigvalsh(one.x @ one.x.T / 40)[-1])
    for _ in range(300):
        slope = one.x.T @ (one.x @ (u**2 - v**2) - one.y) / 40
        u, v = u - 2 * rate * slope * u, v + 2 * rate * slope * v
    assert told.error[0] == pytest.approx(np.sum((u**2 - v**2 - one.truth) ** 2) / 3)


def test_results_are_written(tmp_path):
    ImplicitBias(tuple(made_up_sparse()), tuple(made_up_separable()), 60, 1000).write(tmp_path)
    with (tmp_path / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert {row["experiment"] for row in table} == {"sparse", "separable"}
    assert "largest margin" in (tmp_path / "results.md").read_text()
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"seeds": 0}, "seeds=0"), ({"steps": 10}, "100 or more"), ({"n": 400, "seeds": 1, "steps": 100}, "n=400")],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ew.InputError, match=message):
        reproduce(**arguments)


@pytest.mark.slow
def test_everything_runs(tmp_path):
    stages = []
    result = reproduce(seeds=2, n=30, steps=20_000, out=tmp_path, progress=stages.append)
    assert len(result.sparse) == len(SCALES)
    assert stages[-1].done == stages[-1].total
    assert [claim.verdict for claim in result.claims()][:3] == [Verdict.HOLDS] * 3
