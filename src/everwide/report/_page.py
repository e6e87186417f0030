"""One page of HTML that holds everything: no script, no other file. What came from the data is escaped."""

from html import escape

from ._figures import figure
from ._study._run import Study
from ._study._section import Fact, Grid, Section
from ._style import STYLE
from ._svg import thumbnail
from ._words import count

# Should anything slip through, the browser is told to run nothing and to fetch nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_LONG = 18  # signs of a value, which is then set smaller
_FEW_ROWS = 6  # of a table, which is shown at once; longer ones can be opened


def render(study: Study) -> str:
    """The report as one page, which needs no other file and no JavaScript.

    >>> from everwide.report import Study, render
    >>> page = render(Study("a & b.csv", "y", "regression", 3, "none", False, 0, (), {}))
    >>> "a &amp; b.csv" in page, "<script" in page
    (True, False)
    """
    sections = "\n".join(_section(section) for section in study.sections.values())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(study.source)}: what a wide network makes of it</title>
<style>{STYLE}</style>
</head>
<body>
{_header(study)}
<main>
{sections}
</main>
<footer><p>Made by everwide from {_text(count(study.rows))} rows, seed {study.seed}{", quick" if study.quick else ""}. \
Every number on this page is in the JSON file beside it.</p></footer>
</body>
</html>
"""


def _header(study: Study) -> str:
    tiles = "\n".join(_tile(tile, first=not place) for place, tile in enumerate(study.tiles))
    links = "\n".join(
        f'<li><a href="#{_text(key)}">{_text(section.title)}</a></li>' for key, section in study.sections.items()
    )
    return f"""<header>
<p class="eyebrow">{_text(study.source)} \u2192 {_text(study.target)}</p>
<h1>What a wide neural network will make of your data</h1>
<p class="lead">{_text(study.task.capitalize())} from {_text(count(study.rows))} rows. Almost nothing on this \
page had to be trained: an infinitely wide network can be solved on paper. This one: {_text(study.network)}.</p>
<ul class="tiles">
{tiles}
</ul>
<nav aria-label="Contents"><ol>
{links}
</ol></nav>
</header>"""


def _tile(tile: Fact, *, first: bool) -> str:
    kind = ' class="first"' if first else ""
    label, value, note = (f'<span class="{name}">{_text(text)}</span>' for name, text in _named(tile))
    return f"<li{kind}>{label}{value}{note}</li>"


def _named(tile: Fact) -> tuple[tuple[str, str], ...]:
    return ("label", tile.label), ("value", tile.value), ("note", tile.meaning)


def _section(section: Section) -> str:
    head = f'<h2>{_text(section.title)}</h2>\n<p class="question">{_text(section.question)}</p>'
    body = [f'<p class="missing">{_text(section.missing)}</p>'] if section.missing else _body(section)
    return f'<section id="{_text(section.key)}">\n{head}\n' + "\n".join(body) + "\n</section>"


def _body(section: Section) -> list[str]:
    parts = []
    if section.warnings:
        items = "".join(f"<li>{_text(warning)}</li>" for warning in section.warnings)
        parts.append(f'<ul class="warnings">{items}</ul>')
    picture = figure(section)
    if picture is not None:
        parts.append(f"<figure>{picture.svg}<figcaption>{_text(picture.caption)}</figcaption></figure>")
    facts = "".join(_fact(fact) for fact in section.facts)
    parts.append(f"<dl>{facts}</dl>")
    parts.extend(_grid(grid) for grid in section.grids)
    if section.notes:
        notes = "".join(f"<p>{_text(note)}</p>" for note in section.notes)
        parts.append(f'<div class="notes">{notes}</div>')
    return parts


def _fact(fact: Fact) -> str:
    kind = ' class="long"' if len(fact.value) > _LONG else ""
    return f"<div><dt>{_text(fact.label)}<b{kind}>{_text(fact.value)}</b></dt><dd>{_text(fact.meaning)}</dd></div>"


def _grid(grid: Grid) -> str:
    numeric = [all(_is_number(row[at]) for row in grid.rows) for at in range(len(grid.columns))]
    kinds = [' class="n"' if found else "" for found in numeric]
    head = "".join(f"<th{kind}>{_text(name)}</th>" for kind, name in zip(kinds, grid.columns, strict=True))
    cells = lambda row: "".join(f"<td{kind}>{_text(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
    pictures = [f'<td class="picture"><img alt="" src="{thumbnail(pixels)}"></td>' for pixels in grid.pictures]
    rows = "".join(f"<tr>{pictures[place] if pictures else ''}{cells(row)}</tr>" for place, row in enumerate(grid.rows))
    head = ("<th></th>" if pictures else "") + head
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    opened = " open" if len(grid.rows) <= _FEW_ROWS or pictures else ""
    return f"<details{opened}><summary>{_text(grid.caption)}</summary>{table}</details>"


def _is_number(cell: str) -> bool:
    return (
        cell[:1].isdigit()
        or cell[:1] in ("\u00b1", "-")
        or cell.startswith(("infinite", "none", "out of reach", "over "))
    )


def _text(value: str) -> str:
    """Inert: no sign of it is read as HTML."""
    return escape(str(value), quote=True)
