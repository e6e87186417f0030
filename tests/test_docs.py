"""The Python of README.md and of the documentation runs, block after block, as a reader would type it."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def python_of(page: Path) -> str:
    """All blocks of a page, with the blank lines that keep the line numbers of the page."""
    text, out = page.read_text(), ""
    for block in BLOCK.finditer(text):
        start = text.count("\n", 0, block.start(1))
        out += "\n" * (start - out.count("\n")) + block[1]
    return out


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_in_the_documentation_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(python_of(page), str(page), "exec"), {"__name__": page.stem})


def test_the_blocks_are_found():
    assert "import everwide" in python_of(ROOT / "README.md")
