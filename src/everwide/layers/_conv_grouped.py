"""Convolutions of which an output reads a part of the channels: a group of them, or one."""

import abc
import math
from collections.abc import Sequence
from dataclasses import replace

import equinox as eqx
from jaxtyping import Array

from .._checks import whole
from .._trees import Hyper, name
from .._window import Padding, Slide, checked_padding, per_axis, slides
from ..kernel import Example, Kernel
from ..signal import ArchitectureError, Demand, Signal
from ._affine import Affine, RandomAffine, fans_of, known_channels
from ._base import AbstractLayer
from ._conv import after_window, convolved, correlate
from ._sites import needs_sites


class Sliding(eqx.Module):
    """A window and how it moves; arguments as in `Conv`."""

    window: tuple[int, ...] = eqx.field(static=True)
    strides: tuple[int, ...] = eqx.field(static=True)
    dilation: tuple[int, ...] = eqx.field(static=True)
    padding: Padding = eqx.field(static=True)

    def geometry(self, layer: AbstractLayer, sites: tuple[int, ...]) -> tuple[Slide, ...]:
        """How the window moves over these sites."""
        return slides(name(layer), sites, self.window, self.strides, self.dilation, self.padding)


def _sliding(layer: str, window: Sequence[int], strides, dilation, padding) -> Sliding:
    axes = len(window)
    return Sliding(
        per_axis(layer, "window", window, axes),
        per_axis(layer, "strides", strides, axes),
        per_axis(layer, "dilation", dilation, axes),
        checked_padding(layer, padding, axes),
    )


class AbstractPartialConv(AbstractLayer):
    """Shared weights that read a part of the channels."""

    sliding: eqx.AbstractVar[Sliding]
    affine: eqx.AbstractVar[RandomAffine]

    @abc.abstractmethod
    def parts_of(self, channels: int) -> int:
        """Groups of so many channels."""

    @abc.abstractmethod
    def law(self, signal: Signal, sites: tuple[int, ...]) -> Signal:
        """What comes out at these sites."""

    def describe(self, signal: Signal) -> Signal:
        needs_sites(self, signal, len(self.sliding.window))
        self.affine.check(self, signal)
        return self.law(signal, tuple(s.out for s in self.sliding.geometry(self, signal.sites)))

    def demand(self, wanted: Demand) -> Demand:
        return wanted

    def sample(self, key: Array, signal: Signal) -> Affine:
        channels, out = known_channels(self, signal), known_channels(self, self.describe(signal))
        inside = channels // self.parts_of(channels)
        fans = fans_of(signal, math.prod(self.sliding.window) * inside, out)
        return self.affine.draw(key, (*self.sliding.window, inside, out), (out,), fans)

    def forward(self, params: Affine, example: Example) -> Example:
        params = self.affine.held(params)
        windows = self.sliding.geometry(self, example.x.shape[:-1])
        product = correlate(example.x, params.weight, windows, groups=self.parts_of(example.x.shape[-1]))
        return after_window(example, self.affine.scaled(params, product), windows)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        """Second moments are means over all channels, and so over the groups."""
        windows = self.sliding.geometry(self, k.sites)
        groups = 1 if k.channels is None else self.parts_of(k.channels)
        out = self.law(Signal((*k.sites, k.channels), width=k.width), k.sites).channels
        return convolved(k, self.affine, windows, out, groups=groups)


class ConvGrouped(AbstractPartialConv):
    """A convolution in `groups`: each reads and writes a part of the channels, with weights of its own.

    Where channels have one law, every group sees the same second moments, and for a fixed number of groups the limit is
    that of `Conv`. Other arguments as there.

    >>> import everwide as ew
    >>> layer = ew.layers.ConvGrouped((3, 3), groups=4)
    >>> net = ew.Serial(ew.Conv((3, 3)), ew.Relu(), layer, ew.Relu(), ew.GlobalAvgPool(), ew.Dense(1))

    Xie, Girshick, Dollar, Tu, He, "Aggregated residual transformations for deep neural networks" (2017).
    """

    sliding: Sliding
    groups: int = eqx.field(static=True)
    width: int | None = eqx.field(static=True)
    affine: RandomAffine

    def __init__(
        self,
        window: Sequence[int],
        *,
        groups: int,
        width: int | None = None,
        strides: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        padding: str | Sequence[Sequence[int]] = "SAME",
        w_std: Hyper = 1.0,
        b_std: Hyper | None = None,
        speed: Hyper = 1.0,
        frozen: bool = False,
    ):
        self.sliding = _sliding("ConvGrouped", window, strides, dilation, padding)
        self.groups = whole(groups, "ConvGrouped: groups")
        self.width = width
        self.affine = RandomAffine(w_std, b_std, speed=speed, frozen=frozen)

    def parts_of(self, channels: int) -> int:
        """Groups of so many channels."""
        return self.groups

    def law(self, signal: Signal, sites: tuple[int, ...]) -> Signal:
        """What comes out at these sites; groups of channels of different laws keep these visible."""
        out = signal.drawn(sites, self.width)
        for channels in (signal.channels, out.channels):
            if channels is not None and channels % self.groups:
                raise ArchitectureError(f"ConvGrouped(groups={self.groups}) cannot part {channels} channels equally.")
        if self.groups == 1 or signal.one_law:
            return out
        return replace(out, gaussian=False, one_law=False, sources=signal.sources | out.sources)


class ConvDepthwise(AbstractPartialConv):
    """A filter of its own for every channel: `multiplier` outputs for each input channel.

    `K'(p, q) = w_std^2 mean_t K(p + t, q + t) + b_std^2`, as in `Conv`, and the same for the tangent kernel; but
    channels do not become Gaussian, since no two of them are mixed. So a `Dense` layer (a 1 x 1 convolution) comes
    before the next activation, or both are sampled (`Sampled`). Other arguments as in `Conv`.

    >>> import everwide as ew
    >>> separable = ew.Serial(ew.layers.ConvDepthwise((3, 3)), ew.Dense(w_std=2**0.5))
    >>> net = ew.Serial(ew.Conv((3, 3)), ew.Relu(), separable, ew.Relu(), ew.GlobalAvgPool(), ew.Dense(1))

    Chollet, "Xception: deep learning with depthwise separable convolutions" (2017).
    """

    sliding: Sliding
    multiplier: int = eqx.field(static=True)
    affine: RandomAffine

    def __init__(
        self,
        window: Sequence[int],
        *,
        multiplier: int = 1,
        strides: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        padding: str | Sequence[Sequence[int]] = "SAME",
        w_std: Hyper = 1.0,
        b_std: Hyper | None = None,
        speed: Hyper = 1.0,
        frozen: bool = False,
    ):
        self.sliding = _sliding("ConvDepthwise", window, strides, dilation, padding)
        self.multiplier = whole(multiplier, "ConvDepthwise: multiplier")
        self.affine = RandomAffine(w_std, b_std, speed=speed, frozen=frozen)

    def parts_of(self, channels: int) -> int:
        """Groups of so many channels."""
        return channels

    def law(self, signal: Signal, sites: tuple[int, ...]) -> Signal:
        """What comes out at these sites: channels that still show those before them."""
        channels = None if signal.channels is None else signal.channels * self.multiplier
        sources = signal.sources | {signal.path}
        return replace(signal, shape=(*sites, channels), gaussian=False, sources=sources)
