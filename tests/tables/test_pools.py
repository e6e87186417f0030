"""Files in which some rows have no label: nothing that is there is lost, and rows keep their numbers."""

import numpy as np
import pytest

from everwide.tables import TableError, read_pool, read_table

pytestmark = pytest.mark.once

FRUIT = "weight,colour,site,kind\n120,red,a,apple\n9,red,b,cherry\n8,blue,a,\n,,,\n130,blue,b,\n"


@pytest.fixture
def pool_of(tmp_path):
    def read(text, **options):
        (tmp_path / "pool.csv").write_text(text)
        return read_pool(tmp_path / "pool.csv", **options)

    return read


def test_all_rows_are_encoded_alike_and_written_as_they_stand(pool_of):
    pool = pool_of(FRUIT, besides=["site"])
    assert pool.table.names == ("weight", "colour=blue", "colour=red")
    np.testing.assert_array_equal(pool.table.x[:, 0], [120, 9, 8, 130])
    assert pool.labels.tolist() == ["apple", "cherry", None, None]
    assert (pool.labelled, pool.task, pool.target) == (2, "classification", "kind")
    np.testing.assert_array_equal(pool.table.rows, [0, 1, 2, 4])  # the empty line is no row to label
    assert pool.written([3]) == [{"weight": 130, "colour": "blue", "site": "b", "kind": ""}]
    assert pool.column("site").tolist() == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("labels", "task", "expected"),
    [
        (("", "", ""), "classification", [None, None, None]),
        (("a", "", ""), "classification", ["a", None, None]),
        (("1.5", "", ""), "regression", [1.5, np.nan, np.nan]),
    ],
)
def test_one_class_one_number_and_none_are_enough(pool_of, labels, task, expected):
    pool = pool_of("x,y\n" + "".join(f"{i},{label}\n" for i, label in enumerate(labels)))
    assert pool.task == task
    np.testing.assert_array_equal(pool.labels, np.array(expected, pool.labels.dtype))


def test_arrays(tmp_path):
    x, y = np.arange(12.0).reshape(6, 2), np.array([0, 1, np.nan, np.nan, 1, 0])
    np.savez(tmp_path / "pool.npz", X=x, y=y)
    pool = read_pool(tmp_path / "pool.npz", task="classification")
    assert pool.labels.tolist() == ["0", "1", None, None, "1", "0"]
    assert pool.written([2]) == [{}]
    with pytest.raises(TableError, match="arrays and no columns"):
        pool.column("site")


def test_a_table_sets_rows_without_a_target_apart(tmp_path):
    rows = "".join(f"{i},{'' if i in (3, 7) else i % 2}\n" for i in range(20))
    (tmp_path / "table.csv").write_text("x,y\n" + rows + ",\n")
    table = read_table(tmp_path / "table.csv")
    assert table.unlabelled is not None
    np.testing.assert_array_equal(table.unlabelled.rows, [3, 7])
    np.testing.assert_array_equal(table.unlabelled.x[:, 0], [3, 7])
    assert table.unlabelled.y is None
    assert table.rows is not None
    assert (3 in table.rows, table.n) == (False, 18)


def test_all_labelled_has_nothing_apart(tmp_path):
    (tmp_path / "table.csv").write_text("x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(20)))
    assert read_table(tmp_path / "table.csv").unlabelled is None


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("y\n1\n\n", {}, "no column left"),
        ("a,y\n1,2\n", {"besides": ["b"]}, "no column 'b'"),
        ("a,y\n1,2\n", {"target": "z"}, "no column 'z'"),
        ("a,y\n1,x\n2,\n", {"task": "regression"}, "expected numbers"),
    ],
)
def test_what_cannot_be_used(pool_of, text, options, message):
    with pytest.raises(TableError, match=message):
        pool_of(text, **options)
