"""Where the network stands between order and chaos, and where signals would be kept."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..._problem import Problem
from ..._words import count, number
from ...activations import AbstractActivation
from ...layers import AbstractLayer
from ...signal import ArchitectureError
from ...theory.criticality import critical, critical_init, phase_diagram, susceptibilities
from .._page import BLUE, GREEN, MUTED, Fact, Figure, Grid, Section, Text

_MEANING = {
    "ordered": "Deep down, every layer makes different rows more alike. Fine for a few layers; much deeper networks "
    "forget the input.",
    "chaotic": "Deep down, every layer drives similar rows apart. Fine for a few layers; to much deeper networks all "
    "rows are equally unlike.",
    "critical": "Differences between rows neither die out nor blow up exponentially: you may go deeper.",
}
_SLOW = 1e-3  # growth of signals by a layer, above 1, that is that of the biases


class Block(NamedTuple):
    """Weights that read an activation, with their variances: what a deep network repeats."""

    activation: AbstractActivation
    C_w: float
    C_b: float


@dataclass(frozen=True, eq=False)
class Phase:
    """The phase of the block that the network repeats, beside its critical point.

    - `critical`: `kind`, and variances `C_w`, `C_b` and more, or the `reason` why there are none. `line`: where the
      phases meet, `(C_w, C_b)`. `depth_scale`: layers over which differences fade by a factor e.
    - `not_tuned_because`: why `net.critical()` refuses the network; empty where it does not.
    """

    activation: str
    phase: str
    C_w: float
    C_b: float
    K_star: float
    chi_parallel: float
    chi_perpendicular: float
    depth_scale: float
    critical: dict[str, Any]
    line: Float[np.ndarray, "points 2"]
    not_tuned_because: str


def phase(problem: Problem) -> Phase:
    """The phase of the network's own variances beside the critical ones."""
    block = repeated_block(problem.net)
    point = critical_init(block.activation)
    diagram = phase_diagram(block.activation, C_w=block.C_w, C_b=block.C_b)
    name, fixed = str(diagram.phase[()]), float(diagram.K_star)
    chi = susceptibilities(block.activation, min(fixed, 1e6) if fixed > 0 else 1.0, block.C_w)
    known = {"reason": point.reason} if point.numbers is None else point.numbers._asdict()
    return Phase(
        activation=point.name,
        phase=name,
        C_w=block.C_w,
        C_b=block.C_b,
        K_star=fixed,
        chi_parallel=float(chi.parallel),
        chi_perpendicular=float(chi.perpendicular),
        depth_scale=0.0 if name == "unbounded" else max(float(diagram.xi_par), float(diagram.xi_perp)),
        critical={"kind": str(point.kind), **known},
        line=diagram.line[:: max(1, len(diagram.line) // 80)],
        not_tuned_because=_not_tuned_because(problem.net),
    )


def repeated_block(net: AbstractLayer) -> Block:
    """The most frequent one, the first among equals; the read-out only where nothing else reads an activation."""
    blocks, activation = [], None
    for layer in _chain(net):
        maps = list(layer.weights().values())
        if isinstance(layer, AbstractActivation):
            activation = layer
        elif layer.parts().layers or len(maps) > 1:
            activation = None  # a branch or attention: what follows does not read the activation
        elif maps and activation is not None:
            bias = 0.0 if maps[0].b_std is None else float(maps[0].b_std)
            blocks.append(Block(activation, float(maps[0].w_std) ** 2, bias**2))
            activation = None
    if not blocks:
        raise ArchitectureError("no weights of this network read an activation in a plain chain.")
    hidden = blocks[:-1] or blocks
    times = Counter(map(repr, hidden))
    return max(hidden, key=lambda block: times[repr(block)])


def _chain(layer: AbstractLayer) -> list[AbstractLayer]:
    """Chains are opened, and repetitions written out."""
    parts = layer.parts()
    return [inner for part in parts.in_a_row() for inner in _chain(part)] if parts.is_chain else [layer]


def _not_tuned_because(net: AbstractLayer) -> str:
    try:
        critical(net)
    except ArchitectureError as fault:
        return str(fault)
    return ""


def _text(problem: Problem, result: Phase) -> Text:
    facts = (
        Fact("Phase", result.phase, _MEANING.get(result.phase) or _grows(result)),
        _depth(result),
        Fact(
            "Growth of small differences",
            number(result.chi_perpendicular),
            "What a layer deep down does to the squared distance of two similar rows, and to squared gradients on "
            "their way back. Near 1 is what deep networks need.",
        ),
        _critical(result),
    )
    notes = (f"Variances are those of the weights (times their fan-in) and biases around {result.activation}.",)
    return Text(facts, notes=notes, grids=(_grid(result),))


def _grows(result: Phase) -> str:
    """Of signals that never settle."""
    if result.chi_parallel < 1 + _SLOW:
        return f"Signals grow by the variance of the biases, {number(result.C_b)}, with every layer: slowly."
    return (
        f"Signals grow, in the end by a factor of {number(result.chi_parallel)} with every layer. Shallow networks "
        "bear it; take the critical values to go deeper."
    )


def _depth(result: Phase) -> Fact:
    label, layers = "Depth scale", result.depth_scale
    if result.phase == "unbounded":
        return Fact(label, "none", "Signals do not settle, so that there is none.")
    if not math.isfinite(layers):
        meaning = "Differences between rows do not fade exponentially: depth is limited by other things."
        return Fact(label, "unlimited", meaning)
    gone, value = count(6 * layers), f"{number(layers, 2)} layers"
    if result.phase == "chaotic":
        meaning = (
            "What tells one pair of rows from another fades by a factor e over so many layers, and all pairs come to "
            f"the same distance. Beyond about {gone} layers hardly anything of it is left."
        )
        return Fact(label, value, meaning)
    meaning = f"Differences fade by a factor e over so many layers. Beyond about {gone} layers hardly anything is left."
    return Fact(label, value, meaning)


def _critical(result: Phase) -> Fact:
    label, point = "Critical initialization", result.critical
    if point["kind"] == "none":
        meaning = f"{result.activation} has none: {point['reason']} Use Relu, Gelu or Tanh for deep networks."
        return Fact(label, "none", meaning)
    value = f"w_std {number(math.sqrt(point['C_w']))}, b_std {number(math.sqrt(point['C_b']))}"
    if math.isclose(point["C_w"], result.C_w, rel_tol=1e-3) and abs(point["C_b"] - result.C_b) < 1e-6:
        return Fact(label, value, "The network is there already. Keep these when you make it deeper.")
    door = "" if result.not_tuned_because else ", or net.critical(),"
    return Fact(label, value, f"Use these{door} before you make the network much deeper.")


def _grid(result: Phase) -> Grid:
    names = (("variance of weights, C_w", "C_w", result.C_w), ("variance of biases, C_b", "C_b", result.C_b))
    rows = tuple(
        (label, number(own, 4), number(result.critical[name], 4) if name in result.critical else "none")
        for label, name, own in names
    )
    return Grid("This network beside the critical point", ("", "this network", "critical"), rows)


def _draw(figure: Any, result: Phase) -> None:
    ax, point, line = figure.subplots(), result.critical, result.line
    right = 2 * max(result.C_w, point.get("C_w", 0.0), 0.5)
    top = 2 * max(result.C_b, point.get("C_b", 0.0), 0.1)
    inside = line[(line[:, 0] <= right) & (line[:, 1] <= top)] if len(line) else line
    if len(inside) > 1 and np.ptp(inside[:, 1]) > 0:
        ax.plot(inside[:, 0], inside[:, 1], color=GREEN, label="critical line")
        _sides(ax, "ordered", "chaotic")
    elif "C_w" in point:
        ax.axvline(point["C_w"], color=GREEN, linewidth=1.2)
        _sides(ax, "ordered", "signals grow")
    if "C_w" in point:
        ax.plot(point["C_w"], point["C_b"], "D", color=GREEN, markersize=8, label="critical point", clip_on=False)
    ax.plot(result.C_w, result.C_b, "o", color=BLUE, markersize=9, label="this network", clip_on=False)
    ax.set(xlabel="variance of weights", ylabel="variance of biases", xlim=(0, right), ylim=(-0.02 * top, top))
    figure.legend(loc="outside upper left", ncols=3)


def _sides(ax: Any, left: str, right: str) -> None:
    ax.text(0.03, 0.93, left, transform=ax.transAxes, color=MUTED, va="top")
    ax.text(0.97, 0.93, right, transform=ax.transAxes, color=MUTED, ha="right", va="top")


_CAPTION = "Variances of weights and biases: those of this network beside the critical ones of its activation."
SECTION = Section(
    "phase",
    "Order, chaos and the initialization between them",
    "Would a deeper network of this kind still tell your rows apart?",
    measure=phase,
    describe=_text,
    figure=Figure(_draw, 2.9, _CAPTION),
)
