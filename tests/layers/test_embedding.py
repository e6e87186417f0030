"""Tokens are equal or they are not; what is no token is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
from everwide.layers import Embedding, PositionEmbedding
from layers.quick_conformance import assert_conforms

pytestmark = pytest.mark.once

TOKENS = np.array([[3, 5, 3, 8], [3, 5, 9, 9], [0, 8, 3, 5]])
MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 1, 1]], bool)
INPUTS = ew.Inputs(jnp.asarray(TOKENS[..., None], jnp.float32), jnp.asarray(MASK))


@pytest.mark.slow
def test_embeddings_agree_with_their_limit():
    body = ew.Serial(Embedding(10, w_std=1.3), ew.Relu(), ew.Dense(w_std=1.2, b_std=0.2))
    assert_conforms(body, None, inputs=INPUTS, whole=True)


def test_embeddings_and_positions_in_a_decoder_agree_with_their_limit():
    first = ew.Sum(Embedding(10), PositionEmbedding(length=6, w_std=0.6))
    attend = ew.Residual(ew.SelfAttention(causal=True, heads=16, key_width=32, value_width=32))
    assert_conforms(ew.Serial(first, attend, ew.Dense()), None, inputs=INPUTS, whole=True, draws=48, bias=0.06)


def test_a_kernel_counts_equal_tokens():
    net = ew.Serial(Embedding(10, w_std=1.5), ew.GlobalAvgPool(), ew.Dense(1))
    equal = (TOKENS[:, None, :, None] == TOKENS[None, :, None, :]).mean((2, 3))
    both = ew.gram(net, TOKENS[..., None])
    np.testing.assert_allclose(both.nngp, 1.5**2 * equal, rtol=1e-12)
    np.testing.assert_allclose(both.ntk, 2 * 1.5**2 * equal, rtol=1e-12)  # embedding and readout, as much each


def test_tokens_without_sites_are_levels_of_a_category():
    net = ew.Serial(Embedding(4), ew.Relu(), ew.Dense(1))
    kernel = ew.nngp(net, np.arange(4)[:, None])
    np.testing.assert_allclose(np.diag(kernel), 0.5, rtol=1e-12)
    np.testing.assert_allclose(kernel[0, 1], 1 / (2 * np.pi), rtol=1e-7)  # independent Gaussians


def test_the_standard_parametrization_has_no_fan_in():
    net = ew.Serial(Embedding(10, 64, w_std=0.5), ew.Dense(1, frozen=True))
    tokens = np.array([[1], [2]])
    assert np.diag(ew.ntk(net, tokens, parametrization="standard")) == pytest.approx(1.0)  # d/dE of one vector
    assert np.diag(ew.ntk(net, tokens)) == pytest.approx(0.25)


@pytest.mark.parametrize("token", [10.0, -1.0, 2.5])
def test_a_number_that_is_no_token_is_refused(token):
    net = ew.Serial(Embedding(10), ew.GlobalAvgPool(), ew.Dense(1))
    bad = np.full((1, 3, 1), token)
    with pytest.raises(Exception, match="no token: expected whole numbers from 0 to 9"):
        ew.gram(net, bad)
    params = net.init(jax.random.key(0), (3, 1), width=8)
    with pytest.raises(Exception, match="no token"):
        jax.block_until_ready(net.apply(params, jnp.asarray(bad[0], jnp.float32)))


def test_integers_are_read_by_finite_networks():
    net = ew.Serial(Embedding(10), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(1))
    params = net.init(jax.random.key(0), (4, 1), width=8)
    tokens = jnp.asarray(TOKENS[0][:, None])
    one, two = net.apply(params, tokens), net.apply(params, tokens.astype(float))
    assert jnp.array_equal(one, two)


def test_embeddings_come_first_and_positions_end():
    with pytest.raises(ew.ArchitectureError, match=r"that other layers have made. Put it first"):
        ew.explain(ew.Serial(ew.Dense(1), Embedding(10)), (4, 1))
    with pytest.raises(ew.ArchitectureError, match=r"tokens\[..., None\]"):
        ew.explain(Embedding(10), (4, 2))
    with pytest.raises(ew.ArchitectureError, match=r"no vector for site 3 .* raise the length to 4"):
        ew.explain(ew.Sum(Embedding(10), PositionEmbedding(length=3)), (4, 1))


def test_positions_are_those_of_a_longer_table():
    """What a place holds does not depend on how long a sequence is."""
    layer = PositionEmbedding(length=6, w_std=0.7)
    params = layer.init(jax.random.key(0), (4, 1), width=5)
    assert params.weight.shape == (6, 5)
    shorter, longer = (layer.apply(params, jnp.zeros((n, 1))) for n in (2, 6))
    assert jnp.array_equal(shorter, longer[:2])
