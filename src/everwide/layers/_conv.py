"""Convolutions: shared, transposed and unshared weights."""

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .._trees import Hyper, name
from .._window import (
    Padding,
    Slide,
    centre_of_window,
    checked_padding,
    padded,
    per_axis,
    slides,
    transposed_slides,
    window_sum,
)
from ..kernel import Example, Kernel, on_diagonal
from ..signal import Demand, Pairs, Signal
from ._affine import Affine, RandomAffine, fans_of, known_channels
from ._base import AbstractLayer
from ._sites import needs_sites


def window_mean(rank: int, windows: Sequence[Slide]) -> Callable[[Array, Pairs], Array]:
    """Average second moments over the taps of a filter: both sites of a pair move together."""
    taps = math.prod(s.window for s in windows)

    def mean(cov: Array, pairs: Pairs) -> Array:
        for axis, slide in enumerate(windows):
            axes = (axis, rank + axis) if pairs is Pairs.ALL_SITES else (axis,)
            cov = window_sum(cov, axes, slide)
        return cov / taps

    return mean


def convolved(
    k: Kernel, affine: RandomAffine, windows: Sequence[Slide], width: int | None, *, groups: int = 1
) -> Kernel:
    """The limit of a random convolution with the given geometry; an output reads one of the groups of channels."""
    fan_in = None if k.channels is None else k.channels // groups * math.prod(s.window for s in windows)
    k = affine.propagate(k, window_mean(k.rank, windows), fan_in)
    k = replace(k.masks(lambda m: centre_of_window(m, windows)), sites=tuple(s.out for s in windows))
    return k.with_channels(width).masked()


def correlate(x: Array, weight: Array, windows: Sequence[Slide], *, groups: int = 1) -> Array:
    """`(*sites, in)` with a filter `(*window, in / groups, out)`; padding is explicit, so that both widths agree."""
    circular = any(s.circular for s in windows)
    for axis, slide in enumerate(windows):
        x = padded(x, (axis,), slide) if circular else x
    letters = "XYZ"[: len(windows)]
    out = lax.conv_general_dilated(
        x[None],
        weight,
        window_strides=[s.stride for s in windows],
        padding=[(0, 0) if circular else (s.low, s.high) for s in windows],
        lhs_dilation=[1 if circular else s.spread for s in windows],
        rhs_dilation=[s.dilation for s in windows],
        dimension_numbers=(f"N{letters}C", f"{letters}IO", f"N{letters}C"),
        feature_group_count=groups,
    )
    return out[0]


def after_window(example: Example, x: Array, windows: Sequence[Slide]) -> Example:
    """The example at the positions of a window."""
    mask = None if example.mask is None else centre_of_window(example.mask, windows)
    return replace(example, mask=mask).with_values(x)


class AbstractConv(AbstractLayer):
    """A window of random weights that slides over the sites; arguments as in `Conv`."""

    window: tuple[int, ...] = eqx.field(static=True)
    width: int | None = eqx.field(static=True)
    strides: tuple[int, ...] = eqx.field(static=True)
    dilation: tuple[int, ...] = eqx.field(static=True)
    padding: Padding = eqx.field(static=True)
    affine: RandomAffine

    def __init__(
        self,
        window: Sequence[int],
        *,
        width: int | None = None,
        strides: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        padding: str | Sequence[Sequence[int]] = "SAME",
        w_std: Hyper = 1.0,
        b_std: Hyper | None = None,
        speed: Hyper = 1.0,
        frozen: bool = False,
    ):
        axes = len(window)
        self.window = per_axis(name(self), "window", window, axes)
        self.width = width
        self.strides = per_axis(name(self), "strides", strides, axes)
        self.dilation = per_axis(name(self), "dilation", dilation, axes)
        self.padding = checked_padding(name(self), padding, axes)
        self.affine = RandomAffine(w_std, b_std, speed=speed, frozen=frozen)

    @abc.abstractmethod
    def geometry(self, sites: tuple[int, ...]) -> tuple[Slide, ...]:
        """How the window moves over these sites."""

    def describe(self, signal: Signal) -> Signal:
        needs_sites(self, signal, len(self.window))
        self.affine.check(self, signal)
        return signal.drawn(tuple(s.out for s in self.geometry(signal.sites)), self.width)


class AbstractSharedConv(AbstractConv):
    """The same weights at all positions."""

    __init__ = AbstractConv.__init__  # said in every class, or a type checker makes one of the fields

    def demand(self, wanted: Demand) -> Demand:
        return wanted  # both sites of a pair move together, so the same site stays the same

    def sample(self, key: Array, signal: Signal) -> Affine:
        fan_in, out = known_channels(self, signal), known_channels(self, self.describe(signal))
        taps = math.prod(self.window) * fan_in
        return self.affine.draw(key, (*self.window, fan_in, out), (out,), fans_of(signal, taps, out))

    def forward(self, params: Affine, example: Example) -> Example:
        params = self.affine.held(params)
        window = self.geometry(example.x.shape[:-1])
        product = correlate(example.x, params.weight, window)
        return after_window(example, self.affine.scaled(params, product), window)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        return convolved(k, self.affine, self.geometry(k.sites), self.width)


class Conv(AbstractSharedConv):
    """A convolution over 1 to 3 site axes with random weights shared by all positions.

    - `window`: filter size for each site axis. `strides`, `dilation`: a number, or one for each axis.
    - `padding`: `"SAME"`, `"VALID"`, `"CIRCULAR"`, or pairs `(low, high)`.
    - `width`, `w_std`, `b_std`, `speed`, `frozen`: as in `Dense`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Conv((3, 3), w_std=2**0.5), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(10))
    """

    __init__ = AbstractConv.__init__

    def geometry(self, sites: tuple[int, ...]) -> tuple[Slide, ...]:
        """How the window moves over these sites."""
        return slides(name(self), sites, self.window, self.strides, self.dilation, self.padding)


class ConvTranspose(AbstractSharedConv):
    """A transposed (fractionally strided) convolution: upsamples by `strides`.

    Arguments as in `Conv`. Output sizes and padding as in `jax.lax.conv_transpose`; `"CIRCULAR"` gives `size * stride`
    sites on a circle.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.layers.ConvTranspose((3, 3), strides=2), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(1))
    """

    __init__ = AbstractConv.__init__

    def geometry(self, sites: tuple[int, ...]) -> tuple[Slide, ...]:
        """How the window moves over these sites, spread by the strides."""
        return transposed_slides(sites, self.window, self.strides, self.dilation, self.padding)


class ConvLocal(AbstractConv):
    """A convolution whose weights and biases are not shared: every position has its own (locally connected).

    Arguments as in `Conv`. Different positions become independent.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.layers.ConvLocal((3,)), ew.Relu(), ew.Flatten(), ew.Dense(1))
    """

    __init__ = AbstractConv.__init__

    def geometry(self, sites: tuple[int, ...]) -> tuple[Slide, ...]:
        """How the window moves over these sites."""
        return slides(name(self), sites, self.window, self.strides, self.dilation, self.padding)

    def demand(self, wanted: Demand) -> Demand:
        return wanted.same_site()  # other pairs are zero, whatever came in

    def sample(self, key: Array, signal: Signal) -> Affine:
        out = self.describe(signal)
        fan_in, width = known_channels(self, signal), known_channels(self, out)
        taps = math.prod(self.window) * fan_in
        bias = (*out.sites, width)
        return self.affine.draw(key, (taps, *bias), bias, fans_of(signal, taps, width))

    def forward(self, params: Affine, example: Example) -> Example:
        params = self.affine.held(params)
        windows = self.geometry(example.x.shape[:-1])
        patches = correlate(example.x, _patch_filter(self.window, example.x), windows)
        product = jnp.einsum("...f,f...o->...o", patches, params.weight)
        return after_window(example, self.affine.scaled(params, product), windows)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        k = convolved(k, self.affine, self.geometry(k.sites), self.width)

        def spread(c, pairs):
            return c.map(lambda a, _: on_diagonal(a, k.rank)) if pairs is Pairs.ALL_SITES else c

        def own(c):
            return None if c is None else replace(spread(c, wanted.own), pairs=wanted.own)

        cross = max(wanted.cross, wanted.own) if k.cross.same else wanted.cross
        cross_cov = replace(spread(k.cross, cross), pairs=cross)
        return replace(k, cross=cross_cov, own1=own(k.own1), own2=own(k.own2))


def _patch_filter(window: tuple[int, ...], x: Array) -> Array:
    """A filter that copies each tap of each channel to an output channel of its own."""
    fan_in = math.prod(window) * x.shape[-1]
    return jnp.eye(fan_in, dtype=x.dtype).reshape(*window, x.shape[-1], fan_in)
