"""Layers of finite networks whose limit is not known: they are for `Sampled`."""

import math
from collections.abc import Sequence
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jax import lax

from .._trees import Hyper, like, name, positive
from .._window import Padding, Slide, checked_padding, padded, per_axis, slides
from ..kernel import Example, Kernel
from ..signal import ArchitectureError, Demand, Signal
from ._base import AbstractFixed, AbstractLayer, Params
from ._conv import after_window
from ._sites import needs_sites


class AbstractUnlimited(AbstractFixed):
    """A layer without weights whose limit is not known."""

    def demand(self, wanted: Demand) -> Demand:
        return wanted.all_sites()

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        raise AssertionError("`describe` refuses it at infinite width")


def refuse_limit(layer: AbstractLayer, signal: Signal) -> None:
    """Raise at infinite width."""
    if signal.infinite:
        raise ArchitectureError(
            f"{name(layer)} has no known limit. Sample it, layers.Sampled({name(layer)}(...)), right behind a Dense or "
            "Conv layer, with the activation before it inside, if there is one: layers.Sampled(Serial(Relu(), ...))."
        )


class MaxPool(AbstractUnlimited):
    """The largest number in each window, channel by channel, for finite networks and for `Sampled`.

    `strides=None` means windows that do not overlap. Sites that do not exist do not count.

    >>> import everwide as ew
    >>> pooled = ew.layers.Sampled(ew.Serial(ew.Relu(), ew.layers.MaxPool((2, 2))))
    >>> net = ew.Serial(ew.Conv((3, 3)), pooled, ew.Flatten(), ew.Dense(1))
    """

    window: tuple[int, ...] = eqx.field(static=True)
    strides: tuple[int, ...] = eqx.field(static=True)
    padding: Padding = eqx.field(static=True)

    def __init__(
        self,
        window: Sequence[int],
        *,
        strides: int | Sequence[int] | None = None,
        padding: str | Sequence[Sequence[int]] = "VALID",
    ):
        axes = len(window)
        self.window = per_axis("MaxPool", "window", window, axes)
        self.strides = self.window if strides is None else per_axis("MaxPool", "strides", strides, axes)
        self.padding = checked_padding("MaxPool", padding, axes)

    def describe(self, signal: Signal) -> Signal:
        needs_sites(self, signal, len(self.window))
        refuse_limit(self, signal)
        out = tuple(s.out for s in self._geometry(signal.sites))
        return replace(signal, gaussian=False, centred=False).reshaped(out, signal.channels)

    def forward(self, params: Params, example: Example) -> Example:
        windows = self._geometry(example.x.shape[:-1])
        low = -jnp.inf
        x = example.x if example.mask is None else jnp.where(example.mask[..., None], example.x, low)
        circular = any(s.circular for s in windows)
        for axis, slide in enumerate(windows):
            x = padded(x, (axis,), slide) if circular else x
        pads = [(0, 0) if circular else (s.low, s.high) for s in windows]
        out = lax.reduce_window(x, low, lax.max, (*self.window, 1), (*self.strides, 1), (*pads, (0, 0)))
        return after_window(example, jnp.where(jnp.isfinite(out), out, 0), windows)

    def _geometry(self, sites: tuple[int, ...]) -> tuple[Slide, ...]:
        return slides("MaxPool", sites, self.window, self.strides, (1,) * len(sites), self.padding)


class InstanceNorm(AbstractUnlimited):
    """Subtract the mean and divide by the standard deviation over the sites, for each channel by itself.

    There are as many statistics as channels, over finitely many sites: they stay random, and the limit is not known.
    For finite networks, and for `Sampled`.

    >>> import everwide as ew
    >>> normal = ew.layers.Sampled(ew.Serial(ew.layers.InstanceNorm(), ew.Relu()))
    >>> net = ew.Serial(ew.Conv((3, 3)), normal, ew.GlobalAvgPool(), ew.Dense(1))

    Ulyanov, Vedaldi, Lempitsky, "Instance normalization: the missing ingredient for fast stylization" (2016).
    """

    eps: Hyper = 1e-5

    def describe(self, signal: Signal) -> Signal:
        needs_sites(self, signal)
        positive(self, "eps", self.eps)
        refuse_limit(self, signal)
        return replace(signal, gaussian=False, centred=False)

    def forward(self, params: Params, example: Example) -> Example:
        axes = tuple(range(example.x.ndim - 1))
        mask = None if example.mask is None else example.mask[..., None]
        count = math.prod(example.x.shape[:-1]) if mask is None else jnp.maximum(jnp.sum(mask), 1)

        def average(a):
            return jnp.sum(a, axes, keepdims=True) / jnp.asarray(count, a.dtype)

        x = example.with_values(example.x - average(example.x)).x
        return example.with_values(x / jnp.sqrt(average(x * x) + like(self.eps, x)))
