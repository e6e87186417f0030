"""Every layer is one thing at every width: its samples converge to its limit.

Every layer and every activation is checked small, at one width, in `make test`; in full (`check_layer`: two widths, the
order of convergence, masks, gradients) in `make test-all`.
"""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

import everwide as ew
from everwide.layers import (
    AbstractLayer,
    Embedding,
    Gru,
    InstanceNorm,
    Lstm,
    MaxPool,
    Position,
    Sampled,
    StochasticDepth,
)
from everwide.testing import ConformanceError, check_layer
from everwide.testing._draws import MEAN_SQUARE, Slope
from everwide_lab.golden import Reparametrized
from layers.quick_conformance import assert_conforms

pytestmark = pytest.mark.once

LINE, GRID, POINT = (4, 2), (3, 2, 2), (3,)
WIDTHS = (12, 48)
# Scores are products of keys and queries: at these widths the next powers of 1 / width are as large as the first.
SCORES = Slope(-1.0, 1.4)


def _after_relu(*layers):
    """Non-Gaussian, non-centred signals: where means and laws matter."""
    return ew.Serial(ew.Relu(), *layers)


def _two_recurrent():
    first, last = ew.layers.Recurrent(ew.Relu(), b_std=0.2), ew.layers.Index(-1)
    return ew.Serial(first, ew.layers.Recurrent(ew.Erf(), w_std=1.2), last, ew.Dense(), ew.Relu())


LAYERS = {
    "dense": (_after_relu(ew.Dense(w_std=1.3, b_std=0.4)), POINT),
    "conv": (_after_relu(ew.Conv((2,), strides=2, b_std=0.3)), LINE),
    "avg_pool": (_after_relu(ew.AvgPool((2,), strides=1, padding="SAME", normalize_edges=True)), LINE),
    "dropout": (_after_relu(ew.Dropout(0.3), ew.Dense(), ew.Relu()), LINE),
    "residual_of_raw": (ew.Sum(ew.Identity(), ew.Serial(ew.Dense(), ew.Relu())), POINT),
    "product": (ew.Product(ew.Identity(), ew.Serial(ew.Relu(), ew.Dense(b_std=0.5), ew.Relu())), POINT),
    "repeat": (ew.Repeat(ew.Serial(ew.Relu(), ew.Dense(w_std=1.4)), 3), POINT),
    "layer_norm": (_after_relu(ew.LayerNorm()), LINE),
    "flatten": (_after_relu(ew.Flatten(), ew.Dense(), ew.Relu()), LINE),
    "index": (_after_relu(ew.layers.Index(-1), ew.Dense(), ew.Relu()), LINE),
    "mirror": (_after_relu(ew.layers.Mirror(-1), ew.Conv((2, 2), b_std=0.2), ew.Relu()), (3, 2)),
    "mirror_grid": (_after_relu(ew.layers.Mirror(0, 1), ew.GlobalAvgPool(), ew.Dense(), ew.Relu()), GRID),
    "conv_local": (_after_relu(ew.layers.ConvLocal((2,), b_std=0.3), ew.Relu()), LINE),
    "conv_dilated": (_after_relu(ew.Conv((2,), dilation=2, padding="CIRCULAR"), ew.Relu()), LINE),
    "conv_grid": (_after_relu(ew.Conv((2, 2), b_std=0.1), ew.Relu()), GRID),
    "conv_transpose": (_after_relu(ew.layers.ConvTranspose((3,), strides=2, b_std=0.1), ew.Relu()), (3, 2)),
    "conv_transpose_circular": (_after_relu(ew.layers.ConvTranspose((2,), strides=2, padding="CIRCULAR")), (3, 2)),
    "conv_transpose_dilated": (_after_relu(ew.layers.ConvTranspose((2,), strides=2, dilation=2), ew.Relu()), (3, 2)),
    "conv_local_dilated": (_after_relu(ew.layers.ConvLocal((2,), dilation=2, b_std=0.3), ew.Relu()), LINE),
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
    "conv_grouped": (_after_relu(ew.layers.ConvGrouped((2,), groups=4, b_std=0.3), ew.Relu()), LINE),
    "conv_depthwise": (_after_relu(ew.layers.ConvDepthwise((2,), multiplier=2, strides=2, b_std=0.3)), LINE),
    "separable": (ew.Serial(ew.layers.ConvDepthwise((2,)), ew.Dense(w_std=1.3), ew.Relu()), LINE),
    "group_norm": (_after_relu(ew.layers.GroupNorm(2)), LINE),
    "positions": (ew.Serial(ew.Sum(ew.Identity(), ew.layers.PositionEmbedding(w_std=0.7)), ew.Relu()), LINE),
    "positions_near": (ew.layers.PositionEmbedding(length=6, decay=lambda d: jnp.exp(-d)), LINE),
    "gated": (ew.Serial(ew.layers.Gated(ew.Erf(), w_std=1.3, b_std=0.2), ew.Dense(), ew.Relu()), POINT),
    "recurrent": (_after_relu(ew.layers.Recurrent(ew.Erf(), w_std=1.4, u_std=1.2, b_std=0.3)), LINE),
    "recurrent_reverse": (_after_relu(ew.layers.Recurrent(ew.Relu(), w_std=1.3, reverse=True)), LINE),
    "recurrent_deep": (_two_recurrent(), LINE),
    "tied": (ew.layers.Tied(ew.Serial(ew.Relu(), ew.Dense(w_std=1.3, b_std=0.3)), 3), POINT),
    "crop": (_after_relu(ew.layers.Crop((1, 1))), LINE),
}

# Layers without a known limit, sampled: what must be equal is so up to the standard errors of both sides.
SAMPLED_LAYERS = {
    "max_pool": (Sampled(_after_relu(MaxPool((2,)))), LINE),
    "instance_norm": (Sampled(ew.Serial(InstanceNorm(eps=0.3), ew.Relu())), LINE),
    "lstm": (Sampled(Lstm(w_std=1.5, u_std=1.5, b_std=0.3)), (3, 2)),
    "gru": (Sampled(Gru(w_std=1.5, u_std=1.5)), (3, 2)),
    "stochastic_depth": (ew.Serial(ew.Residual(ew.Relu(), ew.Dense(), StochasticDepth(0.1)), ew.Relu()), POINT),
}

# Statistics of a group are means over half of the channels.
SIZES = {"group_norm": {"width": 192, "draws": 48, "bias": 0.02}}

ATTENTIONS = {
    "attention": {"b_std": 0.2},
    "attention_relu": {"mechanism": "relu"},
    "attention_abs": {"mechanism": "abs"},
    "attention_causal": {"causal": True},
    "attention_sqrt": {"mechanism": "identity", "scaling": "sqrt"},
    "attention_sqrt_relu": {"mechanism": "relu", "scaling": "sqrt"},
    "attention_positions": {"position": Position(w_std=0.7)},
    "attention_relative": {"relative": lambda steps: -0.7 * jnp.abs(steps), "causal": True},
    "attention_grouped": {"key_heads": 4},
    "attention_sqrt_grouped": {"mechanism": "identity", "scaling": "sqrt", "key_heads": 4},
    "attention_sqrt_positions": {
        "mechanism": "identity",
        "scaling": "sqrt",
        "position": Position(w_std=0.7, values=True),
    },
    "transformer": {},
}


def _attention(name, **sizes):
    layer = ew.SelfAttention(**ATTENTIONS[name], **sizes)
    if name == "transformer":
        return ew.Serial(ew.Residual(layer), ew.LayerNorm(), ew.Residual(ew.Gelu(), ew.Dense()))
    return layer


# Layers that need what a shape does not say.
GRAPH = jr.normal(jr.key(5), (3, 3, 3))
AGGREGATES = {"aggregate": (None, (3, 2)), "aggregate_axis": ((0,), (3, 2, 2))}
# A head costs as much as a layer: few heads, narrow keys and values in a wide network.
# Relu and abs of scores need keys of more channels than that: here 1 / channels is a third of their tangent kernel.
SOFT = [name for name, options in ATTENTIONS.items() if options.get("mechanism") not in ("relu", "abs")]
BRIEF = ("transformer",)
# Of a kind, one or two are tried at once, and the others in the slow suite.
LATER = (
    *("conv_local_dilated", "conv_dilated", "conv_transpose_dilated", "conv_transpose_circular", "recurrent_deep"),
    *("recurrent_reverse", "mirror_grid"),
)
SMALL_HEADS = {"heads": 16, "key_width": 32, "value_width": 32}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LATER else name for name in LAYERS]
)
def test_layers_agree_with_their_limit(name):
    layer, shape = LAYERS[name]
    assert_conforms(layer, shape, noisy=name == "dropout", **SIZES.get(name, {}))


@pytest.mark.parametrize(
    "name", [name if name in BRIEF else pytest.param(name, marks=pytest.mark.slow) for name in SOFT]
)
def test_attention_agrees_with_its_limit(name):
    assert_conforms(_attention(name, **SMALL_HEADS), (3, 2), draws=64, bias=0.06)


@pytest.mark.parametrize("name", AGGREGATES)
def test_aggregation_agrees_with_its_limit(name):
    axes, shape = AGGREGATES[name]
    assert_conforms(_after_relu(ew.Aggregate(axes)), shape, graph=GRAPH)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_samples_converge_to_the_limit(name):
    layer, shape = LAYERS[name]
    check_layer(layer, shape, widths=WIDTHS, draws=200)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED_LAYERS)
def test_samples_converge_to_estimates_of_the_limit(name):
    layer, shape = SAMPLED_LAYERS[name]
    check_layer(layer, shape, widths=WIDTHS, draws=_draws(name))


def _draws(name):
    """A branch is there or not: what that does to a kernel is seen in many draws only."""
    return 500 if name == "stochastic_depth" else 200


@pytest.mark.slow
def test_samples_of_embeddings_converge_to_the_limit():
    mask = jnp.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 1, 1]], bool)
    tokens = ew.Inputs(jnp.array([[3.0, 5, 3, 8], [3, 5, 9, 9], [0, 8, 3, 5]])[..., None], mask)
    net = ew.Serial(Embedding(10, w_std=1.3), ew.Relu(), ew.Dense(w_std=1.2, b_std=0.2))
    check_layer(net, (4, 1), inputs=tokens, whole=True, widths=WIDTHS, draws=100)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTIONS)
def test_samples_of_attention_converge_to_the_limit(name):
    slope = MEAN_SQUARE if name == "transformer" else SCORES
    check_layer(_attention(name, heads=32), (3, 2), widths=WIDTHS, draws=200, slope_tolerance=slope.deviation)


def _classes_in(layer):
    """The layer and all the layers in it."""
    return {type(layer)}.union(*(_classes_in(part) for part in layer.parts().layers))


def test_no_layer_is_forgotten():
    classes = {c for c in vars(ew.layers).values() if inspect.isclass(c) and issubclass(c, AbstractLayer)}
    elsewhere = {ew.layers.Columns, ew.layers.Trees}  # they read tables (test_columns.py)
    here = {ew.Aggregate, ew.SelfAttention, Embedding}
    checked = (here | elsewhere).union(*(_classes_in(layer) for layer, _ in (LAYERS | SAMPLED_LAYERS).values()))
    assert {c.__name__ for c in classes - checked if not inspect.isabstract(c)} == set()


OFF = {
    "dense": (ew.Dense(w_std=1.3), POINT),
    "rms_norm": (ew.layers.RmsNorm(), LINE),
    "crop": (ew.layers.Crop((1, 1)), LINE),
}


@pytest.mark.parametrize("name", OFF)
def test_a_limit_that_is_off_is_noticed(name):
    """The same layer, whose limit says 1.2 times too much."""
    layer, shape = OFF[name]
    with pytest.raises(AssertionError, match=r"the size of|entries of"):
        assert_conforms(OffLimit(layer), shape, bias=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["max_pool", "stochastic_depth"])
def test_an_estimate_that_is_off_is_noticed(name):
    layer, shape = SAMPLED_LAYERS[name]
    with pytest.raises(ConformanceError, match="extrapolated to infinite width"):
        check_layer(OffLimit(layer), shape, widths=WIDTHS, draws=_draws(name))


class OffLimit(AbstractLayer):
    """A layer with a wrong limit."""

    layer: AbstractLayer
    factor: float = eqx.field(static=True, default=1.2)

    def describe(self, signal):
        return self.layer.describe(signal)

    def demand(self, wanted):
        return self.layer.demand(wanted)

    def sample(self, key, signal):
        return self.layer.sample(key, signal)

    def forward(self, params, example):
        return self.layer.forward(params, example)

    def propagate(self, k, wanted):
        return self.layer.propagate(k, wanted).each(lambda c: c.scaled(self.factor))


@pytest.mark.slow
@pytest.mark.parametrize("axes", [None, (0,)])
def test_aggregation_converges(axes):
    shape = (3, 2) if axes is None else (3, 2, 2)
    check_layer(_after_relu(ew.Aggregate(axes)), shape, graph=GRAPH, widths=WIDTHS, draws=120)


@pytest.mark.slow
def test_frozen_parameters_are_not_trained():
    layer = ew.Serial(ew.Relu(), ew.Dense(w_std=1.3, b_std=0.3, frozen=True), ew.Relu())
    check_layer(layer, POINT, widths=WIDTHS, draws=120)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["ntk", "standard"])
def test_speeds(law):
    layer = ew.Serial(ew.Relu(), ew.Dense(w_std=1.3, b_std=0.3, speed=0.3), ew.Relu())
    check_layer(layer, POINT, parametrization=law, widths=WIDTHS, draws=120)


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
