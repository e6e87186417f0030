"""A run as it was recorded, and what is wrong with it: a function of the records alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from ._causes import causes_of
from ._log import Record, read_lines
from ._records import ENDED
from ._signs import Cause


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a run, the likeliest cause first (none where it is healthy), and what to know about it."""

    causes: tuple[Cause, ...]
    steps: int
    notes: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether there is no cause for alarm."""
        return not self.causes

    def __str__(self) -> str:
        good = f"Healthy after {self.steps} steps: nothing that was measured calls for a change."
        lines = [good] if self.healthy else [f"{rank}. {c}" for rank, c in enumerate(self.causes, start=1)]
        return "\n".join([*lines, *(f"Note: {note}" for note in self.notes)])


@dataclass(frozen=True)
class Run:
    """What was recorded of a run: its `facts` and its `records`. Made by `read_run`, and by `Doctor.run`."""

    facts: Record
    records: tuple[Record, ...]

    def of(self, kind: str) -> list[Record]:
        """The records of one kind: `vitals`, `curvature`, `noise`, `kernel`, `collapse` or `event`."""
        return [record for record in self.records if record["record"] == kind]

    def series(self, kind: str, name: str) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Steps and values of one figure, where it was recorded."""
        chosen = [(r["step"], r[name]) for r in self.of(kind) if r.get(name) is not None]
        steps, values = np.array(chosen, float).reshape(-1, 2).T
        return steps, values

    def verdict(self) -> Verdict:
        """Causes, ranked, each with its evidence and a remedy."""
        steps = max((record["step"] for record in self.records), default=0)
        causes, missing = causes_of(self.facts, list(self.records))
        notes = [*_notes(self.facts, self.of("curvature")), *_standing(self.of("event"), self.of("vitals"))]
        if missing:
            names = ", ".join(missing)
            notes.append(f"the log lacks {names}: it is of another version, and what needs them was not looked at.")
        return Verdict(causes, steps, tuple(notes))


def _standing(events: list[Record], vitals: list[Record]) -> Iterator[str]:
    """What was announced and has not ended: a spike, a plateau."""
    named = {event.get("name"): event for event in events}  # the last of each name
    ahead, passed = named.get("announced"), named.get("catapult", {"step": -1})
    if ahead and ahead["step"] > passed["step"] and "non-finite" not in named:
        ratio = (ahead.get("figures") or {}).get("ratio") or 1.0
        yield (
            f"curvature came to {ratio:.2g} times the edge of stability at step {ahead['step']}, and has not been far "
            f"below it since: the loss may jump. {0.5 / ratio:.2g} times the rate was half of what it bore."
        )
    flat, values = named.get("plateau"), [v["value"] for v in vitals if v.get("value") is not None]
    figures = (flat or {}).get("figures") or {}
    if flat and values and values[-1] > ENDED * (figures.get("value") or 0.0):
        yield f"the loss hardly changed before step {flat['step']}, and has not fallen much since{_length(figures)}."


def _length(figures: Record) -> str:
    """How long a plateau will last, as its slope and its negative curvature say."""
    halved, escape = figures.get("halves in"), figures.get("escapes in")
    said = [] if halved is None else [f"at the slope there, it would halve in {halved:.2g} steps"]
    if escape is not None:
        said.append(f"what leads away from there grows by a factor of 2.7 in {escape:.2g} steps or fewer")
    return "".join(f"; {text}" for text in said)


def _notes(facts: Record, curves: list[Record]) -> Iterator[str]:
    """What was measured, where that is not what people may think."""
    if facts.get("optimizer") == "unknown" or (facts.get("optimizer") == "part" and not curves):
        yield (
            "the optimizer has second moments of some parameters only, so that its rate and the edge of its stability "
            "are not known, and what needs them was not looked at."
        )
    if facts.get("smooth") is False:
        yield "the model has kinks (rectifiers, maxima), and its curvature is that of the pieces between them."
    if facts.get("evaluation"):
        yield f"{', '.join(facts['evaluation'])} was measured in evaluation mode, with the statistics of that step."
    if facts.get("classes") and sum(count > 0 for count in facts["classes"]) == 1:
        yield "the probe has one class only: it says nothing about labels, and little about learning."


def read_run(path: str | Path) -> Run:
    """The run that a doctor has written into a log, while it goes on or afterwards.

    Args:
        path: the file. A last line that was cut off by a crash is left out.

    Returns:
        `facts`: of model, loss, probe and inputs; `records`: vitals, curvature, noise, kernel, events; `of(kind)` and
        `series(kind, name)` choose among them; `verdict()`: what is wrong, the likeliest cause first.

    >>> import json, pathlib, tempfile
    >>> from everwide.diagnosis import read_run
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> facts = {"record": "run", "format": 1, "model": "", "loss": "Mse", "groups": {}, "inputs": None}
    >>> _ = path.write_text(json.dumps(facts) + chr(10))
    >>> read_run(path).verdict().healthy
    True
    """
    lines = read_lines(path)
    return Run(lines.facts, tuple(lines.records))
