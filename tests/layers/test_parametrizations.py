"""Finite networks in all four parametrizations: what is drawn, which layer reads out, and what has no limit."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide.layers import Affine
from everwide.testing._draws import SAMPLED, exact_for, quick_jit
from everwide_lab.golden import Reparametrized

pytestmark = pytest.mark.once

LAWS = tuple(ew.Parametrization)
WIDTH = 6
SCALES = {"w_std": 1.4, "b_std": 0.3}


def mlp(outputs: int = 2) -> ew.Serial:
    hidden = [ew.Dense(**SCALES), ew.Relu(), ew.Dense(**SCALES), ew.Relu()]
    return ew.Serial(*hidden, ew.Dense(outputs, **SCALES))


NETS = {
    "mlp": (mlp(), (3,)),
    "conv": (ew.Serial(ew.Conv((3,), **SCALES), ew.Relu(), ew.Flatten(), ew.Dense(2)), (5, 2)),
    "conv readout": (ew.Serial(ew.Conv((3,)), ew.Relu(), ew.Conv((2,), width=3, **SCALES), ew.GlobalAvgPool()), (5, 2)),
    "conv local": (
        ew.Serial(ew.Dense(), ew.layers.ConvLocal((2,), **SCALES), ew.Relu(), ew.layers.ConvLocal((2,), width=1)),
        (4, 2),
    ),
    "conv transpose": (ew.Serial(ew.layers.ConvTranspose((3,), strides=2, **SCALES), ew.Relu(), ew.Dense(1)), (3, 2)),
    "attention": (
        ew.Serial(
            ew.SelfAttention(w_query_std=1.5, w_key_std=0.7, w_value_std=1.2, b_std=0.3, heads=4),
            ew.Relu(),
            ew.SelfAttention(
                2, mechanism="relu", scaling="sqrt", w_query_std=1.5, position=ew.layers.Position(w_std=0.6)
            ),
        ),
        (3, 2),
    ),
    "residual": (ew.Serial(ew.Dense(), ew.Residual(ew.Relu(), ew.Dense(**SCALES)), ew.LayerNorm(), ew.Dense(1)), (3,)),
    "two heads": (ew.Serial(ew.Dense(), ew.Erf(), ew.Concat(ew.Dense(1), ew.Dense(2, **SCALES))), (3,)),
    "gate": (ew.Serial(ew.Dense(), ew.Product(ew.Dense(4), ew.Serial(ew.Dense(4), ew.Erf())), ew.Dense(1)), (3,)),
    "repeat": (ew.Serial(ew.Repeat(ew.Serial(ew.Dense(**SCALES), ew.Relu()), 3), ew.Dense(1)), (3,)),
}


def drawn(net: ew.layers.AbstractLayer, shape: tuple[int, ...], law: str, width: int = WIDTH):
    return net.init(jr.key(0), shape, width=width, parametrization=law)


def affines(params) -> list[Affine]:
    return [p for p in jax.tree.leaves(params, is_leaf=lambda p: isinstance(p, Affine)) if isinstance(p, Affine)]


@pytest.mark.parametrize("name", NETS)
def test_one_draw_is_one_function_whether_scales_are_drawn_or_factors(name):
    net, shape = NETS[name]
    x = jr.normal(jr.key(1), shape)
    y = quick_jit(lambda x: {str(law): net.apply(drawn(net, shape, law), x) for law in LAWS})(x)
    exact = exact_for(x.dtype)
    assert exact.excess(y["standard"], y["ntk"]) < 1
    assert exact.excess(y["mup"], y["mean_field"]) < 1
    assert not np.allclose(y["mup"], y["ntk"])


@pytest.mark.parametrize("law", LAWS)
def test_a_network_is_what_the_table_says(law):
    """The forward pass, by hand, from the parameters as they were drawn."""
    net, x = mlp(), jr.normal(jr.key(1), (3,))
    params = drawn(net, (3,), law)
    in_weights = law in ("standard", "mup")
    h = np.asarray(x)
    for depth, p in enumerate((params[0], params[2], params[4])):
        fan_in = len(h)
        size = 1.4 / fan_in if depth == 2 and law in ("mean_field", "mup") else 1.4 / np.sqrt(fan_in)
        z = h @ np.asarray(p.weight) * (1 if in_weights else size) + np.asarray(p.bias) * (1 if in_weights else 0.3)
        h = np.maximum(z, 0)
    assert exact_for(x.dtype).excess(net.apply(params, x), z) < 1


@pytest.mark.parametrize("law", LAWS)
def test_weights_and_biases_have_their_variance(law):
    net, width = mlp(outputs=40), 40
    params = net.init(jr.key(0), (30,), width=width, parametrization=law)
    drawn_sizes = law in ("standard", "mup")
    for p, fan_in in ((params[0], 30), (params[2], 40), (params[4], 40)):
        std = 1.4 / (fan_in if law == "mup" and p is params[4] else np.sqrt(fan_in)) if drawn_sizes else 1.0
        assert SAMPLED.excess(np.square(np.asarray(p.weight).reshape(-1)), std**2) < 1
        assert SAMPLED.excess(np.square(np.asarray(p.bias)), 0.3**2 if drawn_sizes else 1.0) < 1


# what every random layer of a network reads and feeds: data (d), hidden channels (h), or the output (o)
RESIDUAL = ew.Residual(ew.Relu(), ew.Dense())
PLACES = {
    "one layer": (ew.Dense(1), (3,), "do"),
    "mlp": (mlp(), (3,), "dh hh ho"),
    "an activation at the end": (ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(2), ew.Relu()), (3,), "dh ho"),
    "pooling at the end": (ew.Serial(ew.Conv((2,)), ew.Relu(), ew.Conv((2,)), ew.GlobalAvgPool()), (4, 2), "dh ho"),
    "a linear skip": (ew.Sum(ew.Dense(1), ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))), (3,), "do dh ho"),
    "a residual at the end": (ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(), RESIDUAL), (3,), "dh ho ho"),
    "a residual inside": (ew.Serial(ew.Dense(), RESIDUAL, ew.Dense(1)), (3,), "dh hh ho"),
    "two heads": (ew.Serial(ew.Dense(), ew.Relu(), ew.Concat(ew.Dense(1), ew.Dense(2))), (3,), "dh ho ho"),
    "two repetitions": (ew.Repeat(ew.Serial(ew.Dense(), ew.Relu()), 2), (3,), "dh ho"),
    "a wrapped readout": (ew.Serial(ew.Dense(), ew.Relu(), Reparametrized(ew.Dense(1), "mup")), (3,), "dh ho"),
    "attention": (ew.Serial(ew.SelfAttention(heads=2), ew.Dense(1)), (2, 3), "dh dh dh hh ho"),
    "attention at the end": (ew.Serial(ew.Dense(), ew.SelfAttention(heads=2)), (2, 3), "dh hh hh hh ho"),
}


@pytest.mark.parametrize("name", PLACES)
def test_readouts_are_the_random_layers_that_reach_the_output(name):
    net, shape, expected = PLACES[name]
    found = [p.fans for p in affines(jax.eval_shape(lambda: drawn(net, shape, "mup")))]
    places = [("h" if f.reads_hidden else "d") + ("h" if f.feeds_hidden else "o") for f in found]
    assert places == expected.split()
    assert [f.is_readout for f in found] == [place == "ho" for place in places]


def test_repetitions_that_differ_are_refused():
    net = ew.Repeat(ew.Serial(ew.Dense(), ew.Relu()), 3)
    with pytest.raises(ew.ArchitectureError, match=r"Repeat\(times=3\) ends the network.*mup.*Put a Dense layer after"):
        drawn(net, (3,), "mup")
    drawn(net, (3,), "standard")


@pytest.mark.parametrize("law", ["mean_field", "mup"])
@pytest.mark.parametrize("net", [mlp(), ew.Serial(ew.Conv((2,)), ew.Relu(), ew.SelfAttention(1))], ids=["mlp", "sites"])
def test_what_has_no_fixed_limit_says_so(law, net):
    shape = (3,) if net.layers[0] == mlp().layers[0] else (4, 2)
    message = f"{law} parametrization has no limit.*net.init.*parametrization='ntk'"
    with pytest.raises(ew.ArchitectureError, match=message):
        ew.Infinite(net, shape, width=8, parametrization=law)
    with pytest.raises(ew.ArchitectureError, match=message):
        ew.explain(net, shape, parametrization=law)
    with pytest.raises(ew.ArchitectureError, match=message):
        ew.gram(net, np.ones((2, *shape)), parametrization=law)
    assert jax.eval_shape(lambda x: net.apply(drawn(net, shape, law), x), jnp.ones(shape)).shape[-1] in (1, 2)


def test_attention_is_sampled_where_its_limit_is_not_known():
    net = ew.Serial(ew.SelfAttention(heads=2), ew.Relu(), ew.Dense(1))
    with pytest.raises(ew.ArchitectureError, match=r"limit of SelfAttention.*ntk"):
        ew.Infinite(net, (4, 2), width=8, parametrization="standard")
    assert net.apply(drawn(net, (4, 2), "standard"), jnp.ones((4, 2))).shape == (4, 1)


@pytest.mark.parametrize("law", LAWS)
def test_a_width_is_asked_for(law):
    with pytest.raises(ew.ArchitectureError, match="width="):
        mlp().init(jr.key(0), (3,), parametrization=law)


def test_an_unknown_parametrization_is_refused():
    with pytest.raises(ValueError, match="maximal"):
        mlp().init(jr.key(0), (3,), width=4, parametrization="maximal")
