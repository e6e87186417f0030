"""Look-ahead beside retraining: closed forms by hand, refitted kernel machines, verdicts of made-up numbers."""

import json

import numpy as np
import pytest

from everwide import InputError
from everwide_lab._claims import Verdict
from everwide_lab.lookahead2022 import reproduce
from everwide_lab.lookahead2022._claims import Measured, claims_of
from everwide_lab.lookahead2022._network import Labelled, Learner
from everwide_lab.lookahead2022._querying import Strategy, by_outputs, looked_ahead
from everwide_lab.lookahead2022._retraining import RIDGE, Course, Guess, agreement
from everwide_lab.lookahead2022._tasks import checkerboard, digits

pytestmark = pytest.mark.once
TINY = {"pool": 40, "rounds": 1, "batch": 5, "labelled": 12, "candidates": 4, "width": 8, "steps": 20, "tests": 50}


def measured(ranks=0.9, cosines=(0.9, 0.5, 0.3, 0.4), accuracies=(0.6, 0.7, 0.7, 0.8, 0.65), task="digits", seeds=4):
    """Made-up numbers: seeds differ a little."""
    noise = 0.01 * np.linspace(-1, 1, seeds)
    kinds = [(course, guess) for course in Course for guess in Guess]
    found = dict(zip(Guess, cosines, strict=True))
    scale = np.array([0.5, 1.0, 1.1])
    areas = {one: value * scale + noise[:, None] for one, value in zip(Strategy, accuracies, strict=True)}
    shifted = {kind: found[kind[1]] + (1 + (kind[1] is Guess.TRAINED)) * noise for kind in kinds}
    return Measured(task, (10, 15, 20), dict.fromkeys(kinds, ranks + noise), shifted, areas)


def verdicts(*one):
    return [claim.verdict for claim in claims_of(one)]


def test_everything_holds_where_it_does():
    assert set(verdicts(measured(), measured(task="other"))) == {Verdict.HOLDS}


def test_everything_fails_where_it_does():
    behind = measured(ranks=0.1, cosines=(0.1, 0.5, 0.5, 0.5), accuracies=(0.9, 0.9, 0.9, 0.3, 0.9))
    assert set(verdicts(behind)) == {Verdict.FAILS}


def test_one_task_against_another_is_a_part():
    behind = measured(ranks=0.1, cosines=(0.1, 0.5, 0.5, 0.5), accuracies=(0.9, 0.9, 0.9, 0.3, 0.9))
    assert set(verdicts(measured(), behind)) == {Verdict.PARTLY}


def test_one_seed_decides_nothing():
    assert set(verdicts(measured(seeds=1))) == {Verdict.UNDECIDED}


@pytest.mark.parametrize(("draw", "classes"), [(digits, 10), (checkerboard, 2)])
def test_rows_are_not_shared_and_seeds_differ(draw, classes):
    one, other = draw(100, 60, 0), draw(100, 60, 1)
    assert (len(one.x), len(one.x_test), one.classes) == (100, 60, classes)
    assert len(np.unique(np.concatenate([one.x, one.x_test]), axis=0)) == 160
    assert not np.array_equal(one.x, other.x)
    np.testing.assert_allclose(one.targets(one.y).sum(1), 0, atol=1e-12)


def test_the_checkerboard_has_squares_of_both_colours():
    sample = checkerboard(2000, 1, 0)
    inside = np.all((sample.x > 0.05) & (sample.x < 0.95), axis=1)
    assert len(set(sample.y[inside].tolist())) == 1
    assert 0.4 < sample.y.mean() < 0.6


def test_margins_and_entropies_by_hand():
    outputs, rng = np.array([[0.5, 0.49, 0.01], [0.4, 0.3, 0.3], [0.98, 0.01, 0.01]]), np.random.default_rng(0)
    assert by_outputs(Strategy.MARGIN, outputs, 1, rng).tolist() == [0]
    assert by_outputs(Strategy.ENTROPY, outputs, 1, rng).tolist() == [1]
    assert sorted(by_outputs(Strategy.RANDOM, outputs, 3, rng)) == [0, 1, 2]


def test_rows_that_look_ahead_picks_change_a_refitted_kernel_machine_most():
    """Every candidate is learned for real, by solving all equations again."""
    rng = np.random.default_rng(0)
    x, n = rng.normal(size=(14, 3)), 5
    kernel = np.exp(-np.sum((x[:, None] - x) ** 2, -1) / 2)
    classes, now = np.eye(2) - 0.5, 0.1 * rng.normal(size=(14, 2))
    y = classes[rng.integers(2, size=n)]

    def fitted(rows, targets):
        inner = kernel[np.ix_(rows, rows)] + RIDGE * np.eye(len(rows))
        return now + kernel[:, rows] @ np.linalg.solve(inner, targets - now[rows])

    rows, targets, expected = list(range(n)), y, []
    for _ in range(3):
        before = fitted(rows, targets)
        changes = {}
        for one in range(n, 14):
            if one not in rows:
                label = classes[np.argmax(before[one])]
                after = fitted([*rows, one], np.vstack([targets, label]))
                changes[one] = np.linalg.norm((after - before)[n:], axis=1).sum()
        best = max(changes, key=changes.get)
        expected.append(best - n)
        rows, targets = [*rows, best], np.vstack([targets, classes[np.argmax(before[best])]])
    assert looked_ahead(kernel, y, now, 3).tolist() == expected


@pytest.mark.slow
def test_networks_learn_and_rows_without_weight_do_not_count():
    sample, learner = checkerboard(20, 5, 0), Learner(2, 32, 400)
    y, first = sample.targets(sample.y), learner.first(2, 0)
    alone = learner.train(first, Labelled(sample.x[:8], y[:8], np.ones(8)))
    padded = learner.train(first, Labelled(sample.x, y, (np.arange(20) < 8).astype(float)))
    outputs = learner.outputs(alone, sample.x)
    np.testing.assert_allclose(outputs, learner.outputs(padded, sample.x), atol=5e-3)
    assert np.mean(outputs[:8].argmax(1) == sample.y[:8]) > 0.8
    several = learner.train(first, Labelled(*(np.stack([part, part]) for part in (sample.x[:8], y[:8], np.ones(8)))))
    np.testing.assert_allclose(learner.all_outputs(several, sample.x)[1], outputs, atol=5e-3)


@pytest.mark.slow
def test_wide_networks_change_as_foreseen():
    """Trained on, a wide network changes much as its kernel says; not exactly, as ADAM is no gradient descent."""
    found = agreement(digits(40, 5, 0), Learner(10, 512, 1500), 10, 6, 0)
    on = found[f"{Course.ON.value}, {Guess.TRAINED.value}"]
    assert on["cosine"] > 0.4
    assert on["ranks"] > 0.5


@pytest.mark.slow
def test_a_run_is_kept_and_not_repeated(tmp_path):
    stages = []
    reproduce(**TINY, seeds=1, out=tmp_path)
    found = reproduce(**TINY, seeds=2, out=tmp_path, progress=stages.append)
    lines = [json.loads(line)["run"] for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [(line["task"], line["seed"]) for line in lines] == [
        ("digits", 0), ("checkerboard", 0), ("digits", 1), ("checkerboard", 1)
    ]  # fmt: skip
    assert found.measured[0].accuracies[Strategy.MLMOC].shape == (2, 2)
    assert stages[-1].done == stages[-1].total
    assert len(found.table()) == 2 * (len(Strategy) + len(Guess) * len(Course))
    assert "40 labelled" not in found.notes()
    assert (tmp_path / "figure.png").is_file()


@pytest.mark.parametrize("given", [{"seeds": 0}, {"pool": 30, "rounds": 9}, {"tests": 1790}, {"candidates": 2}])
def test_sizes_that_cannot_be(given):
    with pytest.raises(InputError, match="expected"):
        reproduce(**{**TINY, **given})
