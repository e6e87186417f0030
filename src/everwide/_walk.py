"""Walks through the layers of a network: every rule that reads networks is one over these."""

from dataclasses import dataclass

from ._hyper import name
from .layers import AbstractLayer, Dense, Parts
from .signal import ArchitectureError


@dataclass(frozen=True)
class Visit:
    """A layer and its place in a network; `times`: how often it is repeated, all repetitions around it counted."""

    layer: AbstractLayer
    place: str
    times: int = 1

    @property
    def parts(self) -> Parts:
        """What is inside."""
        return self.layer.parts()

    def inside(self) -> list["Visit"]:
        """The parts."""
        parts, times = self.parts, self.times * self.parts.times
        return [Visit(layer, f"{self.place}[{i}] {name(layer)}", times) for i, layer in enumerate(parts.layers)]

    def refusal(self, what: str, why: str = "") -> ArchitectureError:
        """The one message for what a rule does not know: `what` cannot be done, and why."""
        return ArchitectureError(f"{self.place} cannot be {what}: {why or self.unknown}.")

    @property
    def unknown(self) -> str:
        """Why a rule that has not heard of the layer refuses it."""
        own = f"it joins its parts by {self.parts.join!r}, about which nothing is known here"
        return own if self.parts.join else f"nothing is known here about layers of the type {name(self.layer)}"


def visit(net: AbstractLayer) -> Visit:
    """Where a walk begins."""
    return Visit(net, name(net))


def walk(net: AbstractLayer) -> list[Visit]:
    """All layers of a network, containers before what they contain, in the order in which they run.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Repeat(ew.Dense(), 3), ew.Relu())
    >>> [(one.place, one.times) for one in walk(net)]
    [('Serial', 1), ('Serial[0] Repeat', 1), ('Serial[0] Repeat[0] Dense', 3), ('Serial[1] Relu', 1)]
    """
    todo, visits = [visit(net)], []
    while todo:
        visits.append(todo.pop(0))
        todo = visits[-1].inside() + todo
    return visits


def with_outputs(net: AbstractLayer, channels: int) -> AbstractLayer:
    """The same network with another number of outputs: it must end with `Dense`."""
    return _with_outputs(visit(net), channels)


def _with_outputs(at: Visit, channels: int) -> AbstractLayer:
    if isinstance(at.layer, Dense):
        old = at.layer.affine
        return Dense(channels, w_std=old.w_std, b_std=old.b_std, frozen=old.frozen)
    if at.parts.join == "chain" and at.parts.layers:
        return at.layer.with_parts([*at.parts.layers[:-1], _with_outputs(at.inside()[-1], channels)])
    raise at.refusal(f"given {channels} outputs", "the network does not end with a Dense layer")
