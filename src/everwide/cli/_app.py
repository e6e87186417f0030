"""All commands in one place, and the first of them: `everwide report`."""

import importlib.metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from ..tables import Table, read_table
from . import _critical, _doctor, _explain, _forecast, _gram, _rate, _select
from ._reproduce import reproduce
from ._show import (
    AsJson,
    NetOption,
    Quick,
    Seed,
    Target,
    Task,
    bar,
    examples,
    in_a_sentence,
    misuse,
    network_for,
    note,
    print_json,
    say,
)

REPORT_EPILOG = examples(
    "report", "report train.csv --target price -o price.html", "report train.npz --net model.py:net --quick"
)
_MAIN_NUMBERS = 3


def report(
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DATA]",
            exists=True,
            dir_okay=False,
            help="A .csv, .tsv, .parquet, .npz or .npy file, read and never executed; by default handwritten digits.",
            show_default=False,
        ),
    ] = None,
    target: Target = None,
    task: Task = None,
    net: NetOption = "auto",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PAGE.html", help="Where the page goes; folders are made.")
    ] = Path("report.html"),
    quick: Quick = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """What a network will make of these data: one page, with every number in a .json file beside it."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise misuse(f"{str(output)!r}: expected a name that ends in .html.", "--output' / '-o")
    with in_a_sentence():
        table = _table(data, target, task)
        note(*table.notes)
        from .. import report as package

        network = network_for(net, table, "auto")
        with bar("report") as tick:
            made = package.study(table, net=network, quick=quick, seed=seed, progress=tick)
        page, numbers = made.write(output)
        print_json(made.to_dict()) if as_json else _print(made, page, numbers)


def _table(data: Path | None, target: str | None, task: str | None) -> Table:
    if data is not None:
        return read_table(data, target=target, task=task)
    if target is not None or task is not None:
        message = "the digits have one target, and it is classes. Name a file of data."
        raise misuse(message, "--target" if task is None else "--task")
    return Table.digits()


def _print(study: Any, page: Path, numbers: Path) -> None:
    say(f"{study.source}: {study.n} rows. Network: {study.network}")
    for caution in study.cautions:
        say(f"! {caution}")
    for tile in study.tiles[:_MAIN_NUMBERS]:
        say(f"- {tile.label}: {tile.value} ({tile.meaning})")
    say(f"The page is {page}, every number is in {numbers}")


app = typer.Typer(
    help="Neural networks of any width, infinity included.",
    epilog=examples("report", "report train.csv --target price", "critical gelu", "--install-completion")
    + "\n\nExit codes: 0 fine, 1 a fault of the data or the network, 2 a fault of usage, 130 interrupted.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> bool:
    if not wanted:
        return wanted
    try:
        typer.echo(f"everwide {importlib.metadata.version('everwide')}")
    except importlib.metadata.PackageNotFoundError:
        typer.echo("everwide, not installed (run from its sources)")
    raise typer.Exit


@app.callback()
def command(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Neural networks of any width, infinity included."""


app.command(short_help="A page on what a network will make of these data.", epilog=REPORT_EPILOG)(report)
app.command(short_help="What will be computed, layer by layer.", epilog=_explain.EPILOG)(_explain.explain)
app.command(short_help="Write the kernel matrix of a file of data.", epilog=_gram.EPILOG)(_gram.gram)
app.command(short_help="Initializations that keep signals alive.", epilog=_critical.EPILOG)(_critical.critical)
app.command(short_help="Learning rates: edges, and a trial.", epilog=_rate.EPILOG)(_rate.rate)
app.command(short_help="The error with more rows; the rows for a goal.", epilog=_forecast.EPILOG)(_forecast.forecast)
app.command(short_help="Rows to label next, with a reason each.", epilog=_select.EPILOG)(_select.select)
app.command(short_help="What is wrong with a training run.", epilog=_doctor.EPILOG)(_doctor.doctor)
app.add_typer(reproduce, name="reproduce", short_help="Experiments of papers, run again.")
