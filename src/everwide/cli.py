"""The command line. What only one command needs is imported inside it."""

import importlib.metadata
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NoReturn

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
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

reproduce = typer.Typer(
    help="Run the experiments of papers again: tables, figures, and which claims hold.", no_args_is_help=True
)
app.add_typer(reproduce, name="reproduce")

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
    except typer.Exit:
        raise
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


Widths = Annotated[str | None, typer.Option(metavar="WIDTH,...", help="Widths, such as 64,128,256.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Runs of each width, with other draws.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Steps of training.")]
Out = Annotated[Path | None, typer.Option(file_okay=False, help="Folder of results; by default in reproductions/.")]
Quick = Annotated[bool, typer.Option("--quick", help="Tiny sizes: to see that everything runs.")]


@reproduce.command("sernau2024")
def reproduce_sernau2024(
    text: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Text to learn from; by default Python's standard library."),
    ] = None,
    widths: Widths = None,
    steps: Steps = None,
    seeds: Seeds = None,
    layers: Annotated[int | None, typer.Option(min=1, help="Blocks of the transformer.")] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Heads of attention.")] = None,
    dim: Annotated[int | None, typer.Option(min=1, help="Dimension of the residual stream.")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Bytes in a window.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Windows in a step.")] = None,
    full: Annotated[bool, typer.Option("--full", help="The paper's model: 6 layers, 16 heads, 40 000 steps.")] = False,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Transformers with trained MLP blocks, or frozen ones with ADAM, SGD or ADAM* on their read-outs.

    Finished runs are kept in the folder of results: the same command goes on where it was interrupted.
    """
    if full and quick:
        raise typer.BadParameter("choose one of --full and --quick.", param_hint="'--full'")
    package = _reproductions()
    setting = package.Setting.full() if full else package.Setting.quick() if quick else package.Setting.small()
    sizes = {"steps": steps, "seeds": seeds, "layers": layers, "heads": heads}
    sizes |= {"dim": dim, "context": context, "batch": batch, "widths": widths and _parse_widths(widths)}
    sizes |= {"tuning_steps": steps and -(-steps // 3)}
    folder = out or Path("reproductions") / f"sernau2024{'-full' * full}{'-quick' * quick}"
    with _without_traceback():
        chosen = replace(setting, **{name: size for name, size in sizes.items() if size is not None})
        run = lambda progress: package.sernau2024(chosen, text=text, out=folder, progress=progress)
        found = _watched(run, folder, resumes=True)
    _print_reproduction(found, ("arm", "width", "test", "spread", "seeds"), folder)


@reproduce.command("lee2019")
def reproduce_lee2019(
    widths: Widths = None,
    steps: Steps = None,
    seeds: Seeds = None,
    rows: Annotated[int | None, typer.Option(min=2, help="Training examples.")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Networks of growing width beside their linearizations and their limit, over the time of training."""
    package = _reproductions()
    sizes = {"widths": (8, 16), "steps": 10, "seeds": 2, "rows": 4} if quick else {}
    given = {"widths": widths and _parse_widths(widths), "steps": steps, "seeds": seeds, "rows": rows}
    sizes |= {name: size for name, size in given.items() if size is not None}
    folder = out or Path("reproductions") / f"lee2019{'-quick' * quick}"
    with _without_traceback():
        found = _watched(lambda progress: package.lee2019(**sizes, out=folder, progress=progress), folder)
    _print_reproduction(found, ("regime", "width", "gap_infinite", "gap_linearized"), folder)


@reproduce.command("criticality")
def reproduce_criticality(
    width: Annotated[int | None, typer.Option(min=8, help="Width of the networks.")] = None,
    draws: Annotated[float | None, typer.Option(help="Multiplies the numbers of networks.")] = None,
    steps: Steps = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Phase diagrams, depth scales and critical points beside random networks of finite width."""
    package = _reproductions()
    sizes = {"width": 32, "draws": 0.02, "steps": 2} if quick else {}
    given = {"width": width, "draws": draws, "steps": steps}
    sizes |= {name: size for name, size in given.items() if size is not None}
    folder = out or Path("reproductions") / f"criticality{'-quick' * quick}"
    with _without_traceback():
        found = _watched(lambda progress: package.criticality(**sizes, out=folder, progress=progress), folder)
    _print_reproduction(found, ("experiment", "activation", "C_w", "place", "predicted", "measured", "error"), folder)


@reproduce.command("simon2021")
def reproduce_simon2021(
    widths: Widths = None,
    steps: Steps = None,
    seeds: Seeds = None,
    draws: Annotated[int | None, typer.Option(min=1, help="Training sets for the kernel.")] = None,
    quick: Quick = False,
    out: Out = None,
) -> None:
    """Kernel regression and finite networks beside what eigenvalues predict."""
    package = _reproductions()
    sizes = {"widths": (8,), "steps": 20, "seeds": 2, "draws": 4, "points": 200} if quick else {}
    given = {"widths": widths and _parse_widths(widths), "steps": steps, "seeds": seeds, "draws": draws}
    sizes |= {name: size for name, size in given.items() if size is not None}
    folder = out or Path("reproductions") / f"simon2021{'-quick' * quick}"
    with _without_traceback():
        found = _watched(lambda progress: package.simon2021(**sizes, out=folder, progress=progress), folder)
    columns = ("domain", "target", "n", "width", "learnability", "predicted_learnability", "error", "predicted_error")
    _print_reproduction(found, columns, folder)


def _reproductions() -> ModuleType:
    try:
        from . import reproductions
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "optax":
            raise
        _fail("reproductions need optax and matplotlib. Install them with: pip install 'everwide[cli,train,plot]'")
    return reproductions


def _parse_widths(text: str) -> tuple[int, ...]:
    try:
        widths = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        widths = ()
    if not widths or min(widths) < 1:
        raise typer.BadParameter(
            f"{text!r}: expected whole numbers above 0 separated by commas, such as 64,128,256.",
            param_hint="'--widths'",
        )
    return widths


def _watched(work: Callable[[Callable[[Any], None]], Any], folder: Path, *, resumes: bool = False) -> Any:
    """Run with a bar that shows how far it is."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
    )
    try:
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("")
            return work(lambda s: bar.update(task, completed=s.done, total=s.total, description=s.note))
    except KeyboardInterrupt:
        kept = f"finished runs are kept in {folder}, and the same command goes on from them."
        typer.echo(f"interrupted: {kept if resumes else 'nothing is kept. --quick takes seconds.'}", err=True)
        raise typer.Exit(130) from None


def _print_reproduction(found: Any, columns: tuple[str, ...], folder: Path) -> None:
    table = Table()
    for name in columns:
        table.add_column(name)
    for row in found.table():
        table.add_row(*(f"{row[name]:.4f}" if isinstance(row[name], float) else str(row[name]) for name in columns))
    console = Console()
    console.print(table)
    for claim in found.claims():
        console.print(f"- {claim}", markup=False, highlight=False)
    console.print(f"written to {folder}", markup=False, highlight=False)
