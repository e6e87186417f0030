"""The parts of a report, each beside something that is computed in another way."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import scipy.stats

import everwide as ew
from everwide import forecasting
from everwide._walk import walk
from everwide.estimators import WideRegressor
from everwide.report._sections import accuracy, architecture, calibration, data, forecast, modes, phase, rows, training
from everwide.report._sections import width as width_section
from everwide.report._sections.accuracy import CONSTANT, LEVELS, NETWORK, Validation, cross_validated
from everwide.report._study import answered
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
        "last": (None, np.zeros(0, int)),
    }
    return Validation(**(empty | outputs | known))


def test_influence_is_what_refitting_without_the_row_does():
    rng = np.random.default_rng(0)
    x, other, y, ridge = rng.normal(size=(12, 3)), rng.normal(size=(5, 3)), rng.normal(size=(12, 2)), 0.3
    kernel = lambda a, b: np.exp(-0.5 * np.sum((a[:, None] - b[None]) ** 2, -1))
    predict = lambda rows: (
        kernel(other, x[rows]) @ np.linalg.solve(kernel(x[rows], x[rows]) + ridge * np.eye(len(rows)), y[rows])
    )
    found = rows.influence(kernel(x, x), kernel(other, x), y, ridge)
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
    assert data.duplicates(x, y) == (earlier, conflict)
    assert earlier > 0
    assert conflict > 0


def warned(problem, x, y, classes=None) -> str:
    """What is said of another table than that of the problem."""
    names = tuple(f"column {at}" for at in range(x.shape[1]))
    table = replace(number_table(), x=x, y=y, names=names, classes=classes)
    other = replace(problem, table=table)
    return " ".join(data.SECTION.describe(other, data.SECTION.measure(other)).warnings)


def test_what_is_wrong_with_a_table_is_said(numbers):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    y = x[:, 0] + rng.normal(size=200)
    assert warned(numbers, x, y) == ""
    x[:, 1] = 7.0
    x[:, 2] = np.arange(200) + 5
    x[:, 3] = np.exp(y)
    said = warned(numbers, x, y)
    assert "Constant columns say nothing, and can go: \u201ccolumn 1\u201d" in said
    assert "count the rows, and should not be inputs: \u201ccolumn 2\u201d" in said
    assert "gives the target away: \u201ccolumn 3\u201d" in said
    assert "skewed" in warned(numbers, rng.normal(size=(200, 2)), np.exp(3 * rng.normal(size=200)))
    assert "only 20 rows" in warned(numbers, x[:20, :1], y[:20])
    assert "more columns" in warned(numbers, rng.normal(size=(110, 120)), rng.normal(size=110))


def test_leaks_and_imbalance_of_classes(numbers):
    rng = np.random.default_rng(0)
    y = (np.arange(300) % 10 == 0).astype(int)
    x = rng.normal(size=(300, 2))
    x[:, 1] = 10 * y + rng.normal(size=300)
    said = warned(numbers, x, y, ("no", "yes"))
    assert "gives the target away: \u201ccolumn 1\u201d" in said
    assert "column 0" not in said
    assert "9 times as many rows" in said


def test_intervals_of_accuracies_are_those_of_wilson():
    wrong = (np.arange(57) < 9).astype(float)
    n, right, z = 57, 48 / 57, 1.959963984540054
    centre = (right + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(right * (1 - right) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    assert accuracy._share(wrong) == pytest.approx((right, centre - half, centre + half))


def test_intervals_of_errors_are_those_of_a_mean_where_rows_are_many():
    squares = np.random.default_rng(0).chisquare(3, size=2000)
    found = accuracy._rmse(squares, seed=0)
    half = 1.96 * squares.std() / np.sqrt(2000)
    assert found.value == pytest.approx(np.sqrt(squares.mean()))
    assert (found.low**2, found.high**2) == pytest.approx((squares.mean() - half, squares.mean() + half), rel=0.01)


def test_scores_are_compared_row_by_row(numbers):
    rng = np.random.default_rng(0)
    truth = rng.normal(size=200)
    good, bad = truth + 0.1 * rng.normal(size=200), truth + rng.normal(size=200)
    result = accuracy.accuracy(
        numbers, validation(truth=truth, predicted={NETWORK: good, "forest": bad, "SVM": bad + 1, CONSTANT: 0 * bad})
    )
    own, gains = result.scores[NETWORK], (bad - truth) ** 2 - (good - truth) ** 2
    assert own.value == pytest.approx(np.sqrt(np.mean((good - truth) ** 2)))
    assert own.low < own.value < own.high
    assert result.r2["SVM"] == pytest.approx(1 - np.mean((bad + 1 - truth) ** 2) / np.var(truth))
    assert result.best_rival == "forest"
    assert result.ahead_of_best_rival.value == pytest.approx(gains.mean())
    assert result.ahead_of_constant.value == pytest.approx(np.mean(truth**2 - (good - truth) ** 2))
    assert result.n_learned == 134
    assert accuracy._versus(result).value.startswith("better by")
    turned = accuracy.accuracy(
        numbers, validation(truth=truth, predicted={NETWORK: bad, "forest": good, CONSTANT: 0 * bad})
    )
    assert accuracy._versus(turned).value.startswith("worse by")


def test_a_lead_is_judged_as_by_signs_and_not_by_one_row(numbers):
    """Of gains that are 1 or -1, the test of signs; one row, however large its gain, is chance."""
    for wins, losses in ((5, 0), (6, 0), (30, 15), (30, 13)):
        gains = np.r_[np.ones(wins), -np.ones(losses), np.zeros(200)]
        exact = scipy.stats.binomtest(wins, wins + losses).pvalue
        assert accuracy.lead(numbers, gains).chance == pytest.approx(exact, abs=0.03)
    one = accuracy.lead(numbers, np.r_[1e12, np.random.default_rng(0).normal(size=200)])
    assert one.verdict == "a tie"
    assert accuracy.lead(numbers, np.zeros(9)).verdict == "a tie"


def test_calibration_error_of_known_probabilities():
    rng = np.random.default_rng(0)
    sure = np.repeat([0.6, 0.7, 0.9], 2000)
    honest = (rng.random(6000) < sure).astype(int)
    both = lambda p: np.stack([1 - p, p], 1)
    result = calibration.calibration_of_classes(validation(truth=honest, probability=both(sure)))
    assert result.expected_calibration_error < 0.02
    assert result.bin_sizes.sum() == 6000
    by_bin = [abs(p - honest[sure == p].mean()) for p in (0.6, 0.7, 0.9)]
    assert result.expected_calibration_error == pytest.approx(np.mean(by_bin))
    vain = calibration.calibration_of_classes(validation(truth=honest, probability=both(np.full(6000, 0.99))))
    assert vain.expected_calibration_error == pytest.approx(0.99 - honest.mean(), abs=1e-9)
    assert "too sure" in calibration.class_facts(vain)[0].meaning
    by_hand = -np.mean(np.log(np.where(honest == 1, sure, 1 - sure)))
    assert result.log_loss == pytest.approx(by_hand)


def test_rows_that_can_be_decided_are_the_most_confident_ones():
    sure = np.r_[np.linspace(0.999, 0.9, 200), np.linspace(0.7, 0.55, 200)]
    right = np.arange(400) < 200
    both = np.stack([1 - sure, sure], 1)
    result = calibration.calibration_of_classes(validation(truth=right.astype(int), probability=both))
    assert 0.69 < result.safe.confidence < 0.905
    assert result.safe.share == pytest.approx(0.5, abs=0.05)


def test_coverage_counts_the_targets_inside():
    rng = np.random.default_rng(0)
    inside = rng.random((50, len(LEVELS))) < 0.7
    known = {"truth": rng.normal(size=50), "mean": np.zeros(50), "std": np.ones(50), "inside": inside}
    result = calibration.calibration_of_intervals(validation(**known, half_width=np.linspace(2, 4, 50)))
    facts = calibration._interval_facts(result)
    assert facts[1].value.endswith(" 3")  # of the intervals that are counted, not of a Gaussian
    share = np.mean(inside[:, LEVELS.index(0.9)])
    assert result.coverage_of_90_percent_intervals == pytest.approx(share)
    assert "too narrow" in facts[0].meaning
    likelihood = np.mean(-0.5 * np.log(2 * np.pi) - 0.5 * known["truth"] ** 2)
    assert result.log_likelihood == pytest.approx(likelihood)


def test_training_curves_are_gradient_flow(numbers):
    result = training.training(numbers)
    kernel, train, held = numbers.kernel.ntk, numbers.train, numbers.held
    inside, cross = kernel[np.ix_(train, train)], kernel[np.ix_(held, train)]
    y, place = numbers.y, 25
    left = scipy.linalg.expm(-inside * result.times[place] / len(train)) @ y[train]
    outputs = cross @ np.linalg.solve(inside, y[train] - left)
    assert result.train[place] == pytest.approx(np.mean(left**2) / np.mean(y[train] ** 2), rel=1e-6)
    error = np.mean((outputs - y[held]) ** 2) / np.mean(y[held] ** 2)
    assert result.held[place] == pytest.approx(error, rel=1e-4)
    largest = np.linalg.eigvalsh(kernel)[-1]
    assert result.rates.gradient_descent == pytest.approx(2 * len(kernel) / largest, rel=1e-6)
    np.testing.assert_allclose(result.steps, result.times / (len(kernel) / largest), rtol=1e-6)
    values = np.linalg.eigvalsh(inside)
    assert result.times[[0, -1]] == pytest.approx(
        (0.1 * len(train) / values[-1], min(1e7 * len(train) / values[-1], 10 * len(train) / values[0])), rel=1e-6
    )


def test_modes_carry_the_whole_target_and_ridge_leaves_some(numbers):
    result, kernel = modes.modes(numbers), numbers.kernel.ntk
    ridge = numbers.relative_ridge * np.mean(np.diagonal(kernel))
    by_trace = np.trace(kernel @ np.linalg.inv(kernel + ridge * np.eye(len(kernel))))
    assert result.effective_dimension == pytest.approx(by_trace, rel=1e-6)
    assert result.target_power[-1] == pytest.approx(1)
    values, vectors = np.linalg.eigh(kernel)
    first = vectors[:, -1] @ numbers.y[:, 0]
    assert result.target_power[0] == pytest.approx(first**2 / np.sum(numbers.y**2))
    assert result.eigenvalues[0] == pytest.approx(values[-1] / len(values))


def test_phase_of_rectifiers_with_he_weights(numbers):
    result = phase.phase(numbers)
    assert result.C_w == pytest.approx(2)
    assert result.chi_perpendicular == pytest.approx(1)
    assert result.critical["C_w"] == pytest.approx(2)
    assert result.not_tuned_because == ""


def dense(w_std: float) -> ew.Dense:
    return ew.Dense(w_std=w_std, b_std=0.0)


BLOCKS = [
    ("one hidden layer: the read-out", ew.Serial(dense(1.0), ew.Relu(), ew.Dense(1, w_std=3.0)), "Relu()", 9),
    (
        "hidden weights before the read-out",
        ew.Serial(dense(1.0), ew.Relu(), dense(2.0), ew.Tanh(), ew.Dense(1)),
        "Relu()",
        4,
    ),
    (
        "the most frequent",
        ew.Serial(dense(1.0), ew.Relu(), ew.Repeat(ew.Serial(dense(2.0), ew.Tanh()), 4), ew.Dense(1)),
        "Tanh()",
        4,
    ),
    (
        "not behind a branch",
        ew.Serial(dense(1.0), ew.Relu(), ew.Residual(dense(1.0)), dense(5.0), ew.Tanh(), dense(2.0)),
        "Tanh()",
        4,
    ),
]


@pytest.mark.parametrize(("net", "activation", "variance"), [case[1:] for case in BLOCKS], ids=[c[0] for c in BLOCKS])
def test_the_block_that_a_network_repeats(net, activation, variance):
    block = phase.repeated_block(net)
    assert repr(block.activation) == activation
    assert block.C_w == pytest.approx(variance)


def test_forecast_is_that_of_forecasting(numbers):
    result = forecast.forecast(numbers)
    direct = forecasting.forecast(numbers.kernel.ntk, None, numbers.y[:, 0], result.n[:2], task="regression")
    square = np.var(numbers.labels)
    np.testing.assert_allclose(result.error[:2], square * direct.error)
    np.testing.assert_allclose(result.measured, square * direct.measured.errors.mean(0))
    assert result.noise + result.tail == pytest.approx(square * (direct.noise + direct.tail))
    assert result.n_needed[0] >= len(numbers.labels)
    assert (result.n[result.now], result.n[result.twice]) == (90, 180)
    assert result.targets[0] == pytest.approx(0.9**2 * result.error[result.now])


def test_goals_beyond_what_is_trusted_are_marked_where_they_are_read_first(numbers):
    result = forecast.forecast(numbers)
    near = replace(result, n_needed=[100.0, 200.0, 300.0], trusted_to=150)
    far = replace(near, n_needed=[151.0, 200.0, 300.0])
    known, guessed = forecast.tile(near), forecast.tile(far)
    assert known.label == "rows needed"
    assert "guess" in guessed.label
    assert "trusted to 150" in guessed.meaning


def test_networks_are_trained_in_all_layers_and_judged_on_rows_that_nobody_learned(numbers):
    result = width_section.width(numbers)
    train, held, table = numbers.train, numbers.held, numbers.table
    kernel = WideRegressor(small_net(), random_state=0).fit(table.x[train], table.y[train])
    error = np.sqrt(np.mean((kernel.predict(table.x[held]) - table.y[held]) ** 2))
    assert result.kernel.value == pytest.approx(error)
    assert (result.n_train, result.n_test, len(result.each)) == (len(train), len(held), 2)
    assert result.network.value == pytest.approx(np.sqrt(np.mean(np.square(result.each))))
    assert result.network.value < np.std(table.y[held])
    assert result.kernel_change > 0
    assert result.alignment_after > result.alignment_before


def test_layers_that_a_chosen_kernel_has_frozen_are_trained(numbers):
    frozen = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1, frozen=True), ew.Relu(), ew.Dense(1, w_std=2**0.5))
    weights = lambda net: [map.frozen for at in walk(net) for map in at.layer.weights().values()]
    assert weights(width_section.trainable(replace(numbers, net=frozen, asked="auto"))) == [False, False]
    assert weights(width_section.trainable(replace(numbers, net=frozen))) == [True, False]  # as it was asked for


def test_cross_validation_predicts_every_row_once_from_others(numbers):
    found = cross_validated(numbers)
    assert found.rows.tolist() == list(range(90))
    spread = np.var(found.truth)
    better = {name for name, predicted in found.predicted.items() if np.mean((predicted - found.truth) ** 2) < spread}
    assert better == set(found.predicted) - {CONSTANT}
    assert (found.std > 0).all()
    held = found.inside[:, LEVELS.index(0.9)]
    assert 0.75 < held.mean() <= 1
    np.testing.assert_array_equal(np.abs(found.truth - found.mean) <= found.half_width, held)


def test_surprising_and_uncertain_rows_of_numbers(numbers):
    answer = answered(rows.SECTION, numbers)
    assert answer.text.notes[0].startswith("Of all 90 rows, by the infinitely wide network.")
    residual = numbers.labels - numbers.estimator.leave_one_out_
    worst = np.argmax(np.abs(residual))
    assert answer.result.surprising_rows[0] == worst + 1
    assert answer.result.residual[0] == pytest.approx(residual[worst])
    kernel = numbers.kernel.nngp
    ridge = numbers.relative_ridge * np.mean(np.diagonal(kernel))
    variance = 1 / np.diagonal(np.linalg.inv(kernel + ridge * np.eye(90)))
    assert answer.result.uncertain_rows[0] == np.argmax(variance) + 1
    assert answer.result.relative_variance[0] == pytest.approx(variance.max() / np.median(variance))
    assert answer.text.grids[0].rows[0][:2] == (str(worst + 1), "surprising")


def test_what_several_sections_need_is_computed_once(numbers):
    calls = []
    count = lambda problem: calls.append(problem) or len(calls)
    other = replace(numbers)
    assert [other.once(count), other.once(count)] == [1, 1]
    assert calls == [other]


class Recorded:
    """An estimator that keeps what it was given."""

    network_ = "the network that was chosen"

    def __init__(self, architecture, **options):
        self.architecture = architecture

    def fit(self, x, y):
        return self


def test_uncertainty_is_that_of_a_process_which_is_chosen_where_the_network_is(numbers, monkeypatch):
    monkeypatch.setattr(accuracy, "WideRegressor", Recorded)
    monkeypatch.setattr(accuracy, "WideGPRegressor", Recorded)
    asked = lambda problem: accuracy._network(problem, problem.table.x, numbers.labels)[1].architecture
    auto, images = replace(numbers, asked="auto"), numbers.table.x.reshape(-1, 1, 2, 1)
    assert asked(auto) == "auto"  # one of several networks is not their sum
    assert asked(replace(auto, table=replace(auto.table, x=images))) == Recorded.network_
    assert asked(numbers) == Recorded.network_


def test_columns_that_are_shown_twice_are_explained(numbers):
    assert architecture.columns_note(numbers) == ()
    auto = replace(numbers, asked="auto", x=np.zeros((90, 8)))
    single, twice = architecture.columns_note(auto)
    assert "is said of several networks, added" in single
    assert "every one of the 2 columns twice, scaled and by its ranks, and 4 zeros" in twice


REFUSED = [
    ("few", "forecast needs at least 64"),
    ("residual", "no weights of this network read an activation"),
    ("last", "does not end with a Dense layer"),
    ("pixels", "look at 400 places of an image take too long"),
    ("width", "at least 40 rows"),
]


@pytest.mark.parametrize(("what", "said"), REFUSED)
def test_a_section_that_cannot_be_computed_says_why(numbers, what, said):
    last = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(2), ew.layers.Scale(2.0))
    conv = ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.Flatten(), ew.Dense(1))
    images = replace(numbers, net=conv, x=np.zeros((90, 20, 20, 1)))
    problems = {
        "few": (forecast.SECTION, replace(numbers, rows=numbers.rows[:20], x=numbers.x[:20])),
        "residual": (phase.SECTION, replace(numbers, net=ew.Serial(ew.Residual(ew.Dense()), ew.Dense(1)))),
        "last": (width_section.SECTION, replace(numbers, net=last)),
        "pixels": (width_section.SECTION, images),
        "width": (width_section.SECTION, replace(numbers, rows=numbers.rows[:20], x=numbers.x[:20])),
    }
    answer = answered(*problems[what])
    assert said in answer.missing
    assert answer.to_dict()["numbers"] == {}
    assert answer.tile is None


def test_a_fault_of_cross_validation_is_told_by_both_sections(numbers):
    few = replace(numbers, table=replace(numbers.table, x=numbers.table.x[:5], y=numbers.table.y[:5]))
    for section in (accuracy.SECTION, calibration.SECTION):
        assert "cross-validation needs at least 6 rows" in answered(section, few).missing
