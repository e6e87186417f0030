"""Tables in text, as people and their enemies write them."""

import numpy as np
import pytest

from everwide.tables import TableError, read_table

pytestmark = pytest.mark.once


@pytest.fixture
def table_of(tmp_path):
    """The table that is read from this text."""

    def read(text, name="data.csv", encoding="utf-8", **options):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return read_table(path, **options)

    return read


def rows(line, count=12):
    """A header-less table: `line` is called with the number of the row."""
    return "".join(f"{line(i)}\n" for i in range(count))


def test_numbers_stay_and_the_last_column_is_the_target(table_of):
    table = table_of("a,b,y\n1,2.5,3.25\n4,-5e3,6.5\n7,8,9.125\n")
    np.testing.assert_array_equal(table.x, [[1, 2.5], [4, -5000], [7, 8]])
    np.testing.assert_array_equal(table.y, [3.25, 6.5, 9.125])
    assert (table.names, table.target, table.task, table.source) == (("a", "b"), "y", "regression", "data.csv")
    assert table.notes == ()


def test_a_target_is_chosen_by_name(table_of):
    table = table_of("a,b,y\n1,2,3.5\n4,5,6\n7,8,9\n", target="b")
    assert (table.target, table.names) == ("b", ("a", "y"))


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["no", "yes"], ("no", "yes")),
        (["True", "False"], ("False", "True")),
        (["10", "9"], ("9", "10")),
        (["2.0", "1.0"], ("1", "2")),
        ([" a", "a ", "b"], ("a", "b")),
        (["1", "2", "unknown"], ("1", "2", "unknown")),
        ([str(i) for i in range(20)], tuple(str(i) for i in range(20))),
        ([str(i) for i in range(21)], None),
        (["0.5", "1.5"], None),
    ],
)
def test_what_is_a_class(table_of, values, classes):
    table = table_of("x,y\n" + rows(lambda i: f"{i * i},{values[i % len(values)]}", 5 * len(values)))
    assert table.classes == classes
    assert table.task == ("regression" if classes is None else "classification")
    assert table.y.dtype == (np.float64 if classes is None else np.int64)
    if classes:
        stripped = values[0].strip().removesuffix(".0")
        assert classes[table.y[0]] == stripped


def test_few_rows_of_whole_numbers_are_numbers(table_of):
    assert table_of("x,y\n" + rows(lambda i: f"{i * i},{i % 3}", 14)).classes is None
    assert table_of("x,y\n" + rows(lambda i: f"{i * i},{i % 3}", 15)).classes == ("0", "1", "2")


COUNTS = "x,y\n" + rows(lambda i: f"{i * i},{i % 4}", 40)


def test_counts_are_numbers_where_one_says_so(table_of):
    guessed, told = table_of(COUNTS), table_of(COUNTS, task="regression")
    assert guessed.classes == ("0", "1", "2", "3")
    assert guessed.notes == (
        "The target has 4 whole numbers, taken as classes. For counts: --task regression, task='regression'.",
    )
    assert (told.classes, told.notes, told.y.dtype) == (None, (), np.float64)
    np.testing.assert_array_equal(told.y, np.arange(40) % 4)
    assert table_of(COUNTS, task="classification").notes == ()


@pytest.mark.parametrize(
    ("values", "task", "classes"),
    [
        (["0.5", "1.5"], "classification", ("0.5", "1.5")),
        ([str(i) for i in range(30)], "classification", tuple(str(i) for i in range(30))),
        (["True", "False"], "regression", None),
        (["1", "2", *(str(i) for i in range(18)), "unknown"], "regression", None),
    ],
)
def test_a_task_decides_how_a_target_is_read(table_of, values, task, classes):
    table = table_of("x,y\n" + rows(lambda i: f"{i * i},{values[i % len(values)]}", 10 * len(values)), task=task)
    assert (table.classes, table.task) == (classes, task)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"task": "regression"}, "holds text, such as 'no': expected numbers"), ({"task": "sorting"}, "task='sorting'")],
)
def test_tasks_that_cannot_be(table_of, options, said):
    with pytest.raises(TableError, match=said):
        table_of("x,y\n" + rows(lambda i: f"{i},{'yes' if i % 2 else 'no'}"), **options)


def test_rows_are_those_of_the_file(table_of):
    table = table_of("x,y\n1,\n\n2,2.5\n3,\n4,4.5\n5,5.5\n")
    assert table.rows.tolist() == [1, 3, 4]
    assert table.take([2, 0]).rows.tolist() == [4, 1]
    assert table_of("x,y\n1,1.5\n2,2.5\n").rows is None


def test_scripts_quotes_and_formulas_are_text(table_of):
    text = 'x,<script>alert(1)</script>,"say ""hi"", ok",y\n'
    text += rows(lambda i: f'{i},{"<b>" if i % 2 else "=1+1"},"{"a,b" if i % 3 else "@x"}",{i / 3}')
    table = table_of(text)
    assert table.names == (
        "x",
        "<script>alert(1)</script>=<b>",
        "<script>alert(1)</script>==1+1",
        'say "hi", ok=@x',
        'say "hi", ok=a,b',
    )
    np.testing.assert_array_equal(table.x[:, 2], [1, 0] * 6)
    assert any("zeros and ones" in text for text in table.notes)


def test_control_characters_do_not_reach_a_terminal(table_of):
    table = table_of("x,\x1b[31mred,y\n1,2,3.5\n4,5,6\n")
    assert all(name.isprintable() for name in table.names)
    assert table_of("x,\x1b[31mred,y\n1,2,3.5\n4,5,6.5\n", target="\x1b[31mred").target == "[31mred"


@pytest.mark.parametrize(
    ("encoding", "note"), [("utf-8-sig", None), ("utf-16", None), ("latin-1", "Latin-1"), ("utf-8", None)]
)
def test_encodings(table_of, encoding, note):
    table = table_of("größe,y\n" + rows(lambda i: f"{i},{'ü' if i % 2 else 'o'}"), encoding=encoding)
    assert table.names == ("größe",)
    assert table.classes == ("o", "ü")
    assert [note in text for text in table.notes] == ([] if note is None else [True])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a;b;y\n1,5;2;3,25\n4,5;5;6\n", "data.csv"),
        ("a\tb\ty\n1.5\t2\t3.25\n4.5\t5\t6\n", "data.tsv"),
        ("a|b|y\n1.5|2|3.25\n4.5|5|6\n", "data.csv"),
        ("\n\na,b,y\n1.5, 2, 3.25\n\n4.5, 5, 6\n", "data.csv"),
        ("a,b,y\r\n1.5,2,3.25\r\n4.5,5,6\r\n", "DATA.CSV"),
    ],
)
def test_separators(table_of, text, name):
    table = table_of(text, name)
    np.testing.assert_array_equal(table.x, [[1.5, 2], [4.5, 5]])
    np.testing.assert_array_equal(table.y, [3.25, 6])


def test_a_first_line_of_numbers_is_data(table_of):
    table = table_of("5.1,3.5,a\n" * 6 + "4.9,3.0,b\n" * 6)
    assert table.n == 12
    assert (table.names, table.target) == (("column 1", "column 2"), "column 3")
    years = table_of("2019,2020,2021\n" + rows(lambda i: f"{i * i},{i},{i / 7}"))
    assert years.names == ("2019", "2020")


def test_columns_of_one_name_are_numbered(table_of):
    table = table_of("x,x,x.2,y\n1,2,3,4.5\n5,6,7,8\n")
    assert table.names == ("x", "x.2", "x.2.2")
    assert any("same name" in text for text in table.notes)
    np.testing.assert_array_equal(table.x[0], [1, 2, 3])


def test_missing_infinite_and_mixed_values_get_the_median(table_of):
    lines = [f"{i},{i},{i},{i / 3}" for i in range(20)]
    lines[3], lines[5], lines[7] = ",3,3,1.5", "5,inf,5,2.5", "7,7,oops,3.5"
    table = table_of("missing,infinite,mixed,y\n" + "\n".join(lines))
    others = lambda row: np.median([i for i in range(20) if i != row])
    assert table.names == tuple(
        f"{name}{end}" for name in ("missing", "infinite", "mixed") for end in ("", " is missing")
    )
    np.testing.assert_array_equal([table.x[3, 0], table.x[5, 2], table.x[7, 4]], [others(3), others(5), others(7)])
    np.testing.assert_array_equal(table.x[:, 1::2], np.arange(20)[:, None] == [3, 5, 7])
    said = " ".join(table.notes)
    for words in ("Missing values were filled with the median of the column: missing, mixed", "infinite", "mixed"):
        assert words in said
    assert np.isfinite(table.x).all()


def test_rows_without_a_target_are_dropped(table_of):
    table = table_of("x,y\n" + rows(lambda i: f"{i * i},{'' if i in (2, 5) else 'inf' if i == 7 else i / 3}"))
    np.testing.assert_array_equal(table.x[:, 0], [i * i for i in range(12) if i not in (2, 5, 7)])
    assert "3 rows have no target, and nothing is learned from them." in table.notes


def test_texts_among_numeric_targets_are_dropped(table_of):
    table = table_of("x,y\n" + rows(lambda i: f"{i * i},{'oops' if i == 3 else i / 3}", 40))
    assert (table.task, table.n) == ("regression", 39)
    assert "1 row has no target, and nothing is learned from it." in table.notes


def test_dates_become_days_where_they_can_be_read_in_one_way_only(table_of):
    table = table_of("iso,other,z,y\n" + rows(lambda i: f"2024-01-{i + 1:02d}T12:00,{i + 1:02d}/02/2024,{i},{i / 3}"))
    assert table.names == ("iso", "z")
    np.testing.assert_allclose(table.x[:, 0], range(12))
    assert any("two ways" in text and "other" in text for text in table.notes)
    slashes = table_of("d,y\n" + rows(lambda i: f"2024/0{1 + i % 2}/01,{i / 3}"))
    np.testing.assert_allclose(slashes.x[:, 0], [0, 31] * 6)


def test_identifiers_and_row_numbers_are_dropped(table_of):
    table = table_of(",name,id,x,y\n" + rows(lambda i: f"{i},person {i},{i + 1},{i * i},{i / 3}"))
    assert table.names == ("x",)
    assert any("identifiers: name" in text for text in table.notes)
    assert any("count the rows: unnamed 1, id" in text for text in table.notes)


@pytest.mark.parametrize("levels", [50, 51])
def test_of_many_categories_the_most_frequent_are_told_apart(table_of, levels):
    numbers = [i % levels for i in range(102)] + [0] * 20
    table = table_of("x,c,y\n" + rows(lambda i: f"{i * i},v{numbers[i]},{i / 3}", 122))
    assert table.x.shape[1] == 1 + 50
    np.testing.assert_array_equal(table.x[:, 1:].sum(axis=1), 1)
    assert table.x[:, table.names.index("c=v0")].sum() == numbers.count(0)
    assert (
        ("c: any other" in table.names) == any("share one column: c" in text for text in table.notes) == (levels > 50)
    )


def test_a_missing_category_is_one_too(table_of):
    table = table_of("x,c,y\n" + rows(lambda i: f"{i * i},{'' if i == 4 else 'ab'[i % 2]},{i / 3}"))
    assert table.names[1:] == ("c=a", "c=b", "c is missing")
    np.testing.assert_array_equal(table.x[3:6, 1:], [[0, 1, 0], [0, 0, 1], [0, 1, 0]])
    assert any("say where values were missing: c" in text for text in table.notes)


def test_pixels_are_images(table_of):
    names = ",".join(f"pixel{i}" for i in range(16))
    table = table_of(f"{names},y\n" + rows(lambda i: ",".join(str(i * j) for j in range(16)) + f",{i / 3}"))
    assert table.sites == table.shape == (4, 4, 1)


def test_ten_thousand_columns(table_of):
    values = np.random.default_rng(0).integers(0, 9, size=(6, 10_000))
    table = table_of(",".join(f"c{i}" for i in range(10_000)) + "\n" + "\n".join(",".join(map(str, v)) for v in values))
    np.testing.assert_array_equal(table.x, values[:, :-1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "data.csv is empty"),
        ("\n \n", "data.csv is empty"),
        ("x,y\n", "holds column names only"),
        ("x\n1\n2\n", "has one column only"),
        ("x,y\n1,2\n", "has one value only: expected two rows or more"),
        ("x,y\n1,\n2,\n", "has no value"),
        ("x,y\n1,2\n3,4,5\n", "Expected 2 fields in line 3, saw 3"),
        ("x,y\n1,2,3\n4,5,6\n7,8,9\n", "more fields than its 2 column names"),
        ('x,y\n"1,2\n3,4\n', "cannot be read as a table"),
        ("x,y\n" + "1,a\n" * 9, "one class only, 'a'"),
        ("x,y\n" + "1,2.5\n" * 9, "holds only 2.5"),
        ("x,y\n" + rows(lambda i: f"{i},name {i}"), "look like names of rows"),
        ("x,y\n" + rows(lambda i: f"{i},2024-01-{i + 1:02d}"), "holds dates"),
        ("n,y\n" + rows(lambda i: f"text {i},{i / 3}"), "No column of data.csv is left to learn from"),
        ("n,y\n" + rows(lambda i: f",{i / 3}"), "No column of data.csv is left to learn from"),
        (b"\x89PNG\0\0,\n", "is not text"),
        (",".join(f"c{i}" for i in range(20_001)) + "\n", "20001 columns, at most 20000"),
    ],
)
def test_refusals(table_of, text, message):
    with pytest.raises(TableError) as refused:
        table_of(text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unknown_target_is_answered_with_the_nearest(table_of):
    with pytest.raises(TableError, match=r"no column 'prize'\. Did you mean price\?"):
        table_of("x,price\n1,2\n3,4\n", target="prize")
    with pytest.raises(TableError, match="It has x, price"):
        table_of("x,price\n1,2\n3,4\n", target="zzzzzz")
