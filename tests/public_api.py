"""The public names of everwide with their arguments, as text: what a change may not alter by accident.

Types that are only returned are not exported: their members are listed below the function that returns them.

`python tests/public_api.py` prints them, `--write` stores them in public_api.txt, `--check` compares.
"""

import difflib
import enum
import functools
import importlib
import inspect
import pkgutil
import re
import sys
import typing
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import everwide

SNAPSHOT = Path(__file__).with_name("public_api.txt")
# A member of a class; every other line is an object.
MEMBER = re.compile(r"everwide(\.[a-z_]+)*\.[A-Z]\w*\.")


def rooms(package: ModuleType) -> Iterator[ModuleType]:
    """A module, then its public rooms: what `import everwide` offers as attributes, and the rooms of these."""
    yield package
    inside = (m.name for m in pkgutil.iter_modules(getattr(package, "__path__", ())))
    names = getattr(package, "_ROOMS", None) or [n for n in inside if not n.startswith("_")]
    for name in names:
        yield from rooms(importlib.import_module(f"{package.__name__}.{name}"))


# The top level first: every name is listed once, by its shortest path.
MODULES = sorted(rooms(everwide), key=lambda m: m.__name__.count("."))


def public_names(module: ModuleType) -> dict[str, Any]:
    """What a module offers: every name without an underscore that is no module; of a single file, what it defines."""
    names = {n: v for n, v in sorted(vars(module).items()) if not n.startswith("_") and not inspect.ismodule(v)}
    whole = hasattr(module, "__path__")
    return {n: v for n, v in names.items() if whole or getattr(v, "__module__", None) == module.__name__}


def is_ours(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "").partition(".")[0] == "everwide"


def arguments(function: Any) -> str:
    """`(x, *, width=None)`: names, kinds and defaults, without the annotations."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=bare, return_annotation=signature.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)  # a function as a default value


def members(cls: type, inherited: Collection[str] = ()) -> dict[str, str]:
    """Public methods, properties and values that a class adds to what it inherits, each with its arguments."""
    if issubclass(cls, enum.Enum):
        return {m.name: f" = {m.value!r}" for m in cls}
    own = {n: v for n, v in sorted(vars(cls).items()) if not n.startswith("_") and n not in inherited}
    return {
        n: arguments(getattr(cls, n)) if inspect.isroutine(v) and not isinstance(v, functools.cached_property) else ""
        for n, v in own.items()
        if inspect.isroutine(v) or isinstance(v, property | functools.cached_property)
    }


def result_members(cls: type) -> dict[str, str]:
    """All that the owner of a result can ask for: fields too, and what the class inherits from classes of ours."""
    out = {}
    for base in filter(is_ours, reversed(cls.__mro__)):
        fields = [n for n in inspect.get_annotations(base) if not n.startswith("_")]
        out |= dict.fromkeys(fields, "") | members(base)
    return out


def returned(function: Any) -> Iterator[type]:
    """Classes of ours in the annotation of what a function returns."""
    waiting = [_return_annotation(function)]
    while waiting:
        kind = waiting.pop()
        if inspect.isclass(kind) and is_ours(kind):
            yield kind
        waiting += typing.get_args(kind)


def _return_annotation(function: Any) -> Any:
    if isinstance(function, property | functools.cached_property):
        function = function.fget if isinstance(function, property) else function.func
    function = inspect.unwrap(getattr(function, "__func__", function))
    said = getattr(function, "__annotations__", {}).get("return")
    return typing.get_type_hints(function)["return"] if isinstance(said, str) else said


def constructor(cls: type) -> str:
    """How a class is called, where that is ours to say."""
    ours = not issubclass(cls, enum.Enum | Exception) and not inspect.isabstract(cls)
    return arguments(cls) if ours else ""


def describe(path: str, value: Any, shown: set[type]) -> Iterator[str]:
    """An object, its members, and those of the results that it or they return; `shown` are classes that were listed."""
    if not inspect.isclass(value):
        yield f"{path}{arguments(value)}" if callable(value) and hasattr(value, "__name__") else path
        yield from results(path.rpartition(".")[0], [value], shown)
        return
    yield f"{path}{constructor(value)}"
    inherited = {name for base in value.__mro__[1:] for name in vars(base)}
    own = members(value, inherited)
    yield from (f"{path}.{name}{rest}" for name, rest in own.items())
    yield from results(path.rpartition(".")[0], [inspect.getattr_static(value, n) for n in own], shown)


def results(place: str, functions: Iterable[Any], shown: set[type]) -> Iterator[str]:
    """The members of classes that nobody exports, below whatever returns them first."""
    for function in functions:
        for cls in returned(function):
            if cls in shown:
                continue
            shown.add(cls)
            own = result_members(cls)
            yield from (f"{place}.{cls.__name__}.{name}{rest}" for name, rest in own.items())
            methods = (inspect.getattr_static(cls, n, None) for n in own)
            yield from results(place, methods, shown)


def exported() -> dict[str, Any]:
    """Every object once, by its shortest path; names that others own are not ours to promise."""
    out, seen = {}, set()
    for module in MODULES:
        for name, value in public_names(module).items():
            if is_ours(value) and id(value) not in seen:
                seen.add(id(value))
                out[f"{module.__name__}.{name}"] = value
    return out


def public_api() -> list[str]:
    objects = exported()
    shown = {value for value in objects.values() if inspect.isclass(value)}
    return [line for path, value in objects.items() for line in describe(path, value, shown)]


def difference() -> str:
    """Empty if the snapshot is up to date."""
    stored = SNAPSHOT.read_text().splitlines() if SNAPSHOT.exists() else []
    return "\n".join(difflib.unified_diff(stored, public_api(), "stored", "computed", lineterm="", n=0))


def main(option: str) -> None:
    if option == "--write":
        SNAPSHOT.write_text("\n".join(public_api()) + "\n")
    elif option == "--check":
        if changed := difference():
            sys.exit(f"{changed}\nThe public names have changed. If that is meant: `make api`, and a changelog line.")
    else:
        print(*public_api(), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
