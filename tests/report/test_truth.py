"""Tables on which a page could mislead: what it says of each is true."""

import numpy as np
import pytest

from everwide._problem import Problem, prepare
from everwide.report._sections import accuracy, calibration, data, rows
from everwide.report._study import answered
from everwide.tables import Table, read_table
from report.report_tables import small_net

pytestmark = pytest.mark.once


def table_of(x, y, classes=None, **known) -> Table:
    names = tuple(f"column {at}" for at in range(x.shape[1]))
    return Table(x, y, names, "target", classes, "data.csv", **known)


def told(room, table: Table | Problem) -> str:
    """What one section says of a table."""
    problem = prepare(table, small_net(), quick=True) if isinstance(table, Table) else table
    answer = answered(room.SECTION, problem)
    assert not answer.missing
    text, tile = answer.text, answer.tile
    words = [word for fact in (*text.facts, *((tile,) if tile else ())) for word in fact]
    cells = [cell for grid in text.grids for row in grid.rows for cell in row]
    return "\n".join([*text.cautions, *text.warnings, *words, *text.notes, *cells])


def drawn(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=(n, 3))


def test_leakage_is_said_first():
    rng, x = drawn()
    y = rng.integers(2, size=200)
    x[:, 1] = y + 0.01 * rng.normal(size=200)
    assert told(data, table_of(x, y, ("no", "yes"))).startswith("Leakage? The column \u201ccolumn 1\u201d")


def test_a_category_that_is_the_target_is_leakage(tmp_path):
    """Its indicators tell little, one by one."""
    rng, x = drawn(300)
    kinds = [("cat", "dog", "fox")[int(one)] for one in rng.integers(3, size=300)]
    lines = [f"{a},{kind}-like,{kind}" for (a, _, _), kind in zip(x, kinds, strict=True)]
    (tmp_path / "data.csv").write_text("a,looks,kind\n" + "\n".join(lines))
    assert told(data, read_table(tmp_path / "data.csv")).startswith("Leakage? The column \u201clooks\u201d")


def test_a_counter_of_sorted_rows_is_leakage():
    _, x = drawn()
    x[:, 2] = np.arange(200)
    said = told(data, table_of(x, (np.arange(200) >= 100).astype(int), ("no", "yes")))
    assert said.startswith("Leakage? The column \u201ccolumn 2\u201d")
    assert "count the rows" in said


@pytest.mark.slow
def test_one_target_beyond_all_others_rules_and_is_told():
    rng, x = drawn()
    y = x[:, 0] + rng.normal(size=200)
    y[17] = 1e12
    table = prepare(table_of(x, y), small_net(), quick=True)
    assert "row 18 of the file has 99.5\u202f% of the variance" in told(data, table)
    said = told(accuracy, table)
    assert "for the SVM, columns and target are scaled" in said
    assert "take the network" not in said
    assert "not better than the same answer for every row" in said
    assert "No single" not in told(rows, table)


def test_rows_keep_the_numbers_they_have_in_the_file(tmp_path):
    rng, x = drawn(120)
    y = 3 * x[:, 0] + 0.1 * rng.normal(size=120)
    y[100] += 40
    lines = [f"{a},{b},{'' if row < 50 else target}" for row, ((a, b, _), target) in enumerate(zip(x, y, strict=True))]
    (tmp_path / "data.csv").write_text("a,b,y\n" + "\n".join(lines))
    table = read_table(tmp_path / "data.csv")
    assert table.n == 70
    problem = prepare(table, small_net(), quick=True)
    answer = answered(rows.SECTION, problem)
    assert answer.result.surprising_rows[0] == 101
    assert answer.text.grids[0].rows[0][:3] == ("101", "surprising", f"{y[100]:.4g}")


@pytest.mark.slow
def test_coins_cannot_be_decided():
    rng, x = drawn(300)
    table = prepare(table_of(x, rng.integers(2, size=300), ("heads", "tails")), small_net(), quick=True)
    assert "rows or more were found of which" in told(calibration, table)
    assert "not better than the same answer for every row" in told(accuracy, table)
    said = told(rows, table)
    assert "cannot be told" in said
    assert "surprising" not in said


def test_thresholds_are_judged_on_other_rows_than_they_were_chosen_on():
    """Honest probabilities of 0.9 and 0.999: the share of right rows is that of rows not used for the choice."""
    rng = np.random.default_rng(0)
    sure = rng.permutation(np.repeat([0.9, 0.999], 1000))
    right = (rng.random(2000) < sure).astype(np.int64)
    known = calibration.safe(sure, right, seed=0)
    assert known.confidence == 0.999
    assert known.share == pytest.approx(0.5, abs=0.03)
    assert known.low < 0.999 < known.high
    coins = [calibration.safe(rng.random(400), rng.integers(2, size=400), seed=seed) for seed in range(50)]
    assert coins == [None] * 50


def test_numbers_from_a_part_of_the_rows_say_so():
    rng, x = drawn(500)
    said = told(accuracy, table_of(x, (x[:, 0] + rng.normal(size=500) > 0).astype(int), ("no", "yes")))
    assert "each learned from 320 of 500 rows" in said
    assert "for the SVM, columns are scaled" in said


def test_easy_rows_are_not_called_uncertain():
    _, x = drawn()
    y = np.arange(200) % 2
    x[:, :2] += 8 * y[:, None]
    assert "uncertain" not in told(rows, table_of(x, y, ("no", "yes")))
