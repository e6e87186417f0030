"""Gradients through layers that are sampled: those of the estimate, with the random numbers held."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
from everwide.layers import InstanceNorm, MaxPool, Sampled

pytestmark = [pytest.mark.wide, pytest.mark.slow]
LAYERS = {"max_pool": ew.Serial(ew.Relu(), MaxPool((2,))), "instance_norm": InstanceNorm(0.1)}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_both_kernels_are_differences_with_common_random_numbers(name):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4, 2)))
    weigh = jnp.asarray([[1.0, 2.0], [0.5, -1.0]])

    def value(w_std, x):
        first = ew.Conv((3,), w_std=w_std, b_std=0.2)
        net = ew.Serial(first, Sampled(LAYERS[name], width=16), ew.Flatten(), ew.Dense(1, w_std=w_std))
        block = ew.Infinite(net, (4, 2), seed=3).block(ew.Inputs(x[:2]), ew.Inputs(x[1:]))
        return jnp.sum(weigh * block.nngp), jnp.sum(weigh * block.ntk)

    w_std, step, run = jnp.asarray(1.3), 1e-4, jax.jit(value)  # smaller ones see the rounding of square roots
    found = jax.jit(jax.jacrev(value, (0, 1)))(w_std, x)
    place = jnp.zeros_like(x).at[1, 2, 0].set(step)  # of the row that is in both batches
    moves = ((w_std + step, x), (w_std - step, x)), ((w_std, x + place), (w_std, x - place))
    for i, (ahead, behind) in enumerate(moves):
        for got, up, down in zip(found, run(*ahead), run(*behind), strict=True):
            slope = got[i] if i == 0 else got[i][1, 2, 0]
            np.testing.assert_allclose(slope, (up - down) / (2 * step), rtol=1e-5)
