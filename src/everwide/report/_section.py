"""What a section of the report is made of: a typed result, sentences about it, a drawing and a tile."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from .._problem import Problem
from .._words import plain

R = TypeVar("R")


class Fact(NamedTuple):
    """A number, as it is printed, and a sentence that says what to do with it."""

    label: str
    value: str
    meaning: str


@dataclass(frozen=True, eq=False)
class Grid:
    """A table of the page. `pictures`: of the rows, where they are images, with values from 0 to 1."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    pictures: tuple[np.ndarray, ...] = ()


class Text(NamedTuple):
    """What the page says about a result."""

    facts: tuple[Fact, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()


_NO_TEXT = Text(())


class Figure(NamedTuple):
    """`draw(figure, result)` on a matplotlib figure of that height, in inches; the words under it."""

    draw: Callable[[Any, Any], None]
    height: float
    caption: str


@dataclass(frozen=True, eq=False)
class Section(Generic[R]):
    """One question about the data.

    - `measure`: what is found, as a frozen dataclass; its fields are the numbers of the JSON file.
    - `describe`: the sentences about it. `figure`, `tile`: its drawing, and its number at the top of the page.
    - `beside`: it compiles for long, and runs beside the others.
    """

    key: str
    title: str
    question: str
    measure: Callable[[Problem], R]
    describe: Callable[[Problem, R], Text]
    figure: Figure | None = None
    tile: Callable[[R], Fact] | None = None
    beside: bool = False


@dataclass(frozen=True, eq=False)
class Answer:
    """A section, what was found (`None` where it is missing), and what the page says about it."""

    section: Section[Any]
    result: Any = None
    text: Text = _NO_TEXT
    missing: str = ""

    @property
    def tile(self) -> Fact | None:
        """The number at the top of the page, if this section has one."""
        tile = self.section.tile
        return None if tile is None or self.missing else tile(self.result)

    def to_dict(self) -> dict[str, Any]:
        """In plain types, without a number that is not finite: such are `None`."""
        return {
            "title": self.section.title,
            "missing": self.missing or None,
            "numbers": {} if self.missing else plain(self.result),
            "facts": [fact._asdict() for fact in self.text.facts],
            "warnings": list(self.text.warnings),
            "notes": list(self.text.notes),
        }
