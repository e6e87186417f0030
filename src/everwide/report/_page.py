"""One page of HTML that holds everything: no script, no other file. The template escapes all that it is given."""

from functools import cache
from typing import Any

from .._words import count
from ._drawing import drawn, thumbnail
from ._section import Answer, Grid


def page_of(study: Any) -> str:
    """The text of an HTML file about a `Study`. Everything that came from the data is escaped."""
    return _template().render(study=study, drawing=_drawing, numeric=_numeric, thumbnail=thumbnail)


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
    return Markup(drawn(answer.section.key, figure, answer.result))


def _numeric(grid: Grid) -> list[bool]:
    """Which columns hold numbers alone, and are set to the right."""
    return [all(_is_number(row[at]) for row in grid.rows) for at in range(len(grid.columns))]


def _is_number(cell: str) -> bool:
    words = ("\u00b1", "-", "infinite", "none", "out of reach", "over ")
    return cell[:1].isdigit() or cell.startswith(words)
