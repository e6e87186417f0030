"""Positions inside attention, against finite networks and against sums that were not used to derive them."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide.layers._scores import rotary_mean, rotated
from everwide.testing._draws import sample_kernels

pytestmark = pytest.mark.once
X = np.random.default_rng(0).normal(size=(3, 4, 3)).astype(np.float32)


def test_the_mean_of_all_frequencies():
    """A sum over very many of them, and products of vectors that are turned."""
    means, base, count = np.asarray(rotary_mean(40, 50.0, jnp.float32)), 50.0, 200_000
    speeds = base ** -((np.arange(count) + 0.5) / count)
    expected = np.cos(np.arange(40)[:, None] * speeds).mean(1)
    np.testing.assert_allclose(means[0], expected, atol=1e-5)
    np.testing.assert_array_equal(means, means.T)
    vector = jr.normal(jr.key(0), (1, 1, 200_000)).repeat(5, 1)
    turned = rotated(vector, base)[0]
    np.testing.assert_allclose(turned @ turned.T / vector.shape[-1], means[:5, :5], atol=0.02)


@pytest.mark.parametrize("rotary", [20.0, None])
def test_rotary_positions_are_those_of_finite_networks(rotary):
    """Keys of so many channels that there are nearly all frequencies; without the turn the kernel is another one."""
    sizes = {"heads": 4, "key_width": 1024, "value_width": 48}
    attention = ew.SelfAttention(rotary=20.0, w_query_std=1.5, w_key_std=1.5, causal=True, **sizes)
    net = ew.Serial(attention, ew.layers.Index(-1), ew.Dense())
    drawn = sample_kernels(net, ew.Inputs(jnp.asarray(X)), width=48, draws=60, key=jr.key(1))
    layer = ew.SelfAttention(rotary=rotary, w_query_std=1.5, w_key_std=1.5, causal=True)
    limit = ew.gram(ew.Serial(layer, ew.layers.Index(-1), ew.Dense()), X)
    off = [
        np.abs(getattr(drawn, field).mean(0) - getattr(limit, field)).max()
        / (4 * getattr(drawn, field).std(0).max() / 60**0.5 + 0.02 * getattr(limit, field).max())
        for field in ("nngp", "ntk")
    ]
    assert (max(off) < 1) == (rotary is not None), off


@pytest.mark.parametrize(
    ("options", "shape", "message"),
    [
        ({"rotary": 10.0, "scaling": "sqrt", "mechanism": "identity"}, (4, 3), "known with scaling='linear'"),
        ({"relative": jnp.abs}, (2, 2, 3), "over one site axis"),
        ({"rotary": 0.5}, (4, 3), "expected a base above 1"),
    ],
)
def test_positions_that_have_no_known_limit(options, shape, message):
    with pytest.raises(ew.ArchitectureError, match=message):
        ew.explain(ew.SelfAttention(**options), shape)


def test_sizes_that_do_not_fit():
    for options in ({"heads": 6, "key_heads": 4}, {"rotary": 10.0, "key_width": 3}):
        with pytest.raises(ew.ArchitectureError, match=r"multiple of key_heads.*pairs of channels"):
            ew.SelfAttention(**options).init(jr.key(0), (4, 3), width=6)
