"""`everwide reproduce`: options, JSON and interruption. What is found is tested with the experiments."""

import json
from types import SimpleNamespace

import pytest

from everwide import Progress
from everwide_lab import lee2019

pytestmark = pytest.mark.once


class Found:
    """What an experiment returns."""

    def table(self):
        return [{"regime": "a [red]", "width": 8, "gap_infinite": 0.123456, "gap_linearized": float("nan")}]

    def claims(self):
        return ["it holds"]


@pytest.fixture
def sizes(monkeypatch):
    """The sizes that an experiment was asked for; it answers at once."""
    calls = []

    def reproduce(*, progress, **given):
        progress(Progress(1, 2, 0.1))
        calls.append(given)
        return Found()

    monkeypatch.setattr(lee2019, "reproduce", reproduce)
    return calls


def test_as_a_table(run, sizes):
    result = run("reproduce", "lee2019", "--widths", "32,16,32", "--steps", "5", "--out", "here")
    assert result.exit_code == 0, result.output
    assert (sizes[0]["widths"], sizes[0]["steps"], sizes[0]["out"].name) == ((16, 32), 5, "here")
    for words in ("a [red]", "0.1235", "- it holds", "written to here"):
        assert words in result.stdout


def test_as_json(run, sizes):
    found = json.loads(run("reproduce", "lee2019", "--quick", "--json").stdout)
    assert found["rows"] == [{"regime": "a [red]", "width": 8, "gap_infinite": 0.123456, "gap_linearized": None}]
    assert found["claims"] == ["it holds"]
    assert found["folder"].endswith("lee2019-quick")
    assert sizes[0]["n"] == 4


def test_an_interruption_is_no_crash(run, monkeypatch):
    def stop(**given):
        raise KeyboardInterrupt

    monkeypatch.setattr(lee2019, "reproduce", stop)
    result = run("reproduce", "lee2019")
    assert result.exit_code == 130
    assert "interrupted: nothing is kept." in result.stderr


def test_widths_are_whole_numbers(run):
    result = run("reproduce", "lee2019", "--widths", "8,wide")
    assert result.exit_code == 2
    assert "expected whole numbers above 0" in result.stderr


@pytest.mark.parametrize(("missing", "words"), [("everwide_lab", "which is missing here"), ("optax", "need optax")])
def test_what_is_missing_is_said_in_a_sentence(run, monkeypatch, missing, words):
    def nothing(name):
        raise ModuleNotFoundError(name=missing)

    monkeypatch.setattr("everwide.cli._reproduce.importlib", SimpleNamespace(import_module=nothing))
    result = run("reproduce", "lee2019", "--quick")
    assert result.exit_code == 1
    assert words in " ".join(result.stderr.split())
