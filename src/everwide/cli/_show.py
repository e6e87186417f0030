"""What is printed: tables that fit the terminal, valid JSON, notes and bars on stderr."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichBar
from rich.table import Table

from .._engine import Progress
from .._words import number, plain


def console(*, err: bool = False) -> Console:
    """Plain text: names from files are not markup. Colours follow NO_COLOR and the terminal."""
    return Console(stderr=err, markup=False, highlight=False, emoji=False)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """Columns of numbers to the right; cells are folded where the terminal is narrow."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    cells = [tuple(row) for row in rows]
    for i, name in enumerate(columns):
        numeric = all(isinstance(row[i], int | float) for row in cells)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
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
    typer.echo(json.dumps(plain(value), indent=2, allow_nan=False))


@contextmanager
def bar(description: str) -> Iterator[Callable[[Progress], None]]:
    """A bar on stderr, in a terminal only."""
    err = console(err=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with RichBar(*columns, TimeElapsedColumn(), console=err, transient=True, disable=not err.is_terminal) as shown:
        task = shown.add_task(description)
        yield lambda progress: shown.update(task, completed=progress.done, total=progress.total)


def _cell(value: Any) -> str:
    return number(value, 4) if isinstance(value, float) else str(value)
