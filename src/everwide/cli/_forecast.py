"""`everwide forecast`."""

import math
import warnings
from typing import Annotated, Any

import typer

from ._faults import in_a_sentence
from ._options import AsJson, Data, Net, Sample, Seed, Standardize, Target, examples
from ._parse import whole_numbers
from ._problem import Problem, read_problem
from ._show import bar, note, number, print_json, print_table, say

EPILOG = examples(
    "forecast pilot.csv --target price --rows 1000,5000 --error 0.2",
    "forecast digits.npz --net cnn --rows 10000 --accuracy 0.95",
)


def forecast(
    data: Data,
    net: Net = "mlp",
    target: Target = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="N,...", help="Numbers of rows, such as 1000,5000; by default up to 20 times the pilot."),
    ] = None,
    accuracy: Annotated[float | None, typer.Option(help="An accuracy: how many rows does it take?")] = None,
    error: Annotated[
        float | None, typer.Option(help="A mean squared error, or share of wrong classes: how many rows does it take?")
    ] = None,
    standardize: Standardize = True,
    sample: Sample = 2000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The error of a network with more rows than there are, from a labelled pilot; and the rows that a goal takes."""
    asked = None if rows is None else whole_numbers(rows, "--rows", "1000,5000")
    if accuracy is not None and error is not None:
        raise typer.BadParameter("choose one of --accuracy and --error.", param_hint="'--accuracy'")
    with in_a_sentence():
        problem = read_problem(data, net, target=target, standardize=standardize, sample=sample, seed=seed)
        goal = _goal(problem, accuracy, error)
        found = _found(problem, asked, goal, seed)
        for text in () if as_json else found["notes"]:
            note(text)
        print_json(found) if as_json else _print(problem, found)


def _goal(problem: Problem, accuracy: float | None, error: float | None) -> float | None:
    """In the units of `Forecast.samples_needed`: an accuracy for classes, a mean squared error for numbers."""
    classes = problem.table.classes is not None
    if accuracy is not None and not classes:
        raise typer.BadParameter("numbers have no accuracy: give --error.", param_hint="'--accuracy'")
    value, option = (accuracy, "--accuracy") if error is None else (error, "--error")
    if value is None:
        return None
    if not 0 < value < (1 if classes else math.inf):
        expected = "a number above 0 and below 1" if classes else "a number above 0"
        raise typer.BadParameter(f"{value:g}: expected {expected}.", param_hint=f"'{option}'")
    return 1 - value if classes and accuracy is None else value


def _found(problem: Problem, rows: tuple[int, ...] | None, goal: float | None, seed: int) -> dict[str, Any]:
    import everwide as ew

    from ..forecasting import ForecastWarning
    from ..forecasting import forecast as made

    with bar("kernel") as tick:
        watch: Any = lambda p: tick(p.done, p.total, "kernel")
        matrix = ew.ntk(problem.net, problem.x, progress=watch)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ForecastWarning)
        n = None if rows is None else list(rows)
        found = made(matrix, None, problem.labels, n, task=problem.table.task, seed=seed)
        needed = None if goal is None else {str(q): found.samples_needed(goal, quantile=q) for q in (0.5, 0.9)}
    notes = [*problem.notes, *dict.fromkeys(str(one.message) for one in caught)]
    facts = {name: getattr(found, name) for name in ("level", "noise", "tail", "exponent", "trusted_to")}
    return problem.described() | facts | {"curve": found.table(), "goal": goal, "rows_needed": needed, "notes": notes}


def _print(problem: Problem, found: dict[str, Any]) -> None:
    classes = problem.table.classes is not None
    columns = ("rows", "mean squared error", f"{found['level']:.0%} interval", *(("accuracy",) if classes else ()))
    table = [
        (
            int(row["n"]),
            row["error"],
            f"{number(row['low'])} to {number(row['high'])}",
            *((f"{row['accuracy']:.1%}",) if classes else ()),
        )
        for row in found["curve"]
    ]
    print_table(columns, table, title=f"Forecast from {problem.table.rows} rows of {problem.table.source}")
    noise, trusted = number(found["noise"]), found["trusted_to"]
    say(f"Noise, which more rows will not remove: about {noise}. Trusted to {trusted} rows.")
    if found["rows_needed"] is None:
        return
    what = "An accuracy of" if classes else "A mean squared error of"
    half, safe = found["rows_needed"]["0.5"], found["rows_needed"]["0.9"]
    if half == math.inf:
        say(f"{what} {found['goal']:g} is not reached with any number of rows.")
        return
    sure = "no number of rows reaches it" if safe == math.inf else f"{safe:.0f} rows reach it"
    say(f"{what} {found['goal']:g} takes about {half:.0f} rows; {sure} with probability 90 %.")
