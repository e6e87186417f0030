"""Learning rates of a parametrization: exact equivalences of trainings, and what does not depend on the width."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import everwide as ew
from everwide.optim import learning_rates, scale_by_parametrization
from everwide.testing._draws import Slope, exact_for, quick_jit
from everwide_lab.golden import Reparametrized

pytestmark = pytest.mark.once

X64 = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
SCALES = {"w_std": 1.4, "b_std": 0.3}
TRANSFORMER = ew.Serial(
    ew.Dense(**SCALES),
    ew.Residual(ew.SelfAttention(w_query_std=1.5, w_key_std=0.7, w_value_std=1.2, b_std=0.3, heads=3)),
    ew.LayerNorm(),
    ew.Relu(),
    ew.SelfAttention(
        mechanism="relu", scaling="sqrt", w_query_std=1.5, position=ew.layers.Position(w_std=0.6), heads=2
    ),
    ew.GlobalAvgPool(),
    ew.Dense(2, **SCALES),
)
NETS = {
    "mlp": (ew.Serial(ew.Dense(**SCALES), ew.Relu(), ew.Dense(**SCALES), ew.Relu(), ew.Dense(2, **SCALES)), (3,)),
    "conv": (
        ew.Serial(
            ew.Conv((3,), **SCALES),
            ew.Residual(ew.Relu(), ew.Conv((3,), **SCALES)),
            ew.Relu(),
            ew.layers.ConvLocal((2,), **SCALES),
            ew.Flatten(),
            ew.Concat(ew.Dense(1, **SCALES), ew.Dense(1, frozen=True)),
        ),
        (5, 2),
    ),
    "repeat": (ew.Serial(ew.Repeat(ew.Serial(ew.Dense(**SCALES), ew.Relu()), 3), ew.Dense(1)), (3,)),
    "transformer": (TRANSFORMER, (3, 2)),
}


OPTIMIZERS = {"sgd": optax.sgd(0.05, momentum=0.5), "adam": optax.adam(0.03, eps=1e-30)}  # an eps would have units
COMPILE_LONG = ("transformer", "repeat", "conv")  # the last with Adam anyway
CASES = [pytest.param("sgd", name, marks=[pytest.mark.slow] * (name in COMPILE_LONG)) for name in NETS]
CASES += [("adam", "mlp"), ("adam", "conv")]


def outputs_along(net, shape, law, rule, steps=2):
    """Outputs of a batch at the start and after each step of training."""
    x, y = jr.normal(jr.key(1), (4, *shape)), jr.normal(jr.key(2), (4,))
    optimizer = optax.chain(OPTIMIZERS[rule], scale_by_parametrization(net, rule))

    def loss(params):
        out = jax.vmap(lambda one: net.apply(params, one))(x)
        return jnp.sum((out[:, 0] - y) ** 2), out

    def step(carry, _):
        params, state = carry
        gradients, out = jax.grad(loss, has_aux=True)(params)
        updates, state = optimizer.update(gradients, state, params)
        return (optax.apply_updates(params, updates), state), out

    params = net.init(jr.key(0), shape, width=6, parametrization=law)
    return jax.lax.scan(step, (params, optimizer.init(params)), length=steps + 1)[1]


@pytest.mark.parametrize(("rule", "name"), CASES)
def test_scales_that_are_drawn_train_as_scales_that_are_factors(rule, name):
    if rule == "adam" and not X64:
        pytest.skip("quotients of gradients that are rounding")
    net, shape = NETS[name]
    with jax.numpy_dtype_promotion("standard"):  # Adam of optax mixes its dtypes
        found = quick_jit(lambda: {str(law): outputs_along(net, shape, law, rule) for law in ew.Parametrization})()
    exact = exact_for(found["ntk"].dtype)
    assert exact.excess(found["standard"], found["ntk"]) < 1
    assert exact.excess(found["mup"], found["mean_field"]) < 1
    assert np.abs(found["ntk"][-1] - found["ntk"][0]).max() > 0.01


def by_name(net, width, law, rule):
    shapes = jax.eval_shape(lambda: net.init(jr.key(0), (3,), width=width, parametrization=law))
    rates = learning_rates(net, shapes, rule)
    first, second, third = rates[0], rates[2], rates[4]
    return np.array([first.weight, first.bias, second.weight, second.bias, third.weight, third.bias])


# powers of the width: input weight, its bias, hidden weight, its bias, readout weight, its bias
POWERS = {
    ("ntk", "sgd"): [0, 0, 0, 0, 0, 0],
    ("standard", "sgd"): [0, 0, -1, 0, -1, 0],
    ("mean_field", "sgd"): [1, 1, 1, 1, 1, 0],
    ("mup", "sgd"): [1, 1, 0, 1, -1, 0],
    ("ntk", "adam"): [-0.5, -0.5, -1, -0.5, -0.5, 0],
    ("standard", "adam"): [-0.5, -0.5, -1.5, -0.5, -1, 0],
    ("mean_field", "adam"): [0, 0, -0.5, 0, 0, 0],
    ("mup", "adam"): [0, 0, -1, 0, -1, 0],
}


@pytest.mark.parametrize(("law", "rule"), POWERS)
def test_factors_scale_with_the_width_as_in_the_table(law, rule):
    net, _ = NETS["mlp"]
    ratio = by_name(net, 64, law, rule) / by_name(net, 4, law, rule)
    np.testing.assert_allclose(np.log(ratio) / np.log(16), POWERS[law, rule], atol=1e-12)


def test_standard_factors_are_the_squared_sizes_of_parameters():
    net, _ = NETS["mlp"]
    w, b = 1.4**2, 0.3**2
    np.testing.assert_allclose(by_name(net, 8, "standard", "sgd"), [w / 3, b, w / 8, b, w / 8, b], rtol=1e-12)


def test_frozen_parameters_stay():
    net = ew.Serial(ew.Dense(b_std=0.1, frozen=True), ew.Relu(), ew.Dense(1))
    rates = learning_rates(net, net.init(jr.key(0), (3,), width=4), "adam")
    assert rates[0].weight == rates[0].bias == 0
    assert rates[2].weight == 0.5


def test_numbers_of_the_network_may_be_traced():
    def readout_rate(w_std):
        net = ew.Serial(ew.Dense(4), ew.Relu(), ew.Dense(1, w_std=w_std))
        return learning_rates(net, net.init(jr.key(0), (3,), parametrization="standard"))[2].weight

    value, slope = jax.jit(jax.value_and_grad(readout_rate))(jnp.asarray(1.5))
    np.testing.assert_allclose([value, slope], [1.5**2 / 4, 2 * 1.5 / 4], rtol=1e-6)


def test_a_layer_around_weights_is_looked_into():
    net = ew.Serial(ew.Dense(4), ew.Relu(), Reparametrized(ew.Dense(1, w_std=2.0), "standard"))
    assert learning_rates(net, net.init(jr.key(0), (3,)))[2].weight == 1.0


def test_masked_updates_pass():
    net, _ = NETS["mlp"]
    params = net.init(jr.key(0), (3,), width=4, parametrization="standard")
    mask = eqx.tree_at(lambda p: p[0].weight, jax.tree.map(lambda _: True, params), False)
    chain = optax.masked(scale_by_parametrization(net), mask)
    updates, _ = chain.update(jax.tree.map(jnp.ones_like, params), chain.init(params))
    np.testing.assert_allclose(updates[0].weight, 1.0)
    np.testing.assert_allclose(updates[2].weight, 1.4**2 / 4, rtol=1e-6)


class Shift(ew.layers.AbstractLayer):
    """A layer of somebody else's, with a parameter of its own kind."""

    def describe(self, signal):
        return signal

    def demand(self, wanted):
        return wanted

    def sample(self, key, signal):
        return jnp.zeros(signal.channels or 1)

    def forward(self, params, example):
        return example.with_values(example.x + params)

    def propagate(self, k, wanted):
        return k


def test_unknown_parameters_are_refused():
    net = ew.Serial(ew.Dense(4), Shift(), ew.Dense(1))
    params = net.init(jr.key(0), (3,))
    with pytest.raises(ew.InputError, match=r"learning rates of Serial\[1\] Shift are not known"):
        learning_rates(net, params)


def test_parameters_of_another_network_are_refused():
    net, _ = NETS["mlp"]
    other = ew.Serial(ew.Dense(4), ew.Relu())
    with pytest.raises(ew.InputError, match=r"Serial has 5 parts.*tuple of 2.*net\.init"):
        scale_by_parametrization(net).init(other.init(jr.key(0), (3,)))


def test_unknown_rules_are_refused():
    with pytest.raises(ValueError, match="newton"):
        scale_by_parametrization(NETS["mlp"][0], "newton")


def test_the_tangent_kernel_with_standard_factors_does_not_grow_with_the_width():
    """The largest eigenvalue of `sum_j rate_j df/dtheta_j df/dtheta_j`, over three widths."""
    net = ew.Serial(ew.Dense(w_std=1.4), ew.Relu(), ew.Dense(w_std=1.4), ew.Relu(), ew.Dense(1))
    x, widths = jr.normal(jr.key(1), (5, 6)), (16, 64, 256)

    def largest(width):
        def one(key):
            params = net.init(key, (6,), width=width, parametrization="standard")
            jacobian = jax.jacrev(lambda p: jax.vmap(lambda e: net.apply(p, e)[0])(x))(params)
            flat = lambda j: j.reshape(len(j), -1)
            parts = jax.tree.map(lambda j: flat(j) @ flat(j).T, jacobian)
            weighed = jax.tree.map(lambda part, rate: part * rate, parts, learning_rates(net, params))
            top = lambda tree: jnp.linalg.eigvalsh(sum(jax.tree.leaves(tree)))[-1]
            return jnp.stack((top(parts), top(weighed)))

        return np.mean(quick_jit(lambda: jax.vmap(one)(jr.split(jr.key(0), 12)))(), 0)

    plain, weighed = np.transpose([largest(n) for n in widths])
    assert Slope(1.0, 0.15).excess(widths, plain) < 1
    assert Slope(0.0, 0.15).excess(widths, weighed) < 1
