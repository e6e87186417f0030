"""Which networks have a compiled path: the spatial part of a network, found statically and written as data."""

import math
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .. import layers
from .._window import Slide
from ..activations import Abs, AbstractActivation, LeakyRelu, Relu, TwoSlope
from ..layers import AbstractLayer, AvgPool, Dense, Flatten, GlobalAvgPool, RandomAffine, Serial, SumPool
from ..signal import Parametrization, Signal
from ._infinite import Infinite

TwoSlopes = Abs | LeakyRelu | Relu | TwoSlope
Slides = tuple[Slide, Slide]  # rows and columns; a sequence has one row
_STILL = 1.0, 0.0, 0.0, 0.0  # an affine map that changes nothing
_STRAIGHT = 1.0, 0.0  # an activation that changes nothing


@dataclass(frozen=True)
class Step:
    """A window sum, an affine map and an activation.

    - `affine`: `K' = a K + b` and `T' = a T + c K + d` of the window sums, as `(a, b, c, d)`.
    - `slopes`: squares of the odd and of the even part of the activation (see `everwide.gaussian.two_slope`).
    """

    slides: Slides
    affine: tuple[float, float, float, float] = _STILL
    slopes: tuple[float, float] = _STRAIGHT

    @property
    def sites(self) -> tuple[int, int]:
        """The grid after the step."""
        return self.slides[0].out, self.slides[1].out


@dataclass(frozen=True)
class Pooling:
    """A pool between two segments."""

    slides: Slides
    layer: AvgPool | SumPool

    def matrix(self, axis: int) -> np.ndarray:
        """`(windows, sites)`: the weight of each site in each window along one axis."""
        slide = self.slides[axis]
        return np.asarray(self.layer.pool.pooled(jnp.eye(slide.size), (slide,)))


@dataclass(frozen=True)
class Trunk:
    """The part of a network that has sites: segments of steps with pools between them, then all sites at once.

    - `all_pairs`: every pair of sites is summed (global pooling), or each site with itself (flattening).
    - `factor`: what the sums are multiplied by.
    """

    segments: tuple[tuple[Step, ...], ...]
    poolings: tuple[Pooling, ...]
    all_pairs: bool
    factor: float

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all segments."""
        return tuple(step for segment in self.segments for step in segment)

    def wraps(self, segment: int, axis: int) -> bool:
        """Whether sites of a segment lie on a circle along an axis."""
        return any(_leaves(step.slides[axis]) for step in self.segments[segment] if step.slides[axis].circular)


class Match(eqx.Module):
    """A network in parts: mirror images, pools of the inputs, the trunk, and the layers after it with what they read.

    - `share`: what the kernel of one pair of copies is multiplied by.
    - `alike`: mirroring both examples changes nothing, so that one copy of the first is enough.
    """

    mirror: layers.Mirror | None
    share: float = eqx.field(static=True)
    alike: bool = eqx.field(static=True)
    head: tuple[Pooling, ...] = eqx.field(static=True)
    trunk: Trunk = eqx.field(static=True)
    tail: Serial
    signal: Signal = eqx.field(static=True)

    def copies(self, x: np.ndarray) -> list[np.ndarray]:
        """Inputs `(n, *sites, channels)`, and their mirror images, as the trunk reads them."""
        flips = [()] if self.mirror is None else self.mirror.copies(x.ndim - 2)
        return [self._pooled(x[(slice(None), *flip)]) for flip in flips]

    @property
    def crosses(self) -> int:
        """How often the trunk runs for a pair of examples."""
        copies = 1 if self.mirror is None else 2 ** len(self.mirror.axes)
        return copies if self.alike else copies**2

    def defined_pairs(self) -> int:
        """Pairs of sites, counted once for every step, that the definition tracks: all of them before a pool."""
        *before, last = ([math.prod(step.sites) for step in segment] for segment in self.trunk.segments)
        copies = 1 if self.mirror is None else 4 ** len(self.mirror.axes)
        every = sum(sites**2 for segment in before for sites in segment)
        return copies * (every + sum(sites ** (2 if self.trunk.all_pairs else 1) for sites in last))

    def _pooled(self, x: np.ndarray) -> np.ndarray:
        """Pooling is linear: that of images costs sites, that of their covariances pairs of sites."""
        before = x.ndim - 3  # of its axes, those before the rows of a grid: a sequence has one row, and no axis for it
        for pooling in self.head:
            for axis in range(1 - before, 2):
                matrix = pooling.matrix(axis).astype(x.dtype)
                x = np.moveaxis(np.tensordot(matrix, x, (1, axis + before)), 0, axis + before)
        return x


def match(kernel: Infinite) -> Match | None:
    """The compiled form of a network, or `None` where it has none."""
    signal = Signal(kernel.input_shape, width=kernel.width, parametrization=kernel.parametrization)
    known = signal.parametrization in (Parametrization.NTK, Parametrization.STANDARD)
    if len(signal.sites) not in (1, 2) or not known:
        return None
    todo, builder = [kernel.net], _Builder()
    while todo:
        layer, *todo = todo
        inside = layer.parts()
        if inside.is_chain:
            todo = [*inside.in_a_row(), *todo]
        elif isinstance(layer, GlobalAvgPool | layers.GlobalSumPool | Flatten):
            parts = _ended(builder, layer, Serial(*todo), signal)
            reads_own = parts is not None and parts.mirror is not None and parts.tail.demand(kernel.wanted).own
            return None if reads_own else parts
        elif not builder.add(layer, signal):
            return None
        else:
            signal = layer.describe(signal)
    return None


def _ended(builder: "_Builder", end: AbstractLayer, tail: Serial, signal: Signal) -> Match | None:
    mean, flat, sites = isinstance(end, GlobalAvgPool), isinstance(end, Flatten), math.prod(builder.grid(signal))
    if not flat:
        builder.join(mean=mean)
    factor = 1 / sites if flat else sites**-2.0 if mean else 1.0
    builder.close(signal)
    trunk = Trunk(tuple(builder.segments), tuple(builder.poolings), not flat, factor)
    legal = all(_one_topology(trunk, i, axis) for i in range(len(trunk.segments)) for axis in range(2))
    if not legal or not _forgets_means(tail) or builder.share is None:
        return None
    alike = builder.mirror is None or _mirrors(builder, trunk)
    return Match(builder.mirror, builder.share, alike, tuple(builder.head), trunk, tail, end.describe(signal))


def _forgets_means(tail: AbstractLayer) -> bool:
    """The compiled trunk does not know channel means; the first layer of the tail must not ask for them."""
    parts = tail.parts()
    if parts.is_chain:
        return not parts.layers or _forgets_means(parts.layers[0])
    return isinstance(tail, Dense | AbstractActivation)


def _leaves(slide: Slide) -> bool:
    """Whether the window reaches over the edges of its axis."""
    return slide.low > 0 or (slide.out - 1) * slide.stride - slide.low + slide.reach > slide.size


def _one_topology(trunk: Trunk, segment: int, axis: int) -> bool:
    """On a circle every step must keep the circle; elsewhere none may have one."""
    slides = [step.slides[axis] for step in trunk.segments[segment]]
    if not trunk.wraps(segment, axis):
        return True
    return all(s.out * s.stride == s.size and (s.circular or not _leaves(s)) and s.low >= 0 for s in slides)


def _mirrors(builder: "_Builder", trunk: Trunk) -> bool:
    """Whether every window has a mirror image that is a window too."""
    pools = (*builder.head, *trunk.poolings)
    slides = [slide for one in (*pools, *trunk.steps) for slide in one.slides]
    return all(2 * s.low == (s.out - 1) * s.stride + s.reach - s.size for s in slides)


class _Builder:
    """Collects layers into steps, and steps into segments; copies of a `Mirror` are an axis that it leaves out."""

    def __init__(self):
        self.mirror: layers.Mirror | None = None
        self.share: float | None = 1.0  # None: copies are apart
        self.head: list[Pooling] = []  # before all else
        self.segments: list[tuple[Step, ...]] = []
        self.poolings: list[Pooling] = []
        self._steps: list[Step] = []

    def add(self, layer: AbstractLayer, signal: Signal) -> bool:
        """Take one more layer; false if it is not of the kinds that are compiled."""
        if isinstance(layer, layers.Mirror):
            first = not (self.mirror or self.head or self._steps or self.segments)
            self.mirror, self.share = layer, None
            return first
        if isinstance(layer, AvgPool | SumPool):
            return self._pool(layer, signal)
        if isinstance(layer, layers.Identity):
            return True
        if self.mirror is not None and self.share is not None:
            return False  # copies that met are one: what follows is not the mean over pairs of them
        if isinstance(layer, layers.Conv):
            slides = self._within(layer.geometry(signal.sites))
            return slides is not None and self._affine(_grid(slides), layer.affine, signal)
        if isinstance(layer, Dense):
            return self._affine(_still(self.grid(signal)), layer.affine, signal)
        return isinstance(layer, TwoSlopes) and self._activation(layer, signal)

    def grid(self, signal: Signal) -> tuple[int, ...]:
        """Sites of one copy."""
        return signal.sites if self.mirror is None else signal.sites[1:]

    def join(self, *, mean: bool) -> None:
        """Copies meet, unless they have."""
        if self.share is None:
            assert self.mirror is not None
            self.share = 4.0 ** -len(self.mirror.axes) if mean else 1.0

    def close(self, signal: Signal) -> None:
        """End a segment; it has one step at least."""
        self.segments.append(tuple(self._steps) or (Step(_still(self.grid(signal))),))
        self._steps = []

    def _within(self, slides: tuple[Slide, ...]) -> tuple[Slide, ...] | None:
        """Windows over the sites of one copy; None where they cover several."""
        if self.mirror is None:
            return slides
        return slides[1:] if slides[0] == Slide(slides[0].size, 1, 1, 1, 0, 0, slides[0].circular) else None

    def _pool(self, layer: AvgPool | SumPool, signal: Signal) -> bool:
        slides = layer.pool.geometry(layer, signal.sites)
        within = self._within(slides)
        if within is None and slides[0].out == 1 and slides[0].window == slides[0].size and slides[0].low == 0:
            self.join(mean=layer.pool.mean)
            within = slides[1:]
        if within is None:
            return False
        pooling = Pooling(_grid(within), layer)
        if not self._steps and not self.segments:
            self.head.append(pooling)
            return True
        self.close(signal)
        self.poolings.append(pooling)
        return True

    def _affine(self, slides: Slides, affine: RandomAffine, signal: Signal) -> bool:
        numbers = _affine_numbers(affine, math.prod(s.window for s in slides), signal)
        if numbers is not None:
            self._steps.append(Step(slides, numbers))
        return numbers is not None

    def _activation(self, layer: TwoSlopes, signal: Signal) -> bool:
        negative, positive = (_number(slope) for slope in layer.slopes())
        if negative is None or positive is None:
            return False
        before = self._steps.pop() if self._steps else Step(_still(self.grid(signal)))
        assert before.slopes == _STRAIGHT  # an activation reads Gaussians: it never follows another
        self._steps.append(replace(before, slopes=_squared_parts(negative, positive)))
        return True


def _squared_parts(negative: float, positive: float) -> tuple[float, float]:
    return ((positive + negative) / 2) ** 2, ((positive - negative) / 2) ** 2


def _grid(slides: tuple[Slide, ...]) -> Slides:
    return (Slide(1, 1, 1, 1, 0, 0), slides[0]) if len(slides) == 1 else (slides[0], slides[1])


def _still(sites: tuple[int, ...]) -> Slides:
    """A window of one site."""
    return _grid(tuple(Slide(size, 1, 1, 1, 0, 0) for size in sites))


def _number(value: Any) -> float | None:
    """A hyperparameter that is known now, not under a transformation."""
    try:
        return float(value)
    except TypeError:
        return None


def _affine_numbers(affine: RandomAffine, taps: int, signal: Signal) -> tuple[float, float, float, float] | None:
    """`RandomAffine.propagate` as numbers that act on sums over the taps."""
    w_std, b_std = _number(affine.w_std), _number(0.0 if affine.b_std is None else affine.b_std)
    speed = 0.0 if affine.frozen else _number(affine.speed)
    if w_std is None or b_std is None or speed is None:
        return None
    gain, shift = w_std**2 / taps, b_std**2
    if signal.parametrization is Parametrization.NTK:
        return gain, shift, speed * gain, speed * shift
    assert signal.channels is not None  # `known_limit` has looked
    return gain, shift, speed * signal.channels, 0.0 if affine.b_std is None else speed
