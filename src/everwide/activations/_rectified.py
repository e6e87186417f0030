"""Functions of two slopes: ReLU and its family. Positively homogeneous, so only the angle matters."""

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._hyper import Hyper, like
from ..gaussian import two_slope
from ._base import AbstractActivation, Dual, GaussianPair, Moments, safe_sqrt


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
