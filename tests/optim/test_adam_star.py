"""ADAM* of finite width: against optax, against its definition, and against training in function space."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everwide import InputError
from everwide.optim import adam_star
from everwide.training import SGD, AdamStar, FeatureKernel, Mse, from_finite, to_finite, train

pytestmark = pytest.mark.once  # float64 is asked for where it matters


def tree(seed, dtype=np.float64):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), dtype)
    return {"layers": (draw(3, 5), draw(5, 4)), "bias": draw(4)}


def updates_of(optimizer, steps=6, dtype=np.float64):
    """What the optimizer does to the same random gradients, step by step."""
    state, found = optimizer.init(tree(0, dtype)), []
    for step in range(steps):
        update, state = optimizer.update(tree(10 + step, dtype), state, tree(0, dtype))
        found.append(update)
    return found


@pytest.fixture
def double():
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):  # Adam of optax mixes its dtypes
        yield


@pytest.mark.parametrize("axes", [None, (), lambda path, leaf: None, {"layers": (None, ()), "bias": ()}])
@pytest.mark.parametrize("rate", [0.03, optax.exponential_decay(0.1, 2, 0.5)])
def test_without_axes_it_is_adam(double, axes, rate):
    found = updates_of(adam_star(rate, 0.8, 0.95, 1e-3, width_axes=axes))
    expected = updates_of(optax.adam(rate, 0.8, 0.95, 1e-3))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13), found, expected)


def simulated(gradients, rate, axes, b1=0.9, b2=0.999, eps=1e-8):
    """The definition, in numpy."""
    m, v, found = 0.0, 0.0, []
    for t, g in enumerate(gradients, start=1):
        square = g**2 if axes is None else np.mean(g**2, axes, keepdims=True)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * square
        found.append(-rate * m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps))
    return found


BY_LEAF = {"layers": (1, (0, -1)), "bias": None}


def by_name(path, leaf):
    return {(3, 5): -1, (5, 4): (1, 0), (4,): ()}[leaf.shape]


@pytest.mark.parametrize("axes", [BY_LEAF, by_name])
def test_its_definition_with_axes_for_each_parameter(double, axes):
    found = updates_of(adam_star(0.1, width_axes=axes))
    for read, own in [(lambda p: p["layers"][0], 1), (lambda p: p["layers"][1], (0, 1)), (lambda p: p["bias"], None)]:
        expected = simulated([np.asarray(read(tree(10 + s))) for s in range(6)], 0.1, own)
        np.testing.assert_allclose([read(u) for u in found], expected, rtol=1e-12)


def test_one_choice_for_a_whole_branch(double):
    upper = updates_of(adam_star(0.1, width_axes={"layers": 0, "bias": None}))
    expected = simulated([np.asarray(tree(10)["layers"][0])], 0.1, 0)[0]
    np.testing.assert_allclose(upper[0]["layers"][0], expected, rtol=1e-12)


def test_one_compiled_chain_in_strict_dtypes():
    optimizer = optax.chain(optax.clip(1.0), adam_star(0.1, width_axes=0))

    @jax.jit
    def run(start):
        def step(carry, _):
            params, state = carry
            update, state = optimizer.update(params, state, params)  # the gradient of 1/2 |params|^2
            return (optax.apply_updates(params, update), state), None

        return jax.lax.scan(step, (start, optimizer.init(start)), length=40)[0][0]

    start = tree(0, np.float32)
    found = run(start)
    assert jax.tree.map(lambda a: a.dtype, found) == jax.tree.map(lambda a: a.dtype, start)
    size = lambda tree: sum(float(jnp.sum(leaf**2)) for leaf in jax.tree.leaves(tree))
    assert size(found) < 0.5 * size(start)


def finite_model(features, y, start, optimizer, steps, scale):
    """`f = scale * features @ readout`, trained on the mean squared loss."""
    loss = lambda readout: jnp.sum((scale * features @ readout - y) ** 2) / (2 * len(y))
    readout = jnp.asarray(start)
    state = optimizer.init(readout)
    for _ in range(steps):
        update, state = optimizer.update(jax.grad(loss)(readout), state, readout)
        readout = readout + update
    return scale * features @ readout


def features_and_start(width):
    rng = np.random.default_rng(0)
    return np.tanh(rng.normal(size=(9, width))), rng.normal(size=(9, 3)), rng.normal(size=(width, 3))


def by_optax(ours):
    """The same steps of weights, from parts that optax has."""
    if isinstance(ours, SGD):
        core = optax.sgd(1.0, ours.momentum or None, ours.nesterov)
    else:
        core = adam_star(1.0, ours.b1, ours.b2, ours.eps, width_axes=0)
    parts = [optax.add_decayed_weights(ours.l2), core, optax.add_decayed_weights(-ours.weight_decay)]
    return optax.chain(*parts, optax.scale(ours.rate))


@pytest.mark.parametrize("readout", ["mean", "sqrt"])
@pytest.mark.parametrize(
    "kernel_side",
    [
        AdamStar(0.05, b2=0.99, eps=1e-3),
        AdamStar(0.05, b1=0.7, b2=0.99, eps=1e-3, l2=0.3),
        AdamStar(0.05, b2=0.9, eps=1e-2, weight_decay=0.8),
        AdamStar(0.03, b1=0.5, b2=0.9, eps=1e-2, weight_decay=0.4, l2=0.2),
        SGD(0.3),
        SGD(0.3, momentum=0.8, l2=0.2, weight_decay=0.1),
        SGD(0.2, momentum=0.5, nesterov=True, l2=0.1),
    ],
    ids=str,
)
def test_it_trains_features_as_function_space_does(double, kernel_side, readout):
    width = 40
    g, y, start = features_and_start(width)
    finite_side = to_finite(kernel_side, width, readout=readout)
    scale = 1 / width if readout == "mean" else width**-0.5
    found = finite_model(jnp.asarray(g), jnp.asarray(y), start / (scale * width**0.5), by_optax(finite_side), 50, scale)
    kernel, f0 = FeatureKernel(g / np.sqrt(width)), g @ start / np.sqrt(width)
    back = from_finite(finite_side, width, readout=readout)
    for same in (kernel_side, back):
        run = train(kernel, y, loss=Mse(), optimizer=same, steps=50, f0=f0, f0_power=(start**2).sum(0))
        np.testing.assert_allclose(found, run.outputs, rtol=1e-8, atol=1e-8)
    assert np.abs(found - f0).max() > 0.1


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (1, r"parameter \['bias'\] are 1, but its shape is \(4,\)"),
        ((0, 0), "are \\(0, 0\\)"),
        ({"layers": 0}, "a tree of axes"),
        (lambda path, leaf: "width", "expected an int"),
    ],
)
def test_wrong_axes_name_their_parameter(axes, message):
    with pytest.raises(InputError, match=message):
        adam_star(0.1, width_axes=axes).init(tree(0, np.float32))


@pytest.mark.parametrize("rate", [-1.0, np.nan, np.inf, -np.inf, np.float32(-1), jnp.asarray(-0.1)])
def test_rates_are_checked(rate):
    with pytest.raises(InputError, match=r"adam_star: rate=.*expected a finite number, at least 0"):
        adam_star(rate)


@pytest.mark.parametrize("rate", [0, 0.1, np.float32(0.1), jnp.asarray(0.1), optax.constant_schedule(0.1)])
def test_rates_that_may_be_used(rate):
    adam_star(rate).init(jnp.ones(3))


def test_rates_that_are_not_known_yet():
    def step(rate):
        optimizer, params = adam_star(rate), jnp.ones(3)
        return optimizer.update(params, optimizer.init(params))[0]

    np.testing.assert_allclose(jax.jit(step)(0.1), step(0.1))


def test_shares_are_checked():
    with pytest.raises(ValueError, match="b2=1"):
        adam_star(0.1, b2=1.0, width_axes=None)
