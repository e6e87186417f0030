"""How many linear regions a random network has along a line, before it is drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from ..._checks import InputError
from ...layers import AbstractLayer, Concat, Dense, Dropout, Identity, Repeat, Scale, Serial, Sum
from ...signal import ArchitectureError, Signal
from ._bend import bend_of
from ._law import LineLaw, input_law

_NODES, _MOST_NODES, _AGREED = 32, 1 << 12, 1e-10


@dataclass(frozen=True)
class ExpectedRegions:
    """The expected number of pieces, and of breakpoints due to each activation of the network, in its order.

    >>> import everwide as ew

    >>> from everwide.theory import regions
    >>> net = ew.Serial(ew.Dense(50, b_std=1.0), ew.Relu(), ew.Dense(1))
    >>> regions.expected_regions(net, [-1.0], [1.0]).breakpoints
    array([25.])
    """

    count: float
    breakpoints: np.ndarray


def expected_regions(net: AbstractLayer, p: Any, q: Any, *, width: int | None = None) -> ExpectedRegions:
    """The expected number of linear regions of a random network on the segment from `p` to `q`.

    - `net`: affine layers and piecewise linear activations, on inputs without sites; `width` is for layers that leave
      theirs open, as in `net.init`.

    Exact for one hidden layer: the breakpoints of a ReLU layer follow a Cauchy law. In deeper networks units pass their
    knots as the Gaussian process of an infinitely wide network does, which is right up to a relative error of the order
    of depth / width: the number is linear in the number of units.

    >>> import everwide as ew

    >>> from everwide.theory import regions
    >>> hidden = lambda: ew.Serial(ew.Dense(60, w_std=2**0.5, b_std=0.3**0.5), ew.Relu())
    >>> net = ew.Serial(hidden(), hidden(), hidden(), ew.Dense(1))
    >>> round(regions.expected_regions(net, [-1.0], [2.0]).count, 2)
    138.15

    Hanin and Rolnick, "Complexity of linear regions in deep networks" (2019); Kac (1943), Rice (1944).
    """
    ends = [np.asarray(v, np.float64) for v in (p, q)]
    for name, end in zip("pq", ends, strict=True):
        if end.ndim != 1 or not len(end) or not np.isfinite(end).all():
            raise InputError(f"{name} has shape {end.shape}: expected one example (channels,) of finite numbers.")
    if ends[0].shape != ends[1].shape or np.array_equal(ends[0], ends[1]):
        raise InputError(f"p={p!r} and q={q!r}: expected two different points of one dimension.")
    signal = Signal((len(ends[0]),), width=width)
    net.describe(signal)
    step = ends[1] - ends[0]
    begin = float(ends[0] @ step / (step @ step))  # times count from the foot of the perpendicular from the origin
    foot = ends[0] - begin * step

    def walked(times: np.ndarray) -> "_Walk":
        walk = _Walk([], [])
        walk.through(net, signal, input_law(foot, step, times), type(net).__name__)
        return walk

    if not walked(np.array([begin])).rates:  # no unit bends anywhere
        return ExpectedRegions(1.0, np.zeros(0))
    breakpoints = _integral(walked, begin, begin + 1)
    return ExpectedRegions(1.0 + float(np.sum(breakpoints)), breakpoints)


class _Walk(NamedTuple):
    """What has been seen on the way: the rate of breakpoints, and the law before each activation."""

    rates: list[np.ndarray]
    laws: list[LineLaw]

    def through(self, layer: AbstractLayer, signal: Signal, law: LineLaw, place: str) -> tuple[Signal, LineLaw]:
        """The law after a layer."""
        after = layer.describe(signal)
        if isinstance(layer, Identity | Dropout):
            return after, law
        if isinstance(layer, Scale):
            return after, law.scaled(float(layer.factor))
        if isinstance(layer, Dense):
            b_std = 0.0 if layer.affine.b_std is None else float(layer.affine.b_std)
            return after, law.affine(float(layer.affine.w_std), b_std)
        if isinstance(layer, Serial | Repeat):
            parts = layer.layers if isinstance(layer, Serial) else (layer.layer,) * layer.times
            for i, part in enumerate(parts):
                signal, law = self.through(part, signal.at(i), law, f"{place}[{i}] {type(part).__name__}")
            return after, law
        if isinstance(layer, Sum | Concat):
            return after, self._joined(layer, signal, law, place)
        return after, self._bent(layer, signal, law, place)

    def _joined(self, layer: Sum | Concat, signal: Signal, law: LineLaw, place: str) -> LineLaw:
        found = [
            self.through(branch, signal.at(i), law, f"{place}[{i}] {type(branch).__name__}")
            for i, branch in enumerate(layer.branches)
        ]
        laws = [one for _, one in found]
        if isinstance(layer, Sum):
            return reduce(LineLaw.plus, laws)
        channels = [float(out.channels or 0) for out, _ in found]
        shares = [n / sum(channels) for n in channels]
        none = laws[0].scaled(0.0)
        return reduce(lambda a, b: a.with_share(*b), zip(shares, laws, strict=True), none)

    def _bent(self, layer: AbstractLayer, signal: Signal, law: LineLaw, place: str) -> LineLaw:
        bend = bend_of(layer, place)
        if signal.channels is None:
            raise ArchitectureError(
                f"{place} has an open width, on which the number of regions depends. Give the layer before it a width, "
                "or pass width= for the whole network."
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
