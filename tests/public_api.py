"""The public names of everwide with their arguments, as text: what a change may not alter by accident.

`python tests/public_api.py` prints them, `--write` stores them in public_api.txt, `--check` compares.
"""

import difflib
import enum
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import everwide

SNAPSHOT = Path(__file__).with_name("public_api.txt")
THEORY = ("criticality", "deep_linear", "eigenlearning", "finite_width", "rates", "regions")
# The top level first: every name is listed once, by its shortest path.
NAMES = (
    "layers",
    "activations",
    "kernels",
    "empirical",
    "linearization",
    "comparison",
    "optim",
    "spectral",
    "training",
    *(f"theory.{room}" for room in THEORY),
    "forecasting",
    "estimators",
    "tables",
    "report",
    "reproductions",
    "signal",
    "kernel",
    "testing",
)
MODULES = (everwide, *(importlib.import_module(f"everwide.{name}") for name in NAMES))


def public_names(module: ModuleType) -> dict[str, Any]:
    """What a module offers: every name without an underscore that is no module."""
    return {n: v for n, v in sorted(vars(module).items()) if not n.startswith("_") and not inspect.ismodule(v)}


def arguments(function: Any) -> str:
    """`(x, *, width=None)`: names, kinds and defaults, without the annotations."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=bare, return_annotation=signature.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)  # a function as a default value


def members(cls: type) -> Iterator[str]:
    """Public methods, properties and values that a class adds to those of its ancestors."""
    if issubclass(cls, enum.Enum):
        yield from (f".{m.name} = {m.value!r}" for m in cls)
        return
    known = {name for base in cls.__mro__[1:] for name in vars(base)}
    for name, value in sorted(vars(cls).items()):
        if name.startswith("_") or name in known:
            continue
        if isinstance(value, property):
            yield f".{name}"
        elif inspect.isroutine(value):
            yield f".{name}{arguments(getattr(cls, name))}"


def constructor(cls: type) -> str:
    """How a class is called, where that is ours to say."""
    ours = not issubclass(cls, enum.Enum | Exception) and not inspect.isabstract(cls)
    return arguments(cls) if ours else ""


def describe(path: str, value: Any) -> list[str]:
    if inspect.isclass(value):
        return [f"{path}{constructor(value)}", *(f"{path}{line}" for line in members(value))]
    return [f"{path}{arguments(value)}" if callable(value) and hasattr(value, "__name__") else path]


def public_api() -> list[str]:
    """Every name once, by its shortest path; names that others own are not ours to promise."""
    out, seen = [], set()
    for module in MODULES:
        for name, value in public_names(module).items():
            ours = (getattr(value, "__module__", None) or "").partition(".")[0] == "everwide"
            if ours and id(value) not in seen:
                seen.add(id(value))
                out += describe(f"{module.__name__}.{name}", value)
    return out


def difference() -> str:
    """Empty if the snapshot is up to date."""
    stored = SNAPSHOT.read_text().splitlines() if SNAPSHOT.exists() else []
    return "\n".join(difflib.unified_diff(stored, public_api(), "stored", "found", lineterm="", n=0))


def main(option: str) -> None:
    if option == "--write":
        SNAPSHOT.write_text("\n".join(public_api()) + "\n")
    elif option == "--check":
        found = difference()
        if found:
            sys.exit(
                f"{found}\nThe public names have changed. If that is meant: `make api`, and a line in the changelog."
            )
    else:
        print(*public_api(), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
