"""A module of PyTorch, Flax or Equinox as a network of any width."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .._checks import InputError, example_shape, whole
from .._frameworks import framework_of, is_of
from .._words import listed, several
from ..layers import AbstractLayer
from ..signal import ArchitectureError, Parametrization, Signal
from ._build import Pieces, built, pieces_of
from ._graph import At, Graph, Outcome
from ._layout import BATCH, Untranslatable, Value
from ._ops import flattened
from ._table import Row, examined
from ._weights import Census, Variances

Instead = Mapping[str, AbstractLayer | Callable[[Any], AbstractLayer]]


@dataclass(frozen=True)
class Translation:
    """What `everwide.from_module` returns: `print` it, or read `net`.

    - `net`: the network. `input_shape`: of one example, sites first and channels last.
    - `rows`: what became of every layer, each with its `place`, `module`, `layer`, `outcome` and `note`.
    - `parametrization`: in which the tangent kernel is that of the module: its framework's, "standard".
    - `channels`: the axis of the channels in an example of the module; `None` where it reads tokens.
    """

    net: AbstractLayer
    input_shape: tuple[int, ...]
    rows: tuple[Row, ...]
    module: str
    framework: str
    channels: int | None
    parametrization: Parametrization = Parametrization.STANDARD

    def examples(self, x: Any) -> np.ndarray:
        """A batch as the module reads it, as the network reads it: channels last.

        Args:
            x: `(n, *shape)`, where shape is the `input_shape` that the module was translated for.

        Returns:
            `(n, *sites, channels)`; tokens have one channel.
        """
        batch = np.asarray(x)
        if self.channels is None and batch.ndim == len(self.input_shape):
            return batch[..., None]
        if batch.ndim != len(self.input_shape) + 1:
            raise InputError(f"x has shape {batch.shape}, expected a batch of examples (n, *input_shape).")
        return batch if self.channels is None else np.moveaxis(batch, self.channels + 1, -1)

    def __str__(self) -> str:
        head = ("place", self.module, "everwide", "outcome", "note")
        cells = [head, *((r.place, r.module, r.layer, str(r.outcome), r.note) for r in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]
        lines.insert(1, "  ".join("-" * w for w in widths))
        return "\n".join([*lines, self.summary])

    @property
    def summary(self) -> str:
        """In a sentence: how much of the module is exact."""
        amount = {outcome: sum(row.outcome is outcome for row in self.rows) for outcome in Outcome}
        changes = several(amount[Outcome.CHANGED], "has", "have")
        sampled = f", {several(amount[Outcome.SAMPLED], 'is', 'are')} sampled" if amount[Outcome.SAMPLED] else ""
        return (
            f"{several(len(self.rows), 'layer')} of {self.module} ({self.framework}) in the limit of infinite width: "
            f"{amount[Outcome.EXACT]} exact, {changes} a stated change{sampled}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything in plain types."""
        rows = [{**vars(row), "outcome": str(row.outcome)} for row in self.rows]
        return {
            "module": self.module,
            "framework": self.framework,
            "input_shape": list(self.input_shape),
            "parametrization": str(self.parametrization),
            "rows": rows,
        }


def from_module(
    module: Any,
    input_shape: Sequence[int],
    *,
    instead: Instead | None = None,
    variances: Variances | str = Variances.CHECKED,
) -> Translation:
    """The limit of infinite width of a module of PyTorch, Flax NNX or Equinox, with a table of what became of it.

    Weights get the variances of the framework's own initialization; widths, and the sizes of biases, are those of the
    module. Modules are read on shapes: nothing is computed, and the module is never changed. In PyTorch, residual sums,
    concatenations, products and functional calls are read through `torch.fx`; in JAX, through the trace of a call.

    Args:
        module: An instance. Modes count: in evaluation mode dropout does nothing, and batch normalization divides by
            the statistics that it begins with; in training mode it has no limit here.
        input_shape: Of one example as the module reads it, without the batch: `(3, 32, 32)` for PyTorch's images.
        instead: Layers of everwide that stand for those that have no known limit, by their place (`"features.3"`) or by
            the name of their class (`"BatchNorm2d"`): a layer, or a function of the module's layer that returns one.
        variances: "checked": the framework's, and the module's weights must agree with them; "framework": the same,
            whatever the weights are; "measured": the mean squares of the weights as they are.

    Returns:
        The translation: `print` it for the table. `net` is the network, `input_shape` what it reads, and `examples(x)`
        brings a batch of the module's to it; `rows` is the table, `parametrization` the one in which `everwide.ntk` is
        the module's own tangent kernel. `ArchitectureError` where something has no known limit, with a list.

    >>> import equinox as eqx, everwide as ew, jax
    >>> mlp = eqx.nn.MLP(8, 1, 64, 2, key=jax.random.key(0))
    >>> limit = ew.from_module(mlp, (8,))
    >>> [row.layer for row in limit.rows][:2]
    ['Dense(64, w_std=0.5774, b_std=0.2041)', 'Relu']
    >>> ew.ntk(limit.net, jax.numpy.eye(8), parametrization=limit.parametrization).shape
    (8, 8)

    """
    given = tuple(whole(size, "In input_shape, size") for size in example_shape(input_shape))
    if not given:
        raise InputError(
            "input_shape=(): expected the shape of one example as the module reads it, such as (3, 32, 32)."
        )
    wanted, chosen = dict(instead or {}), Variances(variances)
    framework = _framework(module)
    best = _best([partial(_reading, framework, module, given, axis, wanted, chosen) for axis in framework.axes(given)])
    if best.unknown:
        raise ArchitectureError(_refusal(type(module).__name__, best))
    _require_used(best.graph, wanted)
    best.graph.census.require_untrained(type(module).__name__)
    net, shape = built(best.pieces, best.graph.output), best.graph.nodes[0].shape
    net.describe(Signal(shape))
    channels = best.channels if len(shape) == len(given) else None
    return Translation(net, shape, tuple(best.rows), type(module).__name__, framework.name, channels)


@dataclass(frozen=True)
class Framework:
    """Where a module comes from: how it is read, and which axes of an example may be its channels."""

    name: str
    read: Callable[[Graph, Any, Sequence[int], int], Value]
    channels_last: bool

    def axes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Those to try for the channels. Sequences mostly have them last, images first."""
        rank = len(shape)
        if rank == 1 or self.channels_last:
            return (rank - 1,)
        return (rank - 1, 0) if rank == 2 else (0, rank - 1)


@dataclass(frozen=True)
class _Reading:
    graph: Graph
    pieces: Pieces
    rows: list[Row]
    channels: int

    @property
    def unknown(self) -> list[Row]:
        return [row for row in self.rows if row.outcome is Outcome.UNKNOWN]


def _best(readings: Sequence[Callable[[], _Reading]]) -> _Reading:
    """Of the ways to see the axes of an example, the one of which most is understood."""
    done, faults = [], []
    for reading in readings:
        try:
            done.append(reading())
        except ArchitectureError as fault:
            faults.append(fault)
    if not done:
        raise faults[0]
    return min(done, key=lambda one: (len(one.unknown), len(one.pieces.sampled)))


def _reading(
    framework: Framework, module: Any, shape: tuple[int, ...], axis: int, instead: Instead, variances: Variances
) -> _Reading:
    graph = Graph(instead, Census(framework.name, variances))
    value = framework.read(graph, module, shape, axis)
    try:
        for i, group in enumerate(value.groups):  # what was flattened at the end, and nobody has read
            one_number = BATCH in group and all(value.size[label] == 1 for label in group if label != BATCH)
            value = value if one_number or len(group) == 1 else flattened(graph, value, i)
    except Untranslatable as fault:
        value = graph.refuse(At("", "output"), [value], str(fault), None)
    graph.output = value.node
    pieces = pieces_of(graph)
    pieces.piece(graph.output)
    return _Reading(graph, pieces, examined(pieces), axis)


def _framework(module: Any) -> Framework:
    """How a module is read; frameworks are imported with their readers only."""
    name = framework_of(module)
    if name == "PyTorch":
        from ._torch import read_torch

        return Framework(name, read_torch, channels_last=False)
    if name == "Flax NNX":
        from ._nnx import read_nnx

        return Framework(name, read_nnx, channels_last=True)
    if name == "Equinox":
        from ._equinox import read_equinox

        return Framework(name, read_equinox, channels_last=False)
    if isinstance(module, AbstractLayer):
        raise InputError(f"{type(module).__name__} is a network of everwide already: use it as it is.")
    raise InputError(
        f"Expected an instance of a PyTorch, Flax NNX or Equinox module that can be called, got {_described(module)}"
    )


def _described(module: Any) -> str:
    if isinstance(module, type):
        return f"the class {module.__name__}. Make an instance of it."
    if is_of(module, "flax.linen", "Module"):
        return f"a Flax Linen module, {type(module).__name__}, which has no weights of its own. Write it in flax.nnx."
    return f"a {type(module).__name__}. A function has no layers to read; its kernel is everwide.empirical_ntk."


def _require_used(graph: Graph, instead: Instead) -> None:
    spare = [key for key in instead if key not in graph.used]
    if spare:
        known = sorted({one for node in graph.nodes for one in (node.at.place, node.at.kind) if one})
        raise InputError(
            f"instead: there is no {spare[0]!r} in the module. Places and kinds: {listed(known, most=12)}."
        )


def _refusal(module: str, reading: _Reading) -> str:
    lines = [f"- {row.place or 'input'} ({row.module}): {row.note}." for row in reading.unknown]
    amount = several(len(lines), "place")
    return "\n".join(
        (
            f"{module} has {amount} without a known limit:",
            *lines,
            "instead={place or kind: layer} puts a layer of everwide there.",
        )
    )
