"""What a section says and shows, how it is drawn, and the page.

The page is one file of HTML that holds everything: no script, no other file. The template escapes all that it is given.
"""

import base64
import enum
import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar
from xml.etree import ElementTree

import numpy as np

from .._checks import InputError
from .._words import count, number, plain

S = TypeVar("S")
R = TypeVar("R")


class Fact(NamedTuple):
    """A number, as it is printed, and a sentence that says what to do with it."""

    label: str
    value: str
    meaning: str


@dataclass(frozen=True, eq=False)
class Grid:
    """A table of the page. `pictures`: of the rows, where they are images, with values from 0 to 1."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    pictures: tuple[np.ndarray, ...] = ()


class Text(NamedTuple):
    """What the page says about a result. `cautions` stand before all numbers, at the top of the page."""

    facts: tuple[Fact, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()
    cautions: tuple[str, ...] = ()


_NO_TEXT = Text(())


class Figure(NamedTuple):
    """`draw(figure, result)` on a matplotlib figure of that height, in inches; the words under it."""

    draw: Callable[[Any, Any], None]
    height: float
    caption: str


@dataclass(frozen=True, eq=False)
class Section(Generic[S, R]):
    """One question about the data (a `Problem`), or about a run.

    - `measure`: what is found, as a frozen dataclass; its fields are the numbers of the JSON file;
      `None` where nothing was recorded about it, or the question is about other data.
    - `describe`: the sentences about it. `figure`, `tile`: its drawing, and its number at the top of the page.
    - `beside`: it compiles for long, and runs beside the others. `takes_long`: quick reports do without it.
    """

    key: str
    title: str
    question: str
    measure: Callable[[S], R | None]
    describe: Callable[[S, R], Text]
    figure: Figure | None = None
    tile: Callable[[R], Fact | None] | None = None
    beside: bool = False
    takes_long: bool = False


@dataclass(frozen=True, eq=False)
class Answer:
    """A section, what was found (`None` where it is missing), and what the page says about it."""

    section: Section[Any, Any]
    result: Any = None
    text: Text = _NO_TEXT
    missing: str = ""

    @property
    def tile(self) -> Fact | None:
        """The number at the top of the page, if this section has one."""
        tile = self.section.tile
        return None if tile is None or self.missing else tile(self.result)

    def to_dict(self) -> dict[str, Any]:
        """In plain types, without a number that is not finite: such are `None`."""
        return {
            "title": self.section.title,
            "missing": self.missing or None,
            "numbers": {} if self.missing else plain(self.result),
            "facts": [fact._asdict() for fact in self.text.facts],
            "warnings": list(self.text.warnings),
            "notes": list(self.text.notes),
        }


class _Colour(enum.StrEnum):
    """What is drawn in one of these takes the colour of that name of the page."""

    INK = "#10121a"
    MUTED = "#6b7081"
    RULE = "#d9dbe3"
    BLUE = "#1f5fbf"
    ORANGE = "#b9530f"
    GREEN = "#14795a"
    GREY = "#8a8fa1"


INK, MUTED, RULE, BLUE, ORANGE, GREEN, GREY = (str(colour) for colour in _Colour)
_LONG, _RAISED = 1e5, str.maketrans("0123456789", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
_WIDTH = 5.4  # inches: 389 units of the drawing, so that words can be read on a phone
_STYLE = {
    "svg.fonttype": "none",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "text.parse_math": False,
}


def drawn(key: str, figure: Figure, result: Any) -> str:
    """An SVG element with the figure of a result; `key` keeps its names apart from those of others."""
    try:
        from matplotlib import figure as canvases
        from matplotlib import rc_context
    except ImportError as fault:
        raise ImportError("A report needs matplotlib: pip install 'everwide[plot]'.") from fault
    buffer = io.StringIO()
    style: Any = {**_STYLE, "svg.hashsalt": key}
    with rc_context(style):
        canvas = canvases.Figure(figsize=(_WIDTH, figure.height), layout="constrained")
        figure.draw(canvas, result)
        canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), key, figure.caption)


def _inline(text: str, key: str, title: str) -> str:
    """Without what belongs to files; with names of its own, the colours of the page, and words for screen readers."""
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in [one for one in parent if _name(one.tag) in ("metadata", "style")]:
            parent.remove(child)
    for element in root.iter():
        element.tag = _name(element.tag)
        element.attrib = {_name(name): _on_page(_name(name), value, key) for name, value in element.attrib.items()}
        element.tail = "\n" if element.tail is None or not element.tail.strip() else element.tail
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": title}
    return ElementTree.tostring(root, encoding="unicode").strip()


def _name(name: str) -> str:
    """Without its namespace: in a page, `svg` and all inside it need none."""
    return name.rpartition("}")[2]


def _on_page(name: str, value: str, key: str) -> str:
    """The value of an attribute; names and references begin with the key of the drawing."""
    if name == "id":
        return f"{key}-{value}"
    value = f"#{key}-{value[1:]}" if name == "href" else value.replace("url(#", f"url(#{key}-")
    for colour in _Colour:
        value = value.replace(colour, f"var(--{colour.name.lower()})")
    return value


def tick(value: float) -> str:
    """A number, or a power of ten where that is shorter."""
    if value < _LONG:
        return number(value, 2)
    power = round(math.log10(value))
    return "10" + str(power).translate(_RAISED) if math.isclose(value, 10.0**power) else ""


def plain_ticks(*axes: Any) -> None:
    """Ticks of logarithmic axes as numbers, without those between."""
    for axis in axes:
        axis.set_major_formatter(lambda value, _: tick(value))
        axis.set_minor_formatter(lambda value, _: "")


def thumbnail(pixels: np.ndarray) -> str:
    """A small image `(height, width, channels)` with values from 0 to 1, as the address of a PNG."""
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    image = pixels if pixels.shape[-1] == 3 else np.repeat(1 - pixels, 3, axis=-1)  # one channel is ink
    imsave(buffer, np.clip(image, 0, 1), format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def page_of(study: Any, template: str, *, refresh: float | None = None) -> str:
    """The text of an HTML file about a study. Everything that came from the data is escaped.

    `refresh`: seconds, after which browsers load the page again.
    """
    tools = {"drawing": _drawing, "numeric": _numeric, "thumbnail": thumbnail}
    return _template(template).render(study=study, refresh=refresh, **tools)


def write_page(path: str | Path, text: str, values: dict[str, Any]) -> tuple[Path, Path]:
    """The page, and its numbers beside it as JSON; whoever reads meanwhile sees the old files or the new ones."""
    page = Path(path)
    numbers = page.with_suffix(".json")
    if numbers == page:
        raise InputError(f"write({str(path)!r}): the numbers go to a .json file beside the page. Use .html.")
    as_json = json.dumps(values, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    page.parent.mkdir(parents=True, exist_ok=True)
    for place, content in ((page, text), (numbers, as_json)):
        draft = place.with_name(f".{place.name}.new")
        try:
            draft.write_text(content, encoding="utf-8")
            draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)
    return page, numbers


@cache
def _template(name: str) -> Any:
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
    environment.filters["number"] = number
    return environment.get_template(name)


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
