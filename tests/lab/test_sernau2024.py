"""The experiment as a whole, tiny: through the command line, interrupted, and continued."""

import csv
import dataclasses
import json

import pytest
from typer.testing import CliRunner

from everwide.cli import app
from everwide_lab.sernau2024 import Arm, Setting, reproduce
from everwide_lab.sernau2024._infinite import LIMITS

pytestmark = pytest.mark.once

SMALL = dataclasses.replace(Setting.quick(), widths=(8,), seeds=2)
ROWS = [arm.value for arm in Arm for _ in range(1 + (arm in LIMITS))]  # those with a limit have a second one


def lines(folder):
    return (folder / "runs.jsonl").read_text().splitlines()


def table(folder):
    with (folder / "results.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A whole run of one seed through the command line."""
    folder = tmp_path_factory.mktemp("sernau2024")
    arguments = ["reproduce", "sernau2024", "--quick", "--widths", "8", "--seeds", "1", "--out", str(folder)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "SGD on the read-out is worse than ADAM" in result.stdout.replace("\n", " ")
    return folder


@pytest.mark.slow
def test_the_command_line_writes_table_figure_and_claims(folder):
    assert [row["arm"] for row in table(folder)] == ROWS
    assert [row["width"] for row in table(folder)] == ["8", "8", *["8", "infinite"] * 3, "any"]
    assert all(1 < float(row["test"]) < 6 for row in table(folder))
    text = (folder / "results.md").read_text()
    assert "ADAM* tracks frozen features" in text
    assert (folder / "figure.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_second_call_adds_what_is_missing_and_repeats_nothing(folder, tmp_path):
    before, stages = lines(folder), []
    found = reproduce(SMALL, out=folder, progress=stages.append)
    after = lines(folder)
    assert after[: len(before)] == before
    assert [json.loads(line)["run"]["seed"] for line in after[len(before) :]] == [1] * len(Arm)
    assert stages[-1].done == stages[-1].total
    elsewhere = reproduce(SMALL, out=tmp_path)  # from nothing, at once
    assert [row["test"] for row in elsewhere.table()] == [row["test"] for row in found.table()]
    assert table(tmp_path) == table(folder)


@pytest.mark.slow
def test_an_interruption_loses_the_run_under_way_only(folder, tmp_path):
    """As Ctrl-C: from wherever the progress is shown."""
    seen = []

    def interrupt(stage):
        seen.append(stage)
        if len(seen) == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(SMALL, out=tmp_path, progress=interrupt)
    kept = lines(tmp_path)
    assert 0 < len(kept) < len(lines(folder))
    found = reproduce(SMALL, out=tmp_path)
    assert lines(tmp_path)[: len(kept)] == kept
    runs = [json.dumps(json.loads(line)["run"]) for line in lines(tmp_path)]
    assert len(runs) == len(set(runs))
    assert [row["test"] for row in found.table()] == [row["test"] for row in reproduce(SMALL).table()]


def test_ctrl_c_says_how_to_go_on(monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("everwide_lab.sernau2024.reproduce", interrupted)
    result = CliRunner().invoke(app, ["reproduce", "sernau2024", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert "the same command goes on from them" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--widths", "8,x"], "expected whole numbers above 0"),
        (["--full", "--quick"], "choose one of --full and --quick"),
        (["--text", "nowhere.txt"], "nowhere.txt"),
        (["--rest", "lion"], "expected one of adam, sgd, momentum, got 'lion'"),
    ],
)
def test_faults_of_usage_exit_with_2(arguments, message):
    result = CliRunner().invoke(app, ["reproduce", "sernau2024", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"dim": 10, "heads": 4}, "dim=10 does not divide among heads=4"),
        ({"widths": (8, 8)}, "each once, in ascending order"),
        ({"steps": 0}, "steps=0: expected a whole number, 1 or more"),
        ({"infinite": 9}, "infinite=9: expected 0 to seeds=4"),
    ],
)
def test_settings_that_make_no_sense_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        Setting(**sizes)
