"""Convolutions against those of JAX."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide.testing._draws import exact_for


@pytest.mark.parametrize("padding", ["SAME", "VALID", ((1, 2),)])
@pytest.mark.parametrize(("window", "stride", "dilation"), [(3, 2, 1), (2, 3, 1), (3, 2, 2), (2, 1, 3), (2, 5, 2)])
def test_transposed_convolutions_are_those_of_jax(window, stride, dilation, padding):
    layer = ew.layers.ConvTranspose((window,), width=4, strides=stride, dilation=dilation, padding=padding)
    params = layer.init(jr.key(0), (5, 3), parametrization="standard")
    x = jr.normal(jr.key(1), (5, 3))
    dimensions = {"dimension_numbers": ("NXC", "XIO", "NXC"), "rhs_dilation": (dilation,)}
    expected = jax.lax.conv_transpose(x[None], params.weight, (stride,), padding, **dimensions)[0]
    assert exact_for(x.dtype).excess(layer.apply(params, x), expected) < 1


def test_local_convolutions_can_be_dilated():
    """With the same weights at every position it is the shared one."""
    window = {"width": 4, "dilation": 2, "padding": "CIRCULAR"}
    shared, local = ew.Conv((2,), **window), ew.layers.ConvLocal((2,), **window)
    one, own = (layer.init(jr.key(0), (5, 3)) for layer in (shared, local))
    spread = jnp.broadcast_to(one.weight.reshape(6, 1, 4), own.weight.shape)
    x = jr.normal(jr.key(1), (5, 3))
    got = local.apply(ew.layers.Affine(spread, None, own.fans), x)
    np.testing.assert_allclose(got, shared.apply(one, x), rtol=1e-5)
