"""`everwide report`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..tables import Table, digits_table, read_table
from ._faults import in_a_sentence
from ._networks import PRESETS, complete_networks, network
from ._options import NET_HELP, AsJson, Seed, Target, examples
from ._show import bar, note, print_json, say

EPILOG = examples(
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
    net: Annotated[
        str | None,
        typer.Option(
            metavar="NETWORK", help=f"{NET_HELP} By default chosen from the rows.", autocompletion=complete_networks
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="PAGE.html", help="Where the page goes.")] = Path(
        "report.html"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rows and folds: seconds instead of minutes.")] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """What a network will make of these data: one page, with every number in a .json file beside it."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise typer.BadParameter(
            f"{str(output)!r}: expected a name that ends in .html.", param_hint="'--output' / '-o'"
        )
    with in_a_sentence():
        table = _table(data, target)
        for text in table.notes:
            note(text)
        found, page, numbers = _made(table, net, output, quick=quick, seed=seed)
        print_json(found.to_dict()) if as_json else _print(found, page, numbers)


def _table(data: Path | None, target: str | None) -> Table:
    if data is not None:
        return read_table(data, target=target)
    if target is not None:
        raise typer.BadParameter("the digits have one target. Name a file of data.", param_hint="'--target'")
    return digits_table()


def _made(table: Table, net: str | None, output: Path, *, quick: bool, seed: int) -> tuple[Any, Path, Path]:
    from .. import report as package

    chosen = net if net is None or net in PRESETS else network(net, table.shape)
    with bar("report") as tick:
        found = package.study(table, net=chosen, quick=quick, seed=seed, progress=tick)
    return found, *package.write_report(found, output)


def _print(found: Any, page: Path, numbers: Path) -> None:
    say(f"{found.source}: {found.rows} rows. Network: {found.network}")
    for tile in found.tiles[:_MAIN_NUMBERS]:
        say(f"- {tile.label}: {tile.value} ({tile.meaning})")
    say(f"The page is {page}, every number is in {numbers}")
