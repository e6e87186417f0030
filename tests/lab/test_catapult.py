"""Networks against the model that can be solved; verdicts against made-up runs."""

import csv

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide.theory.stability import catapult
from everwide_lab._claims import Verdict
from everwide_lab._sample import Sample
from everwide_lab.catapult._claims import Onset, Swept, claims_of, gain
from everwide_lab.catapult._model import limit
from everwide_lab.catapult._run import Catapult, reproduce
from everwide_lab.catapult._sweep import SHOWN, End, Kind, Runs, digits, sweep

pytestmark = pytest.mark.once

LINEAR, RELU, DEEP = Kind("linear", 1), Kind("relu", 1), Kind("relu", 2)


def test_the_limit_of_the_model_is_four():
    np.testing.assert_allclose(limit(10_000, 2, seed=0), 4, rtol=2e-3)


def test_networks_follow_the_model():
    """One row, one hidden layer, no activation: peaks, steps and curvatures are those of two numbers."""
    x, y = np.ones((1, 3)), np.asarray([0.5])
    runs = sweep(LINEAR, Sample(x, y, x, y, x, y), 64, (0.5, 3.0, 6.0), 2, 25)
    assert runs.ends()[:, 0].tolist() == [End.LEARNED] * 2
    assert runs.ends()[:, 2].tolist() == [End.DIVERGED] * 2
    for seed in range(2):
        params = LINEAR.net().init(jr.split(jr.key(64), 2)[seed], (3,), width=64)
        output, curvature = float(LINEAR.net().apply(params, jnp.ones(3))[0]), float(runs.curvature[seed, 1])
        course = catapult(
            output - 0.5, curvature, 3 / curvature, scale=1 / 64, target=0.5, steps=int(runs.steps[seed, 1])
        )
        losses = course.residuals**2 / course.residuals[0] ** 2
        np.testing.assert_allclose(runs.losses[seed, 1, : len(losses)], losses[:SHOWN], rtol=2e-2)
        assert runs.peak_step[seed, 1] == losses.argmax()
        np.testing.assert_allclose(runs.curvature_end[seed, 1], course.curvatures[-1], rtol=1e-2)


def made_up(kind=RELU, *, limit=5.0, rises=0, drift=0.0, peak=3.0, flat=1.5, above=0.1, below=0.2):
    """Runs of two seeds that do as they are told."""
    grid = np.asarray([0.5, 1.5, 2.5, 3.5, 4.0, 6.0, 12.0, 14.0])
    runs = np.broadcast_to(grid, (2, len(grid)))
    lazy, lost = runs < 2, runs > limit
    ones = np.ones_like(runs)
    end = np.where(lazy, 1 + drift, flat / runs)
    found = Runs(
        losses=np.broadcast_to(ones[..., None], (*ones.shape, SHOWN)),
        peak=np.where(lazy, 1, peak),
        peak_step=np.where(lazy, 0, 4),
        rises=np.where(lazy, rises, 3),
        last=np.where(lost, np.inf, 0.005),
        steps=10 * ones,
        curvature=ones,
        curvature_end=np.where(lost, np.nan, end),
        validation=np.where(lazy, below, above),
        test=np.where(lazy, below, above) + 0.001 * np.asarray([[1.0], [-1.0]]) * lazy,
    )
    return Swept(kind, 64, grid, found)


def verdicts(*swept, steps=((3, 3, 3), (6, 7, 6))):
    onset = Onset(LINEAR, (100, 1600), 2.5, np.asarray(steps, float))
    names = ("falls", "steady", "rises", "flat", "log", "linear", "relu", "test")
    found = claims_of(swept, [onset], np.asarray([4.0]))
    return dict(zip(names, (claim.verdict for claim in found), strict=True))


def test_everything_holds_where_it_does():
    found = verdicts(made_up(LINEAR, limit=3.9), made_up(RELU, limit=13.0))
    assert set(found.values()) == {Verdict.HOLDS}


def test_everything_fails_where_it_does():
    other = {"rises": 2, "drift": 0.5, "peak": 1.0, "flat": 3.0, "above": 0.3}
    found = verdicts(
        made_up(LINEAR, limit=13, **other), made_up(RELU, limit=3.9, **other), steps=((6, 7, 6), (3, 3, 3))
    )
    assert set(found.values()) == {Verdict.FAILS}


def test_what_holds_at_one_depth_holds_in_part():
    assert verdicts(made_up(RELU, limit=3.9), made_up(DEEP, limit=13))["relu"] is Verdict.PARTLY
    assert verdicts(made_up(RELU, limit=3.9))["linear"] is Verdict.UNDECIDED


def test_rates_are_chosen_on_rows_that_are_not_measured():
    one = made_up()
    chosen = one.runs._replace(validation=np.where(one.multiples == 2.5, 0.0, one.runs.validation))
    test = np.where(one.multiples == 2.5, 0.9, one.runs.test)
    np.testing.assert_allclose(gain(one._replace(runs=chosen._replace(test=test))), 0.9 - 0.2, atol=2e-3)


def test_networks_that_never_learn_say_nothing_of_test_rows():
    one = made_up(LINEAR)
    slow = one._replace(runs=one.runs._replace(last=np.full_like(one.runs.last, 0.2)))
    assert verdicts(slow)["test"] is Verdict.UNDECIDED
    assert verdicts(slow, made_up(RELU))["test"] is Verdict.HOLDS
    assert "linear, 1 hidden not one that learned; relu" in claims_of([slow, made_up(RELU)], [], np.ones(1))[-1].numbers


def test_limits_lie_between_two_rates():
    np.testing.assert_allclose(made_up(limit=5.0).limits(), (4 * 6) ** 0.5)
    assert np.isinf(made_up(limit=50.0).limits()).all()


def test_results_are_written(tmp_path):
    onset = Onset(LINEAR, (8, 32), 2.5, np.asarray([[2.0, 3.0], [4.0, 5.0]]))
    swept = (made_up(LINEAR, limit=3.9), made_up(RELU, limit=50.0))
    Catapult(swept, (onset,), np.asarray([4.0]), 16).write(tmp_path)
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["limit"]) for row in rows] == [pytest.approx((3.5 * 4) ** 0.5), np.inf]
    assert "first rises, and then falls" in (tmp_path / "results.md").read_text()
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_rows_are_not_shared():
    data = digits(30)
    parts = np.concatenate([data.x, data.x_validation, data.x_test])
    assert len(parts) == 1797
    np.testing.assert_allclose(np.mean(parts**2, 1), 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"n": 1000}, "n=1000: expected 2 to"), ({"widths": ()}, "expected whole numbers"), ({"seeds": 0}, "seeds=0")],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ew.InputError, match=message):
        reproduce(**arguments)


@pytest.mark.slow  # compiles a network for each kind and width
def test_everything_runs(tmp_path):
    stages = []
    found = reproduce(widths=(8,), seeds=2, steps=30, n=8, out=tmp_path, progress=stages.append)
    assert [one.kind.activation for one in found.swept] == ["linear", "tanh", "relu", "relu", "relu"]
    assert stages[-1].done == stages[-1].total
    assert (tmp_path / "figure.png").is_file()
