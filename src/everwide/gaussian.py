"""Two correlated Gaussians: the mathematics that activations and attention share.

`arccos` is most of the time of a ReLU kernel on a CPU, and it loses half of the digits near 1. Both are cured by one
form. Let `m = 1 - |correlation|` and `q = sqrt(m)`. Then for `0 <= m <= 1`

    arccos(1 - m)              =  q P(m)
    1 - E|u v| / (std1 std2)   =  m (1 - q B(m))

where `P` and `B` are analytic (their nearest singularity is at `m = 2`), so that polynomials of moderate degree meet
the precision of the dtype, and nothing cancels for nearly parallel `u` and `v`.
"""

import functools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial import chebyshev, polynomial

_LOST = 1e-3, 1e-9  # parts of a difference of lengths, below which float32 loses an angle; and what is no difference
SNAP = 4  # units of rounding in `1 - |correlation|` that may come from the correlation itself
_DEGREE = {"float32": 7, "float64": 21}
HASTY = ContextVar("HASTY", default=False)  # see `hasty`


@contextmanager
def hasty() -> Iterator[None]:
    """What is traced inside computes numeric moments the usual way only, which compiles in half the time.

    Where that is not accurate enough, they are not a number; and slopes are infinite where float32 is not enough for
    an angle. Who traces it looks, and traces it again outside, in the second case in float64.
    """
    before = HASTY.set(True)
    try:
        yield
    finally:
        HASTY.reset(before)


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
    agree = _where_told(pair, rest, sign * (1 - (2 / math.pi) * angle(rest)))  # E[sign u sign v]
    cov = pair.cov if pair.minus is None else sign * scale * (1 - rest)
    moment, slope = odd2 * cov + even2 * size, odd2 + even2 * agree
    if pair.minus is None:
        return Dual(moment, slope)
    minus = odd2 * _apart(pair, rest, sign) + even2 * (pair.radial + 2 * scale * folded)
    plus = None if folds else odd2 * _apart(pair, rest, -sign) + even2 * (pair.var1 + pair.var2 + 2 * size)
    return Dual(moment, slope, minus, plus)


def _where_told(pair: GaussianPair, rest: Array, agree: Array) -> Array:
    """Infinite where the angle is lost in float32: of rows of other lengths that are nearly parallel.

    What distances say beyond the difference of lengths has its rounding, and the angle the root of that.
    """
    if not HASTY.get() or pair.minus is None or rest.dtype != np.float32:
        return agree
    share, least = _LOST
    lengths = pair.radial * (safe_reciprocal(safe_sqrt(pair.var1)) * safe_reciprocal(safe_sqrt(pair.var2)))
    return jnp.where(rest < 0.5 * share * (lengths - least), jnp.inf, agree)


def _apart(pair: GaussianPair, rest: Array, sign: Array | float) -> Array:
    """`E[(u - v)^2]` (for the negated sign `E[(u + v)^2]`) from the complement."""
    near = 2 * pair.scale * rest
    if isinstance(sign, float):
        return pair.radial + (near if sign > 0 else 4 * pair.scale - near)
    return pair.radial + jnp.where(sign > 0, near, 4 * pair.scale - near)


@jax.custom_jvp
def angle(m: Array) -> Array:
    """`arccos(1 - m)` for `m` in `[0, 1]`; its derivative is finite (0) at 0."""
    q = jnp.sqrt(m)
    return q * horner(arccos_coefficients(m.dtype.name), q * q)


@angle.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (m,), (t,) = primals, tangents
    return angle(m), t * safe_reciprocal(safe_sqrt(m * (2 - m)))


@jax.custom_jvp
def fold(m: Array) -> Array:
    """`1 - E|u v| / (std1 std2)`, in `[0, 1 - 2/pi]`."""
    q = jnp.sqrt(m)
    m = q * q
    return m * (1 - q * horner(fold_coefficients(m.dtype.name), m))


@fold.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (m,), (t,) = primals, tangents
    return fold(m), t * (1 - (2 / math.pi) * angle(m))  # Price's theorem


@jax.custom_jvp
def root_squared(m: Array) -> Array:
    """`m` for `m >= 0`, written as `sqrt(m)^2`.

    XLA keeps square roots and recomputes everything else wherever it is used. Going through the root that `angle` and
    `fold` need anyway cuts the chain from layer to layer: without it the work grows with the square of the depth.
    """
    q = jnp.sqrt(m)
    return q * q


@root_squared.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return root_squared(primals[0]), tangents[0]


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def clamp(x: Array, low: float, high: float) -> Array:
    """Remove rounding errors beyond `low` and `high`; derivatives pass, also at the ends."""
    return jnp.clip(x, low, high)


@clamp.defjvp
def _(low: float, high: float, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return clamp(primals[0], low, high), tangents[0]


@jax.custom_jvp
def snapped(m: Array) -> Array:
    """`m` in `[0, 1]`, and 0 where it is no more than rounding: parallel numbers stay parallel; derivatives pass."""
    return jnp.where(m < SNAP * jnp.finfo(m.dtype).eps, 0, jnp.minimum(m, 1))


@snapped.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return snapped(primals[0]), tangents[0]


@jax.custom_jvp
def safe_sqrt(x: Array) -> Array:
    """Square root with a finite derivative everywhere: zero at and below zero."""
    return jnp.sqrt(jnp.maximum(x, 0))


@safe_sqrt.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (t,) = primals, tangents
    root = safe_sqrt(x)
    return root, t * (0.5 * safe_reciprocal(root))


def safe_reciprocal(x: Array) -> Array:
    """`1 / x`, and 0 at 0."""
    return jnp.where(x == 0, 0, 1 / jnp.where(x == 0, 1, x))


def horner(coefficients: tuple[float, ...], m: Array) -> Array:
    """A polynomial, lowest coefficient first."""
    value = jnp.full_like(m, coefficients[-1])
    for c in coefficients[-2::-1]:
        value = value * m + c
    return value


@functools.cache
def arccos_coefficients(dtype: str) -> tuple[float, ...]:
    """`P(m) = arccos(1 - m) / sqrt(m)`."""
    return interpolant(_arccos_ratio, _DEGREE.get(dtype, 21))


@functools.cache
def fold_coefficients(dtype: str) -> tuple[float, ...]:
    """`B(m) = (2 / pi) (sin - angle cos) / m^(3/2)`."""

    def ratio(m):
        return 2 / np.pi * (np.sqrt(2 - m) - _arccos_ratio(m) * (1 - m)) / m

    return interpolant(ratio, _DEGREE.get(dtype, 21))


def _arccos_ratio(m: np.ndarray) -> np.ndarray:
    return 2 * np.arcsin(np.sqrt(m / 2)) / np.sqrt(m)


def interpolant(exact: Callable[[np.ndarray], np.ndarray], degree: int) -> tuple[float, ...]:
    """The polynomial through `exact` at the Chebyshev nodes of `[0, 1]`."""
    nodes = chebyshev.chebpts1(degree + 1)
    values = exact((nodes.astype(np.longdouble) + 1) / 2).astype(float)
    in_t = chebyshev.cheb2poly(np.linalg.solve(chebyshev.chebvander(nodes, degree), values))
    in_m = np.zeros(1)
    for c in in_t[::-1]:  # t = 2 m - 1
        in_m = polynomial.polyadd(polynomial.polymul(in_m, [-1.0, 2.0]), [c])
    return tuple(float(c) for c in in_m)
