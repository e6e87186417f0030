"""Tiles are computed by a program that compiles quickly, and again by a careful one where it is not good enough."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
from everwide.activations import PiecewiseLinear
from everwide.activations._mehler import is_smooth_at_zero

pytestmark = pytest.mark.once

HARD_TANH = PiecewiseLinear((-1.0, 1.0), (0.0, 1.0, 0.0))


def network(activation):
    return ew.Serial(ew.Dense(w_std=1.5, b_std=0.1), activation, ew.Dense(1))


def rows(nearly=1e-4):
    x = np.random.default_rng(0).normal(size=(5, 3))
    return np.concatenate([x, x[:1] * (1 + nearly)])  # nearly parallel: beyond the short expansion


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_the_quick_program_lacks_the_careful_one_has(dtype):
    kernel = ew.Infinite(network(HARD_TANH), (3,))
    x = rows().astype(dtype)
    with jax.enable_x64(True):
        inputs = ew.Inputs(jnp.asarray(x))
        quick, careful = (np.asarray(jax.jit(k.block)(inputs, inputs).ntk) for k in (kernel.quick(), kernel))
    lost = np.isnan(quick)
    assert lost[0, 5]
    assert lost.mean() < 0.5
    assert np.isfinite(careful).all()
    np.testing.assert_allclose(quick[~lost], careful[~lost], rtol=1e-5 if dtype == np.float32 else 1e-9)
    both = ew.gram(network(HARD_TANH), x)
    off = ~np.eye(6, dtype=bool)
    np.testing.assert_allclose(both.ntk[off], careful[off], rtol=1e-5 if dtype == np.float32 else 1e-9)
    assert both.ntk.dtype == dtype  # numbers of numpy in an activation once widened float32


def test_smooth_functions_are_told_from_kinked_ones():
    smooth = (jnp.tanh, jax.nn.silu, jax.nn.softplus, lambda x: jnp.exp(-x * x))
    kinked = (jax.nn.relu, jax.nn.elu, jax.nn.selu, lambda x: jnp.abs(x) ** 3)
    assert all(map(is_smooth_at_zero, smooth))
    assert not any(map(is_smooth_at_zero, kinked))
