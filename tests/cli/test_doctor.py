"""`everwide doctor`: where the page goes, what is said, following a log, and logs that are none."""

import json
import time

import pytest

import everwide.cli._doctor as command
import everwide.report._page
from report.run_logs import facts, vitals, write

pytestmark = pytest.mark.once
LINES = [vitals(0, 2.3), vitals(10, 1.0)]


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Drawings have tests of their own, and take their time."""
    monkeypatch.setattr(everwide.report._page, "drawn", lambda *given: "<svg></svg>")


@pytest.fixture
def log(tmp_path):
    return write(tmp_path / "run.jsonl", LINES)


def test_a_page_and_its_numbers_beside_it(run, tmp_path, log):
    result = run("doctor", "run.jsonl", "-o", "new/page.html")
    assert result.exit_code == 0, result.output
    assert "Seen up to step 10" in result.stdout
    assert "<h2>How training went</h2>" in (tmp_path / "new" / "page.html").read_text("utf-8")
    assert json.loads((tmp_path / "new" / "page.json").read_text("utf-8"))["verdict"]["steps"] == 10
    assert log.read_text().count("\n") == 3


def test_the_page_lies_beside_the_log_by_default_and_json_is_printed(run, tmp_path, log):
    result = run("doctor", "run.jsonl", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads((tmp_path / "run.json").read_text("utf-8"))
    assert (tmp_path / "run.html").is_file()


def test_a_run_that_has_only_begun(run, tmp_path):
    write(tmp_path / "run.jsonl", [])
    result = run("doctor", "run.jsonl")
    assert result.exit_code == 0, result.output
    assert "Nothing was measured yet." in result.stdout


def test_a_last_line_that_was_cut_off_is_left_out(run, tmp_path, log):
    with log.open("a") as file:
        file.write('{"record": "vitals", "st')
    result = run("doctor", "run.jsonl")
    assert result.exit_code == 0, result.output
    assert "Seen up to step 10" in result.stdout


FAULTS = {
    "missing": (None, ("run.jsonl",), 2, "'run.jsonl' does not exist"),
    "a folder": (None, (".",), 2, "is a directory"),
    "empty": ("", ("run.jsonl",), 1, "does not begin with the facts of a run"),
    "no log": ("a,b\n1,2\n", ("run.jsonl",), 1, "line 1 is no record"),
    "a record first": ('{"record": "vitals", "step": 1}\n', ("run.jsonl",), 1, "does not begin with the facts"),
    "another version": ('{"record": "run", "format": 2}\n', ("run.jsonl",), 1, "of another version"),
    "no step": ('{"record": "run", "format": 1}\n{"record": "vitals"}\n', ("run.jsonl",), 1, "line 2: step is 'None'"),
    "no page": ("", ("run.jsonl", "-o", "run.pdf"), 2, "ends in .html"),
    "over the log": ("", ("run.json",), 2, "would overwrite the log"),
    "follow and json": ("", ("run.jsonl", "--follow", "--json"), 2, "it prints once"),
    "too often": ("", ("run.jsonl", "--follow", "--every", "0"), 2, "--every"),
}


@pytest.mark.parametrize(("text", "arguments", "code", "message"), FAULTS.values(), ids=FAULTS)
def test_faults(run, tmp_path, text, arguments, code, message):
    for name in ("run.jsonl", "run.json") if text is not None else ():
        (tmp_path / name).write_text(text)
    result = run("doctor", *arguments)
    assert result.exit_code == code
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.glob("*.html"))


@pytest.fixture
def following(monkeypatch):
    """Follow a log; before each pause one of these is done, and after the last one somebody presses control-C."""

    def prepare(*actions):
        waiting, pauses = list(actions), []

        def sleep(seconds):
            pauses.append(seconds)
            if not waiting:
                raise KeyboardInterrupt
            waiting.pop(0)()

        monkeypatch.setattr(command.time, "sleep", sleep)
        return pauses

    assert command.time is time
    return prepare


def test_following_waits_for_the_log_and_writes_when_it_has_grown(run, tmp_path, following, monkeypatch):
    path, pages = tmp_path / "run.jsonl", []
    written = command._written
    monkeypatch.setattr(command, "_written", lambda *given: pages.append(given[2]) or written(*given))

    def shows(count):
        assert len(pages) == count
        assert 'http-equiv="refresh" content="3"' in (tmp_path / "run.html").read_text("utf-8")

    def begin():
        assert not pages
        path.write_text(json.dumps(facts())[:40])  # half of a line

    def grow():
        shows(1)
        path.write_text(path.read_text() + "".join(json.dumps(line) + "\n" for line in LINES))

    whole = lambda: write(path, [])
    pauses = following(begin, whole, grow, lambda: shows(2), lambda: shows(2))
    result = run("doctor", "run.jsonl", "--follow", "--every", "2.5")
    assert result.exit_code == 0, result.output
    assert pages == [3, 3, None]
    assert "refresh" not in (tmp_path / "run.html").read_text("utf-8")  # nobody writes it any more
    assert "Step 0: Nothing was measured yet" in result.stdout
    assert "Seen up to step 10" in result.stdout
    assert min(pauses) == 2.5


def test_an_interruption_before_there_is_a_log(run, tmp_path, following):
    following()
    result = run("doctor", "run.jsonl", "--follow")
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert not list(tmp_path.glob("*.html"))


def test_following_ends_where_the_log_is_none(run, tmp_path, following, log):
    following(lambda: log.write_text("something else\n"))
    result = run("doctor", "run.jsonl", "--follow")
    assert result.exit_code == 1
    assert "line 1 is no record" in result.stderr
