"""Finished runs are kept, known again, and survive a line that was cut short."""

import pytest

from everwide_lab._resume import Ledger

pytestmark = pytest.mark.once


def refuse():
    raise AssertionError("A known run was computed again.")


def test_runs_are_computed_once(tmp_path):
    path = tmp_path / "folder" / "runs.jsonl"
    assert Ledger(path).result({"arm": "a", "rate": 0.1}, lambda: {"loss": 2.0}) == {"loss": 2.0}
    later = Ledger(path)
    assert len(later) == 1
    assert later.result({"rate": 0.1, "arm": "a"}, refuse) == {"loss": 2.0}  # whatever the order of the keys
    assert {"arm": "a", "rate": 0.2} not in later


def test_a_run_that_fails_is_not_kept(tmp_path):
    path = tmp_path / "runs.jsonl"

    def interrupt():
        raise KeyboardInterrupt

    ledger = Ledger(path)
    ledger.result({"seed": 0}, lambda: {"loss": 1.0})
    with pytest.raises(KeyboardInterrupt):
        ledger.result({"seed": 1}, interrupt)
    assert len(Ledger(path)) == 1


@pytest.mark.parametrize("kept", [1, 2])
def test_a_torn_line_is_forgotten_and_written_over(tmp_path, kept):
    path = tmp_path / "runs.jsonl"
    for seed in range(3):
        Ledger(path).result({"seed": seed}, lambda: {"loss": 1.0})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:kept]) + lines[kept][:7])
    ledger = Ledger(path)
    assert len(ledger) == kept
    ledger.result({"seed": 9}, lambda: {"loss": 3.0})
    assert len(Ledger(path)) == kept + 1
    assert Ledger(path).result({"seed": 9}, refuse) == {"loss": 3.0}


def test_without_a_file_runs_are_kept_in_memory():
    ledger = Ledger(None)
    ledger.result({"seed": 0}, lambda: {"loss": 1.0})
    assert ledger.result({"seed": 0}, refuse) == {"loss": 1.0}
