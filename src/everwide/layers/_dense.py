"""A random linear map of the channels."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._hyper import Hyper
from ..kernel import Example, Kernel
from ..signal import Demand, Signal
from ._affine import Affine, RandomAffine, fans_of, known_channels
from ._base import AbstractLayer


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
