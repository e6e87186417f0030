"""`everwide forecast`: from a table of labelled rows."""

import math
import warnings
from typing import Annotated, Any

import typer

from .._words import number
from ..tables import read_table
from ._show import (
    AsJson,
    Data,
    NetOption,
    Quick,
    Sample,
    Seed,
    Target,
    Task,
    bar,
    examples,
    in_a_sentence,
    misuse,
    network_for,
    note,
    print_json,
    print_table,
    say,
    whole_numbers,
)

EPILOG = examples(
    "forecast pilot.csv --target price --n 1000,5000 --error 0.2",
    "forecast digits.npz --net cnn --n 10000 --accuracy 0.95",
    "forecast pilot.csv --of network --n 5000",
)
_OF = ("kernel", "network")


def forecast(
    data: Data,
    target: Target = None,
    task: Task = None,
    net: NetOption = "auto",
    n: Annotated[
        str | None,
        typer.Option(
            "--n", metavar="N,...", help="Numbers of rows, such as 1000,5000; by default up to 20 times the pilot."
        ),
    ] = None,
    accuracy: Annotated[float | None, typer.Option(help="An accuracy: how many rows does it take?")] = None,
    error: Annotated[
        float | None, typer.Option(help="A mean squared error, or share of wrong classes: how many rows does it take?")
    ] = None,
    of: Annotated[
        str,
        typer.Option(help="kernel: infinite width, in seconds. network: all layers trained by Adam, in minutes."),
    ] = "kernel",
    width: Annotated[int | None, typer.Option(min=1, help="Of networks that are trained; 256 by default.")] = None,
    quick: Quick = False,
    sample: Sample = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The error of a network with more rows than there are, from a labelled pilot; and the rows that a goal takes.

    Network, rows and scaling are those of the report. `--of network` trains some fifty networks on parts of the pilot,
    and says how far they are from their kernel, and which of the two to use.
    """
    sizes = None if n is None else whole_numbers(n, "--n", "1000,5000")
    if accuracy is not None and error is not None:
        raise misuse("choose one of --accuracy and --error.", "--accuracy")
    if of not in _OF:
        raise misuse(f"{of}: expected kernel or network.", "--of")
    if of == "kernel" and width is not None:
        raise misuse("a kernel has no width: add --of network.", "--width")
    with in_a_sentence():
        from .._problem import prepare

        table = read_table(data, target=target, task=task)
        goal = _goal(table.classes is not None, accuracy, error)
        problem = prepare(table, network_for(net, table, "auto"), quick=quick, most=sample, seed=seed)
        known = _known(problem, sizes, goal) if of == "kernel" else _trained(problem, sizes, goal, width)
        print_json(known) if as_json else _print(known) if of == "kernel" else _print_trained(known)


def _goal(classes: bool, accuracy: float | None, error: float | None) -> float | None:
    """An accuracy for classes, a mean squared error for numbers."""
    if accuracy is not None and not classes:
        raise misuse("numbers have no accuracy: give --error.", "--accuracy")
    value, option = (accuracy, "--accuracy") if error is None else (error, "--error")
    if value is None:
        return None
    if not 0 < value < (1 if classes else math.inf):
        expected = "a number above 0 and below 1" if classes else "a number above 0"
        raise misuse(f"{value:g}: expected {expected}.", option)
    return 1 - value if classes and accuracy is None else value


def _known(problem: Any, sizes: tuple[int, ...] | None, goal: float | None) -> dict[str, Any]:
    """Errors in units of the target, squared; the network learns numbers of unit variance."""
    from ..forecasting import ForecastWarning

    unit = problem.unit**2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ForecastWarning)
        curve = problem.forecast(sizes)
        aim = None if goal is None else goal if problem.classes else goal / unit
        needed = None if aim is None else {str(q): curve.samples_needed(aim, quantile=q) for q in (0.5, 0.9)}
    known = problem.to_dict()
    known["notes"] += dict.fromkeys(str(one.message) for one in caught)
    known |= {name: getattr(curve, name) for name in ("level", "exponent", "trusted_to")}
    known |= {name: unit * getattr(curve, name) for name in ("noise", "tail")}
    scaled = [row | {name: unit * row[name] for name in ("error", "low", "high")} for row in curve.table()]
    return known | {"curve": scaled, "goal": goal, "n_needed": needed}


def _trained(problem: Any, sizes: tuple[int, ...] | None, goal: float | None, width: int | None) -> dict[str, Any]:
    """The same of networks that are trained, beside their kernel; errors are shares of wrong classes, or squared."""
    with bar("training networks") as tick:
        curve = problem.forecast(sizes, of="network", width=width, progress=tick)
    unit = problem.unit**2
    aim = goal if goal is None or problem.classes else goal / unit
    needed = None if aim is None else {str(q): curve.samples_needed(aim, quantile=q) for q in (0.5, 0.9)}
    names = ("error", "low", "high", "kernel_error")
    scaled = [row | {name: unit * row[name] for name in names} for row in curve.table()]
    known = problem.to_dict() | {name: getattr(curve, name) for name in ("unit", "level", "width", "failures")}
    known["notes"] += [f"A network failed: {one}." for one in curve.failures]
    moved = None if curve.moved is None else curve.moved._asdict()
    return known | {"curve": scaled, "advice": curve.advice(), "moved": moved, "goal": goal, "n_needed": needed}


def _print_trained(known: dict[str, Any]) -> None:
    note(*known["notes"])
    columns = ("rows", f"network: {known['unit']}", f"{known['level']:.0%} interval", "its kernel", "network is better")
    table = [
        (
            int(row["n"]),
            row["error"],
            f"{number(row['low'], 4)} to {number(row['high'], 4)}",
            row["kernel_error"],
            f"{row['better']:.0%}",
        )
        for row in known["curve"]
    ]
    title = f"Networks of width {known['width']}, trained on {known['n']} rows of {known['data']}: {known['network']}"
    print_table(columns, table, title=title)
    say(known["advice"])
    _say_needed(known)


def _print(known: dict[str, Any]) -> None:
    note(*known["notes"])
    classes = known["task"] == "classification"
    columns = ("rows", "mean squared error", f"{known['level']:.0%} interval", *(("accuracy",) if classes else ()))
    table = [
        (
            int(row["n"]),
            row["error"],
            f"{number(row['low'], 4)} to {number(row['high'], 4)}",
            *((f"{row['accuracy']:.1%}",) if classes else ()),
        )
        for row in known["curve"]
    ]
    title = f"Forecast from {known['n']} rows of {known['data']}. Network: {known['network']}"
    print_table(columns, table, title=title)
    noise, trusted = number(known["noise"], 4), known["trusted_to"]
    say(f"Noise, which more rows will not remove: about {noise}. Trusted to {trusted} rows.")
    _say_needed(known)


def _say_needed(known: dict[str, Any]) -> None:
    if known["n_needed"] is None:
        return
    what = f"{'An accuracy' if known['task'] == 'classification' else 'A mean squared error'} of {known['goal']:g}"
    half, safe = known["n_needed"]["0.5"], known["n_needed"]["0.9"]
    if half == math.inf:
        return say(f"{what} is not reached with any number of rows.")
    sure = "no number of rows reaches it" if safe == math.inf else f"{safe:.0f} rows reach it"
    say(f"{what} takes about {half:.0f} rows; {sure} with probability 90 %.")
