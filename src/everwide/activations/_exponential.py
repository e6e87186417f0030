"""Exponentials, bells and wavelets."""

import jax.numpy as jnp
from jaxtyping import Array

from .._hyper import Hyper, like, name
from ..signal import ArchitectureError
from ._angle import blurred
from ._base import AbstractActivation, Dual, GaussianPair, Moments, safe_reciprocal


class Exp(AbstractActivation):
    """`a * exp(b * x)`.

    Its moments are exponentials of variances: in a deep network they overflow unless `b` or the weights are small.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(w_std=0.5), ew.activations.Exp(b=0.5), ew.Dense(1))
    """

    a: Hyper = 1.0
    b: Hyper = 1.0

    def __call__(self, x: Array) -> Array:
        return like(self.a, x) * jnp.exp(like(self.b, x) * x)

    def dual(self, pair: GaussianPair) -> Dual:
        a, b = like(self.a, pair.cov), like(self.b, pair.cov)
        together = pair.var1 + pair.var2 + 2 * pair.cov if pair.plus is None else pair.plus
        moment = a**2 * jnp.exp(b**2 / 2 * together)
        return Dual(moment, b**2 * moment)

    def moments(self, var: Array) -> Moments:
        a, b = like(self.a, var), like(self.b, var)
        moment = a**2 * jnp.exp(2 * b**2 * var)
        return Moments(a * jnp.exp(b**2 / 2 * var), moment, b**2 * moment)


class Gaussian(AbstractActivation):
    """`a * exp(b * x^2)` with `b < 0`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Gaussian(b=-0.5), ew.Dense(1))
    """

    a: Hyper = 1.0
    b: Hyper = -1.0

    def __check_init__(self) -> None:
        if isinstance(self.b, int | float) and not self.b < 0:
            raise ArchitectureError(
                f"{name(self)}(b={self.b!r}): b must be below 0, or a * exp(b * x^2) has no finite moments for large "
                "variances. Pass a negative b."
            )

    def __call__(self, x: Array) -> Array:
        return like(self.a, x) * jnp.exp(like(self.b, x) * x**2)

    def dual(self, pair: GaussianPair) -> Dual:
        a, rate = like(self.a, pair.cov), -2 * like(self.b, pair.cov)
        size = blurred(pair, rate).inverse_root_det
        return Dual(a**2 * size, (a * rate) ** 2 * pair.cov * size**3)

    def moments(self, var: Array) -> Moments:
        a, rate = like(self.a, var), -2 * like(self.b, var)
        size = 1 / jnp.sqrt(1 + 2 * rate * var)
        return Moments(a / jnp.sqrt(1 + rate * var), a**2 * size, (a * rate) ** 2 * var * size**3)


class Gabor(AbstractActivation):
    """`exp(-x^2) * sin(x)`, a wavelet.

    The bell turns a Gaussian pair into another, narrower one; the wave then has the moments of `Sin` over that.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Gabor(), ew.Dense(1))
    """

    def __call__(self, x: Array) -> Array:
        return jnp.exp(-(x**2)) * jnp.sin(x)

    def dual(self, pair: GaussianPair) -> Dual:
        near = blurred(pair, 2.0)
        size = near.inverse_root_det
        cov = pair.cov * size**2
        total = 1 - (1 / near.root1**2 + 1 / near.root2**2) / (2 * near.arc.cosine**2)
        return _narrowed(size, cov, total)

    def moments(self, var: Array) -> Moments:
        size = 1 / jnp.sqrt(1 + 4 * var)
        narrow = var * size**2
        dual = _narrowed(size, narrow, 2 * narrow)
        return Moments(jnp.zeros_like(var), dual.moment, dual.slope)


def _narrowed(size: Array, cov: Array, total: Array) -> Dual:
    """Moments of `Gabor` from the narrower pair: its covariance and the sum of its variances.

    `size` is the mass that the bell leaves. The slope is the derivative of the moment in the wide covariance.
    """
    mass = size * jnp.exp(-total / 2)
    more = jnp.expm1(cov)  # |cov| <= 1/4: sinh and cosh from it are accurate, and several times faster
    less = more / (1 + more)
    sines, cosines = mass * (more + less) / 2, mass * (1 + more * less / 2)
    return Dual(sines, 4 * cov * (2 - total) * sines + (size**2 + 8 * cov**2) * cosines)


class ExpNormalized(AbstractActivation):
    """The normalized Gaussian kernel: `scale * exp(gamma * (correlation + shift))`.

    It is a rule for covariances, not a function: a network with it has a limit but no finite sample. For lack of a
    function its mean counts as 0.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.ExpNormalized(gamma=2.0), ew.Dense(1))

    Shankar et al., "Neural kernels without tangents" (2020).
    """

    gamma: Hyper = 1.0
    shift: Hyper = -1.0

    def __call__(self, x: Array) -> Array:
        raise ArchitectureError(
            f"{name(self)} has no finite network: it is a rule for covariances, and no function with these moments is "
            "known. Use its infinite-width kernel, or another activation such as Exp."
        )

    def dual(self, pair: GaussianPair) -> Dual:
        gamma, shift = like(self.gamma, pair.cov), like(self.shift, pair.cov)
        scale = pair.scale
        weight = jnp.exp(gamma * (pair.cov * safe_reciprocal(scale) + shift))
        return Dual(scale * weight, gamma * weight)

    def moments(self, var: Array) -> Moments:
        gamma, shift = like(self.gamma, var), like(self.shift, var)
        weight = jnp.exp(gamma * (1 + shift)) * jnp.ones_like(var)
        return Moments(jnp.zeros_like(var), var * weight, gamma * weight)
