"""The log of a run: written line by line, read at any time."""

import contextlib
import copy
import itertools
import json
import math
import re

import pytest

from everwide import InputError
from everwide.diagnosis import read_run
from everwide.diagnosis._log import Journal, plain
from everwide.diagnosis._verdict import Run
from everwide.report import study_run
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


def test_two_logs_in_one_file_are_refused(tmp_path):
    path = tmp_path / "run.jsonl"
    journal(path).write([{"record": "vitals", "step": 0, "value": 1.0}])
    path.write_text(2 * path.read_text())
    with pytest.raises(InputError, match="line 3 begins another run"):
        read_run(path)


def test_a_byte_order_mark_is_left_out_and_brackets_without_end_are_no_record(tmp_path):
    path = tmp_path / "run.jsonl"
    journal(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_run(path).facts["loss"] == "Mse"
    path.write_bytes(path.read_bytes() + b"[" * 100_000 + b"\n")
    with pytest.raises(InputError, match="line 2 is no record"):
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


STRANGE = (None, [], {}, "text", -1, 0, True, 1e308, 10**400, math.inf, math.nan, [None], {"a": {}})


def fields(value, at=()):
    """Where everything in a record is; of a list, its first item."""
    inside = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    return [place for name, one in inside for place in ((*at, name), *fields(one, (*at, name)))]


def full_log():
    """With everything that a doctor writes."""
    good = plain([facts() | {"targets": {"mean": 0.1, "std": 1.0, "rms": 1.0, "most": 2.0}}, *records(4)])
    told = {"mean": 0.5, "smallest": 0.4, "largest": 3.0, "last": 0.5, "first": 2.3, "peak": 590, "course": [[9, 0.5]]}
    events = [{"record": "event", "step": 9, "name": name, "figures": {"value": 0.5}} for name in ("plateau", "spike")]
    return [*good, {"record": "told", "step": 600, "told": told}, *events]


def lines_with(kind, place, value):
    """The log, another value at that place of all records of a kind."""
    lines = copy.deepcopy(full_log())
    for line in lines:
        inner = line
        for name in place[:-1]:
            inner = inner.get(name) if isinstance(inner, dict) else inner[name] if inner else None
        if line["record"] == kind and inner is not None:
            inner[place[-1]] = value
    return lines


@pytest.mark.once
@pytest.mark.parametrize("kind", ["run", "told", *KINDS])
def test_strange_figures_are_named_or_do_no_harm(tmp_path, kind):
    path, read = tmp_path / "run.jsonl", 0
    places = dict.fromkeys(place for line in full_log() if line["record"] == kind for place in fields(line))
    for place, value in itertools.product(places, STRANGE):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines_with(kind, place, value)))
        with contextlib.suppress(InputError):
            json.dumps(study_run(read_run(path)).to_dict(), allow_nan=False)
            read += 1
    assert 0 < read < len(places) * len(STRANGE)


@pytest.mark.parametrize(
    ("kind", "place", "value", "words"),
    [
        ("run", ("groups",), [], "line 1: groups is '[]', expected a dict"),
        ("run", ("inputs", "rms"), math.nan, "line 1: inputs.rms is 'nan', expected a finite number"),
        ("vitals", ("quantiles",), "text", "line 2: quantiles is 'text', expected a list of 5"),
        ("vitals", ("groups", "0", "gain"), -1, "line 2: groups.0.gain is '-1', expected a finite number from 0 on"),
        ("event", ("figures",), None, "figures is 'None', expected a dict"),
    ],
)
def test_what_is_strange_is_named_by_its_line_and_field(tmp_path, kind, place, value, words):
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines_with(kind, place, value)))
    with pytest.raises(InputError, match=re.escape(words)):
        read_run(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.jsonl"):
        read_run(tmp_path / "none.jsonl")
