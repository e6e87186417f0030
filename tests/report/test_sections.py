"""The parts of a report, each beside something that is computed in another way."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import scipy.stats

import everwide as ew
from everwide.report import Section
from everwide.report._study import (
    _agreement,
    _architecture,
    _calibration,
    _data,
    _modes,
    _needs,
    _phase,
    _rows,
    _training,
    _validation,
)
from everwide.report._study._accuracy import _wilson, accuracy
from everwide.report._study._run import _part
from everwide.report._study._validation import LEVELS, NETWORK, Validation, cross_validated
from report.report_tables import number_table, small_net

pytestmark = pytest.mark.once


def validation(**known) -> Validation:
    """Nothing but what is known."""
    none = np.zeros(0)
    empty = {"rows": np.arange(len(known["truth"])), "folds": 3, "dropped": 0, "predicted": {}}
    outputs = {
        "probability": np.zeros((len(known["truth"]), 0)),
        "mean": none,
        "std": none,
        "inside": np.zeros((0, len(LEVELS)), bool),
        "half_width": none,
    }
    return Validation(**(empty | outputs | known))


def test_influence_is_what_refitting_without_the_row_does():
    rng = np.random.default_rng(0)
    x, other, y, ridge = rng.normal(size=(12, 3)), rng.normal(size=(5, 3)), rng.normal(size=(12, 2)), 0.3
    kernel = lambda a, b: np.exp(-0.5 * np.sum((a[:, None] - b[None]) ** 2, -1))
    predict = lambda rows: (
        kernel(other, x[rows]) @ np.linalg.solve(kernel(x[rows], x[rows]) + ridge * np.eye(len(rows)), y[rows])
    )
    found = _rows.influence(kernel(x, x), kernel(other, x), y, ridge)
    everything = predict(np.arange(12))
    moved = [np.sqrt(np.mean((predict(np.delete(np.arange(12), row)) - everything) ** 2)) for row in range(12)]
    np.testing.assert_allclose(found, moved, rtol=1e-9)


def test_duplicates_as_by_looking_at_all_pairs():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 3, size=(40, 2)) * 1.0, rng.integers(0, 2, size=40)
    x[x == 0] = -0.0
    x[0] = 0.0
    same = (x[:, None] == x[None]).all(-1)
    earlier = np.tril(same, -1).any(1).sum()
    conflict = (same & (y[:, None] != y[None])).any(1).sum()
    assert _data.duplicates(x, y) == (earlier, conflict)
    assert earlier > 0
    assert conflict > 0


def warned(x, y, classes=None) -> str:
    names = tuple(f"column {at}" for at in range(x.shape[1]))
    table = replace(number_table(), x=x, y=y, names=names, classes=classes)
    return " ".join(_data.data(table).warnings)


def test_what_is_wrong_with_a_table_is_said():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    y = x[:, 0] + rng.normal(size=200)
    assert warned(x, y) == ""
    x[:, 1] = 7.0
    x[:, 2] = np.arange(200) + 5
    x[:, 3] = np.exp(y)
    said = warned(x, y)
    assert "Constant columns say nothing, and can go: \u201ccolumn 1\u201d" in said
    assert "count the rows, and should not be inputs: \u201ccolumn 2\u201d" in said
    assert "gives the target away: \u201ccolumn 3\u201d" in said
    assert "skewed" in warned(rng.normal(size=(200, 2)), np.exp(3 * rng.normal(size=200)))
    assert "only 20 rows" in warned(x[:20, :1], y[:20])
    assert "more columns" in warned(rng.normal(size=(110, 120)), rng.normal(size=110))


def test_leaks_and_imbalance_of_classes():
    rng = np.random.default_rng(0)
    y = (np.arange(300) % 10 == 0).astype(int)
    x = rng.normal(size=(300, 2))
    x[:, 1] = 10 * y + rng.normal(size=300)
    said = warned(x, y, ("no", "yes"))
    assert "gives the target away: \u201ccolumn 1\u201d" in said
    assert "column 0" not in said
    assert "9 times as many rows" in said


def test_intervals_of_accuracies_are_those_of_scipy():
    wrong = (np.arange(57) < 9).astype(float)
    interval = scipy.stats.binomtest(48, 57).proportion_ci(method="wilson")
    assert _wilson(wrong) == pytest.approx((48 / 57, interval.low, interval.high))


def test_scores_are_compared_row_by_row(numbers):
    rng = np.random.default_rng(0)
    truth = rng.normal(size=200)
    good, bad = truth + 0.1 * rng.normal(size=200), truth + rng.normal(size=200)
    section = accuracy(numbers, validation(truth=truth, predicted={NETWORK: good, "forest": bad, "SVM": bad + 1}))
    scores = section.numbers["scores"]
    assert scores[NETWORK]["value"] == pytest.approx(np.sqrt(np.mean((good - truth) ** 2)))
    assert scores[NETWORK]["low"] < scores[NETWORK]["value"] < scores[NETWORK]["high"]
    assert section.numbers["best_rival"] == "forest"
    assert section.facts[1].value.startswith("better by")
    turned = accuracy(numbers, validation(truth=truth, predicted={NETWORK: bad, "forest": good}))
    assert turned.facts[1].value.startswith("worse by")


def test_calibration_error_of_known_probabilities():
    rng = np.random.default_rng(0)
    sure = np.repeat([0.6, 0.7, 0.9], 2000)
    honest = (rng.random(6000) < sure).astype(int)
    both = lambda p: np.stack([1 - p, p], 1)
    found = _calibration._of_classes(validation(truth=honest, probability=both(sure)))
    assert found.numbers["expected_calibration_error"] < 0.02
    vain = _calibration._of_classes(validation(truth=honest, probability=both(np.full(6000, 0.99))))
    assert vain.numbers["expected_calibration_error"] == pytest.approx(0.99 - honest.mean(), abs=1e-9)
    assert "too sure" in vain.facts[0].meaning
    by_hand = -np.mean(np.log(np.where(honest == 1, sure, 1 - sure)))
    assert found.numbers["log_loss"] == pytest.approx(by_hand)


def test_coverage_counts_the_targets_inside():
    rng = np.random.default_rng(0)
    inside = rng.random((50, len(LEVELS))) < 0.7
    known = {"truth": rng.normal(size=50), "mean": np.zeros(50), "std": np.ones(50), "inside": inside}
    found = _calibration._of_numbers(validation(**known, half_width=np.linspace(2, 4, 50)))
    assert found.facts[1].value.endswith(" 3")  # of the intervals that are counted, not of a Gaussian
    share = np.mean(inside[:, LEVELS.index(0.9)])
    assert found.numbers["coverage_of_90_percent_intervals"] == pytest.approx(share)
    assert "too narrow" in found.facts[0].meaning
    likelihood = scipy.stats.norm.logpdf(known["truth"]).mean()
    assert found.numbers["log_likelihood"] == pytest.approx(likelihood)


def test_training_curves_are_gradient_flow(numbers):
    found = _training.training(numbers).numbers
    kernel, train, held = numbers.kernel.ntk, numbers.train, numbers.held
    inside, cross = kernel[np.ix_(train, train)], kernel[np.ix_(held, train)]
    y, place = numbers.y, 25
    left = scipy.linalg.expm(-inside * found["times"][place] / len(train)) @ y[train]
    outputs = cross @ np.linalg.solve(inside, y[train] - left)
    assert found["train"][place] == pytest.approx(np.mean(left**2) / np.mean(y[train] ** 2), rel=1e-6)
    error = np.mean((outputs - y[held]) ** 2) / np.mean(y[held] ** 2)
    assert found["held"][place] == pytest.approx(error, rel=1e-4)
    largest = np.linalg.eigvalsh(inside)[-1]
    assert found["rates"]["gradient_descent"] == pytest.approx(2 * len(train) / largest, rel=1e-6)


def test_modes_carry_the_whole_target_and_ridge_leaves_some(numbers):
    found = _modes.modes(numbers).numbers
    kernel = numbers.kernel.ntk
    ridge = numbers.ridge * np.mean(np.diagonal(kernel))
    by_trace = np.trace(kernel @ np.linalg.inv(kernel + ridge * np.eye(len(kernel))))
    assert found["effective_dimension"] == pytest.approx(by_trace, rel=1e-6)
    assert found["target_power"][-1] == pytest.approx(1)
    values, vectors = np.linalg.eigh(kernel)
    first = vectors[:, -1] @ numbers.y[:, 0]
    assert found["target_power"][0] == pytest.approx(first**2 / np.sum(numbers.y**2))
    assert found["eigenvalues"][0] == pytest.approx(values[-1] / len(values))


def test_phase_of_rectifiers_with_he_weights(numbers):
    found = _phase.phase(numbers).numbers
    assert found["C_w"] == pytest.approx(2)
    assert found["chi_perpendicular"] == pytest.approx(1)
    assert found["critical"]["C_w"] == pytest.approx(2)
    assert found["tuned"] == ""


def test_forecast_is_that_of_theory(numbers):
    found = _needs.needs(numbers).numbers
    direct = ew.forecasting.forecast(numbers.kernel.ntk, None, numbers.y[:, 0], found["n"][:2], task="regression")
    np.testing.assert_allclose(found["error"][:2], direct.error)
    goal = found["targets"][0] / np.std(numbers.labels)
    assert found["rows_needed"][0] >= len(numbers.labels)
    now = found["error"][np.searchsorted(found["n"], len(numbers.labels))]
    assert goal == pytest.approx(0.9 * np.sqrt(now))


def test_cross_validation_predicts_every_row_once_from_others(numbers):
    found = cross_validated(numbers)
    assert found.rows.tolist() == list(range(90))
    spread = np.var(found.truth)
    assert {name: np.mean((p - found.truth) ** 2) < spread for name, p in found.predicted.items()} == dict.fromkeys(
        found.predicted, True
    )
    assert (found.std > 0).all()
    held = found.inside[:, LEVELS.index(0.9)]
    assert 0.75 < held.mean() <= 1
    np.testing.assert_array_equal(np.abs(found.truth - found.mean) <= found.half_width, held)
    assert _rows.rows(numbers).notes[0].startswith("Of all 90 rows.")
    section = _rows.rows(numbers)
    worst = np.argmax(np.abs(numbers.labels - numbers.estimator.leave_one_out_))
    assert section.numbers["surprising_rows"][0] == worst + 1


class Recorded:
    """An estimator that keeps what it was given."""

    network_ = "the network that was chosen"

    def __init__(self, architecture, **options):
        self.architecture = architecture

    def fit(self, x, y):
        return self


def test_uncertainty_is_that_of_a_process_which_is_chosen_where_the_network_is(numbers, monkeypatch):
    monkeypatch.setattr(_validation, "WideRegressor", Recorded)
    monkeypatch.setattr(_validation, "WideGPRegressor", Recorded)
    asked = lambda problem, x: _validation._network(problem, x, numbers.labels).unsure.architecture
    auto, flat = replace(numbers, asked="auto"), numbers.table.x
    assert asked(auto, flat) == "auto"  # a network that is given would be shown the columns once
    assert asked(auto, flat.reshape(-1, 1, 2, 1)) == Recorded.network_
    assert asked(numbers, flat) == Recorded.network_


def test_columns_that_are_shown_twice_are_explained(numbers):
    assert _architecture._shown(numbers) == ()
    auto = replace(numbers, asked="auto", x=np.zeros((90, 8)))
    assert "every one of the 2 columns twice, scaled and by its ranks, and 4 zeros" in _architecture._shown(auto)[0]


REFUSED = [
    ("few", "forecast needs at least 64"),
    ("residual", "no weights of this network read an activation"),
    ("last", "does not end with a Dense layer"),
    ("pixels", "that read 400 pixels take long"),
]


@pytest.mark.parametrize(("what", "said"), REFUSED)
def test_a_part_that_cannot_be_computed_says_why(numbers, what, said):
    problems = {
        "few": (_needs, _needs.needs, replace(numbers, rows=numbers.rows[:20], x=numbers.x[:20])),
        "residual": (_phase, _phase.phase, replace(numbers, net=ew.Serial(ew.Residual(ew.Dense()), ew.Dense(1)))),
        "last": (
            _agreement,
            _agreement.agreement,
            replace(numbers, net=ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(2), ew.layers.Scale(2.0))),
        ),
    }
    images = replace(numbers, net=ew.Serial(ew.Flatten(), small_net()), x=np.zeros((90, 20, 20, 1)))
    problems["pixels"] = (_agreement, _agreement.agreement, images)
    module, make, problem = problems[what]
    section = _part(module, make, problem)
    assert isinstance(section, Section)
    assert said in section.missing
    assert not section.numbers


def test_a_fault_of_cross_validation_is_told_by_both_parts(numbers):
    section = _part(_calibration, lambda problem: pytest.fail("not reached"), numbers, "too few rows.")
    assert section.missing.endswith("too few rows.")


def test_the_last_layer_is_given_one_output():
    wide = ew.Serial(ew.Dense(), ew.Serial(ew.Relu(), ew.Dense(7, w_std=0.5)))
    found = _agreement.one_output(wide, (3,))
    assert found == ew.Serial(ew.Dense(), ew.Serial(ew.Relu(), ew.Dense(1, w_std=0.5)))
    assert _agreement.one_output(small_net(), (3,)) == small_net()
