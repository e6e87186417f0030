"""What commands share: arguments and options, how they are read, and faults, which are answers and not crashes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from .._presets import PRESETS

FAULT, INTERRUPTED = 1, 130  # 2, for faults of usage, is typer's
_EXTRAS = {
    "pandas": "cli",
    "matplotlib": "cli",
    "jinja2": "cli",
    "optax": "train",
    "diffrax": "train",
    "pyarrow": "parquet",
}


def _complete_networks(incomplete: str) -> list[str]:
    return [name for name in PRESETS if name.startswith(incomplete)]


# Networks are arguments where they are the subject (explain, critical, gram), options where a table is.
_NET_HELP = f"{', '.join(PRESETS)}, or FILE.py:NAME: a Python file, which is run, and a network in it."
NetArgument = Annotated[
    str, typer.Argument(metavar="NETWORK", help=_NET_HELP, autocompletion=_complete_networks, show_default=False)
]
NetOption = Annotated[
    str,
    typer.Option(
        "--net",
        metavar="NETWORK",
        help=f"{_NET_HELP} auto chooses one from the rows, as in the report.",
        autocompletion=_complete_networks,
    ),
]
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
InputShape = typer.Option("--input", metavar="SITES,CHANNELS", help="Shape of one example, such as 32,32,3 or 784.")
Seed = Annotated[int, typer.Option(min=0, help="Of everything that is drawn at random.")]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer rows and folds: seconds instead of minutes.")]
Sample = Annotated[
    int | None,
    typer.Option(
        min=2, help="Rows that are looked at, at most, drawn at random; by default 1000, and 400 with --quick."
    ),
]


def examples(*lines: str) -> str:
    """The end of a help text: commands that can be copied."""
    return "\b\n" + "\n".join(("Examples:", *(f"  everwide {line}" for line in lines)))


def input_shape_of(text: str) -> tuple[int, ...]:
    """`32,32,3` as a shape."""
    shape = _whole_numbers(text)
    if shape is None:
        raise typer.BadParameter(
            f"{text!r} is not a shape: expected positive whole numbers separated by commas, sites first and channels "
            "last, such as 32,32,3 for images or 784 for vectors.",
            param_hint="'--input'",
        )
    return shape


def whole_numbers(text: str, option: str, example: str) -> tuple[int, ...]:
    """Ascending, each once."""
    numbers = _whole_numbers(text)
    if numbers is None:
        raise typer.BadParameter(
            f"{text!r}: expected whole numbers above 0 separated by commas, such as {example}.",
            param_hint=f"'{option}'",
        )
    return tuple(sorted(set(numbers)))


def _whole_numbers(text: str) -> tuple[int, ...] | None:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        return None
    return numbers if min(numbers) >= 1 else None


@contextmanager
def in_a_sentence(when_interrupted: str = "nothing was written.") -> Iterator[None]:
    """Whatever the data or the network raise becomes one line on stderr, and an exit code; control-C too."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        typer.echo(f"interrupted: {when_interrupted}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRAS:
            fail(f"{type(error).__name__}: {error}")
        fail(f"this command needs {missing}. Install it with: pip install 'everwide[{_EXTRAS[missing]}]'")
    except (ValueError, MemoryError) as error:  # what everwide says of data, networks and memory
        fail(str(error) or type(error).__name__)
    except Exception as error:  # a user's own layer may raise anything
        fail(f"{type(error).__name__}: {error}")


def fail(message: str) -> NoReturn:
    """Say it on stderr, and end with exit code 1."""
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    raise typer.Exit(FAULT)
