"""Files that are larger than memory: a random part of their rows is read, under their own numbers, and it is said."""

import numpy as np
import pytest

from everwide._engine import MemoryBudgetError
from everwide.tables import TableError, _part, _read, read_inputs, read_table

pytestmark = pytest.mark.once

N = 2000
NUMBERS = np.round(np.random.default_rng(0).normal(size=N), 6)


@pytest.fixture(autouse=True)
def little_memory(monkeypatch):
    monkeypatch.setattr(_part, "_STRETCH", 300)
    monkeypatch.setattr(_part, "budget", lambda memory: 120_000)


def text(path, late=""):
    """Row i has the number i in it; a text comes late, and a field has a line break and a separator."""
    rows = [f'{NUMBERS[i]},"kind {i % 3},\nof it",{i + 0.5}' for i in range(N)]
    if late:
        rows[-1] = rows[-1].replace(str(NUMBERS[-1]), late)
    path.write_text("x,kind,y\n" + "\n".join(rows) + "\n")
    return path


def test_of_text(tmp_path):
    table = read_table(text(tmp_path / "data.csv"), task="regression")
    assert N / 4 < table.n < N * 3 / 4
    assert len(np.unique(table.rows)) == table.n
    np.testing.assert_array_equal(table.y, table.rows + 0.5)
    np.testing.assert_array_equal(table.x[:, 0], NUMBERS[table.rows])
    assert len(table.names) == 4
    assert f"The file has {N} rows, more than fit into memory: {table.n} of them" in " ".join(table.notes)
    assert np.median(table.rows) == pytest.approx(N / 2, abs=N / 10)


def test_a_column_has_one_type_in_all_stretches(tmp_path, monkeypatch):
    monkeypatch.setattr(_read, "fitting_share", lambda needed: 0.999999)
    table = read_table(text(tmp_path / "data.csv", late="?"), task="regression")
    assert table.n == N
    assert table.names[:2] == ("x", "x is missing")


def test_of_an_array(tmp_path, monkeypatch):
    monkeypatch.setattr(_part, "budget", lambda memory: 60_000)
    values = np.stack([NUMBERS, np.arange(N) + 0.5], 1)
    np.save(tmp_path / "data.npy", values)
    table = read_table(tmp_path / "data.npy", task="regression")
    assert table.n < N
    np.testing.assert_array_equal(table.y, table.rows + 0.5)
    np.testing.assert_array_equal(table.x[:, 0], NUMBERS[table.rows])
    assert "drawn at random" in " ".join(table.notes)


def test_of_parquet(tmp_path, monkeypatch):
    monkeypatch.setattr(_part, "budget", lambda memory: 60_000)
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    pandas.DataFrame({"x": NUMBERS, "y": np.arange(N) + 0.5}).to_parquet(tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet", task="regression")
    assert table.n < N
    np.testing.assert_array_equal(table.y, table.rows + 0.5)


def test_rows_without_a_target_keep_their_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(_part, "budget", lambda memory: 60_000)
    lines = [f"{NUMBERS[i]},{'' if i % 2 else i + 0.5}" for i in range(N)]
    (tmp_path / "data.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    table = read_table(tmp_path / "data.csv", task="regression")
    assert table.n < N / 2
    np.testing.assert_array_equal(table.y, table.rows + 0.5)
    assert (table.unlabelled.rows % 2 == 1).all()
    np.testing.assert_array_equal(table.unlabelled.x[:, 0], NUMBERS[table.unlabelled.rows])


def test_all_inputs_are_read_or_none(tmp_path, monkeypatch):
    monkeypatch.setattr(_read, "needed_for", lambda path: 1 << 62)
    with pytest.raises(MemoryBudgetError, match=r"Reading data.csv needs"):
        read_inputs(text(tmp_path / "data.csv"))


def test_damaged_arrays_are_refused(tmp_path):
    (tmp_path / "data.npy").write_bytes(b"\x93NUMPY" + bytes(20_000))
    with pytest.raises(TableError, match=r"data.npy cannot be read"):
        read_table(tmp_path / "data.npy")
