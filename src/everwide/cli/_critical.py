"""`everwide critical`."""

import math
from typing import Annotated, Any

import typer

from .._walk import walk
from ..activations import AbstractActivation
from ..layers import AbstractLayer
from ._modules import OwnModule, notes_of
from ._show import (
    AsJson,
    InputShape,
    NetAgain,
    activation,
    built,
    complete_activations,
    examples,
    in_a_sentence,
    input_shape_of,
    load_network,
    misuse,
    named_network,
    named_once,
    note,
    print_json,
    print_table,
    say,
)

EPILOG = examples("critical gelu", "critical tanh --json", "critical --net model.py:net --input 32,32,3")
_WHAT = "ACTIVATION|FILE.py:NAME"


def critical(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar=f"[{_WHAT}]",
            help="An activation, such as gelu; or a Python file, which is run, and a network or activation in it.",
            autocompletion=complete_activations,
            show_default=False,
        ),
    ] = None,
    net: NetAgain = None,
    shape: Annotated[str | None, InputShape] = None,
    as_json: AsJson = False,
) -> None:
    """Variances of weights and biases at which signals neither vanish nor explode with depth.

    With --input, two signals are followed through a network, as it is and at its critical point.
    """
    sites = None if shape is None else input_shape_of(shape)[:-1]
    with in_a_sentence():
        subject = _subject(named_once(what, net, _WHAT), shape, by_option=net is not None)
        if isinstance(subject, OwnModule):
            if shape is None:
                raise misuse("a module is read for examples of a shape: name it, such as 3,32,32.", "--input")
            own = subject.translated(input_shape_of(shape))
            subject, sites = own.net, own.input_shape[:-1]
            note(*notes_of(own))
        if isinstance(subject, AbstractActivation):
            if sites is not None:
                raise misuse("signals are followed through a network, not an activation.", "--input")
            facts, show = _of_activation(subject), _print_activation
        else:
            facts, show = _of_network(subject, sites), _print_network
        print_json(facts) if as_json else show(facts)


def _subject(name: str, shape: str | None, *, by_option: bool) -> AbstractLayer | OwnModule:
    """An argument may be an activation, an option a network that has a name; both may be in a file."""
    if ":" in name:
        return load_network(name)
    if not by_option:
        return activation(name)
    named = named_network(name)
    if isinstance(named, str) and shape is None:
        raise misuse(f"{named} is made for examples of a shape: name it, such as 32,32,3.", "--input")
    return named if isinstance(named, OwnModule) else built(named, () if shape is None else input_shape_of(shape))


def _of_activation(subject: AbstractActivation) -> dict[str, Any]:
    from ..theory.criticality import critical_init

    point = critical_init(subject)
    facts: dict[str, Any] = {"activation": point.name, "kind": str(point.kind), "reason": point.reason or None}
    if point.numbers is None:
        return facts
    return facts | point.numbers._asdict() | {"w_std": math.sqrt(point.C_w), "b_std": math.sqrt(point.C_b)}


def _print_activation(facts: dict[str, Any]) -> None:
    if "w_std" not in facts:
        say(f"{facts['activation']} has no critical point: {facts['reason']}")
        return
    say(f"{facts['activation']}: {facts['kind']}")
    meanings = {
        "w_std": "of the weights: Dense(w_std=...)",
        "b_std": "of the biases: Dense(b_std=...)",
        "C_w": "variance of the weights, times the fan-in",
        "C_b": "variance of the biases",
        "K_star": "the variance that is kept",
        "a1": "how variances leave it",
        "b1": "how angles do",
        "depth_scale": "layers after which a deviation has halved",
    }
    print_table(("number", "value", "meaning"), [(name, float(facts[name]), text) for name, text in meanings.items()])


def _of_network(net: AbstractLayer, sites: tuple[int, ...] | None) -> dict[str, Any]:
    from ..theory.criticality import critical as tuned_network
    from ..theory.criticality import propagate

    tuned = tuned_network(net)
    facts: dict[str, Any] = {"weights": _weights(tuned)}
    if sites is not None:
        ends = {"as it is": propagate(net, sites=sites), "critical": propagate(tuned, sites=sites)}
        facts["signals"] = [
            {"network": name, "variance": float(end.variance[-1]), "correlation": float(end.correlation[-1])}
            for name, end in ends.items()
        ]
    return facts


def _weights(net: AbstractLayer) -> list[dict[str, Any]]:
    """Standard deviations of all weights, in the order in which they are passed."""
    rows = []
    for visit in walk(net):
        times = f"{visit.times} x " if visit.times > 1 else ""
        for affine in visit.layer.weights().values():
            bias = None if affine.b_std is None else float(affine.b_std)
            rows.append({"layer": f"{times}{type(visit.layer).__name__}", "w_std": float(affine.w_std), "b_std": bias})
    return rows


def _print_network(facts: dict[str, Any]) -> None:
    rows = [(row["layer"], row["w_std"], "-" if row["b_std"] is None else row["b_std"]) for row in facts["weights"]]
    print_table(("weights", "w_std", "b_std"), rows, title="Critical standard deviations (net.critical())")
    if "signals" in facts:
        columns = ("network", "variance", "correlation")
        rows = [tuple(row[name] for name in columns) for row in facts["signals"]]
        print_table(columns, rows, title="After the last layer, of two inputs of variance 1 and correlation 0.5")
