"""The rules of the project that a machine can check."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everwide
import public_api

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
PACKAGE = Path(everwide.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))
TEXTS = sorted(
    path
    for pattern in ("src/**/*.py", "tests/**/*.py", "tests/**/*.txt", "benchmarks/**/*.py", "docs/**/*", ".ci/*", "*")
    for path in ROOT.glob(pattern)
    if path.is_file() and path.suffix not in (".npz", ".npy", ".png", ".svg", ".json")
)
# Written in pieces, so that this file does not find itself.
MACHINE_PATH = re.compile(
    r"(?<![\w.\-/:])/(?:" + "|".join(("work", "home", "root", "Users", "opt", "tmp", "mnt")) + r")/\w"
)
REGISTRY = re.compile("|".join((r"pypi\." + "org", "python" + r"hosted\.", r"anaconda\." + "org", r"npmjs\." + "org")))
PRIVATE = ("jax._src", "jax.core", "jax.interpreters", "jaxlib", "equinox.internal", "equinox._")


def imports(path: Path) -> Iterator[str]:
    """Every absolute name that a file imports or reaches by attributes."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_public_interfaces_of_others_are_used(path):
    found = {name for name in imports(path) if any(name == p or name.startswith((f"{p}.", p)) for p in PRIVATE)}
    assert not found


def test_nothing_points_to_a_machine_or_a_registry():
    assert len(TEXTS) > len(SOURCES) > 10
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in TEXTS
        for number, line in enumerate(path.read_text(errors="ignore").splitlines(), start=1)
        if MACHINE_PATH.search(line) or REGISTRY.search(line)
    ]
    assert not found


@pytest.mark.parametrize("text", ["see /ho" + "me/ada/x.npz", "'/tm" + "p/x'", "https://py" + "pi.org/simple"])
def test_the_search_for_machines_and_registries_finds(text):
    assert MACHINE_PATH.search(text) or REGISTRY.search(text)


def length(node: ast.FunctionDef) -> int:
    """Lines of a function without its docstring."""
    documented = len((ast.get_docstring(node, clean=False) or "").splitlines())
    return (node.end_lineno or node.lineno) - node.lineno + 1 - documented


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_and_functions_are_small(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    assert not {f"{f.name}: {length(f)} lines" for f in functions if length(f) > 40}


def in_fresh_python(code: str) -> str:
    """What the code prints in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_is_light():
    heavy = ["sklearn", "typer", "rich", "matplotlib", "numba", "pandas", "hypothesis", "pytest"]
    assert in_fresh_python(f"import everwide, sys; print(sorted(set({heavy}) & set(sys.modules)))") == "[]"


def test_import_leaves_the_configuration_of_jax_alone():
    code = "import jax; before = dict(jax.config.values); import everwide; print(before == dict(jax.config.values))"
    assert in_fresh_python(code) == "True"


def test_public_names_are_the_stored_ones():
    script = ROOT / "tests" / "public_api.py"  # in its own interpreter: the import hook wraps signatures
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", public_api.public_names(everwide))
def test_public_names_are_documented_with_an_example(name):
    value = getattr(everwide, name)
    home = getattr(value, "__module__", "") or ""
    assert home.startswith("everwide"), f"everwide.{name} is not ours: it comes from {home!r}."
    assert ">>>" in (inspect.getdoc(value) or ""), f"everwide.{name} has no example in its docstring."


def classes() -> list[type]:
    """All classes of the package."""
    skipped = ("__main__",)
    names = [m.name for m in pkgutil.walk_packages([str(PACKAGE)], "everwide.")]
    modules = [importlib.import_module(n) for n in names if n.rpartition(".")[2] not in skipped]
    found = {v for m in modules for v in vars(m).values() if inspect.isclass(v) and v.__module__ == m.__name__}
    return sorted(found, key=lambda c: (c.__module__, c.__qualname__))


def bases(cls: type) -> list[type]:
    """Ancestors of a class that are ours."""
    return [base for base in cls.__mro__[1:] if base.__module__.partition(".")[0] == "everwide"]


def is_abstract(cls: Any) -> bool:
    return inspect.isabstract(cls) or any(getattr(cls, f"__abstract{kind}vars__", ()) for kind in ("", "class"))


def methods(cls: type, *, concrete: bool) -> set[str]:
    """Own methods and properties, without those that dataclasses (two underscores) and scikit-learn write."""
    own = {n: v for n, v in vars(cls).items() if not re.fullmatch(r"__.*|set_\w+_request", n)}
    found = {n for n, v in own.items() if inspect.isroutine(v) or isinstance(v, property)}
    return {n for n in found if not (concrete and getattr(own[n], "__isabstractmethod__", False))}


@pytest.mark.parametrize("cls", classes(), ids=lambda c: f"{c.__module__}.{c.__qualname__}")
def test_classes_are_abstract_or_final(cls):
    assert is_abstract(cls) == cls.__name__.startswith("Abstract")
    for base in bases(cls):
        assert is_abstract(base), f"{base.__name__} is concrete, so it is final: {cls.__name__} must wrap it."
        clash = methods(base, concrete=True) & methods(cls, concrete=False)
        assert not clash, f"{cls.__name__} overrides {clash}, which {base.__name__} has decided."


def test_lower_bounds_can_be_tested():
    import lowest

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = [lowest.lowest(r) for r in project["dependencies"]]
    assert "jax==0.8.0" in bounds
    assert len(bounds) == len(project["dependencies"])
