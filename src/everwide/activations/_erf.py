"""The error function and its kin: functions whose moments are angles between blurred Gaussians."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._hyper import Hyper, like
from ._angle import arc, blurred
from ._base import AbstractActivation, Dual, GaussianPair, Moments

# The slope at zero and the limits of `sigmoid` cannot both be met by an error function; this width is nearest to it.
_SIGMOID_WIDTH = 2.4020563531719796


class Erf(AbstractActivation):
    """`a * erf(b * x) + c`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.Erf(b=2.0), ew.Dense(1))

    Williams, "Computing with infinite networks" (1997).
    """

    a: Hyper = 1.0
    b: Hyper = 1.0
    c: Hyper = 0.0

    def __call__(self, x: Array) -> Array:
        return like(self.a, x) * jax.lax.erf(like(self.b, x) * x) + like(self.c, x)

    def dual(self, pair: GaussianPair) -> Dual:
        a2, b2, c2 = self._squares(pair.cov)
        near = blurred(pair, 2 * b2)
        moment = (2 / math.pi) * a2 * near.arc.arcsin + c2
        return Dual(moment, (4 / math.pi) * a2 * b2 * near.inverse_root_det)

    def moments(self, var: Array) -> Moments:
        a2, b2, c2 = self._squares(var)
        noise = 1 / (1 + 2 * b2 * var)
        moment = (2 / math.pi) * a2 * arc(2 * b2 * var * noise, noise).arcsin + c2
        slope = (4 / math.pi) * a2 * b2 / jnp.sqrt(1 + 4 * b2 * var)
        return Moments(like(self.c, var) * jnp.ones_like(var), moment, slope)

    def _squares(self, array: Array) -> tuple[Array | float, Array | float, Array | float]:
        return like(self.a, array) ** 2, like(self.b, array) ** 2, like(self.c, array) ** 2


def SigmoidLike() -> Erf:  # noqa: N802 - reads as a layer, like the others
    """`erf(x / 2.402) / 2 + 1 / 2`, which differs from `sigmoid(x)` by less than 0.02 and has exact moments.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.SigmoidLike(), ew.Dense(1))
    """
    return Erf(0.5, 1 / _SIGMOID_WIDTH, 0.5)


class Gelu(AbstractActivation):
    """`x * Phi(x)` with the normal distribution function `Phi` (the exact form, not its `tanh` approximation).

    Written as `x / 2 + x erf(x / sqrt(2)) / 2`, an odd and an even part that do not correlate.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(w_std=2**0.5), ew.Gelu(), ew.Dense(1))

    Tsuchida, Pearce, van der Heide, Roosta, Gallagher, "Avoiding kernel fixed points" (2021).
    """

    def __call__(self, x: Array) -> Array:
        return 0.5 * x * jax.lax.erfc(-math.sqrt(0.5) * x)  # erfc: no cancellation on the far left

    def dual(self, pair: GaussianPair) -> Dual:
        near = blurred(pair, 1.0)
        s, fold, shrink = near.correlation, near.arc.fold, near.shrink
        wide = 1 / near.arc.cosine
        open_angle = jnp.where(s < 0, fold, math.pi - fold)  # pi/2 + arcsin(s)
        inner = s * s * wide + (pair.var1 * pair.var2) * near.arc.cosine
        bend = 1 / near.root1**2 + 1 / near.root2**2 + (wide * shrink) ** 2
        moment = s * open_angle * (near.root1 * near.root2) + inner * shrink
        slope = open_angle + s * wide * bend
        return Dual(moment / (2 * math.pi), slope / (2 * math.pi))

    def moments(self, var: Array) -> Moments:
        noise, root = 1 / (1 + var), jnp.sqrt(1 + 2 * var)
        open_angle = math.pi / 2 + arc(var * noise, noise).arcsin
        moment = var * (open_angle + 2 * var * noise / root)
        slope = open_angle + var / root * (2 * noise + 1 / (1 + 2 * var))
        mean = var * jnp.sqrt(noise) / math.sqrt(2 * math.pi)
        return Moments(mean, moment / (2 * math.pi), slope / (2 * math.pi))
