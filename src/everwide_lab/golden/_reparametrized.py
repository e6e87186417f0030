"""One layer in a parametrization of its own, for reference cases that mix them."""

import math
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from everwide.kernel import Example, Kernel
from everwide.layers import AbstractLayer
from everwide.signal import ArchitectureError, Demand, Parametrization, Signal


class Reparametrized(AbstractLayer):
    """A layer with weights in its own `parametrization`, whatever that of the network.

    `fan_in_share` is the `s0` of the standard parametrization with width scales: the input has `s0` times the
    channels of the narrow network, `y = W x / sqrt(s0) + b` with `W ~ N(0, w_std^2 / (fan_in / s0))`.

    >>> import everwide as ew
    >>> from everwide_lab.golden import Reparametrized
    >>> net = ew.Serial(ew.Dense(64), ew.Relu(), Reparametrized(ew.Dense(1), "standard", fan_in_share=2))
    """

    layer: AbstractLayer
    parametrization: Parametrization = eqx.field(static=True)
    fan_in_share: int = eqx.field(static=True)

    def __init__(self, layer: AbstractLayer, parametrization: Parametrization | str, *, fan_in_share: int = 1):
        if fan_in_share < 1:
            raise ArchitectureError(f"Reparametrized(fan_in_share={fan_in_share}): expected at least 1.")
        self.layer = layer
        self.parametrization = Parametrization(parametrization)
        self.fan_in_share = fan_in_share

    def describe(self, signal: Signal) -> Signal:
        out = self.layer.describe(replace(signal, parametrization=self.parametrization))
        return replace(out, parametrization=signal.parametrization)

    def demand(self, wanted: Demand) -> Demand:
        return self.layer.demand(wanted)

    def sample(self, key: Array, signal: Signal):
        params = self.layer.sample(key, replace(signal, parametrization=self.parametrization))
        if self.fan_in_share == 1:
            return params
        return eqx.tree_at(lambda p: p.weight, params, params.weight * math.sqrt(self.fan_in_share))

    def forward(self, params, example: Example) -> Example:
        scaled = example.with_values(example.x / math.sqrt(self.fan_in_share))
        return self.layer.forward(params, scaled)

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        def run(channels: int | None) -> Kernel:
            own = replace(k, parametrization=self.parametrization, channels=channels)
            return self.layer.propagate(own, wanted)

        out = run(k.channels) if k.channels is None else self._shared(run, k.channels)
        return replace(out, parametrization=k.parametrization)

    def _shared(self, run, channels: int) -> Kernel:
        """Both kernels are affine in the fan-in, so that a fraction of a channel is an interpolation."""
        whole, part = divmod(channels, self.fan_in_share)
        low = run(whole)
        if part == 0:
            return low

        def between(a: Any, b: Any) -> Any:
            return a + (b - a) * (part / self.fan_in_share) if eqx.is_inexact_array(a) else a

        return jax.tree.map(between, low, replace(run(whole + 1), channels=low.channels))
