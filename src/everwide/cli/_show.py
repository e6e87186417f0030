"""What the commands share: options, and what they print."""

import difflib
import enum
import importlib.util
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichBar
from rich.table import Table

from .. import activations
from .._engine import Progress
from .._frameworks import framework_of
from .._presets import PRESETS, preset
from .._words import number, plain
from ..activations import AbstractActivation
from ..layers import AbstractLayer
from ..tables import Table as Rows
from ._modules import OwnModule, for_table

FAULT, INTERRUPTED = 1, 130  # 2, for faults of usage, is typer's
_EXTRAS = {
    "pandas": "cli",
    "matplotlib": "cli",
    "jinja2": "cli",
    "optax": "train",
    "diffrax": "train",
    "pyarrow": "parquet",
    "zarr": "store",
    "distributed": "dask",
}


def _complete_networks(incomplete: str) -> list[str]:
    return [name for name in PRESETS if name.startswith(incomplete)]


# Networks are options everywhere; where they are the subject (explain, critical, gram), they may be arguments too.
_NET_HELP = (
    f"{', '.join(PRESETS)}, or FILE.py:NAME: a Python file, which is run, and a network in it, or a module of PyTorch, "
    "Flax or Equinox."
)
NetArgument = Annotated[
    str | None,
    typer.Argument(metavar="[NETWORK]", help=_NET_HELP, autocompletion=_complete_networks, show_default=False),
]
NetAgain = Annotated[
    str | None,
    typer.Option(
        "--net", metavar="NETWORK", help="The network, instead of as an argument.", autocompletion=_complete_networks
    ),
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


class TaskName(enum.StrEnum):
    """What is to be learned."""

    CLASSIFICATION = "classification"
    REGRESSION = "regression"


Task = Annotated[
    TaskName | None,
    typer.Option(help="How the target is read; by default text and whole numbers with few values are classes."),
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
    expected = (
        " is not a shape: expected positive whole numbers separated by commas, sites first and channels last, such as "
        "32,32,3 for images or 784 for vectors."
    )
    return _whole_numbers(text, "--input", expected)


def whole_numbers(text: str, option: str, example: str) -> tuple[int, ...]:
    """Ascending, each once."""
    expected = f": expected whole numbers above 0 separated by commas, such as {example}."
    return tuple(sorted(set(_whole_numbers(text, option, expected))))


def _whole_numbers(text: str, option: str, expected: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = (0,)
    if min(numbers) < 1:
        raise misuse(f"{text!r}{expected}", option)
    return numbers


def named_once(argument: str | None, option: str | None, what: str = "NETWORK") -> str:
    """What was named as an argument or by `--net`, not both."""
    if argument is not None and option is not None:
        raise misuse(f"the network is named twice: {argument!r}, and {option!r} by --net. Name it once.", "--net")
    if argument is None and option is None:
        raise misuse(f"missing: name it as an argument ({what}), or by --net, such as --net model.py:net.", what)
    return argument or option or ""


def misuse(message: str, option: str) -> typer.BadParameter:
    """A fault of usage, and the option or argument that is to blame."""
    return typer.BadParameter(message, param_hint=f"'{option}'")


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
        table.add_row(*(number(value, 4) if isinstance(value, float) else str(value) for value in row))
    if title is not None:  # not the table's own, which would be as narrow as the table
        say(title)
    console().print(table)


def say(text: str) -> None:
    """A sentence; in a terminal broken between words, in a pipe one line."""
    out = console()
    out.print(text, soft_wrap=not out.is_terminal)


def note(*texts: str) -> None:
    """Sentences beside the answer, on stderr."""
    out = console(err=True)
    for text in texts:
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


# Those that need no arguments; a test compares them with `everwide.activations`.
# fmt: off
ACTIVATIONS = (
    "Abs", "Cos", "Elu", "Erf", "Exp", "ExpNormalized", "Gabor", "Gaussian", "Gelu", "HardTanh", "LeakyRelu", "Mish",
    "Rbf", "Relu", "Relu6", "Selu", "Sigmoid", "SigmoidLike", "Sign", "Silu", "Sin", "Softplus", "Step", "Tanh",
)
# fmt: on


def named_network(target: str, *words: str) -> AbstractLayer | str | OwnModule:
    """A network or a module in a file; or a preset, or another of these words, by its name."""
    known = (*PRESETS, *words)
    if target in known:
        return target
    if ":" not in target and not target.endswith(".py"):
        near = difflib.get_close_matches(target, known, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise _usage(
            f"{target!r}: expected {', '.join(known)}, or a file and a name in it, such as model.py:net.{hint}"
        )
    return load_network(target)


def network_for(target: str, table: Rows, *words: str) -> AbstractLayer | str:
    """The network of that name for the rows of a table; of modules it is said what became of them."""
    net, notes = for_table(named_network(target, *words), table)
    note(*notes)
    return net


def built(net: AbstractLayer | str, input_shape: tuple[int, ...]) -> AbstractLayer:
    """The network itself; a preset is made for examples of that shape."""
    return preset(net, input_shape) if isinstance(net, str) else net


def activation(name: str) -> AbstractActivation:
    """By its name, in whatever case."""
    known = {one.lower(): one for one in ACTIVATIONS}
    bare = name.lower().replace("-", "").replace("_", "").removesuffix("()")
    if bare not in known:
        near = difflib.get_close_matches(bare, list(known), n=1)
        hint = f"Did you mean {known[near[0]]}?" if near else f"Known: {', '.join(ACTIVATIONS)}."
        message = f"there is no activation {name!r}. {hint} Others are read from a file: model.py:activation."
        raise misuse(message, "ACTIVATION")
    return getattr(activations, known[bare])()


def complete_activations(incomplete: str) -> list[str]:
    """Activations that begin so, in lower case as people type them."""
    return [name.lower() for name in ACTIVATIONS if name.lower().startswith(incomplete.lower())]


def _usage(message: str) -> typer.BadParameter:
    """A network that is not named as it should be."""
    return misuse(message, "FILE.py:NAME")


def load_network(target: str) -> AbstractLayer | OwnModule:
    """The network, or module, of that name in that file, which is run for it."""
    file, colon, name = target.rpartition(":")
    if not (file and colon and name.isidentifier()):
        raise _usage(f"{target!r} does not name a network: expected a file and a name in it, such as model.py:net.")
    path = Path(file)
    if not path.is_file():
        raise _usage(f"there is no file {file!r} (seen from {str(Path.cwd())!r}).")
    module = _run_file(path)
    known = sorted(n for n, value in vars(module).items() if isinstance(value, AbstractLayer) or framework_of(value))
    hint = f"Networks in it: {', '.join(known)}." if known else "No network is assigned in it."
    if name not in vars(module):
        raise _usage(f"{file} does not define {name!r}. {hint}")
    value = vars(module)[name]
    if framework_of(value):
        return OwnModule(value, target)
    if not isinstance(value, AbstractLayer):
        kind = "the class" if isinstance(value, type) else f"a {type(value).__name__}"
        raise _usage(
            f"{name!r} in {file} is {kind}, not a network (an instance of everwide.layers.AbstractLayer, or a module "
            f"of PyTorch, Flax NNX or Equinox). {hint}"
        )
    return value


def _run_file(path: Path) -> ModuleType:
    """Import a file as Python runs a script: its neighbours can be imported, its errors are its own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if path.suffix != ".py" or spec is None or spec.loader is None:
        raise _usage(f"{path} is not a Python file: expected a name that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    shadowed = sys.modules.get(path.stem)
    sys.path.insert(0, folder)
    sys.modules[path.stem] = module  # dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        fail(f"{path} ended the program when it was imported (exit code {error.code}).")
    except Exception as error:
        fail(f"{path}{_line_in(path, error)} raised {type(error).__name__}: {error}")
    finally:
        sys.path.remove(folder)
        if shadowed is not None:
            sys.modules[path.stem] = shadowed
    return module


def _line_in(path: Path, error: BaseException) -> str:
    """`:LINE` of the file where the error passed through it."""
    lines = [error.lineno] if isinstance(error, SyntaxError) and error.lineno else []
    passed = traceback.extract_tb(error.__traceback__)
    lines += [frame.lineno for frame in passed if Path(frame.filename).resolve() == path.resolve()]
    return f":{lines[-1]}" if lines else ""
