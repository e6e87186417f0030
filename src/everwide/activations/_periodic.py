"""Waves: their moments are exponentials of squared distances."""

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._hyper import Hyper, like, positive
from ._base import AbstractActivation, Dual, GaussianPair, Moments


class AbstractWave(AbstractActivation):
    """`a (odd sin(b x) + even cos(b x))`, up to signs, which do not matter to second moments."""

    a: eqx.AbstractVar[Hyper]
    b: eqx.AbstractVar[Hyper]
    c: eqx.AbstractVar[Hyper]
    is_cosine: eqx.AbstractClassVar[bool]

    def dual(self, pair: GaussianPair) -> Dual:
        a, b, (odd, even) = like(self.a, pair.cov), like(self.b, pair.cov), self._shares(pair.cov)
        sines, cosines = _products(pair, b**2)
        moment = a**2 * (odd**2 * sines + even**2 * cosines)
        return Dual(moment, (a * b) ** 2 * (odd**2 * cosines + even**2 * sines))

    def moments(self, var: Array) -> Moments:
        a, b, (odd, even) = like(self.a, var), like(self.b, var), self._shares(var)
        less = jnp.expm1(-2 * b**2 * var)
        sines, cosines = -less / 2, 1 + less / 2
        mean = a * even * jnp.exp(-(b**2) * var / 2)
        moment = a**2 * (odd**2 * sines + even**2 * cosines)
        return Moments(mean, moment, (a * b) ** 2 * (odd**2 * cosines + even**2 * sines))

    def _shares(self, array: Array) -> tuple[Array, Array]:
        """Of the sine, which is odd, and of the cosine, which is even."""
        shift = jnp.asarray(self.c, array.dtype)
        sine, cosine = jnp.cos(shift), jnp.sin(shift)
        return (cosine, sine) if self.is_cosine else (sine, cosine)


class Sin(AbstractWave):
    """`a * sin(b * x + c)`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Sin(b=3.0), ew.Dense(1))
    """

    is_cosine: ClassVar[bool] = False
    a: Hyper = 1.0
    b: Hyper = 1.0
    c: Hyper = 0.0

    def __call__(self, x: Array) -> Array:
        return like(self.a, x) * jnp.sin(like(self.b, x) * x + like(self.c, x))


class Cos(AbstractWave):
    """`a * cos(b * x + c)`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Cos(b=3.0), ew.Dense(1))
    """

    is_cosine: ClassVar[bool] = True
    a: Hyper = 1.0
    b: Hyper = 1.0
    c: Hyper = 0.0

    def __call__(self, x: Array) -> Array:
        return like(self.a, x) * jnp.cos(like(self.b, x) * x + like(self.c, x))


class Rbf(AbstractActivation):
    """`sqrt(2) * sin(sqrt(2 * gamma) * x + pi / 4)`, whose kernel is `exp(-gamma * E[(u - v)^2])`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Rbf(gamma=0.5), ew.Dense(1))

    Rahimi and Recht, "Random features for large-scale kernel machines" (2007).
    """

    gamma: Hyper = 1.0

    def __check_init__(self) -> None:
        positive(self, "gamma", self.gamma)

    def __call__(self, x: Array) -> Array:
        frequency = jnp.sqrt(2 * jnp.asarray(self.gamma, x.dtype))
        return math.sqrt(2) * jnp.sin(frequency * x + math.pi / 4)

    def dual(self, pair: GaussianPair) -> Dual:
        gamma = like(self.gamma, pair.cov)
        apart = pair.var1 + pair.var2 - 2 * pair.cov if pair.minus is None else pair.minus
        moment = jnp.exp(-gamma * apart)
        slope = 2 * gamma * moment
        return Dual(moment, slope, None if pair.minus is None else -2 * jnp.expm1(-gamma * apart))

    def moments(self, var: Array) -> Moments:
        gamma, one = like(self.gamma, var), jnp.ones_like(var)
        return Moments(jnp.exp(-gamma * var), one, 2 * gamma * one)


def _products(pair: GaussianPair, rate: Array | float) -> tuple[Array, Array]:
    """`E[sin u sin v]` and `E[cos u cos v]` of the pair times `sqrt(rate)`.

    They are half the difference and half the sum of `exp(-E[(u - v)^2] / 2)` and `exp(-E[(u + v)^2] / 2)`. The larger
    of the two is factored out: nothing overflows, and small covariances do not cancel.
    """
    opposite = pair.sign < 0
    size = jnp.where(opposite, -pair.cov, pair.cov)  # at 0 the derivative must be that of this sign
    if pair.minus is None:
        apart = pair.var1 + pair.var2 - 2 * size
    else:
        apart = pair.minus if pair.plus is None else jnp.where(opposite, pair.plus, pair.minus)
    larger, less = jnp.exp(-rate / 2 * apart), jnp.expm1(-2 * rate * size)
    return jnp.where(opposite, 0.5, -0.5) * larger * less, larger * (1 + less / 2)
