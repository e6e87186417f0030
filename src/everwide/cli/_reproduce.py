"""`everwide reproduce`: the experiments of papers."""

import importlib
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from ._show import AsJson, bar, examples, fail, in_a_sentence, misuse, print_json, print_table, say, whole_numbers

reproduce = typer.Typer(
    help="Run the experiments of papers again: tables, figures, and which claims hold.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=examples("reproduce lee2019 --quick", "reproduce sernau2024 --widths 64,128 --out results"),
)

Widths = Annotated[str | None, typer.Option(metavar="WIDTH,...", help="Widths, such as 64,128,256.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Runs of each width, with other draws.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Steps of training.")]
Out = Annotated[Path | None, typer.Option(file_okay=False, help="Folder of results; by default in reproductions/.")]
Quick = Annotated[bool, typer.Option("--quick", help="Tiny sizes: to see that everything runs.")]

_MISSING = {
    "everwide_lab": "experiments are in everwide_lab, which is missing here. Install all of everwide again.",
    "optax": "experiments need optax and matplotlib. Install them with: pip install 'everwide[cli,train,plot]'",
}
# Sizes of --quick, and what is printed of a row of results.
_QUICK: dict[str, dict[str, Any]] = {
    "lee2019": {"widths": (8, 16), "steps": 10, "seeds": 2, "n": 4},
    "criticality": {"width": 32, "draws": 0.02, "steps": 2},
    "simon2021": {"widths": (8,), "steps": 20, "seeds": 2, "draws": 4, "points": 200},
    "catapult": {"widths": (16,), "steps": 60, "seeds": 2, "n": 16},
    "vyas2022": {"sizes": (32, 64), "steps": 100, "seeds": 2, "width": 16, "tests": 100},
    "lookahead2022": {"pool": 60, "rounds": 2, "batch": 5, "candidates": 6, "seeds": 2, "steps": 60, "width": 16},
    "edge-of-stability": {"width": 8, "steps": 40, "seeds": 2, "n": 32},
    "collapse": {"width": 16, "steps": 100, "seeds": 2, "n": 100},
    "deep-linear": {"seeds": 2, "draws": 100, "chains": 8, "sweeps": 20},
    "implicit-bias": {"steps": 2000, "seeds": 2, "n": 20},
    "sgd-noise": {"blocks": 40, "seeds": 2, "n": 40, "width": 2},
}
_COLUMNS = {
    "sernau2024": "arm width test spread seeds",
    "lee2019": "regime width gap_infinite gap_linearized",
    "criticality": "experiment activation C_w place predicted measured error",
    "simon2021": "domain target n width learnability predicted_learnability error predicted_error",
    "catapult": "activation hidden_layers width curvature_change rose_first flatness limit test_gain",
    "vyas2022": "task learner exponent exponent_se seeds",
    "lookahead2022": "task what ranks cosine accuracy accuracy_se seeds",
    "collapse": "network when error test_error within norms angles duality centres share",
    "deep-linear": "what setting measured predicted ratio ratio_se",
    "edge-of-stability": "optimizer loss rate edge arrived ratio low high rises_before rises_after",
    "implicit-bias": "experiment setting quantity mean spread seeds",
    "sgd-noise": "setting quantity mean spread seeds",
}


@reproduce.command("sernau2024", epilog=examples("reproduce sernau2024 --quick", "reproduce sernau2024 --rest adam"))
def sernau2024(
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
    rest: Annotated[str | None, typer.Option(metavar="adam|sgd|momentum", help="What trains all but the MLPs.")] = None,
    infinite: Annotated[int | None, typer.Option(min=0, help="Seeds that are run at infinite width too.")] = None,
    full: Annotated[bool, typer.Option("--full", help="The paper's model: 6 layers, 16 heads, 40 000 steps.")] = False,
    quick: Quick = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Transformers with trained MLP blocks, or frozen ones with several optimizers on their read-outs.

    Widths go up to infinity, where an MLP block is a kernel. Finished runs are kept in the folder of results: the same
    command goes on where it was interrupted.
    """
    if full and quick:
        raise misuse("choose one of --full and --quick.", "--full")
    experiment = _laboratory("sernau2024")
    setting = experiment.Setting.full() if full else experiment.Setting.quick() if quick else experiment.Setting.small()
    sizes = {"steps": steps, "seeds": seeds, "layers": layers, "heads": heads}
    sizes |= {"dim": dim, "context": context, "batch": batch, "widths": _widths(widths)}
    sizes |= {"tuning_steps": steps, "infinite": infinite, "rest": rest and _rest(experiment, rest)}
    if seeds is not None and infinite is None:
        sizes["infinite"] = min(seeds, setting.infinite)
    name = f"sernau2024{'-full' * full}{'-quick' * quick}{f'-{rest}' if rest else ''}"
    folder = out or Path("reproductions") / name
    with in_a_sentence(f"finished runs are kept in {folder}, and the same command goes on from them."):
        chosen = replace(setting, **_given(sizes))
        with bar("") as tick:
            result = experiment.reproduce(chosen, text=text, out=folder, progress=tick)
        _print(result, "sernau2024", folder, as_json)


@reproduce.command("lee2019", epilog=examples("reproduce lee2019 --quick", "reproduce lee2019 --widths 64,512"))
def lee2019(
    widths: Widths = None,
    steps: Steps = None,
    seeds: Seeds = None,
    n: Annotated[int | None, typer.Option("--n", min=2, help="Training examples.")] = None,
    quick: Quick = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Networks of growing width beside their linearizations and their limit, over the time of training."""
    sizes = {"widths": _widths(widths), "steps": steps, "seeds": seeds, "n": n}
    _run("lee2019", sizes, quick, out, as_json)


@reproduce.command("criticality", epilog=examples("reproduce criticality --quick"))
def criticality(
    width: Annotated[int | None, typer.Option(min=8, help="Width of the networks.")] = None,
    draws: Annotated[float | None, typer.Option(help="Multiplies the numbers of networks.")] = None,
    steps: Steps = None,
    quick: Quick = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Phase diagrams, depth scales and critical points beside random networks of finite width."""
    _run("criticality", {"width": width, "draws": draws, "steps": steps}, quick, out, as_json)


@reproduce.command("simon2021", epilog=examples("reproduce simon2021 --quick"))
def simon2021(
    widths: Widths = None,
    steps: Steps = None,
    seeds: Seeds = None,
    draws: Annotated[int | None, typer.Option(min=1, help="Training sets for the kernel.")] = None,
    quick: Quick = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Kernel regression and finite networks beside what eigenvalues predict."""
    sizes = {"widths": _widths(widths), "steps": steps, "seeds": seeds, "draws": draws}
    _run("simon2021", sizes, quick, out, as_json)


@reproduce.command("catapult", epilog=examples("reproduce catapult --quick", "reproduce catapult --widths 64,1024"))
def catapult(
    widths: Widths = None,
    steps: Steps = None,
    seeds: Seeds = None,
    n: Annotated[int | None, typer.Option("--n", min=2, help="Training rows.")] = None,
    quick: Quick = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Networks trained below and above the largest rate of the linear theory: lazy, catapulted, diverged."""
    sizes = {"widths": _widths(widths), "steps": steps, "seeds": seeds, "n": n}
    _run("catapult", sizes, quick, out, as_json)


@reproduce.command("vyas2022", epilog=examples("reproduce vyas2022 --quick", "reproduce vyas2022 --data train.csv"))
def vyas2022(
    data: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="A table to learn, beside the tasks without a file."),
    ] = None,
    sizes: Annotated[str | None, typer.Option(metavar="ROWS,...", help="Training rows, such as 64,256,1024.")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Width of the networks.")] = None,
    steps: Steps = None,
    seeds: Seeds = None,
    quick: Quick = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Exponents in the amount of data: networks beside their tangent kernels, before and after training.

    Finished runs are kept in the folder of results: the same command goes on where it was interrupted.
    """
    rows = None if sizes is None else whole_numbers(sizes, "--sizes", "64,256,1024")
    given = {"data": data, "sizes": rows, "width": width, "steps": steps, "seeds": seeds}
    _run("vyas2022", given, quick, out, as_json, keeps=True)


@reproduce.command("lookahead2022", epilog=examples("reproduce lookahead2022 --quick"))
def lookahead2022(
    width: Annotated[int | None, typer.Option(min=1, help="Width of the networks.")] = None,
    steps: Steps = None,
    seeds: Seeds = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Of queries, ten rows each.")] = None,
    quick: Quick = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Look-ahead active learning: the kernel of a trained network beside real retraining, and the rows it chooses.

    Finished runs are kept in the folder of results: the same command goes on where it was interrupted.
    """
    given = {"width": width, "steps": steps, "seeds": seeds, "rounds": rounds}
    _run("lookahead2022", given, quick, out, as_json, keeps=True)


@reproduce.command("edge-of-stability", epilog=examples("reproduce edge-of-stability --quick"))
def edge_of_stability(
    width: Annotated[int | None, typer.Option(min=1, help="Width of the networks.")] = None,
    steps: Annotated[int | None, typer.Option(min=10, help="Steps of training.")] = None,
    seeds: Seeds = None,
    n: Annotated[int | None, typer.Option("--n", min=20, help="Training rows.")] = None,
    quick: Quick = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Sharpness beside the edge of gradient descent, momentum and Adam, trained by all rows.

    Finished runs are kept in the folder of results: the same command goes on where it was interrupted.
    """
    sizes = {"width": width, "steps": steps, "seeds": seeds, "n": n}
    _run("edge-of-stability", sizes, quick, out, as_json, keeps=True)


@reproduce.command("implicit-bias", epilog=examples("reproduce implicit-bias --quick"))
def implicit_bias(
    steps: Annotated[int | None, typer.Option(min=100, help="Steps of training.")] = None,
    seeds: Seeds = None,
    n: Annotated[int | None, typer.Option("--n", min=10, help="Training rows of the digits.")] = None,
    quick: Quick = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Which of many solutions descent finds: sparse or like a kernel, and the largest margin."""
    _run("implicit-bias", {"steps": steps, "seeds": seeds, "n": n}, quick, out, as_json)


@reproduce.command("sgd-noise", epilog=examples("reproduce sgd-noise --quick"))
def sgd_noise(
    width: Annotated[int | None, typer.Option(min=1, help="Width of the networks.")] = None,
    seeds: Seeds = None,
    n: Annotated[int | None, typer.Option("--n", min=11, help="Training rows.")] = None,
    quick: Quick = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Training in batches until it has settled: fluctuation, dissipation, and schedules that wait for them."""
    _run("sgd-noise", {"width": width, "seeds": seeds, "n": n}, quick, out, as_json)


@reproduce.command("collapse", epilog=examples("reproduce collapse --quick"))
def collapse(
    width: Annotated[int | None, typer.Option(min=10, help="Width of the networks.")] = None,
    steps: Annotated[int | None, typer.Option(min=10, help="Steps of training.")] = None,
    seeds: Seeds = None,
    n: Annotated[int | None, typer.Option("--n", min=20, help="Training rows, in tens.")] = None,
    quick: Quick = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Neural collapse of classifiers long after their last error, and what leads their curvature.

    Finished runs are kept in the folder of results: the same command goes on where it was interrupted.
    """
    sizes = {"width": width, "steps": steps, "seeds": seeds, "n": n}
    _run("collapse", sizes, quick, out, as_json, keeps=True)


@reproduce.command("deep-linear", epilog=examples("reproduce deep-linear --quick"))
def deep_linear(
    seeds: Seeds = None,
    draws: Annotated[int | None, typer.Option(min=2, help="Random networks of each width and depth.")] = None,
    chains: Annotated[int | None, typer.Option(min=2, help="Fitting networks that are sampled side by side.")] = None,
    sweeps: Annotated[int | None, typer.Option(min=8, help="Times that their layers are drawn anew.")] = None,
    quick: Quick = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Deep linear networks, random, sampled and trained, beside what can be solved."""
    sizes = {"seeds": seeds, "draws": draws, "chains": chains, "sweeps": sweeps}
    _run("deep-linear", sizes, quick, out, as_json)


def _run(
    name: str, sizes: dict[str, Any], quick: bool, out: Path | None, as_json: bool, *, keeps: bool = False
) -> None:
    """An experiment of these sizes, as far as they are given, that keeps finished runs, or nothing before its end."""
    experiment = _laboratory(name)
    chosen = (_QUICK[name] if quick else {}) | _given(sizes)
    folder = out or Path("reproductions") / f"{name}{'-quick' * quick}"
    kept = f"finished runs are kept in {folder}, and the same command goes on from them."
    with in_a_sentence(kept if keeps else "nothing is kept. --quick takes seconds."):
        with bar("") as tick:
            result = experiment.reproduce(**chosen, out=folder, progress=tick)
        _print(result, name, folder, as_json)


def _laboratory(name: str) -> ModuleType:
    """The room of one paper; imported when somebody asks for it."""
    try:
        return importlib.import_module(f"everwide_lab.{name.replace('-', '_')}")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _MISSING:
            raise
        fail(_MISSING[missing])


def _rest(experiment: ModuleType, rest: str) -> Any:
    known = [one.value for one in experiment.Rest]
    if rest not in known:
        raise misuse(f"expected one of {', '.join(known)}, got {rest!r}.", "--rest")
    return experiment.Rest(rest)


def _widths(text: str | None) -> tuple[int, ...] | None:
    return None if text is None else whole_numbers(text, "--widths", "64,128,256")


def _given(sizes: dict[str, Any]) -> dict[str, Any]:
    return {name: size for name, size in sizes.items() if size is not None}


def _print(result: Any, name: str, folder: Path, as_json: bool) -> None:
    rows, claims = result.table(), [str(claim) for claim in result.claims()]
    if as_json:
        print_json({"rows": rows, "claims": claims, "folder": str(folder)})
        return
    columns = _COLUMNS[name].split()
    print_table(columns, [tuple(row[name] for name in columns) for row in rows])
    for line in (*(f"- {claim}" for claim in claims), f"written to {folder}"):
        say(line)
