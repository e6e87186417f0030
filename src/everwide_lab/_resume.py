"""Finished runs, kept in a file as soon as they are finished."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Record = dict[str, Any]


class Ledger:
    """Runs and what they gave, a line of JSON each. Without a file they are kept in memory only.

    A run is known by everything that determines its result: a dictionary of numbers and strings.
    """

    def __init__(self, path: Path | None):
        self.path = path
        self._known = {_name(line["run"]): line["result"] for line in _lines(path)}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, run: Record) -> bool:
        return _name(run) in self._known

    def result(self, run: Record, compute: Callable[[], Record]) -> Record:
        """What the run gave; it is computed, and kept, unless it is known."""
        name = _name(run)
        if name not in self._known:
            result = compute()
            if self.path is not None:
                _append(self.path, json.dumps({"run": run, "result": result}, sort_keys=True, allow_nan=False))
            self._known[name] = result
        return self._known[name]


def _name(run: Record) -> str:
    return json.dumps(run, sort_keys=True)


def _lines(path: Path | None) -> list[Record]:
    """All whole lines: the last one may have been cut short when a machine stopped."""
    if path is None or not path.exists():
        return []
    whole, _, torn = path.read_text(encoding="utf-8").rpartition("\n")
    if torn:
        _replace(path, whole + "\n" if whole else "")
    return [json.loads(line) for line in whole.splitlines()]


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())  # one call: a line is there as a whole, or it is cut away when read again
        os.fsync(file.fileno())


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)
