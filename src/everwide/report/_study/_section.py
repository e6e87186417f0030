"""What a part of the report holds: plain numbers, and sentences that say what to do with them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np


class Fact(NamedTuple):
    """A number, as it is printed, and a sentence that says what to do with it.

    >>> from everwide.report import Fact
    >>> Fact("Rows", "150", "Enough to begin with.").value
    '150'
    """

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


@dataclass(frozen=True, eq=False)
class Section:
    """One question about the data, and what was found.

    - `key`, `title`, `question`: how it is called. `numbers`: everything that was found, in plain types.
    - `facts`, `warnings`, `notes`, `grids`: what the page says about it.
    - `missing`: where it could not be computed, a sentence that says why; otherwise empty.

    >>> from everwide.report import Section
    >>> Section("phase", "Phase", "Is it stable?", missing="The network has branches.").to_dict()["missing"]
    'The network has branches.'
    """

    key: str
    title: str
    question: str
    numbers: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    facts: tuple[Fact, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()
    missing: str = ""

    def to_dict(self) -> dict[str, Any]:
        """In plain types, without a number that is not finite: such are `None`."""
        return {
            "title": self.title,
            "missing": self.missing or None,
            "numbers": plain(self.numbers),
            "facts": [fact._asdict() for fact in self.facts],
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }


def plain(value: Any) -> Any:
    """What JSON knows: numpy's types become Python's, and infinite numbers and NaN become `None`."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return str(value) if isinstance(value, str) else value  # a string enumeration is a string
    if isinstance(value, Sequence):
        return [plain(inner) for inner in value]
    raise TypeError(f"A report holds numbers, text, lists and mappings of them, got {type(value).__name__}.")
