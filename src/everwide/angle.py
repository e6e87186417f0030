"""The angle between two Gaussians, fast and to full accuracy near 0.

`arccos` is most of the time of a ReLU kernel on a CPU, and it loses half of the digits near 1. Both are cured by one
form. Let `m = 1 - |correlation|` and `q = sqrt(m)`. Then for `0 <= m <= 1`

    arccos(1 - m)              =  q P(m)
    1 - E|u v| / (std1 std2)   =  m (1 - q B(m))

where `P` and `B` are analytic (their nearest singularity is at `m = 2`), so that polynomials of moderate degree meet
the precision of the dtype, and nothing cancels for nearly parallel `u` and `v`.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.polynomial import chebyshev, polynomial

SNAP = 4  # units of rounding in `1 - |correlation|` that may come from the correlation itself
_DEGREE = {"float32": 7, "float64": 21}


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
