"""The page and its numbers, as files."""

import json
from pathlib import Path

from ._page import render
from ._study._run import Study


def write_report(study: Study, path: str | Path) -> tuple[Path, Path]:
    """Write the page to `path`, and every number beside it as JSON; return both paths.

    >>> from everwide.report import Study, write_report
    >>> import tempfile
    >>> empty = Study("a.csv", "y", "regression", 3, "none", False, 0, (), {})
    >>> [path.name for path in write_report(empty, tempfile.mkdtemp() + "/page.html")]
    ['page.html', 'page.json']
    """
    page = Path(path)
    numbers = page.with_suffix(".json")
    if numbers == page:
        raise ValueError(f"write_report({str(path)!r}): the numbers go to a .json file beside the page. Use .html.")
    text, found = render(study), json.dumps(study.to_dict(), indent=1, allow_nan=False, ensure_ascii=False)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    numbers.write_text(found + "\n", encoding="utf-8")
    return page, numbers
