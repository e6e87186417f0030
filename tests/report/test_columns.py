"""Which columns matter: beside scikit-learn's partial dependence, laws of chance, and tables of which it is known."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.inspection import partial_dependence
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeRegressor

from everwide._problem import Problem, prepare
from everwide.report._sections import columns, data
from everwide.report._sections.accuracy import Score, cross_validated
from everwide.report._study import answered
from everwide.tables import Table
from report.report_tables import small_net
from report.sentences import check
from report.test_sections import validation

pytestmark = pytest.mark.once
TOWNS = ("Bonn", "Köln", "Ulm")


def mixed_table(n: int = 160, classes: tuple[str, ...] | None = None) -> Table:
    """A number that rises, a category of three levels, and noise."""
    rng = np.random.default_rng(0)
    x, town = rng.normal(size=(n, 2)), rng.integers(3, size=n)
    y = 3 * x[:, 0] + np.array([0.0, 4.0, -4.0])[town] + 0.1 * rng.normal(size=n)
    y = np.digitize(y, [-2, 2])[:n] if classes else y
    names = ("size", *(f"town={one}" for one in TOWNS), "noise")
    return Table(np.column_stack([x[:, 0], np.eye(3)[town], x[:, 1]]), y, names, "rent", classes, "homes.csv")


@pytest.fixture(scope="module")
def homes():
    return prepare(mixed_table(), small_net(), quick=True)


@pytest.fixture(scope="module")
def found(homes):
    return columns.columns(homes)


def test_curves_are_those_of_scikit_learn():
    """Of numbers; and of a category, whose indicators are one column to scikit-learn behind an encoder."""
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.integers(8, size=50), rng.integers(3, size=50)]).astype(float)
    y = np.sin(x[:, 0]) * (x[:, 1] - 0.7) + 0.1 * rng.normal(size=50)
    model = make_pipeline(OneHotEncoder(), DecisionTreeRegressor(max_depth=5, random_state=0)).fit(x, y)
    features, tree = model[0].transform(x).toarray(), model[1]
    answer = lambda some: tree.predict(some)[:, None]
    made = (*(f"a={level}" for level in range(8)), *(f"b={level}" for level in range(3)))
    levels = columns.curve_of(answer, features, "b", [8, 9, 10], made)
    known = partial_dependence(model, x, [1], method="brute")
    assert levels.values == ["0", "1", "2"]
    np.testing.assert_allclose(levels.outputs[:, 0], known["average"][0], rtol=1e-12)
    plain = DecisionTreeRegressor(max_depth=5, random_state=0).fit(x, y)
    numbers = columns.curve_of(lambda some: plain.predict(some)[:, None], x, "a", [0], ("a", "b"))
    known = partial_dependence(plain, x, [0], method="brute")
    np.testing.assert_allclose(numbers.values, known["grid_values"][0])
    np.testing.assert_allclose(numbers.outputs[:, 0], known["average"][0], rtol=1e-12)


def test_curves_end_before_outliers_and_gaps_have_no_value():
    x = np.column_stack([np.arange(100.0), np.zeros(100)])
    x[0], x[99, 0] = (50.0, 1.0), 1e9  # the first row has a gap, filled with the middle
    values, donors = columns._values(x, ["", " is missing"])
    assert len(values) == 12
    assert (min(values), max(values)) == (6.0, 94.0)
    assert 0 not in donors
    np.testing.assert_array_equal(x[donors, 0], values)
    constant = columns._values(np.ones((9, 2)), ["", " is missing"])  # gaps everywhere
    assert constant[0] == [1.0]


def test_what_was_made_of_a_column_is_one_column():
    names = (
        "a",
        "a is missing",
        "b=x",
        "b=y",
        "b: any other",
        "b is missing",
        "since",
        "since: day (sin)",
        "since=Mon",
    )
    assert data.sources(names) == {"a": [0, 1], "b": [2, 3, 4, 5], "since": [6, 7, 8]}
    assert data.sources(("a", "ab", "a b", "a: b")) == {"a": [0], "ab": [1], "a b": [2], "a: b": [3]}
    assert data.sources(("=", "")) == {"=": [0], "": [1]}
    x = np.arange(12.0).reshape(4, 3)
    shuffled = columns.exchanged(x, [0, 2], np.random.default_rng(0))
    assert not np.array_equal(shuffled, x)
    np.testing.assert_array_equal(shuffled[:, 1], x[:, 1])
    np.testing.assert_array_equal(shuffled[:, 2] - shuffled[:, 0], 2.0)
    np.testing.assert_array_equal(np.sort(shuffled[:, 0]), x[:, 0])


def test_a_rise_has_the_interval_of_a_mean_difference(labelled):
    rng = np.random.default_rng(0)
    losses, shuffled = rng.random(3000), 0.2 + 1.5 * rng.random(3000)
    rise = columns.rise_of(labelled, losses, shuffled)
    gains = shuffled - losses
    half = 2.576 * gains.std() / np.sqrt(3000)
    assert rise.value == pytest.approx(gains.mean())
    assert (rise.low, rise.high) == pytest.approx((gains.mean() - half, gains.mean() + half), rel=0.02)


def test_what_changes_nothing_is_rarely_said_to_matter(numbers):
    """Losses that could as well have been exchanged: one in two hundred is above zero by chance, few rows double it."""
    rng = np.random.default_rng(0)
    pairs = rng.chisquare(1, size=(600, 2, 40))
    assert np.mean([columns.rise_of(numbers, *pair).low > 0 for pair in pairs]) < 0.025
    assert not columns.Column(
        "", 0.0, columns.rise_of(numbers, pairs[0, 0], pairs[0, 0]), columns.Curve([], pairs[0])
    ).matters


def test_what_is_known_of_a_table_is_said(homes, found):
    text = columns.SECTION.describe(homes, found)
    said = {fact.label.strip("\u201c\u201d"): fact.meaning for fact in text.facts}
    assert set(said) == {"size", "town", "noise"}
    assert "Predictions rise from -" in said["size"]
    assert "at \u201cKöln\u201d, and lowest" in said["town"]
    assert "it matters little" in said["noise"]
    assert "matters little" not in said["size"] + said["town"]
    assert (found.n_learned, found.n_held) == (120, 40)
    assert found.shares.sum() == pytest.approx(1)


def test_errors_that_are_said_are_those_of_shuffled_rows(homes, found):
    """By another estimator of the same kind, and other shuffles: within the interval that is given."""
    model = homes.new(columns.WideRegressor, "auto").fit(
        homes.table.x[homes.rows][homes.train], homes.labels[homes.train]
    )
    x, y = homes.table.x[homes.rows][homes.held].copy(), homes.labels[homes.held]
    error = lambda rows: np.sqrt(np.mean((model.predict(rows) - y) ** 2))
    assert found.error == pytest.approx(error(x), rel=1e-6)
    known = next(one for one in found.looked_at if one.name == "town")
    x[:, 1:4] = np.random.default_rng(5).permutation(x[:, 1:4])
    assert known.rise.low < error(x) - found.error < known.rise.high


def test_what_cross_validation_has_fitted_is_not_fitted_again(homes, monkeypatch):
    """The default estimator, and rows of the last fold; nothing is fitted here."""
    table = homes.table.take(np.arange(100))
    held, train = np.arange(0, 100, 4), np.setdiff1d(np.arange(100), np.arange(0, 100, 4))
    model = homes.new(columns.WideRegressor, "auto").fit(table.x[train], table.y[train])
    known = validation(truth=table.y, last=(model, held))
    problem = replace(homes, asked="auto", table=table)
    monkeypatch.setattr(Problem, "once", lambda self, compute: {cross_validated: known}[compute])
    monkeypatch.setattr(Problem, "new", None)
    fitted, seen, others = columns._fitted(problem)
    assert fitted is model
    np.testing.assert_array_equal(seen.y, table.y[train])
    np.testing.assert_array_equal(others.x, table.x[held])


def test_images_have_no_columns(numbers):
    images = replace(numbers.table, x=numbers.table.x.reshape(-1, 1, 2, 1), sites=(1, 2, 1))
    for table in (images, replace(images, x=numbers.table.x)):
        answer = answered(columns.SECTION, replace(numbers, table=table))
        assert (answer.result, answer.missing, answer.text.facts) == (None, "", ())


def test_few_rows_and_constant_columns_say_so(numbers):
    answer = answered(columns.SECTION, replace(numbers, held=numbers.held[:9]))
    assert "is asked on 20 rows or more" in answer.missing
    constant = replace(numbers, table=replace(numbers.table, x=np.ones_like(numbers.table.x)))
    assert "No column varies" in answered(columns.SECTION, constant).missing


def case(found, **known):
    """A result with one column like this."""
    first = found.looked_at[0]
    return replace(found, looked_at=[replace(first, **known)], names=["a"], shares=np.ones(1))


def test_sentences(homes, found):
    little, much = Score(0.1, -0.1, 0.3), Score(0.3, 0.1, 0.5)
    up, bump = np.array([[0.1, 0.5], [0.2, 0.5], [0.4, 0.5]]), np.array([[0.1, 0.5], [0.4, 0.5], [0.2, 0.5]])
    curve = lambda outputs, values=(1.0, 2.0, 3.0): columns.Curve(list(values), outputs)
    made = [case(found, rise=much, curve=curve(one)) for one in (up, -up, bump)]
    levels = case(found, rise=much, curve=curve(bump, TOWNS))
    none = case(found, rise=little)
    of_classes = [replace(one, classes=True, outputs=["yes", "no"]) for one in (*made, levels, none)]
    auto = replace(homes, asked="auto")
    cases = [(homes, one) for one in (*made, levels, none, *of_classes, found)]
    texts = check(columns, [*cases, (auto, none), (auto, replace(none, names=["a", "b"], shares=np.array([0.8, 0.2])))])
    assert "Predictions rise from 0.1 to 0.4 as it goes from 1 to 3." in texts[0]
    assert "Predictions fall from -0.1 to -0.4 as it goes from 1 to 3." in texts[1]
    assert "Predictions are highest, 0.4, at 2, and lowest, 0.1, at 1." in texts[2]
    assert "Probabilities of \u201cyes\u201d rise" in texts[5]
    assert "1 other column has 20\u202f%." in texts[-1]


def test_of_classes_probabilities_are_drawn():
    """They are those of the three classes."""
    table = mixed_table(120, ("low", "middle", "high"))
    found = answered(columns.SECTION, prepare(table, small_net(), quick=True)).result
    assert set(found.outputs) == set(table.classes)
    size = next(one for one in found.looked_at if one.name == "size").curve
    np.testing.assert_allclose(size.outputs.sum(1), 1, rtol=1e-6)
    high = size.outputs[:, found.outputs.index("high")]
    assert high[0] < 0.3 < 0.4 < high[-1]
