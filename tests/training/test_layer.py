"""A layer of infinite width inside a model: its gradients, and its training beside an explicit block of features."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import everwide as ew
from everwide.optim import adam_star
from everwide.training import SGD, AdamStar, to_finite
from everwide.training._layer import KernelLayer

pytestmark = pytest.mark.once  # float64 is asked for

WIDTH, HIDDEN, OUTPUTS, ROWS, STEPS = 30, 4, 3, 6, 50
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(HIDDEN, WIDTH))
FRONT = RNG.normal(size=(5, HIDDEN)) / 2
X, Y = RNG.normal(size=(STEPS, ROWS, 5)), RNG.integers(0, OUTPUTS, size=(STEPS, ROWS))


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):  # Adam of optax mixes its dtypes
        yield


def features(x):
    return jnp.tanh(x @ FEATURES) + 0.5 * jnp.cos(x @ FEATURES)


def kernel(a, b):
    return features(a) @ features(b).T / WIDTH


def loss_of(outputs, labels):
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(outputs, labels))


def with_layer(layer):
    """The front block by `optax.adam`, the layer by its own steps, in one scan."""
    optimizer = optax.adam(0.02)

    def loss(front, tap, layer, x, y):
        hidden = jnp.tanh(x @ front)
        return loss_of(layer(hidden, tap), y), hidden

    def step(carry, batch):
        front, state, layer = carry
        gradients, hidden = jax.grad(loss, (0, 1), has_aux=True)(front, layer.tap(ROWS), layer, *batch)
        update, state = optimizer.update(gradients[0], state)
        return (front + update, state, layer.update(hidden, gradients[1])), None

    @jax.jit
    def run(front, layer):
        carry, _ = jax.lax.scan(step, (front, optimizer.init(front), layer), (jnp.asarray(X), jnp.asarray(Y)))
        return carry[0], carry[2]

    return run(jnp.asarray(FRONT), layer)


def with_features(optimizer, scale):
    """The same, with the features written out and their readout trained by optax."""
    params = {"front": jnp.asarray(FRONT), "readout": jnp.zeros((WIDTH, OUTPUTS))}
    both = optax.multi_transform({"front": optax.adam(0.02), "readout": optimizer}, {k: k for k in params})
    loss = lambda p, x, y: loss_of(scale * features(jnp.tanh(x @ p["front"])) @ p["readout"], y)

    def step(carry, batch):
        params, state = carry
        update, state = both.update(jax.grad(loss)(params, *batch), state, params)
        return (optax.apply_updates(params, update), state), None

    start = (params, both.init(params))
    params = jax.jit(lambda: jax.lax.scan(step, start, (jnp.asarray(X), jnp.asarray(Y)))[0][0])()
    return params["front"], lambda x: scale * features(x) @ params["readout"]


def finite(ours):
    if isinstance(ours, SGD):
        return optax.sgd(ours.rate, ours.momentum or None), WIDTH**-0.5
    same = to_finite(ours, WIDTH, readout="mean")
    return adam_star(same.rate, same.b1, same.b2, same.eps, width_axes=0), 1 / WIDTH


@pytest.mark.parametrize("optimizer", [AdamStar(0.05, eps=1e-4), SGD(0.5, momentum=0.8), SGD(1.0)], ids=str)
def test_it_trains_as_an_explicit_block_of_features(optimizer):
    layer = KernelLayer(kernel, optimizer, input_shape=(HIDDEN,), outputs=OUTPUTS, capacity=STEPS * ROWS)
    front, layer = with_layer(layer)
    expected_front, expected = with_features(*finite(optimizer))
    assert (int(layer.size), int(layer.steps)) == (STEPS * ROWS, STEPS)
    np.testing.assert_allclose(front, expected_front, rtol=1e-6)
    at = jnp.asarray(RNG.normal(size=(20, HIDDEN)))
    np.testing.assert_allclose(layer(at), expected(at), rtol=1e-6, atol=1e-8)
    assert np.abs(front - FRONT).max() > 0.1
    assert np.abs(expected(at)).max() > 0.1


@pytest.fixture
def trained():
    net = ew.Infinite(ew.Serial(ew.Dense(b_std=0.3), ew.Relu(), ew.Dense(1)), (HIDDEN,))
    layer = KernelLayer(net, AdamStar(0.1), input_shape=(HIDDEN,), outputs=2, capacity=40)
    return layer.update(jnp.asarray(RNG.normal(size=(7, HIDDEN))), jnp.asarray(RNG.normal(size=(7, 2))))


def test_gradients_in_the_inputs_are_those_of_finite_differences(trained):
    x, weights = jnp.asarray(RNG.normal(size=(3, HIDDEN))), jnp.asarray(RNG.normal(size=(3, 2)))
    loss = jax.jit(lambda x: jnp.sum(weights * jnp.sin(trained(x))))
    found, h = jax.grad(loss)(x), 1e-6
    unit = lambda i, j: jnp.zeros_like(x).at[i, j].set(h)
    slopes = [[(loss(x + unit(i, j)) - loss(x - unit(i, j))) / (2 * h) for j in range(HIDDEN)] for i in range(3)]
    np.testing.assert_allclose(found, np.array(slopes), rtol=1e-6, atol=1e-8)
    assert np.abs(found).max() > 1e-3


def test_its_own_numbers_have_no_gradients(trained):
    gradients = eqx.filter_grad(lambda layer: jnp.sum(layer(jnp.ones((2, HIDDEN))) ** 2))(trained)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradients))


def test_a_tap_gives_the_cotangents(trained):
    x = jnp.asarray(RNG.normal(size=(3, HIDDEN)))
    found = jax.grad(lambda tap: jnp.sum(trained(x, tap) ** 3))(trained.tap(3))
    np.testing.assert_allclose(found, 3 * trained(x) ** 2, rtol=1e-12)


def test_a_grown_layer_is_the_same(trained):
    x, cotangents = jnp.asarray(RNG.normal(size=(3, HIDDEN))), jnp.ones((3, 2))
    grown = trained.grown(64)
    np.testing.assert_allclose(grown(x), trained(x), rtol=1e-12)
    after = grown.update(x, cotangents)(x)
    np.testing.assert_allclose(after, trained.update(x, cotangents)(x), rtol=1e-12)
    with pytest.raises(ValueError, match="has 40 already"):
        trained.grown(10)


def test_a_full_layer_says_so(trained):
    with pytest.raises(ValueError, match="adds 41 rows"):
        trained.update(jnp.ones((41, HIDDEN)), jnp.ones((41, 2)))
    with pytest.raises(RuntimeError, match="is full"):
        jax.block_until_ready(eqx.filter_jit(KernelLayer.update)(trained, jnp.ones((34, HIDDEN)), jnp.ones((34, 2))))


def test_layers_that_cannot_be():
    options = {"input_shape": (HIDDEN,), "outputs": 2, "capacity": 10}
    with pytest.raises(ValueError, match="weight_decay"):
        KernelLayer(kernel, SGD(0.1, l2=0.1), **options)
    with pytest.raises(ValueError, match="takes rows of shape"):
        KernelLayer(ew.Infinite(ew.Dense(), (3,)), SGD(0.1), **options)
    with pytest.raises(ValueError, match="capacity=0"):
        KernelLayer(kernel, SGD(0.1), **options | {"capacity": 0})
