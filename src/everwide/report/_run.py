"""A page about a training run: the verdict first, then what was measured."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .._checks import InputError
from .._words import count, plain, several
from ._page import Answer, Fact, Section, page_of, write_page
from ._runs import cost, edge, features, layers, loss, noise

SECTIONS: tuple[Section[Any, Any], ...] = (
    loss.SECTION,
    edge.SECTION,
    layers.SECTION,
    noise.SECTION,
    features.KERNEL,
    features.COLLAPSE,
    cost.SECTION,
)


@dataclass(frozen=True, eq=False)
class RunStudy:
    """Everything that a page says about a run. Made by `study_run`; `html` makes it a page, `write` writes it.

    - `source`: where the run comes from, in words. `facts`: of the run, as the log has them.
    - `verdict`: of the run; its `steps` are those that were seen. `measured`: whether there are any vitals.
    - `sections`: what was measured, by the key of the section, in the order of the page.
    """

    source: str
    facts: Mapping[str, Any]
    verdict: Any
    measured: bool
    sections: Mapping[str, Answer]

    @property
    def tiles(self) -> tuple[Fact, ...]:
        """What most people look for first, as far as it was measured."""
        return tuple(tile for answer in self.sections.values() if (tile := answer.tile) is not None)

    @property
    def title(self) -> str:
        """The verdict in a few words."""
        if not self.measured:
            return "Nothing was measured yet"
        return "Healthy so far" if self.verdict.healthy else _upper(self.verdict.causes[0].name)

    @property
    def lead(self) -> str:
        """What was watched, in a sentence."""
        facts = self.facts
        sizes = [size for size in _mapping(facts.get("groups")).values() if isinstance(size, int)]
        said = [f"{count(sum(sizes))} parameters in {several(len(sizes), 'layer')}"] if sizes else []
        said += [f"the optimizer is {facts['optimizer']}"] if isinstance(facts.get("optimizer"), str) else []
        said += [f"the loss {facts['loss']}"] if isinstance(facts.get("loss"), str) else []
        size = facts.get("batch_size")
        said += [f"batches of {several(size, 'row')}"] if isinstance(size, int) else []
        return f"Seen up to step {count(self.verdict.steps)}{': ' if said else ''}{', '.join(said)}."

    @property
    def causes(self) -> tuple[Fact, ...]:
        """What is wrong, the likeliest first: its name, the evidence, and a remedy."""
        return tuple(
            Fact(_upper(cause.name), _sentence(cause.evidence), _sentence(cause.remedy))
            for cause in self.verdict.causes
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know about the measurements."""
        return tuple(_sentence(note) for note in getattr(self.verdict, "notes", ()))

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain types, for JSON; what is not finite is `None`."""
        verdict = {"healthy": self.verdict.healthy if self.measured else None, "steps": self.verdict.steps}
        causes = [plain(cause) for cause in self.verdict.causes]
        return {
            "source": self.source,
            "facts": plain(self.facts),
            "verdict": verdict | {"causes": causes, "notes": list(self.notes)},
            "tiles": [tile._asdict() for tile in self.tiles],
            "sections": {key: answer.to_dict() for key, answer in self.sections.items()},
        }

    def html(self, *, refresh: float | None = None) -> str:
        """The page as one file, which needs no other and no JavaScript. Needs jinja2 and matplotlib.

        Args:
            refresh: seconds after which a browser loads the page again, while a run goes on.

        Returns:
            The text of an HTML file. Everything that came from the log is escaped.

        """
        return page_of(self, "run.html", refresh=refresh)

    def write(self, path: str | Path, *, refresh: float | None = None) -> tuple[Path, Path]:
        """Write the page, and every number beside it as JSON.

        Args:
            path: of the page, such as "run.html"; folders are made.
            refresh: seconds after which a browser loads the page again, while a run goes on.

        Returns:
            The paths of both files.

        """
        return write_page(path, self.html(refresh=refresh), self.to_dict())


def study_run(run: Any, *, source: str = "A training run") -> RunStudy:
    """What a doctor saw of a training run, as a page: the verdict, its evidence, and plots over the steps.

    Args:
        run: of `everwide.diagnosis.read_run(path)`, or the `run` of a `Doctor`.
        source: where it comes from, for the first line of the page.

    Returns:
        `verdict`, `facts` of the run, `tiles` (the main numbers), `sections` by section, only those of which something
        was recorded; `to_dict()` for JSON, `html()` and `write("run.html")` for the page.

    >>> import json, pathlib, tempfile
    >>> from everwide.diagnosis import read_run
    >>> from everwide.report import study_run
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> facts = {"record": "run", "format": 1, "model": "", "loss": "Mse", "outputs": 1, "groups": {}, "inputs": None}
    >>> noise = {"record": "noise", "step": 10, "scale": 50.0, "batch_size": 10}
    >>> _ = path.write_text(json.dumps(facts) + chr(10) + json.dumps(noise) + chr(10))
    >>> print(study_run(read_run(path)).sections["noise"].text.facts[0].value)
    50 rows

    """
    if not (hasattr(run, "facts") and hasattr(run, "records") and hasattr(run, "verdict")):
        raise InputError(f"run is a {type(run).__name__}, expected what everwide.diagnosis.read_run(path) returns.")
    shown = replace(run, facts=_printable(run.facts), records=tuple(_printable(record) for record in run.records))
    sections = {one.key: answer for one in SECTIONS if (answer := _answered(one, shown)) is not None}
    return RunStudy(_printable(source), shown.facts, shown.verdict(), bool(shown.of("vitals")), sections)


def _answered(section: Section[Any, Any], run: Any) -> Answer | None:
    result = section.measure(run)
    return None if result is None else Answer(section, result, section.describe(run, result))


def _printable(value: Any) -> Any:
    """Without characters that no page may hold: names of layers and events come from outside."""
    if isinstance(value, str):
        return "".join(letter if letter.isprintable() else "\ufffd" for letter in value)
    if isinstance(value, dict):
        return {_printable(name): _printable(one) for name, one in value.items()}
    return [_printable(one) for one in value] if isinstance(value, list) else value


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sentence(text: str) -> str:
    return f"{_upper(text.rstrip('.'))}."


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
