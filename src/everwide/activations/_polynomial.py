"""Polynomials and rectified monomials: moments in closed form."""

import functools
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._trees import Hyper, like, name
from ..gaussian import horner, interpolant, safe_reciprocal, safe_sqrt
from ..signal import ArchitectureError
from ._base import AbstractActivation, Dual, GaussianPair, Moments


class Monomial(AbstractActivation):
    """`x ** degree`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Monomial(3), ew.Dense(1))
    """

    degree: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_degree(self, self.degree)

    def __call__(self, x: Array) -> Array:
        return x**self.degree

    def dual(self, pair: GaussianPair) -> Dual:
        representable(self, power_moment(2 * self.degree), pair.cov)
        return _mehler(pair, (0.0,) * self.degree + (1.0,))

    def moments(self, var: Array) -> Moments:
        n = self.degree
        representable(self, power_moment(2 * n), var)
        mean, moment = float(power_moment(n)) * var ** (n // 2), float(power_moment(2 * n)) * var**n
        return Moments(mean, moment, float(n**2 * power_moment(2 * n - 2)) * var ** max(n - 1, 0))


class Polynomial(AbstractActivation):
    """`coefficients[0] + coefficients[1] * x + coefficients[2] * x^2 + ...`.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.activations.Polynomial((0.0, 1.0, 0.5)), ew.Dense(1))
    """

    coefficients: tuple[Hyper, ...]

    def __init__(self, coefficients: Iterable[Hyper]):
        self.coefficients = tuple(c if isinstance(c, Array) else float(c) for c in coefficients)
        if not self.coefficients:
            raise ArchitectureError(
                f"{name(self)} needs at least one coefficient, got none. Pass (0.0,) for the constant 0."
            )

    def __call__(self, x: Array) -> Array:
        value = jnp.zeros_like(x)
        for c in self.coefficients[::-1]:
            value = value * x + like(c, x)
        return value

    def dual(self, pair: GaussianPair) -> Dual:
        representable(self, _largest_weight(len(self.coefficients)), pair.cov)
        return _mehler(pair, self.coefficients)

    def moments(self, var: Array) -> Moments:
        dual = self.dual(GaussianPair(var, var, var))  # a sum of positive terms: nothing cancels
        return Moments(_projection(var, self.coefficients, 0), dual.moment, dual.slope)


class Hermite(AbstractActivation):
    """`He_degree(x) / sqrt(degree!)`, the Hermite polynomial that has norm 1 under the unit Gaussian.

    Its moments are those of unit variance, `cov ** degree`, whatever the variances are: put a normalization before it
    (for instance `LayerNorm`), or the finite network has another limit.

    >>> import everwide as ew
    >>> net = ew.Serial(ew.Dense(), ew.LayerNorm(), ew.activations.Hermite(2), ew.Dense(1))
    """

    degree: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_degree(self, self.degree)

    def __call__(self, x: Array) -> Array:
        before, value = jnp.zeros_like(x), jnp.ones_like(x)
        for n in range(self.degree):  # normalized all along: nothing overflows
            before, value = value, (x * value - math.sqrt(n) * before) / math.sqrt(n + 1)
        return value

    def dual(self, pair: GaussianPair) -> Dual:
        return Dual(pair.cov**self.degree, self.degree * pair.cov ** max(self.degree - 1, 0))

    def moments(self, var: Array) -> Moments:
        mean = jnp.full_like(var, 1.0 if self.degree == 0 else 0.0)
        return Moments(mean, var**self.degree, self.degree * var ** max(self.degree - 1, 0))


def check_degree(layer: Any, degree: int) -> None:
    """Raise unless a degree is a whole number, at least 0."""
    if not isinstance(degree, int) or degree < 0:
        raise ArchitectureError(f"{name(layer)}(degree={degree!r}): degree must be a whole number, at least 0.")


def representable(layer: Any, number: int, array: Array) -> None:
    """Raise if a constant of the moments exceeds the largest number of the dtype: all results would be NaN."""
    if number > int(jnp.finfo(array.dtype).max):
        raise ArchitectureError(
            f"{name(layer)}: moments at unit variance reach 1e{len(str(number)) - 1}, beyond {array.dtype}. "
            "Pass data in float64, or lower the degree."
        )


def power_moment(n: int) -> int:
    """`E[x^n]` of a unit Gaussian; 0 for odd and for negative `n`."""
    return 0 if n < 0 or n % 2 else math.prod(range(n - 1, 0, -2))


def _mehler(pair: GaussianPair, coefficients: tuple[Hyper, ...]) -> Dual:
    """`E[f(u) f(v)] = sum_r cov^r / r! E[f^(r)(u)] E[f^(r)(v)]`: no division, so zero rows are no exception.

    The expectations belong to one row or one column; a pair of examples costs two products for each `r`.
    """
    moment = slope = jnp.zeros_like(pair.cov)  # of powers r and above, divided by cov^r
    for r in range(len(coefficients) - 1, -1, -1):
        missing = _absent(coefficients[r::2])
        term = 0.0 if missing else _projection(pair.var1, coefficients, r) * _projection(pair.var2, coefficients, r)
        moment = moment * pair.cov + term
        slope = slope * pair.cov + r * term if r else slope
    return Dual(moment, slope)


def _absent(coefficients: tuple[Hyper, ...]) -> bool:
    """Known to be 0 before anything runs: every other power of an even or odd polynomial."""
    return all(isinstance(c, float) and c == 0 for c in coefficients)


def _projection(var: Array, coefficients: tuple[Hyper, ...], order: int) -> Array:
    """`E[f^(order)(u)] / sqrt(order!)`."""
    value = jnp.zeros_like(var)
    for power in range(_last(len(coefficients), order), order - 1, -2):
        value = value * var + like(coefficients[power], var) * _weight(power, order)
    return value


def _last(terms: int, order: int) -> int:
    """The highest power of a polynomial that has the parity of `order`."""
    return terms - 1 - (terms - 1 - order) % 2


@functools.cache
def _weight(power: int, order: int) -> float:
    """`E[(x^power)^(order)] / sqrt(order!)` of a unit Gaussian."""
    half = (power - order) // 2
    return math.sqrt(Fraction(math.factorial(power) ** 2, 4**half * math.factorial(half) ** 2 * math.factorial(order)))


def _largest_weight(terms: int) -> int:
    """A bound of `_weight`: the weights of one power are the Hermite coefficients of a function with this norm."""
    return math.isqrt(power_moment(2 * (terms - 1))) + 1


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
