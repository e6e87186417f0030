"""One page of HTML that holds everything: no script, no other file. The template escapes all that it is given."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from .._checks import InputError
from .._words import count
from ._drawing import drawn, thumbnail
from ._section import Answer, Grid
from ._study import Study


def render(study: Study) -> str:
    """The report as one page, which needs no other file and no JavaScript. Needs jinja2 and matplotlib.

    Args:
        study: made by `everwide.report.study`.

    Returns:
        The text of an HTML file. Everything that came from the data is escaped.

    >>> from everwide.report import render, study
    >>> from everwide.tables import Table
    >>> page = render(study(Table.digits(), quick=True))  # doctest: +SKIP

    """
    return _template().render(study=study, drawing=_drawing, numeric=_numeric, thumbnail=thumbnail)


def write_report(study: Study, path: str | Path) -> tuple[Path, Path]:
    """Write the page, and every number beside it as JSON.

    Args:
        study: made by `everwide.report.study`.
        path: of the page, such as "report.html"; folders are made.

    Returns:
        The paths of both files.

    >>> from everwide.report import study, write_report
    >>> from everwide.tables import Table
    >>> page, numbers = write_report(study(Table.digits(), quick=True), "report.html")  # doctest: +SKIP

    """
    page = Path(path)
    numbers = page.with_suffix(".json")
    if numbers == page:
        raise InputError(f"write_report({str(path)!r}): the numbers go to a .json file beside the page. Use .html.")
    text, values = render(study), json.dumps(study.to_dict(), indent=1, allow_nan=False, ensure_ascii=False)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    numbers.write_text(values + "\n", encoding="utf-8")
    return page, numbers


@cache
def _template() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as fault:
        raise ImportError("A report needs jinja2: pip install 'everwide[cli]'.", name="jinja2") from fault
    environment = Environment(
        loader=PackageLoader("everwide.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = count
    return environment.get_template("template.html")


def _drawing(answer: Answer) -> Any:
    """Inert by itself: the words in it are ours, and the XML writer escapes them."""
    from markupsafe import Markup

    figure = answer.section.figure
    assert figure is not None
    return Markup(
        drawn(answer.section.key, figure.caption, lambda page: figure.draw(page, answer.result), figure.height)
    )


def _numeric(grid: Grid) -> list[bool]:
    """Which columns hold numbers alone, and are set to the right."""
    return [all(_is_number(row[at]) for row in grid.rows) for at in range(len(grid.columns))]


def _is_number(cell: str) -> bool:
    return (
        cell[:1].isdigit()
        or cell[:1] in ("\u00b1", "-")
        or cell.startswith(("infinite", "none", "out of reach", "over "))
    )
