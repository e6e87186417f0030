"""`everwide explain`."""

from typing import Annotated

import typer

from .._engine import human
from ..signal import Parametrization
from ._faults import in_a_sentence
from ._networks import complete_networks, network
from ._options import NET_HELP, AsJson, examples
from ._parse import shape_of
from ._show import print_json, print_table, say

EPILOG = examples("explain resnet --input 32,32,3", "explain model.py:net --input 784 --json")


def explain(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py:NAME", help=NET_HELP, autocompletion=complete_networks, show_default=False)
    ],
    shape: Annotated[
        str, typer.Option("--input", metavar="SITES,CHANNELS", help="Shape of one example, such as 32,32,3 or 784.")
    ],
    width: Annotated[int | None, typer.Option(min=1, help="Width of the layers that leave theirs open.")] = None,
    parametrization: Annotated[Parametrization, typer.Option()] = Parametrization.NTK,
    as_json: AsJson = False,
) -> None:
    """Print what will be computed, layer by layer, without computing it."""
    import everwide as ew

    input_shape = shape_of(shape)
    with in_a_sentence():
        net = network(target, input_shape)
        plan = ew.explain(net, input_shape, width=width, parametrization=parametrization).to_dict()
        print_json(plan) if as_json else _print(plan)


def _print(plan: dict) -> None:
    size = lambda shape: "(" + ", ".join("width" if n is None else str(n) for n in shape) + ")"
    pairs = lambda step, which: step[which].lower().replace("_", " ") if len(step["input"]) > 1 else "-"
    rows = [
        (
            "  " * step["depth"] + step["layer"],
            size(step["input"]),
            size(step["output"]),
            pairs(step, "cross_pairs"),
            pairs(step, "own_pairs"),
            human(step["tile_bytes"]),
        )
        for step in plan["steps"]
    ]
    print_table(("layer", "input", "output", "reads pairs", "own pairs", "tile"), rows)
    n, bits, peak = plan["tile_examples"], 8 * plan["itemsize"], human(plan["tile_peak_bytes"])
    say(f"A tile of {n} x {n} examples in float{bits} needs at most {peak} of temporaries.")
