"""What people see of an experiment: how far it is, and results as a table for them, one for programs, a figure."""

import csv
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from everwide import Progress

from ._claims import Claim

Row = dict[str, Any]
Watcher = Callable[[Progress], None] | None
_PARTS = 1000


class Clock:
    """Tells a `progress` how much of an experiment is done, in thousandths of its parts."""

    def __init__(self, progress: Watcher):
        self._progress, self._start = progress, time.perf_counter()

    def __call__(self, done: float, total: float) -> None:
        if self._progress is not None:
            seconds = time.perf_counter() - self._start
            self._progress(Progress(round(_PARTS * done), round(_PARTS * total), seconds))


def blank_figure(width: float, height: float) -> Any:
    """A matplotlib figure, imported when somebody draws; without pyplot: no window, no state."""
    try:
        from matplotlib.figure import Figure
    except ImportError as fault:
        raise ImportError("Drawing needs matplotlib: pip install matplotlib. The numbers are in table().") from fault
    return Figure(figsize=(width, height), layout="constrained")


def widths_on_axis(ax: Any, widths: Sequence[int]) -> None:
    """Ticks at the widths and nowhere else."""
    ax.set_xticks(widths, [str(width) for width in widths])
    ax.set_xticks([], minor=True)


def write_report(
    folder: Path, title: str, rows: Sequence[Row], claims: Sequence[Claim], notes: str, figure: Any
) -> None:
    """Write `results.csv`, `results.md` and `figure.png` into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with _fresh(folder / "results.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    text = f"# {title}\n\n{notes}\n\n![](figure.png)\n\n{markdown(rows)}\n\n## Claims\n{claims_markdown(claims)}\n"
    _fresh(folder / "results.md").write_text(text, encoding="utf-8")
    figure.savefig(_fresh(folder / "figure.png"), dpi=110, format="png")
    for name in ("results.csv", "results.md", "figure.png"):
        os.replace(_fresh(folder / name), folder / name)


def markdown(rows: Sequence[Row]) -> str:
    """A table; numbers with four digits."""
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([_cell(row[name]) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def claims_markdown(claims: Sequence[Claim]) -> str:
    """A list: claim, verdict, numbers."""
    return "\n".join(
        f"- {claim.claim} **{claim.verdict.value.capitalize()}** here. {claim.numbers}" for claim in claims
    )


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _fresh(path: Path) -> Path:
    """Where a file is written before it takes the place of an older one."""
    return path.with_name(f".{path.name}.new")
