"""What a doctor saw of a run: one JSON object a line, appended, so that it survives a crash and can be read meanwhile.

The first line has the facts of the run; `record` says what each other line is: `vitals`, `curvature`, `noise`,
`kernel`, `collapse`, `event`, or `told` (losses since the last vitals), all with their `step`. Numbers are finite or
null.
"""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from .._checks import InputError
from ._forms import refuse

FORMAT = 1
_DIGITS = 6
Record = dict[str, Any]


class Lines(NamedTuple):
    """The facts of a run, and its records in the order of time."""

    facts: Record
    records: list[Record]


def read_lines(path: str | Path) -> Lines:
    """All whole lines of a log; a last one that was cut off is left out."""
    place = Path(path)
    try:
        text = place.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as fault:
        raise InputError(f"{place}: expected the log of a run, as Doctor(log=...) writes it; {fault}.") from None
    numbered = [(at, _parsed(line, place, at)) for at, line in enumerate(text.split("\n")[:-1], start=1) if line]
    lines = [record for _, record in numbered]
    if not lines or lines[0].get("record") != "run":
        raise InputError(
            f"{place} does not begin with the facts of a run: expected the log that Doctor(log=...) writes."
        )
    if lines[0].get("format") != FORMAT:
        raise InputError(
            f"{place} has the format {lines[0].get('format')!r}, expected {FORMAT}: it is of another version."
        )
    for at, record in numbered:
        if at > 1 and record["record"] == "run":
            raise InputError(
                f"{place}: line {at} begins another run, expected one log in a file. Cut it before that line."
            )
        refuse(record, f"{place}: line {at}")
    return Lines(lines[0], lines[1:])


def _parsed(line: str, place: Path, number: int) -> Record:
    try:
        record = json.loads(line)
    except (json.JSONDecodeError, RecursionError):  # brackets without end
        record = None
    if not isinstance(record, dict) or "record" not in record:
        raise InputError(
            f'{place}: line {number} is no record, {line[:40]!r}. Expected one JSON object a line, with "record".'
        )
    return record


class Journal:
    """The records of one run, in memory and, if there is a path, in a file to which lines are appended."""

    def __init__(self, path: str | Path | None):
        self.path = None if path is None else Path(path)
        if self.path is not None and (self.path.is_dir() or not self.path.parent.is_dir()):
            wrong = "is a folder" if self.path.is_dir() else f"cannot be written: there is no folder {self.path.parent}"
            raise InputError(f"log={str(path)!r} {wrong}. Expected a file in a folder that is there.")
        self.lines: Lines | None = None

    def begin(self, facts: Record) -> list[Record]:
        """Write the facts, or find them in the file and go on; returns what was recorded before."""
        facts = plain({"record": "run", "format": FORMAT} | facts)
        if self.path is not None and self.path.exists() and self.path.stat().st_size:
            self.lines = _continued(self.path, facts)
        else:
            self.lines = Lines(facts, [])
            self._append([facts])
        return list(self.lines.records)

    def write(self, records: list[Record]) -> list[Record]:
        """Append records, which have to begin with `record` and `step`; returns them as they are written."""
        assert self.lines is not None  # begin comes first
        given = [plain(record) for record in records]
        self.lines.records.extend(given)
        self._append(given)
        return given

    def _append(self, records: list[Record]) -> None:
        if self.path is not None and records:
            with self.path.open("a") as file:
                file.write("".join(json.dumps(record, allow_nan=False) + "\n" for record in records))


def _continued(path: Path, facts: Record) -> Lines:
    """What a log holds, cut after its last whole line; raises if it is of another model."""
    lines = read_lines(path)
    for name in ("model", "loss"):
        if lines.facts.get(name) != facts[name]:
            raise InputError(
                f"{path} is the log of another run: its {name} is {lines.facts.get(name)!r}, and here it is "
                f"{facts[name]!r}. Give this run a log of its own."
            )
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)
    return lines


def plain(value: Any) -> Any:
    """Numbers as JSON has them: rounded to six digits, null where they are not finite."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    number = float(value)
    return float(f"{number:.{_DIGITS}g}") if math.isfinite(number) else None
