"""Branches whose channels have laws of their own: which one meets which matters, so their product is sampled."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew

pytestmark = pytest.mark.once


class Gates(eqx.Module):
    """Two concatenations of a quiet and a loud layer, multiplied."""

    parts: list[eqx.nn.Linear]
    head: eqx.nn.Linear

    def __init__(self, key):
        *keys, last = jr.split(key, 5)
        self.parts = [eqx.nn.Linear(8, 256, key=k) for k in keys]
        self.head = eqx.nn.Linear(512, 4, key=last)

    def __call__(self, x):
        a, b, c, d = (part(x) for part in self.parts)
        return self.head(jnp.concatenate([a, 4 * b]) * jnp.concatenate([c, 4 * d]))


def test_a_product_of_concatenations_is_sampled_and_meets_what_is_known_of_it():
    limit = ew.from_module(Gates(jr.key(0)), (8,))
    assert "sampled" in str(limit)
    x = np.random.default_rng(0).choice([-1.0, 1.0], (3, 8))
    found = ew.gram(limit.net, x, parametrization=limit.parametrization, draws=64)
    one = x @ x.T / 8 / 3 + 1 / 24  # uniform weights and biases, of variance 1 / (3 * 8)
    exact = (1 + 4**4) / 2 * one**2 / 3 + 1 / (3 * 512)
    assert found.error is not None
    np.testing.assert_array_less(np.abs(found.nngp - exact), 4 * found.error.nngp + 0.01 * exact.max())
    assert found.error.nngp.max() < 0.1 * exact.max()
    separate = (1 + 4**2) ** 2 / 4 * one**2 / 3  # means of either branch, multiplied
    assert np.all(np.abs(np.diagonal(found.nngp - separate)) > 4 * np.diagonal(found.error.nngp))


def test_sums_of_centred_concatenations_stay_exact():
    class Added(Gates):
        def __call__(self, x):
            a, b, c, d = (part(x) for part in self.parts)
            return self.head(jnp.concatenate([a, 4 * b]) + jnp.concatenate([c, 4 * d]))

    limit = ew.from_module(Added(jr.key(0)), (8,))
    assert "sampled" not in str(limit).splitlines()[3]
    x = np.random.default_rng(0).choice([-1.0, 1.0], (3, 8))
    one = x @ x.T / 8 / 3 + 1 / 24
    found = ew.gram(limit.net, x, parametrization=limit.parametrization).nngp
    np.testing.assert_allclose(found, (1 + 4**2) * one / 3 + 1 / (3 * 512), rtol=1e-6)
