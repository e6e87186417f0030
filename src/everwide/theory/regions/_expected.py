"""How many linear regions a random network has along a line, before it is drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from ..._checks import InputError, whole
from ..._walk import Visit, visit
from ...layers import AbstractLayer, Dense, Dropout, Identity, Scale
from ...signal import ArchitectureError, Signal
from ._law import LineLaw, bend_of, input_law
from ._lines import line_ends

_NODES, _MOST_NODES, _AGREED = 32, 1 << 12, 1e-10


@dataclass(frozen=True)
class ExpectedRegions:
    """The expected number of pieces, and of breakpoints due to each activation of the network, in its order."""

    count: float
    breakpoints: np.ndarray


def expected_regions(net: AbstractLayer, x1: Any, x2: Any, *, width: int | None = None) -> ExpectedRegions:
    """The expected number of linear regions of a random network on the segment from `x1` to `x2`.

    Exact for one hidden layer: the breakpoints of a ReLU layer follow a Cauchy law. In deeper networks units pass their
    knots as the Gaussian process of an infinitely wide network does, which is right up to a relative error of the order
    of depth / width: the number is linear in the number of units.

    Args:
        net: affine layers and piecewise linear activations, on inputs without sites.
        x1: one end, `(channels,)`.
        x2: the other end.
        width: of layers that leave theirs open, as in `net.init`.

    Returns:
        `count`: the expected number of pieces; `breakpoints`: that of the breakpoints due to each activation of the
        network, in its order.

    >>> import everwide as ew
    >>> from everwide.theory import regions
    >>> hidden = ew.Serial(ew.Dense(60, w_std=2**0.5, b_std=0.3**0.5), ew.Relu())
    >>> net = ew.Serial(hidden, hidden, hidden, ew.Dense(1))
    >>> round(regions.expected_regions(net, [-1.0], [2.0]).count, 2)
    138.15

    Hanin and Rolnick, "Complexity of linear regions in deep networks" (2019); Kac (1943), Rice (1944).

    """
    ends = line_ends(x1, x2)
    if ends[0].ndim != 1 or not np.isfinite(ends).all():
        raise InputError(f"x1 has shape {ends[0].shape}: expected one example (channels,) of finite numbers.")
    signal = Signal((len(ends[0]),), width=None if width is None else whole(width, "width"))
    net.describe(signal)
    step = ends[1] - ends[0]
    begin = float(ends[0] @ step / (step @ step))  # times count from the foot of the perpendicular from the origin
    foot = ends[0] - begin * step

    def walked(times: np.ndarray) -> "_Walk":
        walk = _Walk([], [])
        walk.through(visit(net), signal, input_law(foot, step, times))
        return walk

    if not walked(np.array([begin])).rates:  # no unit bends anywhere
        return ExpectedRegions(1.0, np.zeros(0))
    breakpoints = _integral(walked, begin, begin + 1)
    return ExpectedRegions(1.0 + float(np.sum(breakpoints)), breakpoints)


class _Walk(NamedTuple):
    """What has been seen on the way: the rate of breakpoints, and the law before each activation."""

    rates: list[np.ndarray]
    laws: list[LineLaw]

    def through(self, at: Visit, signal: Signal, law: LineLaw) -> tuple[Signal, LineLaw]:
        """The law after a layer."""
        layer, join = at.layer, at.parts.join
        after = layer.describe(signal)
        if at.parts.is_chain:
            for i, part in enumerate(at.inside() * at.parts.times):
                signal, law = self.through(part, signal.at(i), law)
            return after, law
        if join in ("sum", "concat"):
            return after, self._joined(at, signal, law)
        if isinstance(layer, Identity | Dropout):
            return after, law
        if isinstance(layer, Scale):
            return after, law.scaled(float(layer.factor))
        if isinstance(layer, Dense):
            b_std = 0.0 if layer.affine.b_std is None else float(layer.affine.b_std)
            return after, law.affine(float(layer.affine.w_std), b_std)
        return after, self._bent(at, signal, law)

    def _joined(self, at: Visit, signal: Signal, law: LineLaw) -> LineLaw:
        outs, laws = zip(*(self.through(part, signal.at(i), law) for i, part in enumerate(at.inside())), strict=True)
        if at.parts.join == "sum":
            return reduce(LineLaw.plus, laws)
        channels = [float(out.channels or 0) for out in outs]
        shares = [n / sum(channels) for n in channels]
        none = laws[0].scaled(0.0)
        return reduce(lambda a, b: a.beside(*b), zip(shares, laws, strict=True), none)

    def _bent(self, at: Visit, signal: Signal, law: LineLaw) -> LineLaw:
        bend = bend_of(at)
        if signal.channels is None:
            raise ArchitectureError(
                f"{at.place} has an open width, on which the number of regions depends. Give the layer before it a "
                "width, or pass width= for the whole network."
            )
        self.rates.append(signal.channels * law.crossings(bend))
        self.laws.append(law)
        return law.bent(bend)


def _integral(walked: Callable[[np.ndarray], _Walk], begin: float, end: float) -> np.ndarray:
    """The rates, integrated over time.

    Breakpoints gather where the line passes the origin, in the way of a Cauchy law, and those of later layers around
    it, on scales of their own: over the area hyperbolic sine of the time all of them are smooth.
    """
    scale = _scale(walked, begin, end)
    low, high = np.arcsinh(begin / scale), np.arcsinh(end / scale)
    before, nodes = None, _NODES
    while nodes <= _MOST_NODES:
        x, w = np.polynomial.legendre.leggauss(nodes)
        place = (low + high) / 2 + x * (high - low) / 2
        rates = np.array(walked(scale * np.sinh(place)).rates)
        total = rates @ (w * (high - low) / 2 * scale * np.cosh(place))
        if before is not None and np.all(np.abs(total - before) <= _AGREED * (1 + np.abs(total))):
            return total
        before, nodes = total, 2 * nodes
    raise ArithmeticError(
        "The expected number of breakpoints did not converge: they gather in too small a part of the line. Count on "
        "shorter segments."
    )


def _scale(walked: Callable[[np.ndarray], _Walk], begin: float, end: float) -> float:
    """How far from the foot the variance of the first layer has doubled, or the distance to the segment."""
    law = walked(np.zeros(1)).laws[0]
    growth = walked(np.ones(1)).laws[0].slope_var[0]
    width = float(np.sqrt(law.var[0] / growth)) if growth > 0 else 1.0
    outside = max(begin, -end, 0.0)
    if max(width, outside) < 1e-14:
        raise InputError(
            "The segment passes through the origin, and the first layer has no biases: all of its units bend there, at "
            "one and the same point. Give it a b_std, or move the segment."
        )
    return max(width, outside)
