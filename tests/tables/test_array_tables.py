"""Tables in arrays and parquet, rows that are taken, inputs that are encoded alike."""

import pickle
import zipfile

import numpy as np
import pytest

from everwide._engine import MemoryBudgetError
from everwide.tables import Table, TableError, _arrays, read_inputs, read_table

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
NUMBERS, CLASSES = np.arange(12) / 7, np.arange(12) % 2


@pytest.fixture
def stored(tmp_path):
    """An .npz file of these arrays."""

    def store(**arrays):
        np.savez(tmp_path / "data.npz", **arrays)
        return tmp_path / "data.npz"

    return store


@pytest.mark.parametrize(("inputs", "target"), [("X", "y"), ("x", "target"), ("data", "labels"), ("images", "Y")])
def test_arrays_under_usual_names(stored, inputs, target):
    table = read_table(stored(**{inputs: X, target: NUMBERS}))
    np.testing.assert_array_equal(table.x, X)
    np.testing.assert_array_equal(table.y, NUMBERS)
    assert (table.target, table.task, len(table.names)) == (target, "regression", 3)


def test_another_array_is_the_target_if_it_is_named(stored):
    assert read_table(stored(X=X, y=CLASSES, other=NUMBERS), target="other").target == "other"


@pytest.mark.parametrize(
    "y", [CLASSES, CLASSES[:, None], np.eye(2)[CLASSES], np.array(["a", "b"])[CLASSES], CLASSES > 0]
)
def test_forms_of_classes(stored, y):
    table = read_table(stored(X=X, y=y))
    assert len(table.classes or ()) == 2
    np.testing.assert_array_equal(table.y, CLASSES)


@pytest.mark.parametrize(
    ("shape", "shown"), [((12, 4, 4), (4, 4, 1)), ((12, 4, 4, 3), (4, 4, 3)), ((12, 3, 8, 8), (8, 8, 3)), ((12,), (1,))]
)
def test_shapes_of_examples(stored, shape, shown):
    x = RNG.integers(0, 255, size=shape).astype(np.uint8)
    table = read_table(stored(X=x, y=NUMBERS))
    assert table.shape == shown
    expected = np.moveaxis(x, 1, -1) if shape == (12, 3, 8, 8) else x.reshape(12, *shown)
    np.testing.assert_array_equal(table.x, expected)


def test_missing_numbers_and_targets_in_arrays(stored):
    x, y = X.copy(), NUMBERS.copy()
    x[2, 1], x[4, 0], y[7] = np.nan, np.inf, np.nan
    table = read_table(stored(X=x, y=y))
    assert table.n == 11
    assert table.x[2, 1] == np.median(np.delete(X[:, 1], 2))  # of all rows, with a target or without
    assert np.isfinite(table.x).all()
    assert any("2 positions" in text for text in table.notes)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": X, "y": NUMBERS[:5]}, r"X and y in data.npz have shapes \(12, 3\) and \(5,\)"),
        ({"X": X}, "has no array y"),
        ({"a": X, "b": X, "y": NUMBERS}, r"has no array X \(or data, images\): it holds a, b, y"),
        ({"X": np.array([1, None]), "y": NUMBERS[:2]}, "holds Python objects, which are not loaded"),
        ({"X": X.astype(str), "y": NUMBERS}, "expected real numbers"),
        ({"X": X + 1j, "y": NUMBERS}, "expected real numbers"),
        ({"X": X, "y": NUMBERS + 1j}, r"is complex \(complex128\). Complex data not supported"),
        ({"X": X, "y": X}, r"y in data.npz has shape \(12, 3\)"),
        ({"X": X[:0], "y": NUMBERS[:0]}, "has no value"),
        ({"X": X, "y": NUMBERS * 1e200 + 1e150}, r"12 beyond 1e\+100 cannot be used: rescale them"),
        ({"X": np.zeros((12, 2, 2, 2, 2)), "y": NUMBERS}, r"has shape \(12, 2, 2, 2, 2\)"),
        ({"X": np.zeros((12, 20_001), np.uint8), "y": NUMBERS}, "at most 20000"),
        ({"X": np.full((12, 2), np.nan), "y": NUMBERS}, "without any finite value"),
    ],
)
def test_refusals_of_arrays(stored, arrays, message):
    with pytest.raises(TableError, match=message):
        read_table(stored(**arrays))


class Evil:
    """Unpickled, it would leave a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.parametrize("name", ["evil.npy", "evil.npz", "evil.parquet", "evil.csv", "evil.pkl"])
def test_pickles_are_never_loaded(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Evil(str(tmp_path / "ran"))))
    with pytest.raises(TableError, match="evil"):
        read_table(tmp_path / name)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04broken", b"\x93NUMPY\x01\x00broken", b"text"])
@pytest.mark.parametrize("name", ["broken.npy", "broken.npz"])
def test_broken_files(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match="broken"):
        read_table(tmp_path / name)


def test_what_would_not_fit_is_not_unpacked(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", bytes(100_000))

    def require(needed, limit, what, way_out):
        if needed > 100_000:
            raise MemoryBudgetError(what)

    monkeypatch.setattr(_arrays, "require", require)
    with pytest.raises(MemoryBudgetError, match=r"Unpacking bomb\.npz"):
        read_table(tmp_path / "bomb.npz")


@pytest.mark.parametrize("names", ["Xy", "Z"])
def test_a_shape_is_refused_before_it_is_unpacked(tmp_path, monkeypatch, names):
    def unpacked(*arguments, **options):
        raise AssertionError

    np.savez_compressed(tmp_path / "wide.npz", **{name: np.zeros((3, 30_000), np.int8) for name in names})
    np.savez_compressed(tmp_path / "long.npz", **{name: np.zeros((30_000, 3), np.int8) for name in names})
    monkeypatch.setattr(np, "load", unpacked)
    with pytest.raises(TableError, match=r"[XZ] in wide\.npz has 30000 numbers in a row, at most 20000 can be used"):
        read_inputs(tmp_path / "wide.npz")
    with pytest.raises(MemoryBudgetError, match=r"[XZ] in long\.npz has 30000 rows: .* at most 29999 rows do"):
        read_inputs(tmp_path / "long.npz", most_rows=29_999)


def test_numbers_count_as_what_they_become(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "small.npz", X=np.zeros((1000, 3), np.int8))
    counted = []
    monkeypatch.setattr(_arrays, "require", lambda needed, *rest: counted.append(needed))
    read_inputs(tmp_path / "small.npz")
    assert counted[0] >= (1 + 8) * 3000


def test_an_npy_file_is_a_table_or_a_record(tmp_path):
    np.save(tmp_path / "plain.npy", np.column_stack([X, NUMBERS]))
    table = read_table(tmp_path / "plain.npy")
    np.testing.assert_array_equal(table.x, X)
    assert table.target == "column 4"
    records = np.array([(1.0, "a"), (2.0, "b")] * 4, dtype=[("x", float), ("kind", "U1")])
    np.save(tmp_path / "records.npy", records)
    assert read_table(tmp_path / "records.npy").classes == ("a", "b")
    np.save(tmp_path / "images.npy", np.zeros((3, 4, 4)))
    with pytest.raises(TableError, match="images and no targets"):
        read_table(tmp_path / "images.npy")


@pytest.mark.parametrize(
    ("name", "message"), [("nothing.csv", "There is no file"), ("", "is a folder"), ("data.xls", "of an unknown kind")]
)
def test_files_that_are_none(tmp_path, name, message):
    (tmp_path / "data.xls").write_text("x")
    with pytest.raises(TableError, match=message):
        read_table(tmp_path / name)


def test_parquet(tmp_path):
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    days = pandas.to_datetime(["2024-01-01", "2024-01-03"] * 6)
    kinds = pandas.Categorical(["a", "b", None] * 4)
    frame = pandas.DataFrame({"x": X[:, 0], "day": days, "kind": kinds, "flag": CLASSES > 0, "y": NUMBERS})
    frame.to_parquet(tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet")
    assert table.names == ("x", "day", "kind=a", "kind=b", "kind is missing", "flag")
    np.testing.assert_array_equal(table.x[:2, 1], [0, 2])


def test_inputs_of_two_files_are_encoded_alike(tmp_path):
    (tmp_path / "a.csv").write_text("x,c,y\n" + "1,red,5\n,blue,6\n" * 3)
    (tmp_path / "b.csv").write_text("x,c,y\n2,green,7\n3,red,8\n3,green,8\n")
    first, second = read_inputs(tmp_path / "a.csv", tmp_path / "b.csv", target="y")
    assert first.names == second.names == ("x", "x is missing", "c=blue", "c=green", "c=red")
    assert first.y is None
    np.testing.assert_array_equal(second.x, [[2, 0, 0, 1, 0], [3, 0, 0, 0, 1], [3, 0, 0, 1, 0]])
    assert len(first.x) == 6
    (tmp_path / "c.csv").write_text("x,d,y\n2,green,7\n3,red,8\n")
    with pytest.raises(TableError, match="have different columns"):
        read_inputs(tmp_path / "a.csv", tmp_path / "c.csv")


def test_inputs_of_arrays_need_no_target(stored):
    (table,) = read_inputs(stored(X=X))
    np.testing.assert_array_equal(table.x, X)


def test_inputs_of_arrays_beside_those_of_a_table(stored, tmp_path):
    np.savetxt(tmp_path / "x.csv", np.column_stack([X, NUMBERS]), delimiter=",", header="a,b,c,y", comments="")
    first, second = read_inputs(stored(X=X), tmp_path / "x.csv", target="y")
    np.testing.assert_allclose(first.x, second.x)


def test_digits_and_some_of_their_rows():
    table = Table.digits()
    assert (table.x.shape, len(table.names), len(table.classes)) == ((1797, 64), 64, 10)
    some = table.take([3, 5])
    np.testing.assert_array_equal(some.x, table.x[[3, 5]])
    np.testing.assert_array_equal(some.y, table.y[[3, 5]])
