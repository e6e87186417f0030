"""Weights that read places instead of channels, as an MLP-Mixer has them between its transposes."""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from ..kernel import Example, Kernel
from ..layers import AbstractLayer, Affine, Dense
from ..signal import ArchitectureError, Demand, Signal
from ._weights import Law


class Mix(AbstractLayer):
    """A random linear map along one site axis, the same for all channels, to as many places as `places` makes.

    It has no more weights than places, so it stays random however many channels there are, and is sampled. `law`: from
    which weights and biases are drawn, as the module draws them, since sums over few places tell laws apart.
    """

    axis: int = eqx.field(static=True)
    law: Law = eqx.field(static=True)
    places: Dense

    def describe(self, signal: Signal) -> Signal:
        if signal.infinite:
            raise ArchitectureError(
                "weights over places, which all channels share, stay random: no limit is known, and they are sampled "
                "behind a layer with weights over channels"
            )
        sites = list(signal.sites)
        sites[self.axis] = self.places.width or 0
        return replace(signal, gaussian=False).reshaped(tuple(sites), signal.channels)

    def demand(self, wanted: Demand) -> Demand:
        return wanted.all_sites()

    def sample(self, key: Array, signal: Signal) -> Affine:
        normal = self.places.sample(key, signal.reshaped((), signal.sites[self.axis]))
        *shape, width = normal.weight.shape
        return self.places.affine.draw(key, (*shape, width), (width,), normal.fans, self.law.draw)

    def forward(self, params: Affine, example: Example) -> Example:
        x = self.places.forward(params, Example(jnp.moveaxis(example.x, self.axis, -1))).x
        mask = example.mask
        mask = None if mask is None else jnp.repeat(mask.any(self.axis, keepdims=True), x.shape[-1], self.axis)
        return replace(example, mask=mask).with_values(jnp.moveaxis(x, -1, self.axis))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        raise AssertionError("`describe` refuses it at infinite width")
