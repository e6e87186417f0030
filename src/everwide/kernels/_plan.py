"""The static plan of a network: shapes, tracked pairs and bytes, layer by layer, before anything runs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..layers import AbstractLayer, Serial
from ..signal import Demand, Pairs, Parametrization, Signal

# Arrays that XLA keeps for each one that flows, measured: without sites, and with them (padding, slices).
_TEMPORARIES = (3, 10)


@dataclass(frozen=True)
class Step:
    """One layer of a plan."""

    name: str
    depth: int
    before: Signal
    after: Signal
    reads: Demand
    writes: Demand

    def tile_bytes(self, n1: int, n2: int, itemsize: int) -> int:
        """Bytes of what goes in and out for a tile of `n1` by `n2` examples."""
        ends = ((self.before, self.reads), (self.after, self.writes))
        return itemsize * sum(_numbers(signal, demand, n1, n2) for signal, demand in ends)


def _numbers(signal: Signal, demand: Demand, n1: int, n2: int) -> int:
    size = math.prod(signal.sites)
    tracked = {Pairs.NONE: 0, Pairs.SAME_SITE: size, Pairs.ALL_SITES: size**2}
    arrays = 2 if signal.sites else 4  # nngp and ntk; without sites, the two distances
    return arrays * tracked[demand.cross] * n1 * n2 + tracked[demand.own] * (n1 + n2)


def walk(layer: AbstractLayer, signal: Signal, wanted: Demand, depth: int = 0) -> Iterator[Step]:
    """The steps of a network in the order in which they run."""
    parts = layer.parts()
    if not isinstance(layer, Serial):  # which has no line of its own
        label = type(layer).__name__ + (f" x {parts.times}" if parts.join == "repeat" else "")
        yield Step(label, depth, signal, layer.describe(signal), layer.demand(wanted), wanted)
        depth += 1
    if not parts.is_known:  # what its parts read is not known
        return
    for i, (inner, writes) in enumerate(zip(parts.layers, parts.demands(wanted)[1:], strict=True)):
        yield from walk(inner, signal.at(i), writes, depth)
        if parts.join == "chain":
            signal = replace(inner.describe(signal.at(i)), path=signal.path)


def peak_bytes(steps: Sequence[Step], n1: int, n2: int, itemsize: int) -> int:
    """Bytes of temporaries of a tile, at the most: branches that wait hold their part."""
    largest = max((s.tile_bytes(n1, n2, itemsize) for s in steps), default=0)
    deepest = max((s.depth for s in steps), default=0)
    return (_TEMPORARIES[any(s.before.sites for s in steps)] + deepest) * largest


@dataclass(frozen=True)
class Plan:
    """What `everwide.explain` returns: `print` it, or read `to_dict()`."""

    shape: tuple[int, ...]
    parametrization: Parametrization
    steps: tuple[Step, ...]
    examples: int
    itemsize: int

    def __str__(self) -> str:
        rows = [("layer", "input", "output", "reads pairs", "own pairs", "tile")]
        rows += [self._row(s) for s in self.steps]
        widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        lines.insert(1, "  ".join("-" * w for w in widths))
        peak = peak_bytes(list(self.steps), self.examples, self.examples, self.itemsize)
        n, bits = self.examples, 8 * self.itemsize
        lines.append(f"A tile of {n} x {n} examples in float{bits} needs at most {_human(peak)} of temporaries.")
        return "\n".join(lines)

    def _row(self, s: Step) -> tuple[str, ...]:
        shape = lambda signal: "(" + ", ".join("width" if n is None else str(n) for n in signal.shape) + ")"
        size = s.tile_bytes(self.examples, self.examples, self.itemsize)
        pairs = lambda p: p.name.lower().replace("_", " ")
        reads = (pairs(s.reads.cross), pairs(s.reads.own)) if s.before.sites else ("-", "-")
        return ("  " * s.depth + s.name, shape(s.before), shape(s.after), *reads, _human(size))

    def to_dict(self) -> dict:
        """Everything in plain types."""
        step = lambda s: {
            "layer": s.name,
            "depth": s.depth,
            "input": list(s.before.shape),
            "output": list(s.after.shape),
            "gaussian": s.after.gaussian,
            "cross_pairs": s.reads.cross.name,
            "own_pairs": s.reads.own.name,
            "tile_bytes": s.tile_bytes(self.examples, self.examples, self.itemsize),
        }
        return {
            "input_shape": list(self.shape),
            "parametrization": str(self.parametrization),
            "tile_examples": self.examples,
            "itemsize": self.itemsize,
            "tile_peak_bytes": peak_bytes(list(self.steps), self.examples, self.examples, self.itemsize),
            "steps": [step(s) for s in self.steps],
        }


def _human(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


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

    Raises `ArchitectureError` if the network is not legal. `examples` and `itemsize` describe the tile.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(10))
    >>> plan = ew.explain(net, (32, 32, 3))
    >>> [step.name for step in plan.steps]
    ['Conv', 'Relu', 'GlobalAvgPool', 'Dense']
    """
    signal = Signal(tuple(input_shape), width=width, parametrization=Parametrization(parametrization))
    cross = Pairs.ALL_SITES if net.describe(signal).sites else Pairs.SAME_SITE
    steps = tuple(walk(net, signal, Demand(cross, Pairs.NONE)))
    return Plan(tuple(input_shape), signal.parametrization, steps, examples, itemsize)
