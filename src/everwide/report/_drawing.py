"""Drawings as SVG for a page, in its colours, light and dark. Nothing depends on time or chance."""

import base64
import enum
import io
import math
from typing import Any
from xml.etree import ElementTree

import numpy as np

from .._words import number
from ._section import Figure


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
