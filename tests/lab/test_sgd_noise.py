"""Steps and averages against numpy; verdicts against made-up runs."""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
from everwide_lab._claims import Verdict
from everwide_lab.sgd_noise import SgdNoise, reproduce
from everwide_lab.sgd_noise._claims import Settled, claims_of
from everwide_lab.sgd_noise._descent import BLOCK, DECAY, Look, Minimum, Walker, minimum, task
from everwide_lab.sgd_noise._schedules import Scheduled, schedules

pytestmark = pytest.mark.once
NAMES = ("first", "tells", "second", "raised", "schedule")


def made_up(kind="linear", rate=0.1, *, early=5.0, first=1.0, second=1.0, raised=1.0):
    """Two seeds that do as they are told; their second halves are what counts."""
    late = np.arange(20) >= 10
    runs, minima = [], []
    for wobble in (0.99, 1.01):
        products = rate / 2 * np.where(np.arange(20) < 2, early, first) * wobble
        look = Look(
            products, np.ones(20), rate / 2 * second * wobble * np.ones(20), np.ones(20), 2 + raised * late * wobble
        )
        runs.append(look)
        minima.append(Minimum(2.0, 1.0))
    return Settled(kind, rate, tuple(runs), tuple(minima) if kind == "linear" else ())


def plans(own):
    return [(Scheduled("by hand", 0.01, 0.1, (500,)), Scheduled("by the relation", own, 0.1, (400, 600)))] * 2


def verdicts(*settled, own=0.01):
    return dict(zip(NAMES, (claim.verdict for claim in claims_of(settled, plans(own))), strict=True))


def test_everything_holds_where_it_does():
    assert set(verdicts(made_up(), made_up("tanh")).values()) == {Verdict.HOLDS}


def test_everything_fails_where_it_does():
    told = verdicts(made_up(early=1.01, first=2.0, second=0.3, raised=3.0), own=0.1)
    assert set(told.values()) == {Verdict.FAILS}


def test_what_holds_for_one_model_holds_in_part():
    told = verdicts(made_up(), made_up("tanh", first=1.2, early=-0.3))
    assert told["first"] is Verdict.PARTLY
    assert told["tells"] is Verdict.HOLDS


@pytest.mark.slow
@pytest.mark.parametrize("width", [0, 3])
def test_steps_are_those_of_numpy(width):
    with jax.enable_x64(True):
        one = task(30, width, 29, 0)
        walker = Walker(one, 0)
        start, slope = walker.w, jax.jit(jax.grad(one.loss))
        look = walker.walk(0.05, 1)
        w = start
        for _ in range(BLOCK):  # nearly all rows: batches differ by one
            w = w - 0.05 * slope(w)
        assert look.losses[0] == pytest.approx(float(one.loss(walker.w)))
        assert look.losses[0] == pytest.approx(float(one.loss(w)), rel=0.01)
        gradient = slope(walker.w)
        assert look.slopes[0] == pytest.approx(float(gradient @ gradient))
        assert start.shape == (64 * width + 10 * (width or 64),)
        if width == 0:
            outputs = np.asarray(one.x) @ np.asarray(start).reshape(64, 10)
            logs = outputs - np.log(np.exp(outputs).sum(1, keepdims=True))
            expected = -logs[np.arange(30), np.asarray(one.labels)].mean() + DECAY / 2 * float(jnp.sum(start**2))
            assert float(one.loss(start)) == pytest.approx(expected)


@pytest.mark.slow
def test_the_minimum_is_one():
    with jax.enable_x64(True):
        one = task(30, 0, 5, 0)
        low = minimum(one, Walker(one, 0).w, 0.1)
        other = minimum(one, Walker(one, 1).w, 0.1)
    assert low == pytest.approx(other, rel=1e-6)
    assert low.raised > 0


@pytest.mark.slow
def test_schedules_are_tried():
    with jax.enable_x64(True):
        runs = schedules(task(30, 2, 5, 0), 24, 0)
    assert [run.name for run in runs][-2:] == ["by hand", "by the relation"]
    assert runs[-2].falls == (12 * BLOCK, 18 * BLOCK)
    assert runs[-2].rate == pytest.approx(0.025)
    assert all(np.isfinite(run.raised) for run in runs)


def test_results_are_written(tmp_path):
    settled = (made_up(), made_up("tanh"))
    SgdNoise(settled, tuple(plans(0.01)), 100, 4, 10, 20).write(tmp_path)
    with (tmp_path / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert {row["quantity"] for row in table} >= {"first relation", "second relation", "raised", "raised in the end"}
    assert "settled" in (tmp_path / "results.md").read_text()
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"seeds": 0}, "seeds=0"), ({"blocks": 2}, "4 blocks or more"), ({"n": 10}, "n=10: expected more than")],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ew.InputError, match=message):
        reproduce(**arguments)


@pytest.mark.slow
def test_everything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("everwide_lab.sgd_noise._run.RATES", (0.4,))
    stages = []
    result = reproduce(seeds=2, n=40, width=2, blocks=40, out=tmp_path, progress=stages.append)
    assert [one.kind for one in result.settled] == ["linear", "tanh"]
    assert stages[-1].done == stages[-1].total
    assert result.claims()[0].verdict is not Verdict.FAILS
