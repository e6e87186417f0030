"""The random affine map inside all layers with weights: its scales, its speed, and the parametrizations."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float

from .._trees import Hyper, like, name, positive, squared
from ..kernel import Covariance, Kernel
from ..signal import ArchitectureError, Pairs, Parametrization, Signal


@dataclass(frozen=True)
class Fans:
    """What a weight connects: how much it reads and feeds, and whether that is data and output, or hidden channels.

    - `fan_in`: numbers that are summed for one output; `fan_out`: channels that read one input.
    - `reads_hidden`: random layers came before. `feeds_hidden`: random layers come after.
    """

    parametrization: Parametrization
    fan_in: int
    fan_out: int
    reads_hidden: bool
    feeds_hidden: bool

    @property
    def is_readout(self) -> bool:
        """Whether hidden channels become the output here."""
        return self.reads_hidden and not self.feeds_hidden

    @property
    def size(self) -> float:
        """The size of a weight: its factor times its initial standard deviation, for `w_std = 1`."""
        if self.is_readout and self.parametrization.learns_features:
            return 1 / self.fan_in
        return 1 / math.sqrt(self.fan_in)


def fans_of(signal: Signal, fan_in: int, fan_out: int) -> Fans:
    """The place of weights that read `signal` and are the last ones of their layer."""
    return Fans(signal.parametrization, fan_in, fan_out, not signal.is_data, not signal.reaches_output())


class Affine(eqx.Module):
    """Weights and biases of one random affine map.

    >>> import everwide as ew, jax
    >>> params = ew.Dense(4, b_std=0.1).init(jax.random.key(0), (3,))
    >>> params.weight.shape, params.bias.shape
    ((3, 4), (4,))
    """

    weight: Float[Array, "*fan_in out"]
    bias: Float[Array, "*sites channels"] | None
    fans: Fans = eqx.field(static=True)


class RandomAffine(eqx.Module):
    """What all layers with weights share: scales, speed, and the parametrizations (see `Parametrization`).

    The sizes `w_std / sqrt(fan_in)` of a weight and `b_std` of a bias are constant factors (ntk, mean_field), or
    standard deviations of what is drawn (standard, mup). Readouts that learn features have weights of size
    `w_std / fan_in`. A speed `s` other than 1 draws weights and biases `1 / sqrt(s)` as large and multiplies what they
    do by `sqrt(s)`: the function stays, and under gradient descent it changes `s` times as fast.

    >>> import everwide as ew
    >>> ew.Dense(w_std=1.3, frozen=True).weights()["affine"].w_std
    1.3
    """

    w_std: Hyper
    b_std: Hyper | None
    speed: Hyper
    frozen: bool = eqx.field(static=True)

    def __init__(self, w_std: Hyper = 1.0, b_std: Hyper | None = None, *, speed: Hyper = 1.0, frozen: bool = False):
        self.w_std, self.b_std, self.speed = w_std, b_std, speed
        self.frozen = frozen or (isinstance(speed, int | float) and speed == 0)

    def check(self, layer: Any, signal: Signal) -> None:
        """Raise on negative scales, and where the limit is not known."""
        positive(layer, "w_std", self.w_std)
        positive(layer, "b_std", self.b_std)
        positive(layer, "speed", self.speed)
        known_limit(layer, signal)

    def draw(
        self, key: Array, weight: tuple[int, ...], bias: tuple[int, ...], fans: Fans, numbers: Any = None
    ) -> Affine:
        """Parameters with a weight and a bias of these shapes; `numbers(key, shape)`: of variance 1, else normal."""
        (wkey, bkey), numbers = jr.split(key), numbers or jr.normal
        w, b = numbers(wkey, weight), None if self.b_std is None else numbers(bkey, bias)
        if fans.parametrization.in_weights:
            w = w * (like(self.w_std, w) * fans.size)
            b = None if b is None else b * like(self.b_std, b)
        root = self._root(w)
        return Affine(w / root, None if b is None else b / root, fans)

    def held(self, params: Affine) -> Affine:
        """The parameters as training sees them: frozen ones have no gradient."""
        if self.frozen:
            return lax.stop_gradient(params)
        if self._is_plain:
            return params
        return jax.tree.map(lambda p: jnp.where(like(self.speed, p) > 0, p, lax.stop_gradient(p)), params)

    def scaled(self, params: Affine, product: Array) -> Array:
        """`product` is the weight's bare action on the input; add the scales and the bias."""
        root = self._root(product)
        if params.fans.parametrization.in_weights:
            return product * root if params.bias is None else (product + params.bias) * root
        y = product * (like(self.w_std, product) * params.fans.size)
        return y * root if params.bias is None else (y + like(self.b_std, y) * params.bias) * root

    @property
    def _is_plain(self) -> bool:
        """Whether all is drawn as the parametrization says: learned at the speed 1, or not at all."""
        return self.frozen or (isinstance(self.speed, int | float) and self.speed == 1)

    def _root(self, array: Array) -> Array | float:
        """The root of the speed; 1 where nothing is learned."""
        if self._is_plain:
            return 1.0
        speed = jnp.asarray(self.speed, array.dtype)
        return jnp.sqrt(jnp.where(speed > 0, speed, 1))

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
            return like(self.speed, nngp) * nngp
        assert fan_in is not None  # `known_limit` has looked
        return like(self.speed, nngp) * (fan_in * averaged + (0.0 if self.b_std is None else 1.0))


def known_limit(layer: Any, signal: Signal) -> None:
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


def known_channels(layer: Any, signal: Signal) -> int:
    """Channels of a signal that is about to be sampled."""
    if signal.channels is None:
        raise ArchitectureError(
            f"{name(layer)} cannot be sampled: the number of its input channels is open. Pass width= to init."
        )
    return signal.channels
