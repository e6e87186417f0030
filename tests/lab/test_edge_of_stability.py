"""Runs beside a loss that can be solved, verdicts of made-up runs, and the way from a folder back."""

import csv
import json

import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from everwide import InputError
from everwide_lab._claims import Verdict
from everwide_lab._digits import digits
from everwide_lab.edge_of_stability import EdgeOfStability, _arms, _run, reproduce
from everwide_lab.edge_of_stability._arms import ARMS, Arm, Course, Optimizer, Training, follow, network, times
from everwide_lab.edge_of_stability._claims import Followed, claims_of

pytestmark = pytest.mark.once

NAMES = ("sharpens", "descent", "exponent", "uneven", "momentum", "adam", "goes on", "sinks")
TINY = {"n": 24, "width": 4, "steps": 12}


def course(arm, *, seed=0, hover=1.02, start=0.2, after=0.4, fall=0.2, raw=1.5, last=0.1):
    """Twenty looks: a rise to the edge, and ten more looks there; seeds differ a little."""
    noise = 1 + 0.01 * seed
    ratio = np.concatenate([np.geomspace(start, hover, 10), np.full(10, hover)]) * noise
    if not arm.squared:
        ratio = np.concatenate([np.geomspace(start, hover, 10), np.geomspace(hover, last, 10)]) * noise
    late = np.arange(20) >= 10
    return Course(
        steps=np.arange(1, 21) * 10,
        losses=np.where(late, np.geomspace(1, fall, 20), 1.0) * noise,
        sharpness=ratio * arm.edge,
        raw=np.concatenate([np.ones(10), np.geomspace(1, raw, 10)]) * noise,
        rises=np.where(late, after, 0.0) * noise,
        finished=True,
    )


def followed(**told):
    return [Followed(arm, tuple(course(arm, seed=seed, **told) for seed in range(3))) for arm in ARMS]


def verdicts(runs):
    return dict(zip(NAMES, (claim.verdict for claim in claims_of(runs)), strict=True))


def test_everything_holds_where_it_does():
    assert set(verdicts(followed()).values()) == {Verdict.HOLDS}


def test_what_hovers_elsewhere_does_not_hover():
    found = verdicts(followed(hover=1.5, after=0.0, fall=2.0, raw=0.5, last=1.5))
    assert {name for name, verdict in found.items() if verdict is Verdict.FAILS} == {
        "descent", "momentum", "adam", "uneven", "goes on", "sinks"
    }  # fmt: skip


def test_runs_that_never_arrive_do_not_hover():
    found = verdicts(followed(hover=0.5, start=0.9))
    assert (found["descent"], found["adam"], found["exponent"]) == (Verdict.FAILS, Verdict.FAILS, Verdict.UNDECIDED)
    assert found["sharpens"] is Verdict.FAILS
    assert "never there" in claims_of(followed(hover=0.5, start=0.9))[1].numbers


def test_a_run_that_diverged_is_none_that_hovers():
    runs = followed()
    lost = runs[0]._replace(courses=(runs[0].courses[0]._replace(finished=False), *runs[0].courses[1:]))
    assert verdicts([lost, *runs[1:]])["descent"] is Verdict.PARTLY
    assert "2 of 3 runs" in claims_of([lost, *runs[1:]])[1].numbers


def test_the_exponent_is_that_of_the_rate():
    runs = followed()
    flat = [
        one._replace(courses=tuple(run._replace(sharpness=run.sharpness / one.arm.edge * 6) for run in one.courses))
        for one in runs
    ]
    assert verdicts(flat)["exponent"] is Verdict.FAILS


def test_one_seed_decides_nothing():
    runs = [one._replace(courses=one.courses[:1]) for one in followed()]
    assert set(verdicts(runs).values()) == {Verdict.UNDECIDED}


def test_shares_of_steps_are_counted_on_both_sides_of_the_arrival():
    one = followed(after=0.4)[0]
    np.testing.assert_allclose(one.rises(after=False), 0)
    assert one.rises(after=True).mean() == pytest.approx(0.4, rel=0.05)


def test_edges_are_those_of_the_papers():
    edges = {arm.optimizer: arm.edge * arm.rate for arm in ARMS}
    assert edges == {k: pytest.approx(v) for k, v in zip(Optimizer, (2, 3.8, 38), strict=True)}


def test_looks_end_with_the_training():
    found = times(2000, 50)
    assert (found[0], found[-1]) == (2, 2000)
    assert sorted(set(found)) == found
    assert 45 <= len(found) <= 50


def test_rows_are_not_shared():
    rows = digits(100, 0)
    assert len(rows.x) + len(rows.x_test) == 1797
    np.testing.assert_allclose([np.mean(rows.x**2), np.abs(rows.x.mean(0)).max()], [1, 0], atol=1e-12)
    np.testing.assert_allclose(rows.targets().sum(1), 0, atol=1e-12)
    assert not np.array_equal(rows.x, digits(100, 1).x)


@pytest.mark.slow  # compiles three optimizers
@pytest.mark.parametrize("arm", [ARMS[0], ARMS[3], ARMS[5], ARMS[7]], ids=str)
@jax.numpy_dtype_promotion("standard")  # of Adam's bias correction in optax
def test_sharpness_is_that_of_the_whole_hessian(arm):
    """Beside all second derivatives, at parameters that the same steps lead to one by one."""
    found = follow(arm, n=20, width=2, steps=4, looks=2, seed=0)
    rows, net = digits(20, 0), network(10)
    x, y = jnp.asarray(rows.x, float), jnp.asarray(rows.targets(), float) if arm.squared else jnp.asarray(rows.labels)
    state = Training(net, arm, x, y).begin(net.init(jr.key(0), (64,), width=2, parametrization="standard"))
    for _ in range(4):
        state = Training(net, arm, x, y).step(state)
    flat, back = jax.flatten_util.ravel_pytree(state.params)

    def value(vector):
        return jnp.mean(jax.vmap(arm.loss)(jax.vmap(net.apply, (None, 0))(back(vector), x), y))

    matrix = np.asarray(jax.hessian(value)(flat), np.float64)
    assert found["losses"][-1] == pytest.approx(float(state.loss), rel=1e-4)
    assert found["raw"][-1] == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=5e-3)
    if arm.optimizer is Optimizer.ADAM:
        root = np.asarray(jax.flatten_util.ravel_pytree(state.memory[0].nu)[0], np.float64) / (1 - 0.999**4)
        scale = 1 / np.sqrt(np.sqrt(root) + _arms.EPS)
        matrix = scale[:, None] * matrix * scale
    assert found["sharpness"][-1] == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=5e-3)


def test_results_are_written(tmp_path):
    runs = followed()
    EdgeOfStability(tuple(runs), 256, 32, 2000).write(tmp_path)
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["ratio"]) for row in rows[:7]] == [pytest.approx(1.03, abs=0.01)] * 7
    assert "hovers at 2/rate" in (tmp_path / "results.md").read_text()
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_run_is_kept_and_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(_run, "ARMS", (Arm(Optimizer.DESCENT, 0.5), Arm(Optimizer.DESCENT, 2.0, squared=False)))
    stages = []
    reproduce(**TINY, seeds=1, out=tmp_path)
    found = reproduce(**TINY, seeds=2, out=tmp_path, progress=stages.append)
    lines = [json.loads(line)["run"] for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [line["seed"] for line in lines] == [0, 0, 1, 1]
    assert [len(one.courses) for one in found.followed] == [2, 2]
    assert stages[-1].done == stages[-1].total


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"n": 3}, "n=3: expected 20 to"), ({"seeds": 0}, "seeds=0"), ({"steps": 5}, "10 steps or more")],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        reproduce(**{**TINY, **arguments})
