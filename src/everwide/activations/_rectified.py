"""Rectifiers and signs: closed forms in the angle between two Gaussians."""

import abc
import math
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from .._trees import Hyper, like
from ..gaussian import GaussianPair, arccos_coefficients, horner, safe_reciprocal, safe_sqrt, two_slope
from ._base import AbstractActivation, Dual, Moments


class Arc(NamedTuple):
    """`arcsin(s)`, the angle `arccos|s|` to the nearer end of the line, and the cosine `sqrt(1 - s^2)`."""

    arcsin: Array
    fold: Array
    cosine: Array


@jax.custom_jvp
def arc(s: Array, complement: Array) -> Arc:
    """All of an `Arc` to full relative accuracy, from `s` and `complement = 1 - |s|`.

    The complement is the same number said better: derivatives follow `s` alone, and are 0 where `|s| = 1`.
    """
    squared = s * s
    small = squared <= 0.5
    poly = horner(arccos_coefficients(s.dtype.name), jnp.where(small, 2 * squared, complement))
    short, far = math.sqrt(0.5) * jnp.abs(s) * poly, jnp.sqrt(complement) * poly
    size, fold = jnp.where(small, short, math.pi / 2 - far), jnp.where(small, math.pi / 2 - short, far)
    return Arc(jnp.where(s < 0, -size, size), fold, jnp.sqrt(complement * (2 - complement)))


@arc.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Arc, Arc]:
    (s, _), (t, _) = primals, tangents
    both = arc(*primals)
    turned = t * safe_reciprocal(both.cosine)
    return both, Arc(turned, jnp.where(s < 0, turned, -turned), -s * turned)


class Blurred(NamedTuple):
    """Two Gaussians after independent noise of variance `1 / rate` was added to each.

    - `root1`, `root2`: `sqrt(1 + rate var)`, the standard deviations of the noisy pair, in units of the noise;
    - `correlation`: of the noisy pair; never 1, so nothing below is singular for parallel `u` and `v`;
    - `arc`: its angles.
    """

    root1: Array
    root2: Array
    correlation: Array
    arc: Arc

    @property
    def shrink(self) -> Array:
        """`1 / (root1 root2)`, by divisions of rows only."""
        return (1 / self.root1) * (1 / self.root2)

    @property
    def inverse_root_det(self) -> Array:
        """`1 / sqrt(det(I + rate Sigma))`."""
        return self.shrink / self.arc.cosine


def blurred(pair: GaussianPair, rate: Any) -> Blurred:
    """The pair seen by functions of Gaussian shape: `erf`, `exp(-x^2)` and their kin."""
    root1, root2 = jnp.sqrt(1 + rate * pair.var1), jnp.sqrt(1 + rate * pair.var2)
    # a division on purpose: XLA keeps its result, and would compute a product again for each use, layer upon layer
    s = rate * pair.cov / (root1 * root2)
    return Blurred(root1, root2, s, arc(s, lax.stop_gradient(_complement(pair, s, 1 / root1**2, 1 / root2**2))))


def _complement(pair: GaussianPair, s: Array, noise1: Array, noise2: Array) -> Array:
    """`1 - |s|`, from positive terms: what the noise takes from the correlation, plus what was missing before."""
    left = safe_sqrt(1 - noise1) * safe_sqrt(1 - noise2)
    taken = (noise1 + noise2 * (1 - noise1)) / (1 + left)
    if pair.minus is None:
        return jnp.maximum(1 - jnp.abs(s), taken)
    return taken + left * pair.complement


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


class AbstractTwoSlope(AbstractActivation):
    """One slope below zero, another above."""

    folds: eqx.AbstractClassVar[bool]  # slopes known not to have one sign: covariances come out non-negative

    @abc.abstractmethod
    def slopes(self) -> tuple[Hyper, Hyper]:
        """Below zero, and above."""

    def __call__(self, x: Array) -> Array:
        negative, positive = (like(slope, x) for slope in self.slopes())
        return negative * jnp.minimum(x, 0) + positive * jnp.maximum(x, 0)

    def dual(self, pair: GaussianPair) -> Dual:
        negative, positive = (like(slope, pair.cov) for slope in self.slopes())
        return two_slope(pair, negative, positive, folds=self.folds)

    def moments(self, var: Array) -> Moments:
        negative, positive = (like(slope, var) for slope in self.slopes())
        half = (negative**2 + positive**2) / 2
        mean = (positive - negative) * safe_sqrt(var / (2 * math.pi))
        return Moments(mean, half * var, half * jnp.ones_like(var))


class TwoSlope(AbstractTwoSlope):
    """`negative * x` below zero, `positive * x` above.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.TwoSlope(-0.3, 1.2), ew.Dense(1))
    """

    folds: ClassVar[bool] = False
    negative: Hyper
    positive: Hyper

    def slopes(self) -> tuple[Hyper, Hyper]:
        return self.negative, self.positive


class LeakyRelu(AbstractTwoSlope):
    """`negative * x` below zero, `x` above.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.LeakyRelu(0.2), ew.Dense(1))
    """

    folds: ClassVar[bool] = False
    negative: Hyper = 0.01

    def slopes(self) -> tuple[Hyper, Hyper]:
        return self.negative, 1.0


class Relu(AbstractTwoSlope):
    """`max(x, 0)`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(1))
    """

    folds: ClassVar[bool] = True

    def slopes(self) -> tuple[Hyper, Hyper]:
        return 0.0, 1.0


class Abs(AbstractTwoSlope):
    """`|x|`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Abs(), ew.Dense(1))
    """

    folds: ClassVar[bool] = True

    def slopes(self) -> tuple[Hyper, Hyper]:
        return -1.0, 1.0
