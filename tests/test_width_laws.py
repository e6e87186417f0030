"""What networks of finite width do, as a function of the width: at initialization, and when they learn."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import everwide as ew
from everwide.empirical import sample_kernel
from everwide.optim import scale_by_parametrization
from everwide.testing._draws import EXACT32, SAMPLED, Slope, quick_jit

pytestmark = [pytest.mark.once, pytest.mark.slow]

HE = 2**0.5
DATA = np.random.default_rng(0)
X3, X8, Y8 = DATA.standard_normal((3, 4)), DATA.standard_normal((8, 10)), DATA.standard_normal(8)

INVERSE = Slope(-1.0, 0.25)  # the next power of 1 / width is there at these widths
ROOT = Slope(-0.5, 0.12)
CONSTANT = Slope(0.0, 0.1)


def relu_net(outputs: int, *, depth: int = 2, b_std: float | None = 0.2**0.5) -> ew.Serial:
    hidden = [ew.Dense(w_std=HE, b_std=b_std), ew.Relu()] * depth
    return ew.Serial(*hidden, ew.Dense(outputs, w_std=HE, b_std=b_std))


def outputs(net: ew.Serial, x: np.ndarray, *, width: int, draws: int, law: str = "ntk") -> np.ndarray:
    """`(draws, examples, outputs)` of independent networks."""

    def one(key):
        params = net.init(key, x.shape[1:], width=width, parametrization=law)
        return jax.vmap(lambda e: net.apply(params, e))(jnp.asarray(x, jnp.zeros(()).dtype))

    run = quick_jit(lambda keys: jax.lax.map(one, keys, batch_size=500))
    return np.asarray(run(jr.split(jr.key(width), draws)), np.float64)


def test_outputs_of_wide_networks_are_independent_with_the_covariance_of_the_limit():
    net = relu_net(2)
    z = outputs(net, X3, width=64, draws=4000)
    products = np.einsum("rai,rbi->rab", z, z) / 2
    assert SAMPLED.excess(products, ew.nngp(net, X3)) < 1
    assert SAMPLED.excess(z[:, :, 0] * z[:, :, 1], np.zeros(3)) < 1
    assert SAMPLED.excess(z[:, :, 0], np.zeros(3)) < 1


@pytest.mark.slow
def test_excess_kurtosis_falls_like_one_over_the_width():
    """Given the features, outputs are Gaussian: `E[z^4] / 3 E[z^2]^2` is the mean square of their common variance."""
    widths, found = (8, 64), []
    for width in widths:
        z = outputs(relu_net(64), X3[:1], width=width, draws=20000 // int(width**0.5))[:, 0]
        found.append(np.mean(z**4) / np.mean(z**2) ** 2 - 3)
    assert INVERSE.excess(widths, found) < 1


@pytest.mark.slow
def test_the_variance_of_pre_activations_does_not_depend_on_the_width():
    net = relu_net(8)
    for width in (2, 32):
        z = outputs(net, X3[:1], width=width, draws=4000)[:, 0]
        assert SAMPLED.excess(np.mean(z**2, 1), ew.diagonal(net, X3[:1]).nngp[0]) < 1


@pytest.mark.slow
def test_layer_averages_of_relu_networks_fluctuate_as_they_exactly_do():
    """`E[q^2] / E[q]^2` of the mean square `q` of a layer is the product of `1 + 5 / n` over the layers."""
    for width, depth in ((10, 1), (20, 2)):
        net = ew.Serial(*[ew.Dense(w_std=HE), ew.Relu()] * depth)
        h = outputs(net, X3[:1], width=width, draws=20000)[:, 0]
        q = np.mean(h**2, 1) / np.mean(X3[0] ** 2)  # its mean is 1 at every width
        assert SAMPLED.excess(q, 1.0) < 1
        assert SAMPLED.excess(q**2, (1 + 5 / width) ** depth) < 1


@pytest.mark.slow
def test_the_tangent_kernel_fluctuates_like_the_root_of_the_width():
    widths, spread = (16, 256), []
    for width in widths:
        found = sample_kernel(relu_net(1, depth=1), X3, key=jr.key(0), width=width, max_draws=320)
        spread.append(np.linalg.norm(found.ntk_error) * np.sqrt(found.draws))
    assert ROOT.excess(widths, spread) < 1


def test_readouts_that_learn_features_start_at_zero():
    net, widths = relu_net(1, depth=1, b_std=None), (8, 128)
    found = [outputs(net, X3, width=n, draws=2000, law="mean_field") for n in widths]
    assert ROOT.excess(widths, [np.sqrt(np.mean(z**2)) for z in found]) < 1
    assert EXACT32.excess(outputs(net, X3, width=8, draws=2000, law="mup"), found[0]) < 1


def movement(net: ew.Serial, law: str, width: int, rule: str) -> np.ndarray:
    """How far training moves the pre-activations of every hidden layer, and the outputs (root mean square).

    Outputs are counted from where they start: the noise of the start would be most of the differences.
    """
    descent = {"sgd": optax.sgd(0.05), "adam": optax.adam(0.02)}[rule]
    optimizer = optax.chain(descent, scale_by_parametrization(net, rule))
    parts = [ew.Serial(*net.layers[:depth]) for depth in range(1, len(net.layers) + 1, 2)]
    x, y = (jnp.asarray(a, jnp.zeros(()).dtype) for a in (X8, Y8))
    all_layers = lambda params: [
        jax.vmap(lambda e, part=part: part.apply(params[: len(part.layers)], e))(x) for part in parts
    ]

    def run(key):
        start = net.init(key, (10,), width=width, parametrization=law)
        before = all_layers(start)

        def step(carry, _):
            params, state = carry
            loss = lambda p: jnp.sum(((all_layers(p)[-1] - before[-1])[:, 0] - y) ** 2) / 2
            updates, state = optimizer.update(jax.grad(loss)(params), state, params)
            return (optax.apply_updates(params, updates), state), None

        (end, _), _ = jax.lax.scan(step, (start, optimizer.init(start)), length=30)
        return jnp.stack([jnp.mean((a - b) ** 2) for a, b in zip(all_layers(end), before, strict=True)])

    with jax.numpy_dtype_promotion("standard"):  # Adam of optax mixes its dtypes
        squares = quick_jit(jax.vmap(run))(jr.split(jr.key(width), 4 if width > 1000 else 8))
    return np.sqrt(np.mean(np.asarray(squares, np.float64), 0))


SHALLOW, DEEP = relu_net(1, depth=1), relu_net(1, depth=2)
MOVEMENTS = {
    "two layers": (SHALLOW, (64, 2048), "sgd", {"ntk": ROOT, "mean_field": CONSTANT}),
    "three layers": (DEEP, (64, 384), "sgd", {"standard": ROOT, "mup": CONSTANT}),
    "three layers, adam": (DEEP, (64, 384), "adam", {"ntk": ROOT, "mup": CONSTANT}),
}


@pytest.mark.parametrize(
    "name", ["two layers", *(pytest.param(n, marks=pytest.mark.slow) for n in list(MOVEMENTS)[1:])]
)
def test_features_move_in_mean_field_and_mup_and_do_not_in_ntk_and_standard(name):
    net, widths, rule, laws = MOVEMENTS[name]
    for law, features in laws.items():
        moved = np.transpose([movement(net, law, width, rule) for width in widths])
        for layer in moved[:-1]:
            assert features.excess(widths, layer) < 1
        assert CONSTANT.excess(widths, moved[-1]) < 1  # outputs learn at any width
