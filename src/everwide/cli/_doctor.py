"""`everwide doctor`: what a watched training run suffers from."""

import math
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ._show import AsJson, examples, in_a_sentence, misuse, note, print_json, say

EPILOG = examples("doctor run.jsonl -o run.html", "doctor run.jsonl --follow", "doctor run.jsonl --json")
_SHARE = 0.1  # of the time, at the most, that goes into the page while a run is followed


def doctor(
    path: Annotated[
        Path,
        typer.Argument(metavar="LOG", dir_okay=False, help="What Doctor(log=...) writes; also while it is written."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PAGE.html",
            help="Where the page goes; by default beside the log, under its name.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Write the page again whenever the log has grown, until control-C.")
    ] = False,
    every: Annotated[float, typer.Option(min=1, max=3600, help="Seconds between two looks, with --follow.")] = 5.0,
    as_json: AsJson = False,
) -> None:
    """What is wrong with a training run, from the log of its doctor: a page, and its numbers in a .json file beside it.

    With --follow a log need not be there yet, and the page loads itself again in the browser.
    """
    page = path.with_suffix(".html") if output is None else output
    _check(path, page, follow, as_json)
    with in_a_sentence("the page stays as it was."):
        if follow:
            _follow(path, page, every)
        else:
            made, files = _written(path, page, None)
            print_json(made.to_dict()) if as_json else _print(made, files)


def _check(path: Path, page: Path, follow: bool, as_json: bool) -> None:
    if page.suffix.lower() not in (".html", ".htm"):
        raise misuse(f"{str(page)!r}: expected a name that ends in .html.", "--output' / '-o")
    if path.resolve() in (page.resolve(), page.with_suffix(".json").resolve()):
        raise misuse(f"{str(page)!r}: the page and its .json file would overwrite the log.", "--output' / '-o")
    if not follow and not path.exists():
        raise misuse(f"File {str(path)!r} does not exist. To wait for it: --follow.", "LOG")
    if follow and as_json:
        raise misuse("it prints once: leave out --follow, or read the .json file beside the page.", "--json")


def _written(path: Path, page: Path, refresh: float | None) -> tuple[Any, tuple[Path, Path]]:
    """The study of the log as it is now, and its files."""
    from ..diagnosis import read_run
    from ..report import study_run

    made = study_run(read_run(path), source=path.name)
    return made, made.write(page, refresh=refresh)


def _follow(path: Path, page: Path, every: float) -> None:
    """Until somebody interrupts it, which is how it ends: the last page does not load itself again."""
    seen, last = -1, ""
    note(f"{path} is followed; control-C ends that.")
    try:
        while True:
            size, start = _size(path), time.monotonic()
            if size != seen and size > 0:
                made, files = _written(path, page, math.ceil(every))
                if seen < 0:
                    say(f"The page is {files[0]}, every number is in {files[1]}")
                if made.title != last:
                    say(f"Step {made.verdict.steps}: {made.title}")
                seen, last = size, made.title
            time.sleep(max(every, (time.monotonic() - start) * (1 / _SHARE - 1)))
    except KeyboardInterrupt:
        if seen < 0:
            raise
    made, files = _written(path, page, None)
    _print(made, files)


def _size(path: Path) -> int:
    """Bytes up to the last whole line, 0 where there is none yet."""
    try:
        return path.read_bytes().rfind(b"\n") + 1
    except FileNotFoundError:
        return 0


def _print(made: Any, files: tuple[Path, Path]) -> None:
    say(made.lead)
    say(str(made.verdict) if made.measured else "Nothing was measured yet.")
    say(f"The page is {files[0]}, every number is in {files[1]}")
