"""Kernels against solutions by hand, networks that learn, verdicts against made-up curves."""

import csv
import json

import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide_lab._claims import Verdict
from everwide_lab._sample import split
from everwide_lab.vyas2022 import Vyas2022, _run, reproduce
from everwide_lab.vyas2022._claims import Measured, claims_of
from everwide_lab.vyas2022._learners import Learner, _finite, _limit, regressed
from everwide_lab.vyas2022._network import network
from everwide_lab.vyas2022._tasks import VALIDATION, single_neuron, staircase, tasks

pytestmark = pytest.mark.once

SIZES = (64, 256, 1024)
AHEAD = {Learner.INFINITE: 0.3, Learner.START: 0.3, Learner.PRETRAINED: 0.5, Learner.TRAINED: 1.0, Learner.NETWORK: 1.0}


def curves(exponents, *, distances=(1.0, 0.6, 0.3, 0.0), task="steps", seeds=3, noise=0.02):
    """Power laws of these exponents, and seeds that differ a little in them."""
    shift = noise * np.linspace(-1, 1, seeds)[:, None]
    errors = {one: np.asarray(SIZES, float) ** -(exponent + shift) for one, exponent in exponents.items()}
    course = np.broadcast_to(distances, (seeds, 4)) * (1 + shift)
    return Measured(task, SIZES, errors, course, course)


def verdicts(*measured):
    names = ("infinite", "start", "pretrained", "trained", "evolves")
    return dict(zip(names, (claim.verdict for claim in claims_of(measured)), strict=True))


def test_exponents_are_those_of_power_laws():
    np.testing.assert_allclose(curves(AHEAD, noise=0.0).exponents(Learner.PRETRAINED), 0.5)


def test_a_pretrained_kernel_is_compared_where_it_knows_no_more_than_the_network():
    one = curves(AHEAD)
    one.errors[Learner.PRETRAINED][:, 0] = 1e-9  # at 64 rows it has seen 256
    assert verdicts(one)["pretrained"] is Verdict.HOLDS
    short = one._replace(sizes=(16, 32, 64))
    assert verdicts(short)["pretrained"] is Verdict.UNDECIDED
    assert np.isnan(short.exponents(Learner.PRETRAINED, 256)).all()


def test_everything_holds_where_it_does():
    assert set(verdicts(curves(AHEAD), curves(AHEAD)).values()) == {Verdict.HOLDS}


def test_everything_fails_where_it_does():
    behind = dict.fromkeys(Learner, 1.0) | {Learner.NETWORK: 0.5}
    lazy = curves(behind, distances=(1.0, 0.05, 0.02, 0.0))
    lazy.errors[Learner.NETWORK][:] = np.asarray(SIZES, float) ** -0.5  # no noise in common
    assert set(verdicts(lazy).values()) == {Verdict.FAILS}


def test_one_task_against_another_is_a_part():
    found = verdicts(curves(AHEAD), curves(dict.fromkeys(Learner, 1.0), noise=0.0))
    assert (found["infinite"], found["start"], found["trained"]) == (Verdict.PARTLY, Verdict.PARTLY, Verdict.HOLDS)


def test_one_seed_decides_nothing():
    assert verdicts(curves(AHEAD, seeds=1))["infinite"] is Verdict.UNDECIDED


@pytest.mark.parametrize("draw", [staircase, single_neuron])
def test_targets_are_centred_and_of_unit_power(draw):
    x, y = draw(np.random.default_rng(0), 200_000)
    np.testing.assert_allclose([y.mean(), np.mean(y**2), np.mean(x**2)], [0, 1, 1], atol=0.02)


def test_rows_are_not_shared_and_seeds_differ():
    (digits,) = (task for task in tasks(500, 300, None) if task.name == "digits")
    one, other = digits.draw(0), digits.draw(1)
    rows = np.concatenate([one.x, one.x_validation, one.x_test])
    assert (len(one.x), len(one.x_validation), len(one.x_test)) == (500, VALIDATION, 300)
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert np.any(one.x != other.x)
    assert one.y.shape[1] == 10


def test_ridges_are_chosen_where_nothing_is_measured():
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(20 + VALIDATION + 50, 3)), rng.normal(size=(3, 1))
    sample = split(x, x @ weights, 20, VALIDATION)
    assert regressed(x @ x[:20].T, sample, 20) < 1e-8  # a linear kernel, a linear target
    noisy = split(x, x @ weights + 3 * rng.normal(size=(len(x), 1)), 20, VALIDATION)
    least = np.linalg.lstsq(noisy.x, noisy.y, rcond=None)[0]
    plain = np.mean((noisy.x_test @ least - noisy.y_test) ** 2) / np.mean(noisy.y_test**2)
    assert regressed(x @ x[:20].T, noisy, 20) < plain


@pytest.mark.slow
def test_kernels_of_networks_are_those_of_the_limit_in_the_mean():
    sample, net = split(*staircase(np.random.default_rng(0), 8 + VALIDATION + 4), 8, VALIDATION), network(1)
    drawn = [net.init(key, (20,), width=256, parametrization="standard") for key in jr.split(jr.key(0), 60)]
    mean = np.mean([_finite(sample, 8, params) for params in drawn], 0)
    np.testing.assert_allclose(mean, _limit(sample, 8, 256), rtol=0.2)
    assert np.mean(mean / _limit(sample, 8, 256)) == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_a_run_is_kept_and_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(_run, "tasks", lambda *sizes: tasks(*sizes)[:1])
    sizes, stages = {"sizes": (16, 32), "steps": 50, "width": 8, "tests": 50}, []
    first = reproduce(**sizes, seeds=1, out=tmp_path)
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    found = reproduce(**sizes, seeds=2, out=tmp_path, progress=stages.append)
    after = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert after[:1] == lines
    assert [json.loads(line)["run"]["seed"] for line in after] == [0, 1]
    np.testing.assert_array_equal(
        found.measured[0].errors[Learner.NETWORK][:1], first.measured[0].errors[Learner.NETWORK]
    )
    assert stages[-1].done == stages[-1].total
    assert (tmp_path / "figure.png").is_file()


def test_a_table_may_take_part(tmp_path):
    file = tmp_path / "rows.csv"
    x = np.random.default_rng(0).normal(size=(600, 2))
    lines = [f"{a:.6f},{b:.6f},{a + b:.6f}" for a, b in x]
    file.write_text("\n".join(["a,b,sum", *lines]))
    found = tasks(64, 100, file)[-1]
    sample = found.draw(0)
    assert (found.name, sample.x.shape, sample.y.shape) == ("rows.csv", (64, 2), (64, 1))
    file.write_text("\n".join(["a,b,sum", *lines[:300]]))
    with pytest.raises(ew.InputError, match=r"rows.csv has 300 rows"):
        tasks(64, 100, file)


def test_results_are_written(tmp_path):
    Vyas2022((curves(AHEAD), curves(AHEAD, task="digits")), 16, 10, 100).write(tmp_path)
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(Learner)
    assert float(rows[0]["exponent"]) == pytest.approx(0.3)
    assert float(rows[4]["error_1024"]) == pytest.approx(1 / 1024, rel=0.1)
    assert "does not catch up" in (tmp_path / "results.md").read_text()
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"sizes": (64,)}, "expected two sizes"), ({"seeds": 0}, "seeds=0"), ({"data": "nowhere.csv"}, "no file")],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ew.InputError, match=message):
        reproduce(**arguments)
