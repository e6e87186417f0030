"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from ._networks import complete_networks

NET_HELP = "mlp, cnn, resnet, or FILE.py:NAME: a Python file, which is run, and a network in it."

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; what is infinite becomes null.")]
Data = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        exists=True,
        dir_okay=False,
        help="A .csv, .tsv, .parquet, .npz or .npy file. It is read, never executed.",
    ),
]
Target = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="What is to be learned; by default the last column, or y in .npz.")
]
Net = Annotated[
    str,
    typer.Option("--net", metavar="NETWORK", help=NET_HELP, autocompletion=complete_networks),
]
Seed = Annotated[int, typer.Option(min=0, help="Of everything that is drawn at random.")]
Sample = Annotated[int, typer.Option(min=2, help="Rows that are looked at, at most; drawn at random.")]
Standardize = Annotated[
    bool, typer.Option("--standardize/--raw", help="Bring columns to mean 0 and variance 1, or leave them as they are.")
]


def examples(*lines: str) -> str:
    """The end of a help text: commands that can be copied."""
    return "\b\n" + "\n".join(("Examples:", *(f"  everwide {line}" for line in lines)))
