"""Networks by name: presets, networks in Python files, activations."""

import difflib

import numpy as np
import typer

from .. import activations
from .._presets import PRESETS, preset, shape_read
from ..activations import AbstractActivation
from ..layers import AbstractLayer
from ..tables import Table
from ._files import load_network, usage

# Those that need no arguments; a test compares them with `everwide.activations`.
# fmt: off
ACTIVATIONS = (
    "Abs", "Cos", "Elu", "Erf", "Exp", "ExpNormalized", "Gabor", "Gaussian", "Gelu", "HardTanh", "LeakyRelu", "Mish",
    "Rbf", "Relu", "Relu6", "Selu", "Sigmoid", "SigmoidLike", "Sign", "Silu", "Sin", "Softplus", "Step", "Tanh",
)
# fmt: on


def network(target: str, shape: tuple[int, ...]) -> AbstractLayer:
    """A preset for examples of that shape, or a network in a file."""
    if target in PRESETS:
        return preset(target, shape)
    if ":" not in target and not target.endswith(".py"):
        near = difflib.get_close_matches(target, PRESETS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise usage(
            f"{target!r}: expected {', '.join(PRESETS)}, or a file and a name in it, such as model.py:net.{hint}"
        )
    return load_network(target)


def network_and_rows(target: str, table: Table) -> tuple[AbstractLayer, np.ndarray]:
    """The network, and the examples in the shape that it reads: flat rows become images where they must."""
    flat = tuple(table.x.shape[1:])
    shape = flat if target == "mlp" else tuple(table.shape)
    net = network(target, shape)
    shape = shape if target in PRESETS else shape_read(net, flat, shape)
    return net, table.x.reshape(table.rows, *shape)


def activation(name: str) -> AbstractActivation:
    """By its name, in whatever case."""
    known = {one.lower(): one for one in ACTIVATIONS}
    bare = name.lower().replace("-", "").replace("_", "").removesuffix("()")
    if bare not in known:
        near = difflib.get_close_matches(bare, list(known), n=1)
        hint = f"Did you mean {known[near[0]]}?" if near else f"Known: {', '.join(ACTIVATIONS)}."
        raise typer.BadParameter(
            f"there is no activation {name!r}. {hint} Others are read from a file: model.py:activation.",
            param_hint="'ACTIVATION'",
        )
    return getattr(activations, known[bare])()


def complete_networks(incomplete: str) -> list[str]:
    """Presets that begin so."""
    return [name for name in PRESETS if name.startswith(incomplete)]


def complete_activations(incomplete: str) -> list[str]:
    """Activations that begin so, in lower case as people type them."""
    return [name.lower() for name in ACTIVATIONS if name.lower().startswith(incomplete.lower())]
