"""Drawings as SVG for a page, in its colours, light and dark. Nothing depends on time or chance."""

import base64
import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np

# What is drawn in these colours takes those of the page.
INK, MUTED, RULE = "#10121a", "#6b7081", "#d9dbe3"
BLUE, ORANGE, GREEN, GREY = "#1f5fbf", "#b9530f", "#14795a", "#8a8fa1"
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    RULE: "--rule",
    BLUE: "--blue",
    ORANGE: "--orange",
    GREEN: "--green",
    GREY: "--grey",
}
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


def drawn(key: str, title: str, draw: Callable[[Any], None], height: float = 3.0) -> str:
    """An SVG element that holds what `draw` puts on a figure; `key` keeps its names apart from those of others."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as fault:
        raise ImportError("A report needs matplotlib: pip install 'everwide[plot]'.") from fault
    buffer = io.StringIO()
    style: Any = {**_STYLE, "svg.hashsalt": key}
    with rc_context(style):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(figure)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), key, title)


def _inline(text: str, key: str, title: str) -> str:
    """Without what belongs to files; with names of its own, the colours of the page, and words for screen readers."""
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{key}-\1"', body)
    body = re.sub(r'(href="|url\()#', rf"\1#{key}-", body)
    box = re.search(r'viewBox="[^"]+"', body)
    assert box is not None  # matplotlib always writes one
    opening = f'<svg {box.group()} xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    body = re.sub(r"<svg[^>]*>", f'{opening} role="img" aria-label="{title}">', body, count=1)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    return re.sub(r"\n\s*", "\n", body).strip()


def thumbnail(pixels: np.ndarray) -> str:
    """A small image `(height, width, channels)` with values from 0 to 1, as the address of a PNG."""
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    image = pixels if pixels.shape[-1] == 3 else np.repeat(1 - pixels, 3, axis=-1)  # one channel is ink
    imsave(buffer, np.clip(image, 0, 1), format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
