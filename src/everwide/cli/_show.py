"""What is printed: tables that fit the terminal, valid JSON, notes and bars on stderr."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

Tick = Callable[[float, float, str], None]


def console(*, err: bool = False) -> Console:
    """Plain text: names from files are not markup. Colours follow NO_COLOR and the terminal."""
    return Console(stderr=err, markup=False, highlight=False, emoji=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """Columns of numbers to the right; cells are folded where the terminal is narrow."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    listed = [tuple(row) for row in rows]
    for i, name in enumerate(columns):
        numeric = all(isinstance(row[i], int | float) for row in listed)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in listed:
        table.add_row(*(_cell(value) for value in row))
    if title is not None:  # not the table's own, which would be as narrow as the table
        say(title)
    console().print(table)


def say(text: str) -> None:
    """A sentence; in a terminal broken between words, in a pipe one line."""
    out = console()
    out.print(text, soft_wrap=not out.is_terminal)


def note(text: str) -> None:
    """A sentence beside the answer, on stderr."""
    out = console(err=True)
    out.print(f"note: {text}", soft_wrap=not out.is_terminal)


def print_json(value: Any) -> None:
    """JSON that every reader takes: what is not finite becomes null."""
    typer.echo(json.dumps(_plain(value), indent=2, allow_nan=False))


def number(value: float) -> str:
    """Four digits that count."""
    if not math.isfinite(value):
        return "infinite" if value > 0 else str(value)
    return f"{value:.4g}"


@contextmanager
def bar(description: str) -> Iterator[Tick]:
    """A bar on stderr, in a terminal only: `tick(done, total, what)`."""
    err = console(err=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), console=err, transient=True, disable=not err.is_terminal) as shown:
        task = shown.add_task(description)
        yield lambda done, total, what: shown.update(
            task, completed=done, total=total, description=what[: max(10, err.width - 50)] or description
        )


def _cell(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int) else str(value)
