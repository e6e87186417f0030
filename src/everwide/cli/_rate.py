"""`everwide rate`: from a table of labelled rows."""

import functools
from typing import Annotated, Any

import typer

from .._walk import walk, with_outputs
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
    examples,
    in_a_sentence,
    misuse,
    network_for,
    note,
    print_json,
    print_table,
    say,
)

EPILOG = examples("rate train.csv --target price", "rate train.npz --net cnn --momentum 0.95 --trial adam --json")
_FRACTIONS = (0.5, 0.9, 0.99)
_TRIALS = ("sgd", "momentum", "adam")
_TRIED_ROWS = 256


def rate(
    data: Data,
    target: Target = None,
    task: Task = None,
    net: NetOption = "auto",
    momentum: Annotated[float, typer.Option(min=0, max=0.999999, help="Of gradient descent.")] = 0.9,
    trial: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(_TRIALS), help="Train a finite network at many rates, to recommend one: minutes."
        ),
    ] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Of the network of the trial; 256 by default.")] = None,
    steps: Annotated[
        int | None, typer.Option(min=32, help="Of the training that the trial is for; 200 by default.")
    ] = None,
    quick: Quick = False,
    sample: Sample = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Learning rates of a network on these data, before it is trained: those of the report, and a trial if you ask.

    Without a trial: of full batches, for the mean squared loss, in the NTK parametrization. Targets are scaled to unit
    variance, classes are indicators, columns are scaled as the report scales them.
    """
    _check(trial, width, steps)
    with in_a_sentence():
        from .._problem import prepare
        from ..theory.rates import fit_times, stable_rates

        table = read_table(data, target=target, task=task)
        network = network_for(net, table, "auto")
        problem = prepare(table, network, quick=quick, most=sample, seed=seed)
        kernel, y = problem.kernel.ntk, problem.y
        rates, times = stable_rates(kernel, y=y, momentum=momentum, net=problem.net), fit_times(kernel, None, y)
        known = problem.to_dict() | vars(rates) | {"fit_times": {f"{one:g}": times.time(one) for one in _FRACTIONS}}
        known |= {
            "layers": _layers(problem.net),
            "trial": _tried(problem, trial, width or 256, steps or 200, momentum, seed),
        }
        print_json(known) if as_json else _print(known, momentum)


def _check(trial: str | None, width: int | None, steps: int | None) -> None:
    if trial not in (None, *_TRIALS):
        raise misuse(f"{trial!r}: expected one of {', '.join(_TRIALS)}.", "--trial")
    for option, value in (("--width", width), ("--steps", steps)):
        if trial is None and value is not None:
            raise misuse("it belongs to a trial: add --trial adam.", option)


def _layers(net: Any) -> str:
    """What the network is made of, in a line."""
    shown = [at for at in walk(net) if not at.parts.join]
    return ", ".join(
        type(at.layer).__name__
        + (f" x {at.times}" if at.times > 1 else "")
        + (" (not trained)" if any(one.frozen for one in at.layer.weights().values()) else "")
        for at in shown
    )


def _tried(problem: Any, trial: str | None, width: int, steps: int, momentum: float, seed: int) -> Any:
    """What `recommended_rate` says, as plain numbers; Adam in the standard parametrization, as frameworks have it."""
    if trial is None:
        return None
    import jax
    import optax

    from ..theory.rates import recommended_rate

    optimizers = {"sgd": optax.sgd, "momentum": functools.partial(optax.sgd, momentum=momentum), "adam": optax.adam}
    x, y = problem.x[:_TRIED_ROWS], problem.y[:_TRIED_ROWS]  # they are in random order
    law, net = "standard" if trial == "adam" else "ntk", with_outputs(problem.net, y.shape[1])
    params = net.init(jax.random.key(seed), x.shape[1:], width=width, parametrization=law)
    recommended = recommended_rate(net, params, x, y, optimizers[trial], steps=steps, seed=seed)
    names = ("rate", "warmup", "loss", "spike", "trains_to", "fails_from", "diverges", "steps", "cost")
    about = {"optimizer": trial, "width": width, "parametrization": law, "n": len(x)}
    return about | {name: getattr(recommended, name) for name in names}


def _print(known: dict[str, Any], momentum: float) -> None:
    note(*known["notes"])
    low, high = known["diverges"]
    rows = [
        ("gradient descent", known["gradient_descent"], "edge of the lazy regime: infinite width diverges above"),
        ("gradient descent, fastest", known["best"], f"a step leaves {known['contraction']:.6f} of a residual"),
        (f"momentum {momentum:g}", known["momentum"], "edge of the lazy regime"),
        ("ADAM*", known["adam_star"], "the first step overshoots above"),
    ]
    title = f"Learning rates on {known['n']} rows of {known['data']}. Network: {known['network']}"
    print_table(("method", "rate", "meaning"), rows, title=title)
    say(f"Its layers: {known['layers']}.")
    say(_above(low, high))
    rows = [(f"{float(share):.0%}", time, time / known["best"]) for share, time in known["fit_times"].items()]
    print_table(("of the target learned", "time of gradient flow", "steps at the fastest rate, about"), rows)
    say(
        f"Eigenvalues of the kernel from {number(known['lambda_min'], 4)} to {number(known['lambda_max'], 4)}, "
        f"condition number {number(known['condition_number'], 4)}."
    )
    say(_recommended(known["trial"]) if known["trial"] else "For a network of your width and optimizer: --trial adam.")


def _above(low: float, high: float) -> str:
    if low == high:
        return "Only its last layer is trained, so networks of finite width diverge above nearly the same edge."
    return (
        "Networks of finite width are not lazy: above the edge their loss spikes, and then they train. Of this kind, "
        f"they were seen to diverge from a rate of {number(low, 3)} on, or as late as {number(high, 3)} (gradient "
        "descent; with momentum there is less room)."
    )


def _recommended(trial: dict[str, Any]) -> str:
    return (
        f"Tried at width {trial['width']} on {trial['n']} rows, {trial['parametrization']} parametrization, "
        f"{trial['optimizer']}, {trial['steps']} steps, full batches: take the rate {number(trial['rate'], 3)} after a "
        f"warm-up of {trial['warmup']} steps. It trains to {number(trial['trains_to'], 3)} and fails from "
        f"{number(trial['fails_from'], 3)}. The trial took {trial['cost']} steps."
    )
