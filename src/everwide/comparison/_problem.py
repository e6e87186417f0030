"""What is compared on which data: checked before anything is trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._checks import InputError
from .._engine import Rows, as_rows, matching
from .._walk import walk
from ..kernel import Edges, Example, Inputs
from ..kernels import Infinite
from ..layers import AbstractLayer, Dropout
from ..signal import ArchitectureError, Parametrization

_LOOKS = 12  # steps at which networks are looked at, at the most


@dataclass(frozen=True)
class Problem:
    """A network, its data, and the steps at which one looks, from 0 on."""

    net: AbstractLayer
    x: Rows
    y: np.ndarray  # (n, outputs), float64
    x_test: Rows
    steps: tuple[int, ...]
    parametrization: Parametrization


def checked_problem(net: Any, x: Any, y: Any, x_test: Any, steps: int, parametrization: Parametrization) -> Problem:
    """Raise `InputError` or `ArchitectureError` on what cannot be compared."""
    if not isinstance(net, AbstractLayer):
        raise TypeError(f"Expected a network (everwide.Serial, everwide.Dense, ...), got {type(net).__name__}.")
    if parametrization not in (Parametrization.NTK, Parametrization.STANDARD):
        raise InputError(
            f"parametrization={parametrization.value!r}: such networks learn features at any width, so there is no "
            'kernel to compare with. Use "ntk" or "standard".'
        )
    _without_noise(net)
    whole_number(steps, "steps")
    rows = as_rows(x)
    test = rows if x_test is None else matching(rows, as_rows(x_test, "x_test"))[1]
    outputs = _outputs(net, rows)
    looks = np.unique(np.round(np.geomspace(1, steps, _LOOKS - 1)).astype(int))
    return Problem(net, rows, _targets(y, len(rows), outputs), test, (0, *looks.tolist()), parametrization)


def whole_number(value: Any, label: str) -> None:
    """Raise unless it is a whole number, 1 or more."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{label}={value!r}: expected a whole number, 1 or more.")


def checked_widths(widths: Sequence[int]) -> tuple[int, ...]:
    """Raise unless there are different widths, all of them 1 or more."""
    if isinstance(widths, int) or not len(widths):
        raise InputError(f"widths={widths!r}: expected at least one width, such as [64, 256, 1024].")
    for width in widths:
        whole_number(width, "width")
    if len(set(widths)) < len(widths):
        raise InputError(f"widths={widths!r}: every width is trained once. Ask for more seeds instead.")
    return tuple(int(width) for width in widths)


def on_host(rows: Rows) -> Inputs:
    """The examples in float64, for analytic kernels."""
    graph = Edges(*rows.graph) if isinstance(rows.graph, tuple) else rows.graph
    return Inputs(rows.x.astype(np.float64), rows.mask, graph)


def on_device(rows: Rows) -> Example:
    """All examples, stacked, in the dtype in which JAX draws parameters."""
    dtype = jnp.result_type(float)
    cast = lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a
    inputs = jax.tree.map(cast, rows.cut(0, len(rows)))
    return Example(inputs.x, inputs.mask, inputs.graph)


def _without_noise(net: AbstractLayer) -> None:
    if any(isinstance(at.layer, Dropout) for at in walk(net)):
        raise ArchitectureError(
            "The network has a Dropout layer: its limit averages over noise, and gradient descent here has none. "
            "Leave Dropout out, to compare."
        )


def _outputs(net: AbstractLayer, x: Rows) -> int:
    signal = Infinite(net, x.x.shape[1:]).output()
    if signal.sites:
        raise ArchitectureError(
            f"The network leaves sites: its output has shape {signal.shape}. End it with Flatten or GlobalAvgPool and "
            "a Dense layer, so that an example has one vector of outputs."
        )
    if signal.channels is None:
        raise ArchitectureError("The last layer leaves its width open. Give it the number of outputs, as in Dense(1).")
    return signal.channels


def _targets(y: Any, examples: int, outputs: int) -> np.ndarray:
    given = np.asarray(y, np.float64)
    shaped = given[:, None] if given.ndim == 1 and outputs == 1 else given
    if shaped.shape != (examples, outputs):
        raise InputError(
            f"y has shape {given.shape}, expected ({examples}, {outputs}): x has {examples} examples and the "
            f"network {outputs} outputs."
        )
    if not np.isfinite(shaped).all():
        raise InputError("y has values that are not finite. Drop these examples.")
    return shaped
