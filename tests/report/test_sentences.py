"""Every sentence of the page on a table and on what was chosen for it: each is true once, and once it is not said."""

from dataclasses import replace

import numpy as np
import pytest

import everwide as ew
from everwide.report._sections import accuracy, architecture, calibration, data, modes, phase, rows
from everwide.report._sections.accuracy import CONSTANT, NETWORK
from report.report_tables import number_table
from report.sentences import check, said
from report.test_sections import validation

pytestmark = pytest.mark.once


def table_with(problem, x, y, classes=None, **known):
    names = known.pop("names", tuple(f"column {at}" for at in range(x.shape[1])))
    return replace(problem, table=replace(number_table(), x=x, y=y, names=names, classes=classes, **known))


def cases_of_data(numbers, labelled):
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(200, 3)), rng.normal(size=200)
    skewed, far = np.exp(3 * noise), noise.copy()
    far[7] = 1e12
    constant = x.copy()
    constant[:, 1] = 7.0
    constant[:, 2] = np.arange(200)
    images = x[:, :1].reshape(-1, 1, 1, 1) * np.ones((1, 4, 4, 1))
    images[:, 0, 0] = 0
    twice = np.concatenate([x[:100], x[:100]])
    yield numbers
    yield labelled
    yield table_with(numbers, x, x[:, 0] + noise)
    yield table_with(numbers, x, skewed)
    yield table_with(numbers, x, -skewed)
    yield table_with(numbers, x, far)
    yield table_with(numbers, constant, noise)
    yield table_with(numbers, twice, noise)
    yield table_with(numbers, x, 2 * x[:, 0])
    yield table_with(numbers, x, (np.arange(200) % 10 == 0).astype(int), ("no", "yes"))
    yield table_with(numbers, rng.normal(size=(110, 120)), rng.normal(size=110))
    yield table_with(numbers, rng.normal(size=(200, 130)), noise)
    yield table_with(numbers, images, noise, names=(), sites=(4, 4, 1))


def test_data(numbers, labelled, monkeypatch):
    monkeypatch.setattr(data, "_MOST_COLUMNS", 125)
    problems = list(cases_of_data(numbers, labelled))
    check(data, [(problem, data.SECTION.measure(problem)) for problem in problems])


def scored(problem, wrong: dict[str, np.ndarray], classes: bool):
    """Accuracy of models with these losses: shares of rows that are wrong, or squares of errors."""
    n = len(wrong[NETWORK])
    truth = np.arange(n) % 2 if classes else np.linspace(-1, 1, n)
    predicted = {
        name: np.where(one > 0, 1 - truth, truth) if classes else truth + np.sqrt(one) for name, one in wrong.items()
    }
    problem = replace(problem, table=replace(problem.table, classes=("a", "b") if classes else None))
    return problem, accuracy.accuracy(problem, validation(truth=truth, predicted=predicted, dropped=int(n == 300)))


def losses(rng, share, n, classes):
    return (rng.random(n) < share) * 1.0 if classes else share * rng.chisquare(1, size=n)


def cases_of_accuracy(problem):
    rng = np.random.default_rng(0)
    for classes in (False, True):
        for n in (300, 400):
            for own, rival in ((0.2, 0.2), (0.1, 0.4), (0.4, 0.1), (0.5, 0.5), (0.5, 0.1)):
                drawn = [losses(rng, share, n, classes) for share in (own, rival, 0.5)]
                yield scored(problem, dict(zip((NETWORK, "forest", CONSTANT), drawn, strict=True)), classes)
        other, same = (losses(rng, share, 600, classes) for share in (0.2, 0.5))
        yield scored(problem, {NETWORK: np.zeros(600), "forest": other, CONSTANT: same}, classes)
        one = np.r_[1e12, losses(rng, 0.2, 299, classes)]
        yield scored(problem, {NETWORK: one, "forest": one + 1, CONSTANT: one + 1}, classes)


def test_accuracy(numbers):
    quick = list(cases_of_accuracy(numbers))
    full = [(replace(problem, limits=problem.limits._replace(folds=5)), result) for problem, result in quick]
    large = [(problem, replace(result, n_table=50_000)) for problem, result in quick]
    check(accuracy, quick + full + large + [(replace(problem, asked="auto"), result) for problem, result in quick])
    assert "480 of 50" not in said(accuracy, *quick[0])


def cases_of_calibration(numbers, labelled):
    rng = np.random.default_rng(0)
    both = lambda p: np.stack([1 - p, p], 1)
    uneven = np.r_[np.full(600, 0.95), np.full(600, 0.55)]
    for sure, truth in (
        (np.full(1000, 0.7), rng.random(1000) < 0.7),
        (np.full(1000, 0.7), rng.random(1000) < 0.64),
        (np.full(1000, 0.99), rng.random(1000) < 0.6),
        (np.full(1000, 0.55), rng.random(1000) < 0.9),
        (uneven, rng.random(1200) < np.r_[np.full(600, 0.75), np.full(600, 0.75)]),
        (np.repeat([0.999, 0.6], 500), np.r_[np.ones(500), rng.random(500) < 0.6] > 0),
    ):
        known = validation(truth=truth.astype(int), probability=both(sure))
        yield labelled, calibration.calibration_of_classes(known)
    for share in (0.6, 0.9, 1.0):
        inside = rng.random((200, len(accuracy.LEVELS))) < share
        known = {"truth": rng.normal(size=200), "mean": np.zeros(200), "std": np.ones(200), "inside": inside}
        yield numbers, calibration.calibration_of_intervals(validation(**known, half_width=np.ones(200)))


def test_calibration(numbers, labelled):
    cases = list(cases_of_calibration(numbers, labelled))
    full = [(replace(problem, limits=problem.limits._replace(folds=5)), result) for problem, result in cases]
    check(calibration, cases + full)


def test_rows(numbers, labelled):
    ours, theirs = rows.rows(numbers), rows.rows(labelled)
    by_share = lambda one, first, all: replace(one, influence=one.influence._replace(share_of_first=first, share=all))
    none = np.zeros(0, int)
    larger = replace(numbers, table=replace(numbers.table, x=np.zeros((500, 2)), y=np.zeros(500)))
    check(
        rows,
        [
            *((numbers, by_share(ours, first, all)) for first, all in ((0.1, 0.3), (0.1, 0.6), (0.6, 0.9))),
            (numbers, replace(ours, ruled=True, outliers=1)),
            (numbers, replace(ours, ruled=False, outliers=0, surprising_rows=none, uncertain_rows=none)),
            (larger, ours),
            (labelled, replace(theirs, right=0.9, n_contradicted=3)),
            (labelled, replace(theirs, right=0.9, n_contradicted=0)),
            (labelled, replace(theirs, right=0.4)),
        ],
    )


class Chosen:
    """An estimator that has chosen this."""

    def __init__(self, choice):
        self.choice_ = choice


def chosen(problem, **known):
    return replace(problem, estimator=Chosen(replace(problem.estimator.choice_, **known)))


def test_architecture(numbers):
    endless = {"relative_time": np.inf}
    auto = replace(numbers, asked="auto", x=np.zeros((90, 8)))
    problems = [
        chosen(numbers, relative_ridge=0.1, **endless),
        chosen(numbers, relative_ridge=1e-8, **endless),
        chosen(numbers, relative_time=30.0),
        chosen(numbers, relative_time=1e8),
        chosen(auto, frozen=3, depth=3),
        chosen(replace(auto, x=np.zeros((90, 4))), frozen=0),
        replace(numbers, asked="mlp"),
    ]
    check(architecture, [(problem, architecture.architecture(numbers)) for problem in problems])


def test_modes(numbers):
    result = modes.modes(numbers)
    some = [replace(result, modes_for_90_percent=most) for most in (3, 30, 60, 85)]
    check(modes, [(numbers, one) for one in [*some, replace(result, rank=50)]])


def test_phase(numbers):
    hidden = lambda activation, w_std, b_std: ew.Serial(
        ew.Dense(w_std=1.0), activation, ew.Dense(w_std=w_std, b_std=b_std), activation, ew.Dense(1)
    )
    nets = [
        hidden(ew.Tanh(), 0.5, 0.0),
        hidden(ew.Tanh(), 1.0, 0.0),
        hidden(ew.Tanh(), 2.0, 0.0),
        hidden(ew.Relu(), 2**0.5, 0.1),
        hidden(ew.Relu(), 2.0, 0.0),
        hidden(ew.Sigmoid(), 1.0, 0.0),
        ew.Serial(*hidden(ew.Tanh(), 2.0, 0.0).layers[:-1], ew.LayerNorm(), ew.Dense(1)),
    ]
    problems = [replace(numbers, net=net) for net in nets]
    texts = check(phase, [(problem, phase.phase(problem)) for problem in problems])
    for text in texts:  # what depth does to rows is said in one way
        assert not ("apart" in text and "Differences fade" in text)
