"""Faults are answers, not crashes: one sentence on stderr, and an exit code."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

FAULT, INTERRUPTED = 1, 130  # 2, for faults of usage, is typer's

_EXTRAS = {"pandas": "cli", "matplotlib": "cli", "optax": "train", "diffrax": "train", "pyarrow": "parquet"}


@contextmanager
def in_a_sentence(when_interrupted: str = "nothing was written.") -> Iterator[None]:
    """Whatever the data or the network raise becomes one line; control-C too."""
    try:
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        typer.echo(f"interrupted: {when_interrupted}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except ModuleNotFoundError as error:
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
