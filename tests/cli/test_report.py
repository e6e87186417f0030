"""`everwide report`: what is studied, where the page goes, what is said; `everwide.report` has tests of its own."""

import json

import numpy as np
import pytest

import everwide.report
from everwide import Progress
from everwide.layers import AbstractLayer
from everwide.report._page import Answer, Fact, Section, Text
from everwide.report._study import Study

pytestmark = pytest.mark.once


def answer(i: int) -> Answer:
    """A section with nothing but a tile."""
    tile = lambda result: Fact(f"number {i}", f"{i}.5", "so do this")
    return Answer(Section(f"s{i}", "", "", lambda problem: {}, lambda problem, result: Text(()), tile=tile), {})


ANSWERS = {f"s{i}": answer(i) for i in range(4)}


@pytest.fixture
def asked(monkeypatch):
    """What the study was asked for; it answers at once."""
    calls = []

    def study(table, *, net="auto", quick=False, seed=0, progress=None):
        calls.append({"table": table, "net": net, "quick": quick, "seed": seed})
        progress(Progress(1, 1, 0.5))
        return Study(table.source, table.target, table.task, table.n, table.n, "a net", quick, seed, ANSWERS)

    monkeypatch.setattr(everwide.report, "study", study)
    return calls


def test_digits_by_default(run, tmp_path, asked):
    result = run("report")
    assert result.exit_code == 0, result.output
    assert asked[0]["table"].x.shape == (1797, 64)
    assert (asked[0]["net"], asked[0]["quick"], asked[0]["seed"]) == ("auto", False, 0)
    assert (tmp_path / "report.html").read_text().lstrip().lower().startswith("<!doctype html>")
    assert json.loads((tmp_path / "report.json").read_text())["n"] == 1797
    assert "report.html" in result.stdout
    assert "report.json" in result.stdout


def test_three_main_numbers_are_printed(run, asked):
    shown = run("report").stdout
    assert [f"{i}.5 (so do this)" in shown for i in range(4)] == [True, True, True, False]


def test_cautions_are_printed_before_the_numbers(run, asked, monkeypatch):
    first = ANSWERS["s0"]
    told = Answer(first.section, {}, Text((), cautions=("Leakage? Look first.",)))
    monkeypatch.setitem(ANSWERS, "s0", told)
    shown = run("report").stdout
    assert shown.index("! Leakage? Look first.") < shown.index("0.5 (so do this)")


def test_counts_are_numbers_where_one_says_so(run, tmp_path, asked):
    (tmp_path / "counts.csv").write_text("x,y\n" + "".join(f"{i},{i % 4}\n" for i in range(40)))
    guessed, told = run("report", "counts.csv"), run("report", "counts.csv", "--task", "regression")
    assert [call["table"].task for call in asked] == ["classification", "regression"]
    assert "taken as classes" in guessed.stderr
    assert "taken as classes" not in told.stderr


def test_options_are_passed_on(run, tmp_path, asked, numbers):
    command = (
        "report",
        numbers,
        "--target",
        "b",
        "--net",
        "model.py:small",
        "--quick",
        "--seed",
        "7",
        "-o",
        "new/p.html",
    )
    result = run(*command, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["target"] == "b"
    assert (asked[0]["quick"], asked[0]["seed"], asked[0]["table"].names) == (True, 7, ("a", "c", "y"))
    assert isinstance(asked[0]["net"], AbstractLayer)
    assert (tmp_path / "new" / "p.html").is_file()


def test_presets_are_passed_by_name_and_notes_go_to_stderr(run, tmp_path, asked):
    np.savez(tmp_path / "images.npz", X=np.random.default_rng(0).normal(size=(12, 4, 4)), y=np.arange(12) / 7)
    result = run("report", "images.npz", "--net", "cnn")
    assert result.exit_code == 0, result.output
    assert asked[0]["net"] == "cnn"
    assert "note: X was read as images of one channel." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nothing.csv",), 2, "nothing.csv"),
        (("-o", "page.pdf"), 2, "ends in .html"),
        (("--target", "y"), 2, "the digits have one target"),
        (("--task", "regression"), 2, "the digits have one target"),
        (("--task", "sorting"), 2, "'classification', 'regression'"),
        (("--net", "cnnn"), 2, "Did you mean cnn?"),
        (("model.py",), 1, "model.py is of an unknown kind"),
        (("one.csv",), 1, "expected two rows or more"),
    ],
)
def test_faults(run, tmp_path, asked, arguments, code, message):
    (tmp_path / "one.csv").write_text("x,y\n1,2\n")
    result = run("report", *arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.glob("*.html"))


def test_an_interruption_leaves_no_page(run, tmp_path, monkeypatch):
    def study(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(everwide.report, "study", study)
    result = run("report")
    assert result.exit_code == 130
    assert "interrupted: nothing was written." in result.stderr
    assert not list(tmp_path.glob("report.*"))
