"""How one entry of a reference case is read: every option is known, required ones are there, nothing is left over."""

from collections.abc import Iterable, Mapping
from typing import Any

from everwide.signal import ArchitectureError

_REQUIRED = object()


def words_of(known: Iterable[str]) -> str:
    """In a sentence."""
    return ", ".join(sorted(known))


class Word:
    """The options of one layer of a reference case; `finish` complains about those that nobody has read."""

    def __init__(self, spec: Any):
        if not isinstance(spec, Mapping) or not isinstance(spec.get("type"), str):
            raise ArchitectureError(f"A layer of a case must be an object with a 'type', got {spec!r}.")
        self.type: str = spec["type"]
        self.options = {key: value for key, value in spec.items() if key != "type"}
        self.known: set[str] = set()  # options that somebody has asked for

    def take(self, option: str, default: Any = _REQUIRED) -> Any:
        """The value of an option; without a default it must be there."""
        self.known.add(option)
        if option not in self.options and default is _REQUIRED:
            raise ArchitectureError(f"Layer {self.type!r} needs the option {option!r}.")
        return self.options.pop(option, default)

    def number(self, option: str, default: Any = _REQUIRED) -> float:
        """The same, as a float."""
        value = self.take(option, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ArchitectureError(f"Layer {self.type!r}: option {option!r} must be a number, got {value!r}.")
        return float(value)

    def whole(self, option: str, default: Any = _REQUIRED) -> int:
        """The same, as an integer."""
        value = self.number(option, default)
        if value != int(value):
            raise ArchitectureError(f"Layer {self.type!r}: option {option!r} must be a whole number, got {value!r}.")
        return int(value)

    def choice(self, option: str, known: Mapping[str, Any], default: Any = _REQUIRED, *, beside: str = "") -> Any:
        """One of the named values, without case; null is `none`. `beside`: what else the option takes."""
        value = self.take(option, default)
        name = "none" if value is None else str(value).lower()
        if name not in known:
            expected = f"one of {words_of(known)}" + (beside and f", or {beside}")
            raise ArchitectureError(f"Layer {self.type!r}: unknown {option} {value!r}, expected {expected}.")
        return known[name]

    def flag(self, option: str, default: bool) -> bool:
        """True or false."""
        return self.choice(option, {"true": True, "false": False}, default)

    def insist(self, option: str, value: Any) -> None:
        """An option that may be spelled out, but only with the one meaning it has here."""
        given = self.take(option, value)
        if given != value:
            raise ArchitectureError(f"Layer {self.type!r}: {option} can only be {value!r} here, got {given!r}.")

    def finish(self) -> None:
        """Raise if an option was not understood."""
        if self.options:
            unknown, known = words_of(self.options), words_of(self.known)
            raise ArchitectureError(
                f"Layer {self.type!r} has unknown options: {unknown}. It knows: {known or 'no options'}."
            )
