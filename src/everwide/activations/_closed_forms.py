"""Error functions, exponentials and waves: moments in closed form."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._trees import Hyper, like, name, positive
from ..signal import ArchitectureError
from ._base import AbstractActivation, Dual, GaussianPair, Moments, safe_reciprocal
from ._rectified import arc, blurred

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


class AbstractWave(AbstractActivation):
    """`a (odd sin(b x) + even cos(b x))`, up to signs, which do not matter to second moments."""

    is_cosine: eqx.AbstractClassVar[bool]
    a: Hyper = 1.0
    b: Hyper = 1.0
    c: Hyper = 0.0

    def __call__(self, x: Array) -> Array:
        wave = jnp.cos if self.is_cosine else jnp.sin
        return like(self.a, x) * wave(like(self.b, x) * x + like(self.c, x))

    def dual(self, pair: GaussianPair) -> Dual:
        return self._weighed(*_products(pair, like(self.b, pair.cov) ** 2))

    def moments(self, var: Array) -> Moments:
        a, b, (_, even) = like(self.a, var), like(self.b, var), self._shares(var)
        less = jnp.expm1(-2 * b**2 * var)
        dual = self._weighed(-less / 2, 1 + less / 2)
        return Moments(a * even * jnp.exp(-(b**2) * var / 2), dual.moment, dual.slope)

    def _weighed(self, sines: Array, cosines: Array) -> Dual:
        """From the moments of the plain sine and cosine."""
        a, b, (odd, even) = like(self.a, sines), like(self.b, sines), self._shares(sines)
        moment = a**2 * (odd**2 * sines + even**2 * cosines)
        return Dual(moment, (a * b) ** 2 * (odd**2 * cosines + even**2 * sines))

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


class Cos(AbstractWave):
    """`a * cos(b * x + c)`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Cos(b=3.0), ew.Dense(1))
    """

    is_cosine: ClassVar[bool] = True


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
