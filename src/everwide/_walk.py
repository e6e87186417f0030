"""Networks are read before they run: walks through their layers, and the static plan.

Every rule that reads networks is one over `walk`. The plan has shapes, tracked pairs and bytes, layer by layer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from ._checks import example_shape, whole
from ._engine import human
from ._trees import name
from .layers import AbstractLayer, Dense, Parts, RandomAffine, Serial
from .signal import ArchitectureError, Demand, Pairs, Parametrization, Signal

# Arrays that XLA keeps for each one that flows, measured: without sites, and with them (padding, slices).
_TEMPORARIES = (3, 10)


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
        return Dense(channels, w_std=old.w_std, b_std=old.b_std, speed=old.speed, frozen=old.frozen)
    if at.parts.join == "chain" and at.parts.layers:
        return at.layer.with_parts([*at.parts.layers[:-1], _with_outputs(at.inside()[-1], channels)])
    raise at.refusal(f"given {channels} outputs", "the network does not end with a Dense layer")


def unfrozen(net: AbstractLayer) -> AbstractLayer:
    """The same network, all layers of which are trained, at the same speed."""

    def trained(part: Any) -> Any:
        return RandomAffine(part.w_std, part.b_std) if isinstance(part, RandomAffine) else part

    return jax.tree.map(trained, net, is_leaf=lambda part: isinstance(part, RandomAffine))


@dataclass(frozen=True)
class Step:
    """One layer of a plan."""

    name: str
    depth: int
    before: Signal
    after: Signal
    reads: Demand
    writes: Demand
    is_sampled: bool = False  # its limit is an estimate

    def tile_bytes(self, n1: int, n2: int, itemsize: int) -> int:
        """Bytes of what goes in and out for a tile of `n1` by `n2` examples."""
        ends = ((self.before, self.reads), (self.after, self.writes))
        return itemsize * sum(_numbers(signal, demand, n1, n2) for signal, demand in ends)


def _numbers(signal: Signal, demand: Demand, n1: int, n2: int) -> int:
    size = math.prod(signal.sites)
    tracked = {Pairs.NONE: 0, Pairs.SAME_SITE: size, Pairs.ALL_SITES: size**2}
    arrays = 2 if signal.sites else 4  # nngp and ntk; without sites, the two distances
    return arrays * tracked[demand.cross] * n1 * n2 + tracked[demand.own] * (n1 + n2)


def planned(layer: AbstractLayer, signal: Signal, wanted: Demand) -> list[Step]:
    """The steps of a network in the order in which they run."""
    return _planned(layer, signal, wanted, 0)[0]


def _planned(layer: AbstractLayer, signal: Signal, wanted: Demand, depth: int) -> tuple[list[Step], Signal]:
    """The steps of a layer, and what comes out of it: a chain is described by its parts, once."""
    parts, plain = layer.parts(), isinstance(layer, Serial)  # which has no line of its own
    steps, inside, after = [], signal, signal
    demands = parts.demands(wanted)[1:] if parts.is_known else []  # what other parts read is not known
    for i, (inner, writes) in enumerate(zip(parts.layers, demands, strict=False)):
        below, out = _planned(inner, inside.at(i), writes, depth if plain else depth + 1)
        steps += below
        after = replace(out, path=signal.path)
        inside = after if parts.join == "chain" else inside
    if not plain:
        after = layer.describe(signal)
        label = type(layer).__name__ + (f" x {parts.times}" if parts.join == "repeat" else "")
        sampled = not parts.is_known and layer.describe(replace(signal, sampled=False)).sampled
        steps.insert(0, Step(label, depth, signal, after, layer.demand(wanted), wanted, sampled))
    return steps, after


def peak_bytes(steps: Sequence[Step], n1: int, n2: int, itemsize: int) -> int:
    """Bytes of temporaries of a tile, at the most: branches that wait hold their part."""
    largest = max((s.tile_bytes(n1, n2, itemsize) for s in steps), default=0)
    deepest = max((s.depth for s in steps), default=0)
    return (_TEMPORARIES[any(s.before.sites for s in steps)] + deepest) * largest


@dataclass(frozen=True)
class Plan:
    """What `everwide.explain` returns: `print` it, or read `to_dict()`."""

    net: AbstractLayer
    signal: Signal
    steps: tuple[Step, ...]
    examples: int
    itemsize: int

    @cached_property
    def parameters(self) -> int | None:
        """How many numbers `net.init` draws at these widths; `None` where some are open."""
        if self.signal.channels is None or any(step.after.channels is None for step in self.steps):
            return None
        return _drawn(self.net, replace(self.signal, readouts=frozenset()), {})

    @property
    def peak(self) -> int:
        """Bytes of temporaries of a tile."""
        return peak_bytes(list(self.steps), self.examples, self.examples, self.itemsize)

    def __str__(self) -> str:
        rows = [("layer", "input", "output", "reads pairs", "own pairs", "tile")]
        rows += [self._row(s) for s in self.steps]
        widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        lines.insert(1, "  ".join("-" * w for w in widths))
        n, bits = self.examples, 8 * self.itemsize
        lines.append(f"A tile of {n} x {n} examples in float{bits} needs at most {human(self.peak)} of temporaries.")
        if any(s.is_sampled for s in self.steps):
            lines.append("Sampled layers have no known limit: kernels are estimates, with standard errors.")
        if self.parameters is not None:
            lines.append(f"A finite network of these widths has {self.parameters} parameters.")
        return "\n".join(lines)

    def _row(self, s: Step) -> tuple[str, ...]:
        size = s.tile_bytes(self.examples, self.examples, self.itemsize)
        reads = (_pairs(s.reads.cross), _pairs(s.reads.own)) if s.before.sites else ("-", "-")
        label = "  " * s.depth + s.name + (" (sampled)" if s.is_sampled else "")
        return (label, _shape(s.before), _shape(s.after), *reads, human(size))

    def to_dict(self) -> dict:
        """Everything in plain types."""
        return {
            "input_shape": list(self.signal.shape),
            "parametrization": str(self.signal.parametrization),
            "parameters": self.parameters,
            "tile_examples": self.examples,
            "itemsize": self.itemsize,
            "tile_peak_bytes": self.peak,
            "steps": [
                {
                    "layer": step.name,
                    "depth": step.depth,
                    "input": list(step.before.shape),
                    "output": list(step.after.shape),
                    "gaussian": step.after.gaussian,
                    "sampled": step.is_sampled,
                    "cross_pairs": step.reads.cross.name,
                    "own_pairs": step.reads.own.name,
                    "tile_bytes": step.tile_bytes(self.examples, self.examples, self.itemsize),
                }
                for step in self.steps
            ],
        }


def _drawn(layer: AbstractLayer, signal: Signal, known: dict[Any, int]) -> int:
    """How many numbers a layer draws. Layers that are alike are counted once, which is most of a deep network."""
    parts = layer.parts()
    if parts.join == "repeat":
        later = replace(parts.layers[0].describe(signal.at(0)), path=signal.path)
        again = _drawn(parts.layers[0], later, known) if parts.times > 1 else 0
        return _drawn(parts.layers[0], signal, known) + (parts.times - 1) * again
    if not parts.is_known:
        return _drawn_alone(layer, signal, known)
    total = 0
    for i, inner in enumerate(parts.layers):
        total += _drawn(inner, signal, known)
        if parts.join == "chain":
            signal = replace(inner.describe(signal.at(i)), path=signal.path)
    return total


def _drawn_alone(layer: AbstractLayer, signal: Signal, known: dict[Any, int]) -> int:
    leaves, structure = jax.tree.flatten(layer)
    alike = (structure, tuple(jnp.shape(leaf) for leaf in leaves), signal.shape, signal.width)
    if alike not in known:
        drawing = jax.make_jaxpr(lambda key: layer.sample(key, signal))(jax.random.key(0))
        drawn = set(drawing.jaxpr.outvars)  # what is shared is drawn once
        known[alike] = sum(math.prod(one.aval.shape) for one in drawn)
    return known[alike]


def _shape(signal: Signal) -> str:
    return "(" + ", ".join("width" if n is None else str(n) for n in signal.shape) + ")"


def _pairs(pairs: Pairs) -> str:
    return pairs.name.lower().replace("_", " ")


def explain(
    net: AbstractLayer,
    input_shape: tuple[int, ...],
    *,
    width: int | None = None,
    parametrization: Parametrization | str = Parametrization.NTK,
    examples: int = 32,
    itemsize: int = 4,
) -> Plan:
    """The static plan of a network, layer by layer: shapes, the pairs of sites that are tracked, bytes of a tile.

    Args:
        net: the network.
        input_shape: shape of one example, `(*sites, channels)`.
        width: of the layers that leave theirs open.
        parametrization: as in `net.init`.
        examples: rows and columns of the tile.
        itemsize: bytes of a number.

    Returns:
        A plan: `print` it, or read `to_dict()`. `steps` are the layers, each with its `name`, `depth`, the signals
        `before` and `after` it and the pairs that it `reads` and `writes`; `parameters`: how many numbers a finite
        network of these widths has, `None` where some are open. `ArchitectureError` if the network is not legal.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(10))
    >>> plan = ew.explain(net, (32, 32, 3), width=64)
    >>> [step.name for step in plan.steps], plan.parameters
    (['Conv', 'Relu', 'GlobalAvgPool', 'Dense'], 2368)
    """
    law = Parametrization(parametrization)
    signal = Signal(example_shape(input_shape), width=width, parametrization=law)
    cross = Pairs.ALL_SITES if net.describe(signal).sites else Pairs.SAME_SITE
    steps = tuple(planned(net, signal, Demand(cross, Pairs.NONE)))
    return Plan(net, signal, steps, whole(examples, "examples"), whole(itemsize, "itemsize"))
