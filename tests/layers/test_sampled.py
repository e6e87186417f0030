"""Layers without a known limit: estimates with standard errors, against networks that are simulated by brute force."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide.layers import ConvDepthwise, Gru, InstanceNorm, Lstm, MaxPool, Sampled, StochasticDepth
from everwide.testing._draws import sample_kernels

pytestmark = pytest.mark.once

X = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)
CASES = {
    "max_pool": ew.Serial(ew.Relu(), MaxPool((2,))),
    "instance_norm": ew.Serial(InstanceNorm(), ew.Relu()),
    "lstm": Lstm(w_std=1.5, u_std=1.5, b_std=0.3),
    "gru": Gru(w_std=1.5, u_std=1.5),
    "depthwise": ew.Serial(ew.Relu(), ConvDepthwise((2,), b_std=0.3), ew.Relu()),
}


def network(layer):
    return ew.Serial(
        ew.Conv((2,), w_std=1.3, b_std=0.2), layer, ew.Flatten(), ew.Dense(w_std=1.2, b_std=0.1), ew.Relu(), ew.Dense()
    )


def assert_near(got, expected, errors, most=5.0):
    """No entry is further off than so many standard errors of both."""
    assert np.all(np.abs(got - expected) <= most * errors + 0.01 * np.abs(expected).max())


@pytest.mark.parametrize(
    "name", [name if name == "max_pool" else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_estimates_are_the_kernels_of_wide_networks(name):
    """Finite networks have a bias of 1 / width: two widths are extrapolated."""
    net = network(Sampled(CASES[name]))
    both = ew.gram(net, X)
    assert both.error is not None
    drawn = [
        sample_kernels(net, ew.Inputs(jnp.asarray(X)), width=w, draws=d, key=jr.key(w))
        for w, d in ((48, 300), (96, 300))
    ]
    for field in ("nngp", "ntk"):
        small, large = (getattr(one, field).astype(np.float64) for one in drawn)
        mean = 2 * large.mean(0) - small.mean(0)
        spread = np.sqrt(4 * large.var(0) / len(large) + small.var(0) / len(small))
        error = getattr(both.error, field)
        assert_near(getattr(both, field), mean, np.hypot(spread, error))
        assert 0 < error.max() < 0.2 * np.abs(getattr(both, field)).max()


@pytest.mark.slow
def test_layers_whose_limit_is_known_are_estimated_right():
    inside = ew.Serial(ew.Relu(), ew.AvgPool((2,)), ew.Dense(b_std=0.3), ew.Relu())
    mask = np.ones((3, 4), bool)
    mask[1, 2:] = False
    inputs = ew.Inputs(X, mask)
    exact, sampled = ew.gram(network(inside), inputs), ew.gram(network(Sampled(inside, width=512)), inputs, draws=6)
    assert exact.error is None
    assert sampled.error is not None
    for field in ("nngp", "ntk"):
        assert_near(getattr(sampled, field), getattr(exact, field), getattr(sampled.error, field))
        assert np.array_equal(getattr(sampled, field), getattr(sampled, field).T)


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("trained", ["below", "inside"])
def test_each_part_of_a_tangent_kernel_is_estimated_closely(trained):
    """Alone, so that a fifth of it would be seen."""
    inside, width = (ew.Relu(), 2048) if trained == "below" else (ew.Serial(ew.Relu(), ew.Dense(b_std=0.3)), 256)
    first, last = ew.Dense(w_std=1.5, frozen=trained != "below"), ew.Dense(1, frozen=True)
    exact = ew.ntk(ew.Serial(first, inside, last), X[:, 0])
    both = ew.gram(ew.Serial(first, Sampled(inside, width=width), last), X[:, 0], draws=32)
    assert both.error is not None
    assert both.error.ntk.max() < 0.03 * exact.max()
    assert_near(both.ntk, exact, both.error.ntk)


def test_a_tolerance_is_reached_by_more_draws():
    net = ew.Serial(ew.Dense(), Sampled(ew.Relu(), width=64), ew.Dense(1))
    x = X[:, 0]
    rough, fine = ew.gram(net, x), ew.gram(net, x, tolerance=0.02)
    assert max(e.max() / k.max() for e, k in zip(fine.error, fine, strict=True)) <= 0.02
    assert max(e.max() / k.max() for e, k in zip(rough.error, rough, strict=True)) > 0.02
    exact = ew.gram(ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1)), x)
    assert_near(fine.ntk, exact.ntk, fine.error.ntk)
    assert_near(ew.diagonal(net, x).ntk, np.diag(exact.ntk), ew.diagonal(net, x).error.ntk)
    assert_near(ew.nngp(net, x), exact.nngp, rough.error.nngp)


@pytest.mark.slow
def test_a_plan_marks_what_is_sampled():
    plan = ew.explain(network(Sampled(CASES["max_pool"])), (4, 2))
    assert [step.name for step in plan.steps if step.is_sampled] == ["Sampled"]
    assert "Sampled (sampled)" in str(plan)
    assert "kernels are estimates" in str(plan)
    assert [step["sampled"] for step in plan.to_dict()["steps"]].count(True) == 1
    assert "estimates" not in str(ew.explain(ew.Dense(1), (2,)))


@pytest.mark.slow
def test_stochastic_depth_is_the_mean_over_networks_without_some_branches():
    """Two blocks: each example keeps one of four networks, and two examples do so independently."""
    branch = (ew.Relu(), ew.Dense(w_std=1.4))
    rate, x = 0.4, X[:, 0]

    def net(*layers):
        return ew.Serial(ew.Dense(b_std=0.3), *layers, ew.Relu(), ew.Dense(1))

    noisy = ew.Residual(*branch, StochasticDepth(rate))
    both = ew.gram(net(noisy, noisy), x, draws=100)
    kept = ew.layers.Scale(1 / (1 - rate))
    expected = 0.0
    for first in (0, 1):
        for second in (0, 1):
            chosen = [ew.Residual(*branch, kept) if on else ew.Identity() for on in (first, second)]
            weight = np.prod([1 - rate if on else rate for on in (first, second)])
            expected = expected + weight * np.diag(ew.nngp(net(*chosen), x))
    assert_near(np.diag(both.nngp), expected, np.diag(both.error.nngp))
    params = net(noisy).init(jr.key(0), (2,), width=8)
    passes = {float(net(noisy).apply(params, jnp.asarray(x[0]), key=jr.key(i))[0]) for i in range(20)}
    assert len(passes) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "message"),
    [
        (MaxPool((2,)), "MaxPool has no known limit. Sample it"),
        (ew.Serial(ew.Conv((2,)), InstanceNorm()), "InstanceNorm has no known limit"),
        (Sampled(MaxPool((2,))), "Let it begin behind a Dense or Conv layer"),
        (ew.Serial(ew.Conv((2,)), ew.Relu(), Sampled(MaxPool((2,)))), "draws its input from a Gaussian law"),
        (ew.Residual(ew.Dense(), StochasticDepth(1.0)), "at least 0 and below 1"),
    ],
)
def test_what_cannot_be_sampled_is_refused(net, message):
    with pytest.raises(ew.ArchitectureError, match=message):
        ew.explain(net, (4, 2))


@pytest.mark.slow
def test_sampled_weights_in_the_standard_parametrization():
    """Of as many channels as the network has, whatever number is drawn; the layer behind counts its inputs right."""
    inside = ew.Serial(ew.Relu(), ew.Dense(24, w_std=1.3, b_std=0.3), ew.Relu())
    nets = [ew.Serial(ew.Dense(8, w_std=1.5), one, ew.Dense(1)) for one in (inside, Sampled(inside, width=512))]
    exact, both = (
        ew.gram(net, X[:, 0], parametrization="standard", draws=d) for net, d in zip(nets, (2, 64), strict=True)
    )
    assert both.error.ntk.max() < 0.08 * exact.ntk.max()
    for field in ("nngp", "ntk"):
        assert_near(getattr(both, field), getattr(exact, field), getattr(both.error, field))
    with pytest.raises(ew.ArchitectureError, match="needs the number of its input channels"):
        ew.gram(ew.Serial(ew.Dense(), Sampled(inside), ew.Dense(1)), X[:, 0], parametrization="standard")


def test_one_sampled_layer_behind_another():
    """Estimates that are no covariances of any signal are drawn from the nearest one: no kernel is lost."""
    block = (Sampled(ew.Serial(InstanceNorm(), ew.Relu()), width=2), ew.Conv((2,)))
    both = ew.gram(ew.Serial(ew.Conv((2,)), *block, *block, ew.Flatten(), ew.Dense(1)), X, draws=4)
    assert np.isfinite(both.ntk).all()
    assert both.error.ntk.max() > 0


@pytest.mark.slow
def test_weights_that_read_all_channels_may_be_sampled_behind_any_signal():
    """They see second moments only: a recurrent layer over the input has the limit that is known."""
    layer = ew.layers.Recurrent(ew.Erf(), w_std=1.3, u_std=0.9, b_std=0.4, b_state_std=0.3)
    exact = ew.gram(ew.Serial(layer, ew.layers.Index(-1), ew.Dense(1)), X)
    both = ew.gram(ew.Serial(Sampled(layer), ew.layers.Index(-1), ew.Dense(1)), X, draws=32)
    for field in ("nngp", "ntk"):
        assert_near(getattr(both, field), getattr(exact, field), getattr(both.error, field))


def test_masked_sites_do_not_count_in_finite_layers():
    x = jnp.asarray(X[0])
    mask = jnp.array([True, True, True, False])
    for layer in (MaxPool((2,)), InstanceNorm()):
        one, two = (layer.apply((), ew.kernel.Example(x.at[3].set(v), mask)) for v in (5.0, -5.0))
        assert jnp.array_equal(one, two)
    pooled = MaxPool((2,), padding="SAME", strides=1).forward((), ew.kernel.Example(-jnp.abs(x))).x
    assert jnp.allclose(pooled, jnp.maximum(-jnp.abs(x), jnp.concatenate([-jnp.abs(x[1:]), -jnp.abs(x[-1:])])))


def test_seeds_are_the_estimate():
    net = network(Sampled(CASES["max_pool"], width=32))
    x = ew.Inputs(jnp.asarray(X))
    one, again, other = (
        jax.jit(lambda k: k.block(x, x).ntk)(ew.Infinite(net, (4, 2), seed=seed)) for seed in (0, 0, 1)
    )
    assert jnp.array_equal(one, again)
    assert not jnp.allclose(one, other)


def test_gates_are_those_of_torch():
    """The same weights give the same states; its gates are in the same order, its biases are two."""
    torch = pytest.importorskip("torch")
    how = {"b_std": 1.0, "b_state_std": 1.0}
    for ours, theirs in ((Lstm(5, **how), torch.nn.LSTM), (Gru(5, **how), torch.nn.GRU)):
        params = ours.init(jr.key(0), (4, 2), parametrization="standard")
        module = theirs(2, 5, batch_first=True)
        values = params.input.weight.T, params.state.weight.T, params.input.bias, params.state.bias
        with torch.no_grad():
            for target, value in zip(module.parameters(), values, strict=True):
                target.copy_(torch.tensor(np.array(value)))
            expected = module(torch.tensor(X))[0].numpy()
        got = np.stack([np.asarray(ours.apply(params, jnp.asarray(x))) for x in X])
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_gates_begin_anew_after_a_gap():
    mask = jnp.array([True, True, False, True])
    for layer in (Lstm(5), Gru(5)):
        params = layer.init(jr.key(0), (4, 2))
        whole = layer.apply(params, ew.kernel.Example(jnp.asarray(X[0]), mask))
        alone = layer.apply(params, jnp.asarray(X[0, 3:]))
        assert jnp.allclose(whole[3], alone[0], atol=1e-6)
        with pytest.raises(ew.ArchitectureError, match="has no known limit"):
            ew.explain(layer, (4, 2))
