"""Verdicts of made-up runs, spectra beside whole matrices, and rows."""

import csv
import json

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from everwide import InputError
from everwide_lab._claims import Verdict
from everwide_lab._digits import balanced
from everwide_lab.collapse import Collapse, _network, _run, reproduce
from everwide_lab.collapse._claims import Followed, claims_of
from everwide_lab.collapse._network import ARMS, MEASURES, Arm, follow, spectrum, times

pytestmark = pytest.mark.once

NAMES = (*MEASURES[:-1], "nearest", "test", "decay", "classes", "outliers")
TINY = {"n": 20, "width": 10, "steps": 12}


def followed(arm, *, end=0.1, nearest=0.0, test=0.01, share=0.9, outliers=10, error=0.0, seeds=3):
    """Three looks: with errors, without, the end. Seeds differ a little."""
    noise = 1 + 0.01 * np.linspace(-1, 1, seeds)[:, None]
    seen = {name: np.array([2.0, 1.0, end if arm.decay else 0.9]) * noise for name in MEASURES}
    seen["centres"] = np.array([0.2, 0.1, nearest]) * noise
    seen |= {"steps": np.broadcast_to([1.0, 10.0, 100.0], (seeds, 3)), "loss": np.ones((seeds, 3))}
    seen |= {
        "error": np.broadcast_to([0.5, error, error], (seeds, 3)),
        "test_error": np.array([0.5, 0.1, test]) * noise,
    }
    spectra = [
        {"values": [1.0, 0.5], "outliers": outliers, "share": share * float(each), "pairs": 0.05, "without": 0.3}
        for each in noise[:, 0]
    ]
    return Followed(arm, seen, tuple({"fitted": one, "end": one} for one in spectra))


def verdicts(runs):
    return dict(zip(NAMES, (claim.verdict for claim in claims_of(runs)), strict=True))


def test_everything_holds_where_it_does():
    assert set(verdicts([followed(arm) for arm in ARMS]).values()) == {Verdict.HOLDS}


def test_everything_fails_where_it_does():
    runs = [followed(arm, end=2.0, nearest=0.1, test=0.3, share=0.1, outliers=2) for arm in ARMS]
    assert set(verdicts(runs).values()) == {Verdict.FAILS}


def test_one_kind_of_network_against_another_is_a_part():
    runs = [followed(ARMS[0]), followed(ARMS[1], end=2.0, nearest=0.1, test=0.3, share=0.1, outliers=2)]
    found = verdicts(runs)
    assert found.pop("decay") is Verdict.UNDECIDED
    assert set(found.values()) == {Verdict.PARTLY}


def test_one_seed_decides_nothing():
    assert set(verdicts([followed(arm, seeds=1) for arm in ARMS]).values()) == {Verdict.UNDECIDED}


def test_networks_with_errors_have_not_begun_to_collapse():
    runs = [followed(arm, error=0.1) for arm in ARMS]
    assert verdicts(runs)["within"] is Verdict.UNDECIDED
    assert all("still errors" in claims_of(runs)[place].numbers for place in (0, 5))
    assert [row["when"] for row in Collapse(tuple(runs), 20, 10, 100).table()] == ["end"] * 3


def test_rows_are_balanced_and_not_shared():
    rows = balanced(100, 0)
    assert np.bincount(rows.labels).tolist() == [10] * 10
    assert len(rows.x) + len(rows.x_test) == len(rows.labels) + len(rows.labels_test) == 1797
    assert len(np.unique(np.concatenate([rows.x, rows.x_test]), axis=0)) == 1797
    np.testing.assert_allclose([np.mean(rows.x**2), np.abs(rows.x.mean(0)).max()], [1, 0], atol=1e-12)
    assert times(100, 8)[-1] == 100


@pytest.mark.slow
@pytest.mark.parametrize("normalized", [True, False])
def test_spectra_are_those_of_whole_matrices(normalized):
    """Beside Jacobians of all rows, and means of classes that are added up one by one."""
    rows, net = balanced(20, 0), Arm(normalized, 0.0).network()
    x = jnp.asarray(rows.x, float)
    params = net.init(jr.key(0), (64,), width=10, parametrization="standard")
    found = spectrum(net, params, x, rows.labels)
    tree = jax.vmap(jax.jacobian(net.apply), (None, 0))(params, x)
    jacobian = np.concatenate([np.asarray(leaf, float).reshape(20, 10, -1) for leaf in jax.tree.leaves(tree)], -1)
    p = np.asarray(jax.nn.softmax(jax.vmap(net.apply, (None, 0))(params, x)), float)
    under = (p[:, None] - np.eye(10)) @ jacobian  # gradients of every row under every label
    root = (np.sqrt(p)[..., None] * under).reshape(200, -1)
    values, vectors = np.linalg.eigh(root @ root.T / 20)
    between = np.zeros((10, jacobian.shape[-1]))
    for c in range(10):
        total, weight = 0.0, 0.0
        for i in np.flatnonzero(rows.labels == c):
            for other in set(range(10)) - {c}:
                total = total + p[i, other] / 20 * under[i, other]
                weight += p[i, other] / 20
        between[c] = total / np.sqrt(weight)
    np.testing.assert_allclose(found["values"], values[::-1][:15], rtol=2e-2)
    leading = root.T @ vectors[:, ::-1][:, :10]
    leading /= np.linalg.norm(leading, axis=0)
    share = np.sum((between @ leading) ** 2) / np.sum(values[::-1][:10])
    assert found["share"] == pytest.approx(share, rel=0.05)


@pytest.mark.slow
def test_a_run_is_kept_and_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(_run, "ARMS", (Arm(True, 1e-3),))
    stages = []
    reproduce(**TINY, seeds=1, out=tmp_path)
    found = reproduce(**TINY, seeds=2, out=tmp_path, progress=stages.append)
    lines = [json.loads(line)["run"]["seed"] for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert lines == [0, 1]
    assert found.followed[0].seen["within"].shape[0] == 2
    assert stages[-1].done == stages[-1].total


@pytest.mark.slow
def test_decay_makes_weights_smaller(monkeypatch):
    monkeypatch.setattr(_network, "spectrum", lambda *given: {})
    losses = [follow(Arm(True, decay), n=50, width=12, steps=300, looks=3, seed=0)["looks"] for decay in (0.0, 0.1)]
    assert losses[0]["loss"][-1] < losses[0]["loss"][0] / 4
    assert losses[1]["loss"][-1] > 2 * losses[0]["loss"][-1]


def test_results_are_written(tmp_path):
    Collapse(tuple(followed(arm) for arm in ARMS), 100, 64, 100).write(tmp_path)
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["when"] for row in rows] == ["fitted", "end"] * 3
    assert float(rows[1]["within"]) == pytest.approx(0.1, rel=0.02)
    assert "NC3" in (tmp_path / "results.md").read_text()
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"n": 25}, "n=25: expected tens"), ({"seeds": 0}, "seeds=0"), ({"width": 5}, "a width of 10")],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        reproduce(**{**TINY, **arguments})
