"""Random affine maps: the layers that carry weights."""

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
from ._fans import Fans, fans_of

Hyper = float | Float[Array, ""]


class Affine(eqx.Module):
    """Weights and biases of one random affine map."""

    weight: Float[Array, "*fan_in out"]
    bias: Float[Array, "*sites channels"] | None
    fans: Fans = eqx.field(static=True)


class RandomAffine(eqx.Module):
    """What all layers with weights share: scales, freezing, and the parametrizations (see `Parametrization`).

    The sizes `w_std / sqrt(fan_in)` of a weight and `b_std` of a bias are constant factors (ntk, mean_field), or
    standard deviations of what is drawn (standard, mup). Readouts that learn features have weights of size
    `w_std / fan_in`.
    """

    w_std: Hyper = 1.0
    b_std: Hyper | None = None
    frozen: bool = eqx.field(static=True, default=False)

    def check(self, layer: AbstractLayer, signal: Signal) -> None:
        """Raise on negative scales, and where the limit is not known."""
        positive(layer, "w_std", self.w_std)
        positive(layer, "b_std", self.b_std)
        known_limit(layer, signal)

    def draw(self, key: Array, weight: tuple[int, ...], bias: tuple[int, ...], fans: Fans) -> Affine:
        """Parameters with a weight and a bias of these shapes."""
        wkey, bkey = jr.split(key)
        w, b = jr.normal(wkey, weight), None if self.b_std is None else jr.normal(bkey, bias)
        if fans.parametrization.in_weights:
            w = w * (like(self.w_std, w) * fans.size)
            b = None if b is None else b * like(self.b_std, b)
        return Affine(w, b, fans)

    def held(self, params: Affine) -> Affine:
        """The parameters as training sees them: frozen ones have no gradient."""
        return lax.stop_gradient(params) if self.frozen else params

    def scaled(self, params: Affine, product: Array) -> Array:
        """`product` is the weight's bare action on the input; add the scales and the bias."""
        if params.fans.parametrization.in_weights:
            return product if params.bias is None else product + params.bias
        y = product * (like(self.w_std, product) * params.fans.size)
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
        assert fan_in is not None  # `known_limit` has looked
        return fan_in * averaged + (0.0 if self.b_std is None else 1.0)


def known_limit(layer: AbstractLayer, signal: Signal) -> None:
    """Raise where no fixed kernel exists at infinite width, or where it depends on a number that is open."""
    law = signal.parametrization
    if signal.infinite and law.learns_features:
        raise ArchitectureError(
            f"{name(layer)} in the {law} parametrization has no limit with a fixed kernel: the output of an infinitely "
            "wide network starts at zero, and its features move. Sample a finite network, "
            f"net.init(key, shape, width=..., parametrization='{law}'), or use parametrization='ntk'."
        )
    if law is Parametrization.STANDARD and signal.channels is None:
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
        self.affine.check(self, signal)
        return signal.drawn(signal.sites, self.width)

    def demand(self, wanted: Demand) -> Demand:
        return wanted

    def sample(self, key: Array, signal: Signal) -> Affine:
        fan_in, out = known_channels(self, signal), known_channels(self, self.describe(signal))
        return self.affine.draw(key, (fan_in, out), (out,), fans_of(signal, fan_in, out))

    def forward(self, params: Affine, example: Example) -> Example:
        params = self.affine.held(params)
        product = jnp.tensordot(example.x, params.weight, 1)
        return example.with_values(self.affine.scaled(params, product))

    def propagate(self, k: Kernel, wanted: Demand) -> Kernel:
        k = self.affine.propagate(k, lambda cov, _: cov, k.channels)
        return k.with_channels(self.width).masked()
