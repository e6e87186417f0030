"""Where the network stands between order and chaos, and where signals would be kept."""

import math
from typing import Any, NamedTuple

from ...activations import AbstractActivation
from ...layers import AbstractLayer, Conv, ConvLocal, ConvTranspose, Dense, Repeat, Serial
from ...signal import ArchitectureError
from ...theory.criticality import CriticalPoint, Kind, critical, critical_init, phase_diagram, susceptibilities
from .._words import count, number
from ._problem import Problem
from ._section import Fact, Grid, Section

KEY, TITLE = "phase", "Order, chaos and the initialization between them"
QUESTION = "Would a deeper network of this kind still tell your rows apart?"
_Weights = Dense | Conv | ConvLocal | ConvTranspose
_MEANING = {
    "ordered": "Every layer makes different rows more alike. Fine for a few layers; much deeper ones forget the input.",
    "chaotic": "Every layer drives similar rows apart. Fine for a few layers; much deeper ones memorize.",
    "critical": "Depth neither blurs nor scatters the rows: you may go deeper without retuning.",
    "unbounded": "Signals grow from layer to layer. Shallow networks bear it; take the critical values to go deeper.",
}


class Pair(NamedTuple):
    """Weights that read an activation: the kind of block that a deep network repeats."""

    activation: AbstractActivation
    weights: Any


def phase(problem: Problem) -> Section:
    """The phase of the network's own variances beside the critical ones."""
    found = _pairs(problem.net)
    if not found:
        raise ArchitectureError("no weights of this network read an activation in a plain chain.")
    activation, weights = found[-1] if len(found) == 1 else found[0]
    own_w, own_b = _variances(weights)
    point = critical_init(activation)
    diagram = phase_diagram(activation, C_w=own_w, C_b=own_b)
    here, fixed = str(diagram.phase[()]), float(diagram.K_star)
    at = min(fixed, 1e6) if fixed > 0 else 1.0
    chi = susceptibilities(activation, at, own_w)
    depth = _depth_scale(here, float(diagram.xi_par), float(diagram.xi_perp))
    numbers = {
        "activation": point.name,
        "phase": here,
        "C_w": own_w,
        "C_b": own_b,
        "K_star": fixed,
        "chi_parallel": float(chi.parallel),
        "chi_perpendicular": float(chi.perpendicular),
        "depth_scale": depth,
        "critical": _critical_numbers(point),
        "line": diagram.line[:: max(1, len(diagram.line) // 80)],
        "tuned": _tuned(problem.net),
    }
    facts = (
        Fact("Phase", here, _MEANING[here]),
        Fact("Depth scale", _layers(depth), _about_depth(depth)),
        Fact(
            "Growth of small differences",
            number(float(chi.perpendicular)),
            "What a layer does to the squared distance of two similar rows, and to squared gradients on their way "
            "back. Near 1 is what deep networks need.",
        ),
        _critical_fact(point, own_w, own_b),
    )
    notes = (f"Variances are those of the weights (times their fan-in) and biases around {point.name}.",)
    return Section(KEY, TITLE, QUESTION, numbers, facts, notes=notes, grids=(_table(point, own_w, own_b),))


def _pairs(net: AbstractLayer) -> list[Pair]:
    """Chains are opened, and so are branches: each is a chain of its own."""
    found, last = [], None
    for layer in _opened(net):
        if isinstance(layer, AbstractActivation):
            last = layer
        elif isinstance(layer, _Weights) and last is not None:
            found.append(Pair(last, layer))
            last = None
    return found


def _opened(layer: Any) -> list[Any]:
    if isinstance(layer, Repeat):
        return _opened(layer.layer) * min(layer.times, 2)
    inner = layer.layers if isinstance(layer, Serial) else ()
    return [part for one in inner for part in _opened(one)] if inner else [layer]


def _variances(weights: Any) -> tuple[float, float]:
    bias = weights.affine.b_std
    return float(weights.affine.w_std) ** 2, 0.0 if bias is None else float(bias) ** 2


def _depth_scale(here: str, parallel: float, perpendicular: float) -> float:
    return 0.0 if here == "unbounded" else max(parallel, perpendicular)


def _layers(depth: float) -> str:
    return "unlimited" if not math.isfinite(depth) else f"{number(depth, 2)} layers" if depth else "none"


def _about_depth(depth: float) -> str:
    if not math.isfinite(depth):
        return "Differences between rows do not fade exponentially: depth is limited by other things."
    if depth == 0:
        return "Signals do not settle, so that there is none."
    return (
        f"Differences fade by a factor e over so many layers. Beyond about {count(6 * depth)} layers nothing is left."
    )


def _critical_fact(point: CriticalPoint, own_w: float, own_b: float) -> Fact:
    label = "Critical initialization"
    if point.kind is Kind.NONE:
        return Fact(label, "none", f"{point.name} has none: {point.reason} Use Relu, Gelu or Tanh for deep networks.")
    value = f"w_std {number(math.sqrt(point.C_w))}, b_std {number(math.sqrt(point.C_b))}"
    if math.isclose(point.C_w, own_w, rel_tol=1e-3) and abs(point.C_b - own_b) < 1e-6:
        return Fact(label, value, "The network is there already. Keep these when you make it deeper.")
    return Fact(label, value, "Use these, or net.critical(), before you make the network much deeper.")


def _critical_numbers(point: CriticalPoint) -> dict[str, Any]:
    if point.numbers is None:
        return {"kind": str(point.kind), "reason": point.reason}
    return {"kind": str(point.kind), **point.numbers._asdict()}


def _table(point: CriticalPoint, own_w: float, own_b: float) -> Grid:
    known = point.numbers
    rows = (
        ("variance of weights, C_w", number(own_w, 4), number(known.C_w, 4) if known else "none"),
        ("variance of biases, C_b", number(own_b, 4), number(known.C_b, 4) if known else "none"),
    )
    return Grid("This network beside the critical point", ("", "this network", "critical"), rows)


def _tuned(net: AbstractLayer) -> str:
    """What `net.critical()` says: nothing where it works."""
    try:
        critical(net)
    except ArchitectureError as fault:
        return str(fault)
    return ""
