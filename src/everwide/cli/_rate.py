"""`everwide rate`."""

from typing import Annotated, Any

import typer

from .._words import number
from ..tables import read_table
from ._networks import named_network
from ._options import AsJson, Data, NetOption, Quick, Sample, Seed, Target, examples, in_a_sentence
from ._show import note, print_json, print_table, say

EPILOG = examples("rate train.csv --target price", "rate train.npz --net cnn --momentum 0.95 --json")
_FRACTIONS = (0.5, 0.9, 0.99)


def rate(
    data: Data,
    target: Target = None,
    net: NetOption = "auto",
    momentum: Annotated[float, typer.Option(min=0, max=0.999999, help="Of gradient descent.")] = 0.9,
    quick: Quick = False,
    sample: Sample = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The largest stable learning rates of a network on these data, before it is trained: those of the report.

    Of full batches, for the mean squared loss, in the NTK parametrization; targets are scaled to unit variance, classes
    are indicators, columns are scaled as the report scales them.
    """
    with in_a_sentence():
        from .._problem import prepare
        from ..theory.rates import fit_times, stable_rates

        table, network = read_table(data, target=target), named_network(net, "auto")
        problem = prepare(table, network, quick=quick, most=sample, seed=seed)
        kernel, y = problem.kernel.ntk, problem.y
        rates, times = stable_rates(kernel, y=y, momentum=momentum), fit_times(kernel, None, y)
        known = problem.to_dict() | vars(rates) | {"fit_times": {f"{one:g}": times.time(one) for one in _FRACTIONS}}
        if as_json:
            return print_json(known)
        for text in known["notes"]:
            note(text)
        _print(known, momentum)


def _print(known: dict[str, Any], momentum: float) -> None:
    rows = [
        ("gradient descent", known["gradient_descent"], "diverges above"),
        ("gradient descent, fastest", known["best"], f"a step leaves {known['contraction']:.6f} of a residual"),
        (f"momentum {momentum:g}", known["momentum"], "diverges above"),
        ("ADAM*", known["adam_star"], "the first step overshoots above"),
    ]
    title = f"Learning rates on {known['n']} rows of {known['data']}. Network: {known['network']}"
    print_table(("method", "rate", "meaning"), rows, title=title)
    rows = [(f"{float(share):.0%}", time, time / known["best"]) for share, time in known["fit_times"].items()]
    print_table(("of the target learned", "time of gradient flow", "steps at the fastest rate, about"), rows)
    say(
        f"Eigenvalues of the kernel from {number(known['lambda_min'], 4)} to {number(known['lambda_max'], 4)}, "
        f"condition number {number(known['condition_number'], 4)}."
    )
