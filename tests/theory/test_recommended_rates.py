"""Rates of finite networks against plain loops: what is recommended, where it fails, and where Adam comes to hover."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import everwide as ew
import everwide.training as tr
from everwide.theory import rates, stability

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 4))
Y = np.abs(X[:, 0]) - 0.8 + 0.3 * RNG.normal(size=48)
NET = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(1))
STEPS = 48
MOMENTUM = functools.partial(optax.sgd, momentum=0.9)


def params_of(seed=1, width=24, parametrization="ntk", net=NET):
    return net.init(jax.random.key(seed), (4,), width=width, parametrization=parametrization)


def mean_loss(params, net=NET, y=Y):
    outputs = jax.vmap(lambda e: net.apply(params, e))(jnp.asarray(X, float))[:, 0]
    return jnp.mean((outputs - jnp.asarray(y, float)) ** 2) / 2


@functools.cache
def program(optimizer, steps, net):
    """A plain loop of optax, compiled once for all rates and warm-ups."""

    @jax.jit
    def run(params, rate, warmup):
        rule = optimizer(lambda step: rate * jnp.minimum((step.astype(rate.dtype) + 1) / warmup, 1.0))

        def step(carry, _):
            params, state = carry
            value, slope = jax.value_and_grad(functools.partial(mean_loss, net=net))(params)
            with jax.numpy_dtype_promotion("standard"):  # Adam of optax mixes its dtypes
                updates, state = rule.update(slope, state, params)
            return (optax.apply_updates(params, updates), state), value

        end, losses = jax.lax.scan(step, (params, rule.init(params)), length=steps)
        return losses, *end

    return run


def train(params, optimizer, rate, warmup=1, steps=STEPS, net=NET):
    """The loss before each step, the last parameters, and the state of the optimizer."""
    losses, params, state = program(optimizer, steps, net)(params, jnp.asarray(rate, float), jnp.asarray(warmup, float))
    return np.asarray(losses, np.float64), params, state


def last(losses):
    recent = losses[-(len(losses) // 10) :]
    return recent.mean() if np.isfinite(recent).all() else np.inf


@pytest.mark.parametrize(
    "optimizer",
    [optax.sgd, pytest.param(MOMENTUM, marks=pytest.mark.slow), pytest.param(optax.adam, marks=pytest.mark.slow)],
)
def test_the_recommended_rate_keeps_its_word(optimizer):
    """Trained again, without us: its loss, its spike, its limit; and constant rates are not much better.

    How much better they are, the benchmark says: 48 steps of 48 rows are noisy.
    """
    start = params_of()
    found = rates.recommended_rate(NET, start, X, Y, optimizer, steps=STEPS)
    losses, _, _ = train(start, optimizer, found.rate, found.warmup)
    assert last(losses) == pytest.approx(found.loss, rel=0.05)
    assert losses.max() / losses[0] == pytest.approx(found.spike, rel=0.05)
    constant = [last(train(start, optimizer, found.rate * 2.0**k)[0]) for k in range(-5, 2)]
    assert found.loss < 1.5 * min(constant)
    ends = [last(train(start, optimizer, rate, found.warmup)[0]) for rate in (found.trains_to, found.fails_from)]
    assert ends[0] < np.var(Y) / 2 <= ends[1]
    assert found.trains_to < found.diverges < found.fails_from == pytest.approx(2**0.5 * found.trains_to)
    assert found.cost == sum(trial.steps for trial in found.trials) < 16 * STEPS
    assert found.schedule(0) == pytest.approx(found.rate / found.warmup)
    assert found.schedule(STEPS) == pytest.approx(found.rate)


def test_any_model_any_loss_and_batches():
    classes, start = (
        (Y > 0).astype(int),
        {"a": jnp.ones((4, 8)) * 0.1, "b": jnp.asarray(RNG.normal(size=(8, 2)), float)},
    )
    model = lambda params, x: jnp.tanh(x @ params["a"]) @ params["b"]
    found = rates.recommended_rate(
        model, start, X, classes, optax.adam, steps=40, loss=tr.SoftmaxCrossEntropy(), batch_size=16, warmup=0
    )
    assert found.warmup == 0
    assert found.loss < np.log(2)
    assert found.schedule(0) == found.schedule(30) == found.rate


def test_the_lazy_edge_is_no_limit_of_a_finite_network_but_of_its_last_layer_it_is():
    """At 1.3 times the edge of their own kernels all layers train after a spike; a last layer alone diverges."""
    last_only = ew.Serial(ew.Dense(w_std=2**0.5, frozen=True), ew.Relu(), ew.Dense(1))
    for net in (NET, last_only):
        start = params_of(seed=2, width=256, net=net)
        kernel = np.asarray(ew.empirical_ntk(net, start, jnp.asarray(X, float)))[..., 0, 0]
        edge = 2 * len(X) / np.linalg.eigvalsh(kernel)[-1]
        told = rates.stable_rates(net, X, width=256)
        assert told.gradient_descent == pytest.approx(edge, rel=0.25)  # one draw
        losses, _, _ = train(start, optax.sgd, 1.3 * edge, 1, 120, net)
        low, high = told.diverges
        if net is NET:
            assert losses[-1] < 0.2 * losses[0]
            assert low > 1.3 * told.gradient_descent
            assert not np.isfinite(last(train(start, optax.sgd, 1.5 * high, 1, 120, net)[0]))
        else:
            assert not losses[-1] < 1e3 * losses[0]
            assert low == high == told.gradient_descent


def test_a_product_of_matrices_catapults_too_and_a_single_one_does_not():
    """Without functions between them: twice the edge is survived by two matrices, and three times by none."""
    product, single = ew.Serial(ew.Dense(), ew.Dense(1)), ew.Dense(1)
    told = rates.stable_rates(product, X, width=256)
    assert told.diverges == pytest.approx((2 * told.gradient_descent, 3.5 * told.gradient_descent))
    repeated = ew.Serial(ew.Repeat(ew.Dense(4), 2))
    assert rates.stable_rates(repeated, X).diverges[0] == pytest.approx(
        2 * rates.stable_rates(repeated, X).gradient_descent
    )
    start = params_of(seed=2, width=256, net=product)
    losses, _, _ = train(start, optax.sgd, 0.8 * told.diverges[0], 1, 120, product)
    assert max(losses) > 1.05 * losses[0]
    assert losses[-1] < losses[0]
    assert not np.isfinite(last(train(start, optax.sgd, 1.5 * told.diverges[1], 1, 120, product)[0]))
    alone = rates.stable_rates(single, X)
    assert alone.diverges == (alone.gradient_descent, alone.gradient_descent)
    first_only = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(1, frozen=True))
    assert rates.stable_rates(first_only, X).diverges[0] > 1.5 * rates.stable_rates(first_only, X).gradient_descent


def test_narrow_networks_have_larger_eigenvalues():
    """All outputs together, of other draws, by numpy."""
    net = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(5))
    narrow, limit = (rates.stable_rates(net, X, width=width) for width in (8, None))
    draws = [ew.empirical_ntk(net, params_of(seed, 8, net=net), jnp.asarray(X, float)) for seed in range(10, 22)]
    flat = [np.asarray(k).transpose(0, 2, 1, 3).reshape(5 * len(X), 5 * len(X)) for k in draws]
    drawn = np.mean([np.linalg.eigvalsh(k)[-1] for k in flat])
    assert narrow.lambda_max == pytest.approx(drawn, rel=0.35)
    assert narrow.lambda_max > 1.1 * limit.lambda_max
    assert narrow.gradient_descent == pytest.approx(2 * len(X) / narrow.lambda_max)
    assert narrow.diverges[0] / narrow.gradient_descent == pytest.approx(limit.diverges[0] / limit.gradient_descent)


def test_the_curvature_before_training_is_that_of_the_gauss_newton_matrix():
    """Of ten classes, outputs 0: `K x (I - 1 1^T / 10) / 10`, by numpy."""
    kernel, classes = np.asarray(ew.ntk(NET, X), np.float64), RNG.integers(0, 10, size=len(X))
    classes[0] = 9
    found = rates.stable_rates(kernel, y=classes, loss=tr.SoftmaxCrossEntropy())
    whole = np.kron(kernel, (np.eye(10) - 0.1) / 10)
    assert found.at_start == pytest.approx(2 * len(X) / np.linalg.eigvalsh(whole)[-1])
    assert found.at_start == pytest.approx(5 * found.gradient_descent)
    assert found.diverges is None


@pytest.mark.slow
def test_adam_hovers_at_its_edge():
    """The largest eigenvalue of `D^-1/2 H D^-1/2`, where `D` is the root of the second moment, rises to 38 / rate."""
    net = ew.Serial(ew.Dense(), ew.Tanh(), ew.Dense(), ew.Tanh(), ew.Dense(1))
    rate, steps = 0.01, 1500
    start = net.init(jax.random.key(0), (4,), width=24, parametrization="standard")
    _, params, state = train(start, optax.adam, rate, 1, steps, net)
    moment = jax.tree.map(lambda v: jnp.sqrt(jnp.sqrt(v / (1 - 0.999**steps)) + 1e-8), state[0].nu)
    slope = jax.grad(functools.partial(mean_loss, net=net))

    def multiply(_, carry):
        vector, size = carry
        turned = jax.tree.map(lambda v, d: v / (d * size), vector, moment)
        image = jax.tree.map(jnp.divide, jax.jvp(slope, (params,), (turned,))[1], moment)
        return image, norm(image)

    def norm(tree):
        return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))

    vector = jax.tree.map(lambda p: jnp.asarray(RNG.normal(size=p.shape), p.dtype), params)
    _, size = jax.jit(lambda v: jax.lax.fori_loop(0, 200, multiply, (v, norm(v))))(vector)
    size = float(size)
    assert size == pytest.approx(stability.edge(rate, b1=0.9), rel=0.15)


def test_noise_of_batches_is_what_batches_show():
    start, size, draws = params_of(), 6, 3000
    each = ew.empirical.per_example_gradients(
        NET, start, jnp.asarray(X, float), lambda f, y: (f[0] - y) ** 2 / 2, jnp.asarray(Y, float)
    )
    flat = np.concatenate([np.asarray(leaf, np.float64).reshape(len(X), -1) for leaf in jax.tree.leaves(each)], 1)
    found = rates.gradient_noise(NET, start, X, Y, batch_size=size)
    mean = flat.mean(0)
    off = [np.sum((flat[RNG.permutation(len(X))[:size]].mean(0) - mean) ** 2) for _ in range(draws)]
    assert found.signal == pytest.approx(mean @ mean, rel=1e-4)
    assert abs(found.trace - np.mean(off)) < 4 * np.std(off) / draws**0.5
    assert found.scale == pytest.approx(np.mean(np.sum((flat - mean) ** 2, 1)) / (mean @ mean), rel=1e-4)
    assert rates.gradient_noise(NET, start, X, Y, batch_size=len(X)).trace == 0


def test_descent_in_batches_drifts_to_where_their_noise_is_small():
    """`f = u v x` is best where `u v = 1`; labels are noisy. Batches of one move along it to smaller `u^2 + v^2`."""
    rng, model = np.random.default_rng(3), lambda params, x: params[0] * params[1] * x
    x = rng.normal(size=(400, 1))
    y = x[:, 0] + rng.normal(size=400)
    y += x[:, 0] * (x[:, 0] @ (x[:, 0] - y)) / (x[:, 0] @ x[:, 0])  # the best slope is 1
    u, v = 3.0, 1 / 3
    before = rates.gradient_noise(model, jnp.array([u, v]), x, y)
    for row in rng.integers(0, 400, size=20_000):
        error = u * v * x[row, 0] - y[row]
        u, v = u - 0.004 * error * v * x[row, 0], v - 0.004 * error * u * x[row, 0]
    after = rates.gradient_noise(model, jnp.array([u, v]), x, y)
    assert u * v == pytest.approx(1, abs=0.4)
    assert after.trace < 0.85 * before.trace


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: rates.recommended_rate(NET, params_of(), X, Y, optax.adam(0.1), steps=40), "not what it returns"),
        (lambda: rates.recommended_rate(NET, params_of(), X, Y, optax.adam, steps=8), "32 or more"),
        (lambda: rates.recommended_rate(NET, params_of(), X, Y[:3], optax.adam, steps=40), "y has 3 rows and x 48"),
        (lambda: rates.recommended_rate(NET, params_of(), X, Y, optax.sgd, steps=40, batch_size=99), "at most 48"),
        (lambda: rates.recommended_rate(NET, params_of(), X.astype(str), Y, optax.sgd, steps=40), "expected numbers"),
        (lambda: rates.recommended_rate(NET, params_of(), X, Y, optax.sgd, steps=40, warmup=-1), "0 or more"),
        (lambda: rates.recommended_rate(NET, None, X, Y, optax.sgd, steps=40), "needs parameters"),
        (
            lambda: rates.recommended_rate(
                ew.Dense(1, frozen=True), params_of(net=ew.Dense(1)), X, Y, optax.sgd, steps=40
            ),
            "lowers the loss, .* at no rate",
        ),
        (lambda: rates.gradient_noise(NET, params_of(), X, Y, batch_size=0), "1 or more"),
        (lambda: rates.gradient_noise(NET, params_of(), X[:1], Y[:1]), "2 or more"),
        (lambda: rates.gradient_noise(NET, params_of(), np.nan * X, Y), "gradients are not finite"),
        (lambda: rates.stable_rates(np.eye(3), width=8), "only a network has a width"),
        (lambda: rates.stable_rates(np.eye(3), net=NET, width=8), "x is missing"),
    ],
)
def test_bad_input(run, message):
    with pytest.raises(ew.InputError, match=message):
        run()


def test_inputs_that_overflow_are_refused():
    with pytest.raises(ew.InputError, match="loss before training"):
        rates.recommended_rate(NET, params_of(), 1e30 * X.astype(np.float32), Y, optax.sgd, steps=40)


@pytest.mark.slow
def test_a_run_that_spikes_early_may_win():
    """Bounded units under cross-entropy: half-way such runs look lost, in the end they fit what others do not."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(256, 10)).astype(np.float32)
    labels = ((x[:, 0] * x[:, 1] > 0) ^ (rng.random(256) < 0.1)).astype(int)
    net = ew.Serial(ew.Dense(), ew.Tanh(), ew.Dense(), ew.Tanh(), ew.Dense(2)).critical()
    params = net.init(jax.random.key(7), (10,), width=128)
    found = rates.recommended_rate(net, params, x, labels, optax.sgd, steps=100, loss=tr.SoftmaxCrossEntropy())
    lower = [trial for trial in found.trials if trial.steps == 100 and trial.peak < 5]
    assert found.spike > 5
    assert found.loss < 0.02 < min(trial.loss for trial in lower)
