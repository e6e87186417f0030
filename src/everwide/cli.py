"""The command line. What only one command needs is imported inside it."""

import importlib.metadata
import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, NoReturn

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from .layers import AbstractLayer
from .signal import ArchitectureError, Parametrization

app = typer.Typer(
    help="Neural networks of any width, infinity included.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


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


@app.command()
def explain(
    target: Annotated[str, typer.Argument(metavar="FILE.py:NAME", help="A network, and the file that defines it.")],
    shape: Annotated[
        str, typer.Option("--input", metavar="SITES,CHANNELS", help="Shape of one example, such as 32,32,3 or 784.")
    ],
    width: Annotated[int | None, typer.Option(min=1, help="Width of the layers that leave theirs open.")] = None,
    parametrization: Annotated[Parametrization, typer.Option()] = Parametrization.NTK,
    as_json: AsJson = False,
) -> None:
    """Print what will be computed, layer by layer, without computing it."""
    import everwide as ew

    input_shape = _parse_shape(shape)
    net = _load_network(target)
    with _without_traceback():
        plan = ew.explain(net, input_shape, width=width, parametrization=parametrization)
        text = json.dumps(plan.to_dict(), indent=2) if as_json else str(plan)
    typer.echo(text)


@contextmanager
def _without_traceback() -> Iterator[None]:
    """A fault of the network is an answer, not a crash: one line, exit code 1."""
    try:
        yield
    except ArchitectureError as error:
        _fail(str(error))
    except Exception as error:  # a user's own layer may raise anything
        _fail(f"{type(error).__name__}: {error}")


def _fail(message: str) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(1)


def _parse_shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in text.split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise typer.BadParameter(
            f"{text!r} is not a shape: expected positive whole numbers separated by commas, sites first and channels "
            "last, such as 32,32,3 for images or 784 for vectors.",
            param_hint="'--input'",
        )
    return shape


def _bad_target(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint="'FILE.py:NAME'")


def _load_network(target: str) -> AbstractLayer:
    file, colon, name = target.rpartition(":")
    if not (file and colon and name.isidentifier()):
        raise _bad_target(
            f"{target!r} does not name a network: expected a file and a name in it, such as model.py:net."
        )
    path = Path(file)
    if not path.is_file():
        raise _bad_target(f"there is no file {file!r} (seen from {str(Path.cwd())!r}).")
    module = _run_file(path)
    known = sorted(n for n, value in vars(module).items() if isinstance(value, AbstractLayer))
    hint = f"Networks in it: {', '.join(known)}." if known else "No network is assigned in it."
    if not hasattr(module, name):
        raise _bad_target(f"{file} does not define {name!r}. {hint}")
    value = getattr(module, name)
    if not isinstance(value, AbstractLayer):
        kind = "the class" if isinstance(value, type) else f"a {type(value).__name__}"
        raise _bad_target(
            f"{name!r} in {file} is {kind}, not a network (an instance of everwide.layers.AbstractLayer). {hint}"
        )
    return value


def _run_file(path: Path) -> ModuleType:
    """Import a file as Python runs a script: its neighbours can be imported, its errors are its own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise _bad_target(f"{path} is not a Python file: expected a name that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    shadowed = sys.modules.get(path.stem)
    sys.path.insert(0, folder)
    sys.modules[path.stem] = module  # dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        _fail(f"{path} ended the program when it was imported (exit code {error.code}).")
    except Exception as error:
        _fail(f"{path}{_line_in(path, error)} raised {type(error).__name__}: {error}")
    finally:
        sys.path.remove(folder)
        if shadowed is not None:
            sys.modules[path.stem] = shadowed
    return module


def _line_in(path: Path, error: BaseException) -> str:
    """`:LINE` of the file where the error passed through it."""
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == path.resolve():
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f":{line}"


@dataclass(frozen=True)
class DigitsReport:
    """Accuracy of kernel regression on the digits of scikit-learn, on images it has not seen."""

    depth: int
    train: int
    test: int
    ntk: float
    nngp: float
    seconds: float


@app.command()
def report(
    depth: Annotated[int, typer.Option(min=1, help="Number of hidden layers.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Which images are held out.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Let an infinitely wide ReLU network read handwritten digits."""
    with _without_traceback():
        found = digits_report(depth=depth, seed=seed)
    typer.echo(json.dumps(asdict(found), indent=2)) if as_json else _print_report(found)


def digits_report(*, depth: int = 3, seed: int = 0) -> DigitsReport:
    """Train an infinitely wide ReLU network of `depth` hidden layers on three quarters of the digits."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    import everwide as ew

    start = time.perf_counter()
    images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    parts = train_test_split(images / 16, labels, test_size=0.25, random_state=seed, stratify=labels)
    x, x_test, y, y_test = (np.asarray(part) for part in parts)
    hidden = (ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu())
    net = ew.Serial(*hidden * depth, ew.Dense(10))
    among, to_test = ew.gram(net, x), ew.gram(net, x_test, x)
    accuracy = {
        name: float(np.mean(_ridge_predict(getattr(among, name), getattr(to_test, name), y) == y_test))
        for name in ("ntk", "nngp")
    }
    return DigitsReport(depth, len(x), len(x_test), **accuracy, seconds=time.perf_counter() - start)


def _ridge_predict(among: np.ndarray, to_test: np.ndarray, labels: np.ndarray, ridge: float = 1e-4) -> np.ndarray:
    """The class with the largest response of kernel ridge regression on centred indicators, in float64."""
    from scipy.linalg import solve

    classes = np.unique(labels)
    targets = (labels[:, None] == classes) - 1 / len(classes)
    penalty = ridge * np.mean(np.diag(among)) * np.eye(len(among))
    weights = solve(among + penalty, targets, assume_a="pos")
    return classes[np.argmax(to_test @ weights, axis=1)]


def _print_report(found: DigitsReport) -> None:
    table = Table(title=f"{found.test} held-out digits, learnt from {found.train}", title_justify="left")
    table.add_column(f"ReLU network, {found.depth} hidden layers of infinite width")
    table.add_column("accuracy", justify="right")
    table.add_row("trained by gradient descent (NTK)", f"{found.ntk:.1%}")
    table.add_row("Bayesian (NNGP)", f"{found.nngp:.1%}")
    console = Console()
    console.print(table)
    console.print(f"exact kernels and solve: {found.seconds:.1f} s")
