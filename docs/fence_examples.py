"""For mkdocstrings: the examples in docstrings (`>>> ...`, up to a blank line) become code blocks."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


class FenceExamples(griffe.Extension):
    """Put a fence around every example."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """The arguments of a class without an `__init__` of its own (`eqx.Module`) are its fields."""
        if cls.docstring is not None and "__init__" not in cls.members:
            cls.docstring.value = re.sub(r"^Args:$", "Attributes:", cls.docstring.value, flags=re.MULTILINE)
