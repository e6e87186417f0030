"""For mkdocs: pages that are kept elsewhere. Tutorials are scripts, and reproductions lie beside their numbers.

A link that works in the repository works on the site: `tutorials/name.py` becomes the page of that script, and
`../reproductions/...` the copy below.
"""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
REPRODUCTIONS = ("README.md", "*/results.md", "*/figure.png")
CELL = re.compile(r"^# %%( \[markdown\])?.*\n", re.MULTILINE)
COMMENT = re.compile(r"^# ?", re.MULTILINE)
LINK_TO_SCRIPT = re.compile(r"\]\((tutorials/)?(\w+)\.py\)")
LINK_OUTSIDE = re.compile(r"\]\(((?:\.\./)*)\.\./(reproductions/)")


def page_of(script: str) -> str:
    """A script in cells (`# %% [markdown]` is prose, `# %%` is code) as Markdown."""
    parts = CELL.split(script)
    cells = zip(parts[1::2], parts[2::2], strict=True)
    pieces = [COMMENT.sub("", text) if prose else f"```python\n{text.strip()}\n```" for prose, text in cells]
    return "\n\n".join(piece.strip() for piece in pieces) + "\n"


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs with the files that it found."""
    from mkdocs.structure.files import File  # the tests read this module where there is no mkdocs

    for script in sorted(DOCS.glob("tutorials/*.py")):
        note = f"*This page is a script: `python docs/tutorials/{script.name}` runs it, and so do the tests.*\n"
        text = f"{page_of(script.read_text())}\n---\n{note}"
        files.append(File.generated(config, f"tutorials/{script.stem}.md", content=text))
    for pattern in REPRODUCTIONS:
        for path in sorted((ROOT / "reproductions").glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of every page."""
    return LINK_OUTSIDE.sub(r"](\1\2", LINK_TO_SCRIPT.sub(r"](\1\2.md)", markdown))
