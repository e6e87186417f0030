"""Random affine maps: the layers that carry weights."""

import math
from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float

from ..kernel import Covariance, Example, Kernel
from ..signal import ArchitectureError, Demand, Pairs, Parametrization, Signal
from ._base import AbstractLayer, like, name, positive, squared

Hyper = float | Float[Array, ""]


class Affine(eqx.Module):
    """Weights and biases of one random affine map."""

    weight: Float[Array, "*fan_in out"]
    bias: Float[Array, "*sites channels"] | None
    parametrization: Parametrization = eqx.field(static=True)


class RandomAffine(eqx.Module):
    """What all layers with weights share: scales, freezing, and both parametrizations.

    ntk: `w_std / sqrt(fan_in) W x + b_std b` with standard normal `W`, `b`.
    standard: `W x + b` with `W ~ N(0, w_std^2 / fan_in)`, `b ~ N(0, b_std^2)`.
    """

    w_std: Hyper = 1.0
    b_std: Hyper | None = None
    frozen: bool = eqx.field(static=True, default=False)

    def check(self, layer: AbstractLayer) -> None:
        """Raise on negative scales."""
        positive(layer, "w_std", self.w_std)
        positive(layer, "b_std", self.b_std)

    def draw(self, key: Array, weight: tuple[int, ...], bias: tuple[int, ...], signal: Signal) -> Affine:
        """Parameters with a weight of shape `(*fan_in, out)` and a bias of shape `bias`."""
        wkey, bkey = jr.split(key)
        w, b = jr.normal(wkey, weight), None if self.b_std is None else jr.normal(bkey, bias)
        if signal.parametrization is Parametrization.STANDARD:
            w = w * (like(self.w_std, w) / math.sqrt(math.prod(weight[:-1])))
            b = None if b is None else b * like(self.b_std, b)
        return Affine(w, b, signal.parametrization)

    def held(self, params: Affine) -> Affine:
        """The parameters as training sees them: frozen ones have no gradient."""
        return lax.stop_gradient(params) if self.frozen else params

    def scaled(self, params: Affine, product: Array, fan_in: int) -> Array:
        """`product` is the weight's bare action on the input; add the scales and the bias."""
        if params.parametrization is Parametrization.STANDARD:
            return product if params.bias is None else product + params.bias
        y = product * (like(self.w_std, product) / math.sqrt(fan_in))
        return y if params.bias is None else y + like(self.b_std, y) * params.bias

    def propagate(self, k: Kernel, mean: Callable[[Array, Pairs], Array], fan_in: int | None) -> Kernel:
        """`mean` averages second moments over the taps of one output; `fan_in` counts taps times channels."""

        def affine(c: Covariance) -> Covariance:
            w2 = squared(self.w_std, c.nngp)
            b2 = 0.0 if self.b_std is None else squared(self.b_std, c.nngp)
            averaged = mean(c.nngp, c.pairs)
            nngp = w2 * averaged + b2
            ntk = None if c.ntk is None else w2 * mean(c.ntk, c.pairs) + self._trained(averaged, nngp, k, fan_in)
            minus = None if c.minus is None else w2 * mean(c.minus, c.pairs)
            plus = None if c.plus is None else w2 * mean(c.plus, c.pairs) + 4 * b2
            return replace(c, nngp=nngp, ntk=ntk, minus=minus, plus=plus)

        return k.each(affine).centred()

    def _trained(self, averaged: Array, nngp: Array, k: Kernel, fan_in: int | None) -> Array | float:
        """What this layer's own parameters add to the tangent kernel."""
        if self.frozen:
            return 0.0
        if k.parametrization is Parametrization.NTK:
            return nngp
        assert fan_in is not None  # `open_width` has looked
        return fan_in * averaged + (0.0 if self.b_std is None else 1.0)


def open_width(layer: AbstractLayer, signal: Signal) -> None:
    """In the standard parametrization the tangent kernel depends on the number of channels."""
    if signal.parametrization is Parametrization.STANDARD and signal.channels is None:
        raise ArchitectureError(
            f"{name(layer)} in the standard parametrization needs the number of its input channels, which is open. "
            "Give the layer before it a width, or pass width= for the whole network."
        )


def known_channels(layer: AbstractLayer, signal: Signal) -> int:
    """Channels of a signal that is about to be sampled."""
    if signal.channels is None:
        raise ArchitectureError(
            f"{name(layer)} cannot be sampled: the number of its input channels is open. Pass width= to init."
        )
    return signal.channels


class Dense(AbstractLayer):
    """A random linear map of the channels, the same at every site.

    - `width`: output channels; `None` leaves it to `init(width=...)` and to infinity.
    - `w_std`, `b_std`: standard deviations of weights (times `sqrt(fan_in)`) and biases; `None` is no bias.
    - `frozen`: the parameters are not trained, and add nothing to the tangent kernel.

    `K' = w_std^2 K + b_std^2` and `T' = K' + w_std^2 T`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(10))
    """

    width: int | None = eqx.field(static=True)
    affine: RandomAffine

    def __init__(
        self,
        width: int | None = None,
        *,
        w_std: Hyper = 1.0,
        b_std: Hyper | None = None,
        frozen: bool = False,
    ):
        self.width = width
        self.affine = RandomAffine(w_std, b_std, frozen)

    def describe(self, signal: Signal) -> Signal:
        self.affine.check(self)
        open_width(self, signal)
        return signal.drawn(signal.sites, self.width)

    def demand(self, wanted: Demand) -> Demand:
        return wanted

    def sample(self, key: Array, signal: Signal) -> Affine:
        fan_in, out = known_channels(self, signal), known_channels(self, self.describe(signal))
        return self.affine.draw(key, (fan_in, out), (out,), signal)

    def forward(self, params: Affine, example: Example) -> Example:
        params = self.affine.held(params)
        product = jnp.tensordot(example.x, params.weight, 1)
        return example.with_values(self.affine.scaled(params, product, params.weight.shape[0]))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        k = self.affine.propagate(k, lambda cov, _: cov, k.channels)
        return k.with_channels(self.width).masked()
