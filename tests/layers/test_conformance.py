"""Every layer is one thing at every width: its samples converge to its limit."""

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

import everwide as ew
from everwide.layers import Position
from everwide.testing import check_layer
from everwide.testing._tolerances import MEAN_SQUARE, Slope
from everwide_lab.golden import Reparametrized

pytestmark = pytest.mark.once

LINE, GRID, POINT = (4, 2), (3, 2, 2), (3,)
WIDTHS = (12, 48)
# Scores are products of keys and queries: at these widths the next powers of 1 / width are as large as the first.
ATTENTION = Slope(-1.0, 1.4)


def _after_relu(*layers):
    """Non-Gaussian, non-centred signals: where means and laws matter."""
    return ew.Serial(ew.Relu(), *layers)


QUICK = {
    "dense": (_after_relu(ew.Dense(w_std=1.3, b_std=0.4)), POINT),
}

DEEP = {
    "conv": (_after_relu(ew.Conv((2,), strides=2, b_std=0.3)), LINE),
    "avg_pool": (_after_relu(ew.AvgPool((2,), strides=1, padding="SAME", normalize_edges=True)), LINE),
    "dropout": (_after_relu(ew.Dropout(0.3), ew.Dense(), ew.Relu()), LINE),
    "residual_of_raw": (ew.Sum(ew.Identity(), ew.Serial(ew.Dense(), ew.Relu())), POINT),
    "product": (ew.Product(ew.Identity(), ew.Serial(ew.Relu(), ew.Dense(b_std=0.5), ew.Relu())), POINT),
    "attention": (ew.SelfAttention(b_std=0.2, heads=32), (3, 2)),
    "repeat": (ew.Repeat(ew.Serial(ew.Relu(), ew.Dense(w_std=1.4)), 3), POINT),
    "layer_norm": (_after_relu(ew.LayerNorm()), LINE),
    "flatten": (_after_relu(ew.Flatten(), ew.Dense(), ew.Relu()), LINE),
    "index": (_after_relu(ew.layers.Index(-1), ew.Dense(), ew.Relu()), LINE),
    "conv_local": (_after_relu(ew.layers.ConvLocal((2,), b_std=0.3), ew.Relu()), LINE),
    "conv_dilated": (_after_relu(ew.Conv((2,), dilation=2, padding="CIRCULAR"), ew.Relu()), LINE),
    "conv_grid": (_after_relu(ew.Conv((2, 2), b_std=0.1), ew.Relu()), GRID),
    "conv_transpose": (_after_relu(ew.layers.ConvTranspose((3,), strides=2, b_std=0.1), ew.Relu()), (3, 2)),
    "conv_transpose_circular": (_after_relu(ew.layers.ConvTranspose((2,), strides=2, padding="CIRCULAR")), (3, 2)),
    "sum_pool": (_after_relu(ew.layers.SumPool((2,))), LINE),
    "global_avg_pool": (_after_relu(ew.GlobalAvgPool(), ew.Dense(), ew.Relu()), LINE),
    "global_sum_pool": (_after_relu(ew.layers.GlobalSumPool()), GRID),
    "layer_norm_sites": (_after_relu(ew.LayerNorm(sites=True)), LINE),
    "layer_norm_gaussian": (ew.Serial(ew.LayerNorm(), ew.Relu()), LINE),
    "rms_norm": (_after_relu(ew.layers.RmsNorm()), POINT),
    "rms_norm_sites": (ew.Serial(ew.layers.RmsNorm(sites=True), ew.Relu()), LINE),
    "concat": (ew.Concat(ew.Serial(ew.Relu(), ew.Dense(16)), ew.Serial(ew.Dense(48), ew.Relu())), POINT),
    "residual": (ew.Serial(ew.Residual(ew.Relu(), ew.Dense(b_std=0.2)), ew.Relu()), POINT),
    "scale": (ew.Serial(ew.layers.Scale(-0.6), ew.Relu()), POINT),
    "resize": (_after_relu(ew.layers.Resize((5,))), (3, 2)),
    "site_map": (_after_relu(ew.layers.SiteMap(jnp.array([[1.0, -1.0, 0.0, 2.0], [0.5, 0.0, 1.0, 0.0]]))), LINE),
    "contract": (_after_relu(ew.layers.SiteMap(jnp.array([1.0, -1.0, 0.5, 2.0]))), LINE),
    "crop": (_after_relu(ew.layers.Crop((1, 1))), LINE),
    "attention_relu": (ew.SelfAttention(mechanism="relu", heads=32), (3, 2)),
    "attention_abs": (ew.SelfAttention(mechanism="abs", heads=32), (3, 2)),
    "attention_causal": (ew.SelfAttention(causal=True, heads=32), (3, 2)),
    "attention_sqrt": (ew.SelfAttention(mechanism="identity", scaling="sqrt", heads=32), (3, 2)),
    "attention_sqrt_relu": (ew.SelfAttention(mechanism="relu", scaling="sqrt", heads=32), (3, 2)),
    "attention_positions": (ew.SelfAttention(position=Position(w_std=0.7), heads=32), (3, 2)),
    "attention_sqrt_positions": (
        ew.SelfAttention(mechanism="identity", scaling="sqrt", position=Position(w_std=0.7, values=True), heads=32),
        (3, 2),
    ),
    "transformer": (
        ew.Serial(ew.Residual(ew.SelfAttention(heads=32)), ew.LayerNorm(), ew.Residual(ew.Gelu(), ew.Dense())),
        (3, 2),
    ),
}


def _check(name, layer, shape, draws):
    slope = ATTENTION if "attention" in name else MEAN_SQUARE
    check_layer(layer, shape, widths=WIDTHS, draws=draws, slope_tolerance=slope.deviation)


@pytest.mark.parametrize("name", QUICK)
def test_samples_converge_to_the_limit(name):
    _check(name, *QUICK[name], draws=120)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEEP)
def test_samples_converge_to_the_limit_of_the_other_layers(name):
    _check(name, *DEEP[name], draws=200)


@pytest.mark.slow
@pytest.mark.parametrize("axes", [None, (0,)])
def test_aggregation_converges(axes):
    shape = (3, 2) if axes is None else (3, 2, 2)
    graph = jr.normal(jr.key(5), (3, 3, 3))
    check_layer(_after_relu(ew.Aggregate(axes)), shape, graph=graph, widths=WIDTHS, draws=120)


@pytest.mark.slow
def test_frozen_parameters_are_not_trained():
    layer = ew.Serial(ew.Relu(), ew.Dense(w_std=1.3, b_std=0.3, frozen=True), ew.Relu())
    check_layer(layer, POINT, widths=WIDTHS, draws=120)


@pytest.mark.slow
def test_standard_parametrization():
    layer = ew.Serial(ew.Relu(), ew.Dense(w_std=1.3, b_std=0.3), ew.Relu())
    check_layer(layer, POINT, parametrization="standard", widths=WIDTHS, draws=120)


def test_a_layer_with_a_parametrization_of_its_own():
    inner = Reparametrized(ew.Dense(24, w_std=1.3, b_std=0.3), "standard", fan_in_share=2)
    net = ew.Serial(ew.Dense(16), ew.Relu(), inner, ew.Relu(), ew.Dense())
    limit = ew.Infinite(net, POINT)
    x = ew.Inputs(jr.normal(jr.key(1), (2, *POINT)))
    plain = ew.Infinite(ew.Serial(*net.layers[:2], ew.Dense(24, w_std=1.3, b_std=0.3), *net.layers[3:]), POINT)
    assert jnp.allclose(limit.block(x, x).nngp, plain.block(x, x).nngp)
    assert not jnp.allclose(limit.block(x, x).ntk, plain.block(x, x).ntk)


def test_conformance_runs_in_the_dtype_of_the_session():
    assert (
        ew.Infinite(ew.Dense(1), POINT).block(*[ew.Inputs(jnp.ones((1, 3)))] * 2).ntk.dtype == jax.numpy.zeros(()).dtype
    )
