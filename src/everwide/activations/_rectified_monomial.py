"""Rectified powers: the arc-cosine kernels of any order."""

import functools
import math
from fractions import Fraction

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..angle import horner, interpolant, safe_reciprocal, safe_sqrt
from ._base import AbstractActivation, Dual, GaussianPair, Moments
from ._polynomial import check_degree, power_moment, representable

# At which the function below meets the precision of the dtype; with more, noise in the highest coefficients grows.
_FIT_DEGREE = {"float32": 8, "float64": 19}


class RectifiedMonomial(AbstractActivation):
    """`x ** degree` for `x >= 0`, and 0 below.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.RectifiedMonomial(2), ew.Dense(1))

    Cho and Saul, "Kernel methods for deep learning" (2009).
    """

    degree: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_degree(self, self.degree)

    def __call__(self, x: Array) -> Array:
        return jnp.where(x >= 0, x**self.degree, 0)

    def dual(self, pair: GaussianPair) -> Dual:
        n, scale, rest = self.degree, pair.scale, pair.complement
        representable(self, power_moment(2 * n), scale)
        correlation = pair.cov * safe_reciprocal(scale)
        moment = scale**n * arc_power(n, correlation, rest)
        slope = n**2 * scale ** (n - 1) * arc_power(n - 1, correlation, rest) if n else jnp.zeros_like(moment)
        if n == 0:  # a constant 0 counts as non-negative
            moment = jnp.where(scale == 0, self.moments(pair.var1).mean * self.moments(pair.var2).mean, moment)
        return Dual(moment, slope, None if pair.minus is None else self._apart(pair, moment))

    def moments(self, var: Array) -> Moments:
        n, std = self.degree, safe_sqrt(var)
        representable(self, power_moment(2 * n), var)
        mean, moment = _half_moment(n) * std**n, power_moment(2 * n) / 2 * var**n
        slope = n**2 * power_moment(2 * n - 2) / 2 * var ** max(n - 1, 0)
        if n == 0:
            mean = moment = jnp.where(var > 0, moment, 1)
        return Moments(mean, moment, slope)

    def _apart(self, pair: GaussianPair, moment: Array) -> Array:
        """`E[(f(u) - f(v))^2]`, from what the angle takes away: nearly equal `u` and `v` do not cancel."""
        n = self.degree
        own = self.moments(pair.var1).moment + self.moments(pair.var2).moment
        radial = (safe_sqrt(pair.var1) ** n - safe_sqrt(pair.var2) ** n) ** 2 * (power_moment(2 * n) / 2)
        bent = radial + 2 * pair.scale**n * _loss(n, pair.complement)
        return jnp.where((pair.sign < 0) | (pair.scale == 0), own - 2 * moment, bent)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def arc_power(order: int, correlation: Array, rest: Array) -> Array:
    """`E[f(u) f(v)]` of the rectified power for unit variances; `rest` is `1 - |correlation|`.

    With the angle `theta` this is `order! / (2 pi)` times the integral of `(cos t + cos(theta))^order` over `t` from 0
    to `pi - theta`. Opposite `u` and `v` leave a small part of the plane, `_sliver`, which is computed directly; what
    they leave of `E[u^n v^n]`, a polynomial, belongs to the mirrored angle. No step cancels.
    """
    sliver = _sliver(order, rest)
    whole = horner(_even_sum(order), (1 - rest) ** 2) * (1 - rest) ** (order % 2)
    return jnp.where(correlation < 0, sliver, whole / 2 - (-1) ** order * sliver)


@arc_power.defjvp
def _(order: int, primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    (_, rest), (t, _) = primals, tangents  # `rest` is the correlation said better: derivatives follow the correlation
    if order:
        return arc_power(order, *primals), order**2 * arc_power(order - 1, *primals) * t
    sine = safe_sqrt(rest * (2 - rest))
    return arc_power(order, *primals), t * safe_reciprocal(2 * math.pi * sine)


def _sliver(order: int, rest: Array) -> Array:
    """`arc_power` where the correlation is `rest - 1`, in `[-1, 0]`: `rest^(order + 1/2)` times a smooth function."""
    return safe_sqrt(rest) * rest**order * horner(_sliver_fit(order, rest.dtype.name), rest)


def _loss(order: int, rest: Array) -> Array:
    """`arc_power` at correlation 1 minus at `1 - rest`, for `rest` in `[0, 1]`."""
    coefficients = _power_sum(order)
    tails = tuple(float(sum(coefficients[i + 1 :])) for i in range(order))  # 1 - c^j = rest (1 + c + ... + c^(j-1))
    lost = rest * horner(tails, 1 - rest) / 2 if tails else jnp.zeros_like(rest)
    return lost + (-1) ** order * _sliver(order, rest)


@functools.cache
def _power_sum(n: int) -> tuple[int, ...]:
    """Coefficients of `E[u^n v^n]` in the correlation, by the number of pairs that join `u` with `v`."""
    squares = [0] * (n + 1)
    for j in range(n % 2, n + 1, 2):
        half = (n - j) // 2
        squares[j] = math.factorial(n) ** 2 // (math.factorial(j) * math.factorial(half) ** 2 * 2 ** (n - j))
    return tuple(squares)


def _even_sum(n: int) -> tuple[float, ...]:
    """The same in the squared correlation; an odd `n` leaves one factor."""
    return tuple(float(c) for c in _power_sum(n)[n % 2 :: 2])


def _half_moment(n: int) -> float:
    """`E[max(x, 0)^n]` of a unit Gaussian."""
    return power_moment(n) / 2 if n % 2 == 0 else math.prod(range(n - 1, 0, -2)) / math.sqrt(2 * math.pi)


@functools.cache
def _sliver_fit(n: int, dtype: str) -> tuple[float, ...]:
    """The integral in `arc_power` is a hypergeometric function: `2F1(1/2, 1/2; n + 3/2; rest / 2)` times a constant."""
    front = float(Fraction(math.factorial(n) ** 2 * 2**n, power_moment(2 * n + 2))) / (math.pi * math.sqrt(2))

    def exact(m: np.ndarray) -> np.ndarray:
        term = total = np.ones_like(m)
        for k in range(80):  # the ratio of terms is below rest / 2 <= 1/2
            term = term * (m / 2) * (k + 0.5) ** 2 / ((n + 1.5 + k) * (k + 1))
            total = total + term
        return front * total

    return interpolant(exact, _FIT_DEGREE.get(dtype, 19))
