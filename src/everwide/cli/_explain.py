"""`everwide explain`."""

from typing import Annotated, Any

import typer

from .._engine import human
from ..signal import Parametrization
from ._modules import OwnModule
from ._show import (
    AsJson,
    InputShape,
    NetAgain,
    NetArgument,
    built,
    examples,
    in_a_sentence,
    input_shape_of,
    named_network,
    named_once,
    print_json,
    print_table,
    say,
)

EPILOG = examples("explain resnet --input 32,32,3", "explain --net model.py:net --input 784 --json")


def explain(
    shape: Annotated[str, InputShape],
    net: NetArgument = None,
    again: NetAgain = None,
    width: Annotated[int | None, typer.Option(min=1, help="Width of the layers that leave theirs open.")] = None,
    parametrization: Annotated[
        Parametrization, typer.Option(help="How sizes of weights are split; frameworks have standard.")
    ] = Parametrization.NTK,
    as_json: AsJson = False,
) -> None:
    """Print what will be computed, layer by layer, without computing it."""
    import everwide as ew

    input_shape = input_shape_of(shape)
    with in_a_sentence():
        network, own = named_network(named_once(net, again)), None
        if isinstance(network, OwnModule):
            own = network.translated(input_shape)
            network, input_shape = own.net, own.input_shape
        network = built(network, input_shape)
        plan = ew.explain(network, input_shape, width=width, parametrization=parametrization).to_dict()
        known = plan if own is None else plan | {"translation": own.to_dict()}
        print_json(known) if as_json else _print(plan, own)


def _print(plan: dict, own: Any) -> None:
    if own is not None:
        table = [(row.place, row.module, row.layer, str(row.outcome), row.note) for row in own.rows]
        print_table(("place", own.module, "everwide", "outcome", "note"), table)
        say(own.summary)
    rows = [
        (
            "  " * step["depth"] + step["layer"],
            _size(step["input"]),
            _size(step["output"]),
            _pairs(step, "cross_pairs"),
            _pairs(step, "own_pairs"),
            human(step["tile_bytes"]),
        )
        for step in plan["steps"]
    ]
    print_table(("layer", "input", "output", "reads pairs", "own pairs", "tile"), rows)
    n, bits, peak = plan["tile_examples"], 8 * plan["itemsize"], human(plan["tile_peak_bytes"])
    say(f"A tile of {n} x {n} examples in float{bits} needs at most {peak} of temporaries.")


def _size(shape: list[int | None]) -> str:
    return "(" + ", ".join("width" if n is None else str(n) for n in shape) + ")"


def _pairs(step: dict, which: str) -> str:
    return step[which].lower().replace("_", " ") if len(step["input"]) > 1 else "-"
