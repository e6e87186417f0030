"""Functions of the sign alone: no slope, so only the angle is passed on."""

import math

import jax.numpy as jnp
from jaxtyping import Array

from ..angle import safe_reciprocal
from ._angle import Arc, arc
from ._base import AbstractActivation, Dual, GaussianPair, Moments


class Sign(AbstractActivation):
    """`sign(x)`, and 0 at 0. Its derivative counts as 0: nothing below it is trained.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Sign(), ew.Dense(1))

    Cho and Saul, "Kernel methods for deep learning" (2009), order 0.
    """

    def __call__(self, x: Array) -> Array:
        return jnp.sign(x)

    def dual(self, pair: GaussianPair) -> Dual:
        angle = _arc(pair)
        moment = (2 / math.pi) * angle.arcsin
        slope = jnp.zeros_like(moment)
        if pair.minus is None:
            return Dual(moment, slope)
        minus, plus = _apart(pair, angle)
        return Dual(moment, slope, minus, None if pair.plus is None else plus)

    def moments(self, var: Array) -> Moments:
        zero = jnp.zeros_like(var)
        return Moments(zero, _alive(var), zero)


class Step(AbstractActivation):
    """1 above zero, 0 below and 1/2 at zero: `(1 + sign(x)) / 2`. Its derivative counts as 0, as that of `Sign`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Step(), ew.Dense(1))

    Cho and Saul, "Kernel methods for deep learning" (2009), order 0.
    """

    def __call__(self, x: Array) -> Array:
        return (1 + jnp.sign(x)) / 2

    def dual(self, pair: GaussianPair) -> Dual:
        angle = _arc(pair)
        # pi/2 + arcsin: the angle itself where the two are nearly opposite
        open_angle = jnp.where(pair.sign < 0, angle.fold, math.pi - angle.fold)
        moment, slope = open_angle / (2 * math.pi), jnp.zeros_like(open_angle)
        return Dual(moment, slope, None if pair.minus is None else _apart(pair, angle)[0] / 4)

    def moments(self, var: Array) -> Moments:
        return Moments(jnp.full_like(var, 0.5), (1 + _alive(var)) / 4, jnp.zeros_like(var))


def _arc(pair: GaussianPair) -> Arc:
    # not pair.correlation: the arc needs no clipping, because the complement bounds it
    return arc(pair.cov * safe_reciprocal(pair.scale), pair.complement)


def _alive(var: Array) -> Array:
    """`E[sign(u)^2]`: 1, and 0 for the constant 0."""
    return jnp.where(var > 0, jnp.ones_like(var), 0)


def _apart(pair: GaussianPair, angle: Arc) -> tuple[Array, Array]:
    """`E[(sign u -+ sign v)^2]`: proportional to the angle where it is small."""
    near = (4 / math.pi) * angle.fold
    far = 4 - near
    either = _alive(pair.var1) + _alive(pair.var2)  # where one of the two is 0
    nowhere, opposite = pair.scale == 0, pair.sign < 0
    minus, plus = jnp.where(opposite, far, near), jnp.where(opposite, near, far)
    return jnp.where(nowhere, either, minus), jnp.where(nowhere, either, plus)
