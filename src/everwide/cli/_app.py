"""All commands in one place."""

import importlib.metadata
from typing import Annotated

import typer

from . import _critical, _explain, _forecast, _gram, _report
from ._reproduce import reproduce
from ._show import examples

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


app.command(short_help="A page on what a network will make of these data.", epilog=_report.EPILOG)(_report.report)
app.command(short_help="What will be computed, layer by layer.", epilog=_explain.EPILOG)(_explain.explain)
app.command(short_help="Write the kernel matrix of a file of data.", epilog=_gram.EPILOG)(_gram.gram)
app.command(short_help="Initializations that keep signals alive.", epilog=_critical.EPILOG)(_critical.critical)
app.command(short_help="The largest stable learning rates.", epilog=_forecast.RATE_EPILOG)(_forecast.rate)
app.command(short_help="The error with more rows; the rows for a goal.", epilog=_forecast.EPILOG)(_forecast.forecast)
app.add_typer(reproduce, name="reproduce", short_help="Experiments of papers, run again.")
