"""Polynomials: their moments are finite sums, by Mehler's formula."""

import functools
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._hyper import Hyper, like, name
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
