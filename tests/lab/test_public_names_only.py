"""The laboratory is a user of the library: what it needs, everybody has."""

import ast
import importlib
from pathlib import Path

import pytest

import everwide_lab

FILES = sorted(Path(everwide_lab.__path__[0]).rglob("*.py"))


def imported(tree):
    """Every dotted name of everwide that a module imports: `everwide.layers.Dense`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def private_names(source):
    """Names of everwide that begin with an underscore, imported or read from something that was imported."""
    tree = ast.parse(source)
    names = [name for name in imported(tree) if name.partition(".")[0] == "everwide"]
    modules = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name).partition(".")[0] == "everwide"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            parts, inner = [node.attr], node.value
            while isinstance(inner, ast.Attribute):
                parts, inner = [inner.attr, *parts], inner.value
            if isinstance(inner, ast.Name) and inner.id in modules:
                names.append(".".join([inner.id, *parts]))
    return {name for name in names if any(part.startswith("_") for part in name.split("."))}


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-2:]))
def test_the_laboratory_uses_public_names_only(path):
    assert private_names(path.read_text()) == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.parts[-2:]))
def test_what_it_imports_is_offered_where_it_looks(path):
    for name in imported(ast.parse(path.read_text())):
        if name.partition(".")[0] == "everwide" and "." in name:
            module, _, attribute = name.rpartition(".")
            assert hasattr(importlib.import_module(module), attribute), name


@pytest.mark.parametrize(
    "source",
    [
        "from everwide._gram import gram",
        "from everwide import _gram",
        "from everwide.layers._base import Params",
        "import everwide._engine as e",
        "import everwide as ew\new.layers._base.Params",
        "from everwide import layers\nlayers._base",
    ],
)
def test_private_names_are_seen(source):
    assert private_names(source)


def test_public_names_are_not():
    assert private_names("import everwide as ew\nfrom everwide.layers import Dense\new.Dense()\nself._x\n") == set()
