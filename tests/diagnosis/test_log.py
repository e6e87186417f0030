"""The log of a run: written line by line, read at any time."""

import json
import math

import pytest

from everwide import InputError
from everwide.diagnosis import read_run
from everwide.diagnosis._log import Journal, plain
from everwide.diagnosis._verdict import Run
from report.run_logs import KINDS, facts, records

FACTS = {"model": "abc", "loss": "Mse", "groups": {"a": 3}, "inputs": None}


def journal(path) -> Journal:
    log = Journal(path)
    log.begin(FACTS)
    return log


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "run.jsonl"
    log = journal(path)
    log.write([{"record": "vitals", "step": 0, "value": 1 / 3}, {"record": "event", "step": 0, "name": "spike"}])
    log.write([{"record": "vitals", "step": 7, "value": math.nan}])
    run = read_run(path)
    assert run.facts["groups"] == {"a": 3}
    assert [r["step"] for r in run.of("vitals")] == [0, 7]
    steps, values = run.series("vitals", "value")
    assert steps.tolist() == [0]  # what is not finite is null, and no number
    assert values.tolist() == [0.333333]
    assert all(isinstance(json.loads(line), dict) for line in path.read_text().splitlines())


def test_a_truncated_line_is_left_out_and_cut_before_more_is_written(tmp_path):
    path = tmp_path / "run.jsonl"
    journal(path).write([{"record": "vitals", "step": 0, "value": 1.0}])
    with path.open("a") as file:
        file.write('{"record": "vitals", "st')
    assert len(read_run(path).records) == 1
    journal(path).write([{"record": "vitals", "step": 1, "value": 2.0}])
    assert [r["step"] for r in read_run(path).records] == [0, 1]


def test_a_log_of_another_model_is_refused(tmp_path):
    path = tmp_path / "run.jsonl"
    journal(path)
    with pytest.raises(InputError, match="log of another run"):
        Journal(path).begin(FACTS | {"model": "xyz"})


@pytest.mark.parametrize("text", ["", "no json\n", "[1]\n", '{"record": "vitals", "step": 1}\n', '{"record": "run"}\n'])
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=r"run\.jsonl"):
        read_run(path)


def lacking(records, kind, name):
    """Records in which a figure of one kind is missing, whatever it is inside of."""
    lean = lambda value: (
        {key: lean(item) for key, item in value.items() if key != name} if type(value) is dict else value
    )
    return tuple(lean(record) if record["record"] == kind else record for record in records)


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_a_log_of_another_version_is_read(optimizer):
    full = plain(records(12))
    for name in facts():
        Run({key: v for key, v in facts().items() if key != name} | {"optimizer": optimizer}, tuple(full)).verdict()
    figures = {(r["record"], name) for r in full for name in r} - {(kind, "record") for kind in KINDS}
    figures |= {("vitals", name) for v in full if v["record"] == "vitals" for name in v["groups"]["0"]}
    figures |= {("vitals", name) for name in ("mean", "largest", "first", "peak")}
    for kind, name in figures - {(kind, "step") for kind in KINDS}:
        Run(facts() | {"optimizer": optimizer}, lacking(full, kind, name)).verdict()
    notes = Run(facts(), lacking(full, "vitals", "far")).verdict().notes
    assert "the log lacks far" in notes[-1]


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.jsonl"):
        read_run(tmp_path / "none.jsonl")
