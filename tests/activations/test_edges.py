"""What every activation must keep: symmetry, Price's theorem, and finite values and gradients where formulas end."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from activations.activation_table import EVERY, array, dual, tolerance
from everwide.activations import AbstractActivation, Dual, GaussianPair, Moments

# The others differ from one of these by a number only.
DISTINCT = ["erf", "gelu", "sin_shifted", "cos_shifted", "rbf", "exp", "gaussian", "gabor", "monomial_4", "polynomial"]
DISTINCT += ["relu", "two_slope", "sign", "step", "rectified_0", "rectified_1", "rectified_2", "rectified_6"]
DISTINCT += ["hermite_3", "exp_normalized"]
WITH_NUMBERS = ["erf_shifted", "sin_shifted", "cos_shifted", "rbf", "exp", "gaussian", "polynomial", "two_slope"]
WITH_NUMBERS += ["exp_normalized"]
JUMPS = {"sign", "step", "rectified_0"}  # the derivative counts as 0 although the moment depends on the covariance

ZERO = [(0, 0, 0), (0, 0, 1), (1, 0, 0)]
EQUAL = [(v, v, v) for v in (2.0**-12, 0.25, 1, 4)]
ENDS = [(1, -1, 1), (4, 2, 1), (4, -2, 1), (1, 1 - 2**-22, 1), (1, 2**-22 - 1, 1)]
PLAIN = [(1, 0, 1), (1.3, 0.4, 0.8), (0.3, -0.2, 2.0)]
POINTS = np.array([*ZERO, *EQUAL, *ENDS, *PLAIN])
equal = slice(len(ZERO), len(ZERO) + len(EQUAL))
every = pytest.mark.parametrize("name", DISTINCT)


class Account(NamedTuple):
    """All that is read of an activation, at `POINTS`; gradients are of the moment and the slope, entry by entry."""

    plain: Dual
    plain_gradients: tuple[GaussianPair, GaussianPair]
    known: Dual
    known_gradients: tuple[GaussianPair, GaussianPair]
    moments: Moments
    moments_gradient: jax.Array


@functools.cache
def account(name: str) -> Account:
    return _account(dict(EVERY)[name], *(array(a) for a in POINTS.T))


@eqx.filter_jit
def _account(activation: AbstractActivation, var1: jax.Array, cov: jax.Array, var2: jax.Array) -> Account:
    def gradients(pair: GaussianPair) -> tuple[GaussianPair, GaussianPair]:
        total = lambda i: eqx.filter_grad(lambda p: jnp.sum(activation.dual(p)[i]))(pair)
        return total(0), total(1)

    plain = GaussianPair(var1, cov, var2)
    known = GaussianPair(var1, cov, var2, var1 + var2 - 2 * cov, var1 + var2 + 2 * cov)
    single = jax.grad(lambda v: jnp.sum(activation.moments(v).moment))(var1)
    at = activation.moments(var1)
    return Account(activation.dual(plain), gradients(plain), activation.dual(known), gradients(known), at, single)


@every
def test_values_and_gradients_are_finite(name: str) -> None:
    for leaf in jax.tree.leaves(account(name)):
        assert leaf.shape == (len(POINTS),)
        assert bool(jnp.all(jnp.isfinite(leaf)))


@every
def test_distances_say_the_same(name: str) -> None:
    """Where the correlation is rounded to 1, `plain` loses half of the digits of an angle."""
    found = account(name)
    for a, b in zip(found.plain[:2], found.known[:2], strict=True):
        a, b = (v[len(ZERO) :] for v in (a, b))
        np.testing.assert_allclose(a, b, rtol=tolerance(1e-7, 1e-3), atol=tolerance(1e-7, 1e-3))


@every
def test_the_slope_is_the_derivative_in_the_covariance(name: str) -> None:
    if name in JUMPS:
        pytest.skip("the derivative counts as 0")
    found = account(name)
    got, expected = (a[len(ZERO) :] for a in (found.plain_gradients[0].cov, found.plain.slope))
    np.testing.assert_allclose(got, expected, rtol=tolerance(1e-11, 1e-5), atol=tolerance(1e-13, 1e-6))


@every
def test_moments_are_dual_of_equals(name: str) -> None:
    found = account(name)
    for i in (0, 1):
        np.testing.assert_allclose(found.known[i][equal], found.moments[i + 1][equal], rtol=tolerance(1e-13, 1e-6))


@every
def test_derivatives_of_moments_are_those_of_dual(name: str) -> None:
    """By the chain rule along `var1 = cov = var2`, where `dual` has its square roots."""
    if name in JUMPS:
        pytest.skip("dual has no derivative where both coincide")
    found = account(name)
    along = found.plain_gradients[0]
    total = (along.var1 + along.cov + along.var2)[equal]
    expected = found.moments_gradient[equal]
    np.testing.assert_allclose(total, expected, rtol=tolerance(1e-11, 1e-5), atol=tolerance(1e-13, 1e-6))


@every
def test_dual_is_symmetric_and_broadcasts(name: str) -> None:
    activation = dict(EVERY)[name]
    var1, var2 = array([[0.3], [1.0], [2.0]]), array([[0.7, 1.5]])
    cov = array([[0.4, 0.0], [0.0, 0.2], [1.1, 1.7]])
    there = dual(activation, GaussianPair(var1, cov, var2, var1 + var2 - 2 * cov))
    back = dual(activation, GaussianPair(var2.T, cov.T, var1.T))
    for a, b in zip(there[:2], back[:2], strict=True):
        assert a.shape == cov.shape
        assert a.dtype == cov.dtype
        np.testing.assert_allclose(a, b.T, rtol=tolerance(1e-13, 3e-6), atol=tolerance(1e-15, 1e-6))


@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_hyperparameters_are_differentiable(name: str) -> None:
    """JAX scalars give the same numbers as Python numbers; derivatives meet difference quotients."""
    activation = dict(EVERY)[name]
    pair = GaussianPair(array([0.5, 1.2]), array([0.3, -0.4]), array([0.8, 1.0]))
    leaves, structure = jax.tree.flatten(activation)

    def read(values: jax.Array) -> jax.Array:
        changed = jax.tree.unflatten(structure, list(values))
        found, single = changed.dual(pair), changed.moments(pair.var1)
        return jnp.stack([jnp.sum(a) for a in (found.moment, found.slope, *single)])

    value = jax.jit(read)
    plain, single = dual(activation, pair), activation.moments(pair.var1)
    expected = [jnp.sum(a) for a in (plain.moment, plain.slope, *single)]
    values, step = array(leaves), tolerance(1e-5, 1e-2)
    np.testing.assert_allclose(value(values), expected, rtol=tolerance(1e-13, 3e-6), atol=tolerance(1e-15, 1e-6))
    found = jax.jit(jax.jacobian(read))(values)
    for i in range(len(leaves)):
        change = array(np.eye(len(leaves))[i] * step)
        quotient = (value(values + change) - value(values - change)) / (2 * step)
        np.testing.assert_allclose(found[:, i], quotient, rtol=tolerance(1e-7, 1e-2), atol=tolerance(1e-8, 1e-2))
