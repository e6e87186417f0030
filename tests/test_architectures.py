"""Whole networks by name: each is one thing at every width, and is what its paper says."""

import inspect

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide import architectures
from everwide.testing import check_layer
from everwide.testing._check_layer import example_inputs
from layers.quick_conformance import assert_conforms

pytestmark = pytest.mark.once

WIDTH = 64
TOKENS = np.array([[3, 5, 3], [1, 5, 7], [0, 3, 5]])
GRAPH = np.array([[0.5, 0.5, 0.0], [0.3, 0.3, 0.3], [0.0, 0.5, 0.5]], np.float32)


def images(*shape):
    return ew.Inputs(jr.normal(jr.key(1), (3, *shape)))


def tokens():
    mask = np.array([[1, 1, 1], [0, 1, 1], [1, 1, 1]], bool)
    return ew.Inputs(jnp.asarray(TOKENS[..., None], jnp.float32), jnp.asarray(mask))


def graphs():
    return ew.Inputs(jr.normal(jr.key(1), (3, 3, 2)), graph=jnp.asarray(np.tile(GRAPH, (3, 1, 1))))


# Small ones, with ReLU where that is all the same: what is compiled here is run once.
NETWORKS = {
    "mlp": (lambda n: architectures.mlp(n, depth=2), lambda: images(3)),
    "cnn": (lambda n: architectures.cnn(n, depth=1, window=(3,)), lambda: images(4, 2)),
    "myrtle": (lambda n: architectures.myrtle(n), lambda: images(4, 4, 2)),
    "resnet": (lambda n: architectures.resnet(n, stages=(1, 1), norm=ew.LayerNorm()), lambda: images(3, 3, 2)),
    "resnet_plain": (lambda n: architectures.resnet(n, stages=(1, 1), bottleneck=True), lambda: images(3, 3, 2)),
    "wide_resnet": (lambda n: architectures.wide_resnet(n, depth=10), lambda: images(4, 4, 2)),
    "mlp_mixer": (
        lambda n: architectures.mlp_mixer(n, image=(4,), patch=(2,), depth=1, activation=ew.Relu()),
        lambda: images(4, 2),
    ),
    "vit": (lambda n: architectures.vit(n, patch=(2,), depth=1, activation=ew.Relu()), lambda: images(4, 2)),
    "gpt": (lambda n: architectures.gpt(10, n, length=5, depth=1, activation=ew.Relu(), gated=True), tokens),
    "graph_network": (lambda n: architectures.graph_network(n), graphs),
    "recurrent_network": (
        lambda n: architectures.recurrent_network(n, both_ways=True, pooled=True),
        lambda: example_inputs(jr.key(1), (4, 2)),
    ),
}
QUICK = ("mlp", "gpt", "recurrent_network")
# Attention has as many heads as channels: fewer draws, and a bias of 1 / channels in its scores.
SIZES = {"vit": {"width": 32, "draws": 32, "bias": 0.1}, "gpt": {"width": 32, "draws": 32, "bias": 0.1}}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]
)
def test_finite_networks_agree_with_their_limit(name):
    build, inputs = NETWORKS[name]
    sizes = {"width": WIDTH, "draws": 48, "bias": 0.06} | SIZES.get(name, {})
    assert_conforms(build(sizes["width"]), None, inputs=inputs(), whole=True, **sizes)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_finite_networks_converge_as_they_grow(name):
    """Three widths: the squared deviation falls like 1 / width, and without that part there is none."""
    build, inputs = NETWORKS[name]
    widths = (8, 16, 32) if name in SIZES else (12, 24, 48)
    x = inputs()
    check_layer(build(128), x.x.shape[1:], inputs=x, whole=True, widths=widths, draws=100)


def test_no_architecture_is_forgotten():
    named = {name for name, value in vars(architectures).items() if inspect.isfunction(value)}
    assert named == {name.removesuffix("_plain") for name in NETWORKS}


@pytest.mark.parametrize("name", NETWORKS)
def test_all_of_them_are_described_and_sampled(name):
    build, inputs = NETWORKS[name]
    net, x = build(2), inputs()
    assert ew.explain(net, x.x.shape[1:]).steps[-1].after.shape == (2,)
    shapes = jax.eval_shape(lambda key: net.init(key, x.x.shape[1:], width=8), jr.key(0))
    assert jax.tree.leaves(shapes)


def test_depths_are_those_of_the_papers():
    """Weights on the longest way, without the maps of skips: the number in a name."""

    def depth(net, shape):
        branch = [one.name for one in ew.explain(net, shape).steps]
        skips = sum(step.name == "Sum" for step in ew.explain(net, shape).steps)
        strided = sum(1 for i, n in enumerate(branch) if n == "Conv" and branch[i - 1] == "Sum")
        assert skips
        return sum(n in ("Conv", "Dense") for n in branch) - strided

    assert depth(architectures.resnet(stages=(2, 2, 2, 2)), (32, 32, 3)) == 18
    assert depth(architectures.resnet(stages=(3, 4, 6, 3)), (32, 32, 3)) == 34
    assert depth(architectures.resnet(stages=(3, 4, 6, 3), bottleneck=True), (32, 32, 3)) == 50
    assert depth(architectures.resnet(stages=(3, 3, 3)), (32, 32, 3)) == 20
    assert depth(architectures.wide_resnet(depth=28), (32, 32, 3)) == 26  # two of its 28 are maps of skips


@pytest.mark.slow
def test_signals_of_deep_residual_networks_without_normalization_keep_their_size():
    x = np.asarray(images(4, 4, 2).x)
    shallow, deep = (ew.diagonal(architectures.resnet(1, stages=(n,)), x).nngp.mean() for n in (1, 24))
    assert 0.5 < deep / shallow < 2


def test_a_myrtle_network_pools_twice_and_ends_with_one_place():
    plan = ew.explain(architectures.myrtle(), (32, 32, 3))
    assert [step.after.sites for step in plan.steps if "Pool" in step.name] == [(16, 16), (8, 8), ()]
    assert sum(step.name == "Conv" for step in plan.steps) == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: architectures.myrtle(depth=6), "depth of 5, 7, 10"),
        (lambda: architectures.wide_resnet(depth=20), "6n . 4"),
        (lambda: architectures.mlp_mixer(image=(32, 32), patch=(5, 5)), "does not divide"),
        (lambda: architectures.mlp(depth=0), "whole number, 1 or more"),
        (lambda: architectures.resnet(stages=(2, 0)), "stages=0"),
        (lambda: ew.explain(architectures.gpt(10, length=3, depth=1), (4, 1)), "no vector for site 3"),
    ],
)
def test_what_is_no_such_network_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
