"""Orthonormal functions on circle, cube and sphere, level by level."""

import itertools
import math

import numpy as np
from jaxtyping import Float


def sphere_multiplicity(d: int, level: int) -> int:
    """Spherical harmonics of one degree in `d` dimensions; on the circle 1, 2, 2, ..."""
    fewer = math.comb(d + level - 3, d - 1) if level > 1 else 0
    return math.comb(d + level - 1, d - 1) - fewer


def legendre(d: int, levels: int, cosine: np.ndarray) -> Float[np.ndarray, "levels ..."]:
    """Legendre polynomials of `d` dimensions, 1 at 1: Chebyshev polynomials on the circle."""
    values = np.ones((levels, *np.shape(cosine)))
    if levels > 1:
        values[1] = cosine
    for k in range(1, levels - 1):
        values[k + 1] = ((2 * k + d - 2) * cosine * values[k] - k * values[k - 1]) / (k + d - 2)
    return values


def krawtchouk(d: int, levels: int) -> list[list[int]]:
    """`[level][flips]`: the sum of a parity over all points that differ from a corner in `flips` places.

    Whole numbers of any size. By the recursion in the level, each number of flips for itself:
    `(d - k) sum_(k+1) = (d - 2 flips) sum_k - k sum_(k-1)`.
    """
    before, now = [0] * (d + 1), [math.comb(d, flips) for flips in range(d + 1)]
    sums = [now]
    for k in range(levels - 1):
        after = [((d - 2 * f) * a - k * b) // (d - k) for f, (a, b) in enumerate(zip(now, before, strict=True))]
        before, now = now, after
        sums.append(now)
    return sums


def parities(signs: Float[np.ndarray, "points d"], level: int) -> Float[np.ndarray, "points functions"]:
    """Products of `level` coordinates, in the order of `itertools.combinations`."""
    return np.stack([np.prod(signs[:, list(s)], 1) for s in itertools.combinations(range(signs.shape[1]), level)], 1)


def harmonics(x: Float[np.ndarray, "points d"], level: int) -> Float[np.ndarray, "points functions"]:
    """Homogeneous harmonic polynomials of degree `level`, orthonormal on the unit sphere.

    By dimensions: in the last coordinate a Gegenbauer polynomial, in all others a harmonic polynomial of lower degree.
    The first function depends on the last coordinate only.
    """
    d = x.shape[1]
    if d == 2:
        turned = (x[:, 1] + 1j * x[:, 0]) ** level  # the angle counts from the last axis, as above
        both = np.stack([turned.real, turned.imag], 1) * 2**0.5
        return both if level else np.ones((len(x), 1))
    last, squared = x[:, -1], np.sum(x**2, 1)
    parts = []
    for inner in range(level + 1):
        index = inner + d / 2 - 1
        radial = _gegenbauer(level - inner, index, last, squared) / _norm(level - inner, index, d)
        parts.append(radial[:, None] * harmonics(x[:, :-1], inner))
    return np.concatenate(parts, 1)


def _gegenbauer(degree: int, index: float, t: np.ndarray, squared: np.ndarray) -> np.ndarray:
    """`r^degree C(t / r)`, a polynomial in `t` and `r^2`."""
    before, now = np.zeros_like(t), np.ones_like(t)
    for k in range(1, degree + 1):
        before, now = now, (2 * (k + index - 1) * t * now - (k + 2 * index - 2) * squared * before) / k
    return now


def _norm(degree: int, index: float, d: int) -> float:
    """Root mean square on the sphere of the Gegenbauer polynomial times the right power of the sine."""
    square = math.lgamma(degree + 2 * index) - math.lgamma(degree + 1) - 2 * math.lgamma(index)
    square += (1 - 2 * index) * math.log(2) + math.log(math.pi / (degree + index))
    density = math.lgamma(d / 2) - math.lgamma((d - 1) / 2) - 0.5 * math.log(math.pi)
    return math.exp((square + density) / 2)
