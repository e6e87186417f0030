"""Two correlated Gaussians: the mathematics that activations and attention share."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .angle import angle, clamp, fold, root_squared, safe_reciprocal, safe_sqrt, snapped


class GaussianPair(eqx.Module):
    """Two jointly Gaussian, centred numbers `u` and `v`; any broadcastable shapes.

    `minus` and `plus` are `E[(u - v)^2]` and `E[(u + v)^2]` where they are known better than by subtraction. `minus`
    without `plus` says that the covariance is known to be non-negative.

    >>> import jax.numpy as jnp
    >>> from everwide.activations import GaussianPair
    >>> float(GaussianPair(jnp.array(4.0), jnp.array(1.0), jnp.array(1.0)).correlation)
    0.5
    """

    var1: Float[Array, "..."]
    cov: Float[Array, "..."]
    var2: Float[Array, "..."]
    minus: Float[Array, "..."] | None = None
    plus: Float[Array, "..."] | None = None

    @property
    def scale(self) -> Array:
        """`std(u) std(v)`, without overflow of the product of variances."""
        return safe_sqrt(self.var1) * safe_sqrt(self.var2)

    @property
    def radial(self) -> Array:
        """`(std(u) - std(v))^2`: what is left of `minus` when both are parallel."""
        return (safe_sqrt(self.var1) - safe_sqrt(self.var2)) ** 2

    @property
    def sign(self) -> Array | float:
        """Of the covariance; 1 at 0."""
        return 1.0 if self.minus is not None and self.plus is None else jnp.where(self.cov < 0, -1.0, 1.0)

    @property
    def correlation(self) -> Array:
        """In `[-1, 1]`; zero where one of the two is constant."""
        inverse = safe_reciprocal(safe_sqrt(self.var1)) * safe_reciprocal(safe_sqrt(self.var2))
        return clamp(self.cov * inverse, -1.0, 1.0)

    @property
    def complement(self) -> Array:
        """`1 - |correlation|`, to full relative accuracy where `minus` is known."""
        if self.minus is None:
            return snapped(1 - jnp.abs(self.correlation))
        apart = self.minus if self.plus is None else jnp.where(self.cov < 0, self.plus, self.minus)
        inverse = safe_reciprocal(safe_sqrt(self.var1)) * safe_reciprocal(safe_sqrt(self.var2))
        return root_squared(clamp((apart - self.radial) * (0.5 * inverse), 0.0, 1.0))


class Dual(NamedTuple):
    """`E[f(u) f(v)]` and `E[f'(u) f'(v)]`; `E[(f(u) -+ f(v))^2]` where it can be had without cancellation.

    >>> import everwide as ew, jax.numpy as jnp
    >>> pair = ew.activations.GaussianPair(jnp.array(1.0), jnp.array(1.0), jnp.array(1.0))
    >>> float(ew.Relu().dual(pair).slope)  # half of all inputs are positive
    0.5
    """

    moment: Array
    slope: Array
    minus: Array | None = None
    plus: Array | None = None


class Moments(NamedTuple):
    """`E[f(u)]`, `E[f(u)^2]` and `E[f'(u)^2]`.

    >>> import everwide as ew, jax.numpy as jnp
    >>> float(ew.Relu().moments(jnp.array(2.0)).moment)
    1.0
    """

    mean: Array
    moment: Array
    slope: Array


def two_slope(pair: GaussianPair, negative: Any, positive: Any, *, folds: bool = False) -> Dual:
    """Moments of `negative * x` below zero, `positive * x` above.

    Written as `odd * x + even * |x|`: the odd part passes covariances on, the even part folds the angle. `folds` says
    that `negative * positive <= 0`: then no covariance after it is negative.
    Cho and Saul, "Kernel methods for deep learning" (2009).
    """
    odd2, even2 = ((positive + negative) / 2) ** 2, ((positive - negative) / 2) ** 2
    scale, rest, sign = pair.scale, pair.complement, pair.sign
    folded = fold(rest)
    size = scale * (1 - folded)  # E|u v|
    agree = sign * (1 - (2 / math.pi) * angle(rest))  # E[sign u sign v]
    cov = pair.cov if pair.minus is None else sign * scale * (1 - rest)
    moment, slope = odd2 * cov + even2 * size, odd2 + even2 * agree
    if pair.minus is None:
        return Dual(moment, slope)
    minus = odd2 * _apart(pair, rest, sign) + even2 * (pair.radial + 2 * scale * folded)
    plus = None if folds else odd2 * _apart(pair, rest, -sign) + even2 * (pair.var1 + pair.var2 + 2 * size)
    return Dual(moment, slope, minus, plus)


def _apart(pair: GaussianPair, rest: Array, sign: Array | float) -> Array:
    """`E[(u - v)^2]` (for the negated sign `E[(u + v)^2]`) from the complement."""
    near = 2 * pair.scale * rest
    if isinstance(sign, float):
        return pair.radial + (near if sign > 0 else 4 * pair.scale - near)
    return pair.radial + jnp.where(sign > 0, near, 4 * pair.scale - near)
