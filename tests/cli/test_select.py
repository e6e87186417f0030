"""`everwide select`: rows as the library picks them, written so that a person can label them."""

import csv
import json

import numpy as np
import pytest

from everwide.selection import query
from everwide.tables import read_pool

pytestmark = pytest.mark.once
N, KNOWN = 60, 16


def lines(labels, x):
    rows = [
        f"{row[0]:.6f},{row[1]:.6f},{'abc'[i % 3]},{1 + i % 2},{label}\n"
        for i, (row, label) in enumerate(zip(x, labels, strict=True))
    ]
    return "a,b,site,price,kind\n" + "".join(rows)


@pytest.fixture
def pool(tmp_path):
    x = np.random.default_rng(0).normal(size=(N, 2))
    labels = ["" if i >= KNOWN else "yes" if row[0] > 0 else "no" for i, row in enumerate(x)]
    (tmp_path / "pool.csv").write_text(lines(labels, x))
    return "pool.csv"


def written(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_are_those_of_the_library_with_a_reason_each(run, pool, tmp_path):
    result = run("select", pool, "--target", "kind", "--size", "5", "--method", "margin", "-o", "to/next.csv")
    assert result.exit_code == 0, result.output
    read = read_pool(tmp_path / pool, target="kind")
    picked = query(read.table.x, read.labels, batch_size=5, method="margin", task="classification")
    rows = written(tmp_path / "to" / "next.csv")
    assert [int(row["row"]) for row in rows] == (1 + picked.indices).tolist()
    assert [row["why"] for row in rows] == picked.why
    assert "it may be" in rows[0]["why"]
    assert all(row["kind"] == "" for row in rows)
    source = written(tmp_path / pool)
    assert {name: rows[0][name] for name in ("a", "site")} == {
        name: source[int(rows[0]["row"]) - 1][name] for name in ("a", "site")
    }
    assert "5 rows of pool.csv to label next, of 44 without kind" in result.stdout.replace("\n", " ")


def test_json_groups_and_costs(run, pool):
    asked = ("--groups", "site", "--costs", "price", "--method", "k_centre", "--size", "3", "--json")
    result = run("select", pool, "--target", "kind", *asked)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert len({(row["row"] - 1) % 3 for row in found["rows"]}) == 3  # one of each site
    assert all("at a cost of" in row["why"] for row in found["rows"])
    assert (found["n"], found["labelled"], found["method"]) == (N, KNOWN, "k_centre")
    assert not any("site" in note for note in found["notes"])  # a group is no input


@pytest.mark.parametrize("known", [0, 1])
def test_no_label_and_one_class_are_a_beginning(run, tmp_path, known):
    x = np.random.default_rng(1).normal(size=(30, 2))
    (tmp_path / "new.csv").write_text(lines(["yes"] * known + [""] * (30 - known), x))
    result = run("select", "new.csv", "--size", "4", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["method"], len(found["rows"])) == ("typiclust", 4)


def test_rows_are_numbered_as_in_the_file_and_twins_passed_over(run, tmp_path):
    x = np.repeat(np.random.default_rng(2).normal(size=(8, 2)), 2, axis=0)
    text = lines(["yes", "", "no", "", *[""] * 12], x).splitlines()
    text.insert(3, ",,,,")  # a row without anything
    (tmp_path / "twins.csv").write_text("\n".join(text) + "\n")
    found = json.loads(
        run(
            "select",
            "twins.csv",
            "--size",
            "4",
            "--method",
            "k_centre",
            "--groups",
            "site",
            "--costs",
            "price",
            "--json",
        ).stdout
    )
    rows = [row["row"] for row in found["rows"]]
    assert 3 not in rows
    assert len({(row - 2) // 2 for row in rows}) == 4
    assert not {1, 2, 4, 5} & set(rows)


def test_only_twins_are_nothing_to_label(run, tmp_path):
    same = np.ones((6, 2))
    (tmp_path / "same.csv").write_text(lines(["yes", "no", *[""] * 4], same))
    result = run("select", "same.csv", "--size", "2", "--groups", "site", "--costs", "price")
    assert result.exit_code == 1
    assert "near-duplicate of a labelled one" in " ".join(result.output.split())
    assert not (tmp_path / "next.csv").exists()


def test_fewer_rows_than_asked_for_are_said_to_be_so(run, tmp_path):
    x = np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0], [5.0, 5.0], [5.0, 5.0]])
    (tmp_path / "few.csv").write_text(lines(["yes", "no", "", "", ""], x))
    asked = ("--size", "3", "--method", "k_centre", "--groups", "site", "--costs", "price", "--json")
    known = json.loads(run("select", "few.csv", *asked).stdout)
    assert len(known["rows"]) == 1
    assert any("Only 1 row of 3 could be chosen" in text for text in known["notes"])


@pytest.mark.slow
@pytest.mark.parametrize("target", ["kind", "price"])
def test_of_a_trained_network(run, tmp_path, target):
    x = np.random.default_rng(3).normal(size=(80, 2))
    numbers = [f"{row[0] ** 2:.4f}" if i < 60 else "" for i, row in enumerate(x)]
    names = ["" if i >= 60 else "yes" if row[0] > 0 else "no" for i, row in enumerate(x)]
    (tmp_path / "pool.csv").write_text(lines(names if target == "kind" else numbers, x))
    result = run("select", "pool.csv", "--of", "network", "--size", "4", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["kernel"] == ("none" if target == "kind" else "tangent kernel of the model")
    assert found["method"] == ("margin" if target == "kind" else "lcmd")
    assert all(row["row"] > 60 for row in found["rows"])


@pytest.mark.slow
def test_with_a_network_of_ones_own_and_a_stop(run, tmp_path):
    x = np.random.default_rng(4).normal(size=(120, 2))
    (tmp_path / "pool.csv").write_text(lines([f"{row[0]:.4f}" if i < 80 else "" for i, row in enumerate(x)], x))
    result = run("select", "pool.csv", "--net", "model.py:small", "--size", "4", "--stop", "--json")
    assert result.exit_code == 0, result.output
    assert "4 random labels more" in json.loads(result.stdout)["stop"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--size", "0"), 2, "--size"),
        (("-o", "next.txt"), 2, "ends in .csv"),
        (("-o", "pool.csv"), 2, "the file that is read"),
        (("--of", "forest"), 2, "expected kernel or network"),
        (("--costs", "site"), 2, "a column of numbers"),
        (("--method", "magic"), 1, "magic"),
        (("--size", "45"), 1, "44 candidates"),
        (("--groups", "nowhere"), 1, "no column 'nowhere'"),
        (("--stop",), 1, "needs 64 labelled rows"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(run, pool, tmp_path, arguments, code, message):
    before = (tmp_path / pool).read_text()
    result = run("select", pool, "--target", "kind", *arguments)
    assert result.exit_code == code, result.output
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "next.csv").exists()
    assert (tmp_path / pool).read_text() == before


def test_a_table_with_all_labels_has_nothing_to_pick_from(run, numbers):
    result = run("select", numbers)
    assert result.exit_code == 1
    assert "a label in every row" in result.output
