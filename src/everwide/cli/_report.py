"""`everwide report`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ..tables import Table, read_table
from ._show import (
    AsJson,
    NetOption,
    Quick,
    Seed,
    Target,
    bar,
    examples,
    in_a_sentence,
    misuse,
    named_network,
    note,
    print_json,
    say,
)

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
        table = _table(data, target)
        note(*table.notes)
        from .. import report as package

        network = named_network(net, "auto")
        with bar("report") as tick:
            made = package.study(table, net=network, quick=quick, seed=seed, progress=tick)
        page, numbers = made.write(output)
        print_json(made.to_dict()) if as_json else _print(made, page, numbers)


def _table(data: Path | None, target: str | None) -> Table:
    if data is not None:
        return read_table(data, target=target)
    if target is not None:
        raise misuse("the digits have one target. Name a file of data.", "--target")
    return Table.digits()


def _print(study: Any, page: Path, numbers: Path) -> None:
    say(f"{study.source}: {study.n} rows. Network: {study.network}")
    for tile in study.tiles[:_MAIN_NUMBERS]:
        say(f"- {tile.label}: {tile.value} ({tile.meaning})")
    say(f"The page is {page}, every number is in {numbers}")
