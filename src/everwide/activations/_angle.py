"""Inverse trigonometric functions that are fast and accurate on a CPU.

`angle` covers `arccos` near 1. The same polynomial gives `arcsin` everywhere, because `2 arcsin(x) = angle(2 x^2)`:
it serves small arguments directly and large ones through their complement.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from ..angle import arccos_coefficients, horner, safe_reciprocal, safe_sqrt
from ..gaussian import GaussianPair


class Arc(NamedTuple):
    """`arcsin(s)`, the angle `arccos|s|` to the nearer end of the line, and the cosine `sqrt(1 - s^2)`."""

    arcsin: Array
    fold: Array
    cosine: Array


@jax.custom_jvp
def arc(s: Array, complement: Array) -> Arc:
    """All of an `Arc` to full relative accuracy, from `s` and `complement = 1 - |s|`.

    The complement is the same number said better: derivatives follow `s` alone, and are 0 where `|s| = 1`.
    """
    squared = s * s
    small = squared <= 0.5
    poly = horner(arccos_coefficients(s.dtype.name), jnp.where(small, 2 * squared, complement))
    short, far = math.sqrt(0.5) * jnp.abs(s) * poly, jnp.sqrt(complement) * poly
    size, fold = jnp.where(small, short, math.pi / 2 - far), jnp.where(small, math.pi / 2 - short, far)
    return Arc(jnp.where(s < 0, -size, size), fold, jnp.sqrt(complement * (2 - complement)))


@arc.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Arc, Arc]:
    (s, _), (t, _) = primals, tangents
    both = arc(*primals)
    turned = t * safe_reciprocal(both.cosine)
    return both, Arc(turned, jnp.where(s < 0, turned, -turned), -s * turned)


class Blurred(NamedTuple):
    """Two Gaussians after independent noise of variance `1 / rate` was added to each.

    - `root1`, `root2`: `sqrt(1 + rate var)`, the standard deviations of the noisy pair, in units of the noise;
    - `correlation`: of the noisy pair; never 1, so nothing below is singular for parallel `u` and `v`;
    - `arc`: its angles.
    """

    root1: Array
    root2: Array
    correlation: Array
    arc: Arc

    @property
    def shrink(self) -> Array:
        """`1 / (root1 root2)`, by divisions of rows only."""
        return (1 / self.root1) * (1 / self.root2)

    @property
    def inverse_root_det(self) -> Array:
        """`1 / sqrt(det(I + rate Sigma))`."""
        return self.shrink / self.arc.cosine


def blurred(pair: GaussianPair, rate: Any) -> Blurred:
    """The pair seen by functions of Gaussian shape: `erf`, `exp(-x^2)` and their kin."""
    root1, root2 = jnp.sqrt(1 + rate * pair.var1), jnp.sqrt(1 + rate * pair.var2)
    # a division on purpose: XLA keeps its result, and would compute a product again for each use, layer upon layer
    s = rate * pair.cov / (root1 * root2)
    return Blurred(root1, root2, s, arc(s, lax.stop_gradient(_complement(pair, s, 1 / root1**2, 1 / root2**2))))


def _complement(pair: GaussianPair, s: Array, noise1: Array, noise2: Array) -> Array:
    """`1 - |s|`, from positive terms: what the noise takes from the correlation, plus what was missing before."""
    left = safe_sqrt(1 - noise1) * safe_sqrt(1 - noise2)
    taken = (noise1 + noise2 * (1 - noise1)) / (1 + left)
    if pair.minus is None:
        return jnp.maximum(1 - jnp.abs(s), taken)
    return taken + left * pair.complement
