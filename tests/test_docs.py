"""The Python of README.md, of the documentation and of its tutorials runs, as a reader would type it."""

import importlib.util
import re
from pathlib import Path

import jax
import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
TUTORIALS = sorted(DOCS.glob("tutorials/*.py"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)\s]*)?\)")
FIGURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")


def generated_pages():
    """The module with which mkdocs makes pages of scripts; it is not in a package."""
    spec = importlib.util.spec_from_file_location("generated_pages", DOCS / "generated_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MADE = generated_pages()


def python_of(page: Path) -> str:
    """All blocks of a page, with the blank lines that keep the line numbers of the page."""
    text, out = page.read_text(), ""
    for block in BLOCK.finditer(text):
        start = text.count("\n", 0, block.start(1))
        out += "\n" * (start - out.count("\n")) + block[1]
    return out


def run(source: str, path: Path) -> None:
    """Under the usual promotion of dtypes, which readers have, and which schedules of optax need."""
    with jax.numpy_dtype_promotion("standard"):
        exec(compile(source, str(path), "exec"), {"__name__": path.stem})


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """An empty folder to work in, where figures are not shown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    return tmp_path


LONG = {"before-training.md"}  # trains a hundred networks
PARAMS = [pytest.param(p, id=p.name, marks=[pytest.mark.slow] if p.name in LONG else []) for p in PAGES]


@pytest.mark.parametrize("page", PARAMS)
def test_python_in_the_documentation_runs(page, desk):
    run(python_of(page), page)  # must not raise


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda p: p.name)
def test_tutorials_run_and_draw_the_figures_they_show(tutorial, desk):
    text = tutorial.read_text()
    if "import torch" in text:
        pytest.importorskip("torch", reason="This tutorial needs PyTorch: make test-torch installs it.")
    run(text, tutorial)
    assert {path.name for path in desk.iterdir()} == set(FIGURE.findall(MADE.page_of(text)))


def test_the_blocks_are_found():
    assert "import everwide" in python_of(ROOT / "README.md")
    assert len(TUTORIALS) == 6


@pytest.mark.parametrize("path", [*PAGES, *TUTORIALS], ids=lambda p: p.name)
def test_links_lead_somewhere(path):
    text = path.read_text() if path.suffix == ".md" else MADE.page_of(path.read_text())
    assert not [link for link in LINK.findall(text) if not (path.parent / link).exists()]


def test_a_script_becomes_a_page():
    script = "# %% [markdown]\n# # Title\n#\n# - one\n#   two\n\n# %%\nx = 1  # %% not one\n\n# %% [markdown]\n# End.\n"
    assert MADE.page_of(script) == "# Title\n\n- one\n  two\n\n```python\nx = 1  # %% not one\n```\n\nEnd.\n"


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[a](tutorials/name.py)", "[a](tutorials/name.md)"),
        ("[a](name.py)", "[a](name.md)"),
        ("![a](../reproductions/x/figure.png)", "![a](reproductions/x/figure.png)"),
        ("[a](../../reproductions/README.md)", "[a](../reproductions/README.md)"),
        ("[a](../training.md)", "[a](../training.md)"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(link, expected):
    assert MADE.on_page_markdown(link) == expected
