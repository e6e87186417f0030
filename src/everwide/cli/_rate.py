"""`everwide rate`."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from ._faults import in_a_sentence
from ._options import AsJson, Data, Net, Sample, Seed, Standardize, Target, examples
from ._problem import Problem, read_problem
from ._show import bar, note, number, print_json, print_table, say

EPILOG = examples("rate train.csv --target price", "rate train.npz --net cnn --momentum 0.95 --json")
_FRACTIONS = (0.5, 0.9, 0.99)


def rate(
    data: Data,
    net: Net = "mlp",
    target: Target = None,
    momentum: Annotated[float, typer.Option(min=0, max=0.999999, help="Of gradient descent.")] = 0.9,
    standardize: Standardize = True,
    sample: Sample = 2000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The largest stable learning rates of a network on these data, before it is trained.

    Of full batches, for the mean squared loss, in the NTK parametrization; targets are scaled to unit variance, classes
    are indicators.
    """
    with in_a_sentence():
        problem = read_problem(data, net, target=target, standardize=standardize, sample=sample, seed=seed)
        found = _found(problem, momentum)
        for text in () if as_json else problem.notes:
            note(text)
        print_json(problem.described() | found) if as_json else _print(problem, found)


def _found(problem: Problem, momentum: float) -> dict[str, Any]:
    import everwide as ew

    from ..theory.rates import fit_times, stable_rates

    with bar("kernel") as tick:
        watch: Any = lambda p: tick(p.done, p.total, "kernel")
        matrix = ew.ntk(problem.net, problem.x, progress=watch)
    rates = stable_rates(matrix, y=problem.outputs, momentum=momentum)
    times = fit_times(matrix, None, problem.outputs)
    return asdict(rates) | {"fit_times": {f"{share:g}": times.time(share) for share in _FRACTIONS}}


def _print(problem: Problem, found: dict[str, Any]) -> None:
    rows = [
        ("gradient descent", found["gradient_descent"], "diverges above"),
        ("gradient descent, fastest", found["best"], f"a step leaves {found['contraction']:.6f} of a residual"),
        (f"momentum {found['beta']:g}", found["momentum"], "diverges above"),
        ("ADAM*", found["adam_star"], "the first step overshoots above"),
    ]
    title = f"Learning rates on {problem.table.rows} rows of {problem.table.source}"
    print_table(("method", "rate", "meaning"), rows, title=title)
    steps = {share: time / found["best"] for share, time in found["fit_times"].items()}
    rows = [(f"{float(share):.0%}", found["fit_times"][share], steps[share]) for share in steps]
    print_table(("of the target learned", "time of gradient flow", "steps at the fastest rate, about"), rows)
    say(
        f"Eigenvalues of the kernel from {number(found['lambda_min'])} to {number(found['lambda_max'])}, condition "
        f"number {number(found['condition_number'])}."
    )
