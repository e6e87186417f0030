"""How fast layers learn: in the limit, and in finite networks that take a step."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide.optim import learning_rates

X = np.random.default_rng(0).standard_normal((5, 3))


def speedy(first, second, third=1.0):
    law = {"w_std": 1.2, "b_std": 0.3}
    return ew.Serial(
        ew.Dense(speed=first, **law), ew.Relu(), ew.Dense(speed=second, **law), ew.Erf(), ew.Dense(1, speed=third)
    )


def test_what_a_layer_adds_to_the_tangent_kernel_is_multiplied_by_its_speed():
    parts = [ew.ntk(speedy(*one), X) for one in np.eye(3).tolist()]  # each layer alone
    np.testing.assert_allclose(ew.ntk(speedy(0.3, 2.0), X), 0.3 * parts[0] + 2 * parts[1] + parts[2], rtol=1e-12)
    np.testing.assert_allclose(ew.gram(speedy(0.3, 2.0), X).nngp, ew.gram(speedy(1.0, 1.0), X).nngp, rtol=1e-12)


def test_kernels_have_derivatives_in_speeds():
    x = ew.Inputs(jnp.asarray(X))
    entry = lambda speed: ew.Infinite(speedy(speed, 1.0), (3,)).block(x, x).ntk[0, 1]
    slope = jax.grad(entry)(jnp.asarray(0.0, x.x.dtype))  # where nothing of it is learned
    np.testing.assert_allclose(slope, entry(1.0) - entry(0.0), rtol=1e-6)


@pytest.mark.parametrize("law", ["ntk", "standard"])
def test_a_finite_layer_learns_at_its_speed(law):
    """One step of gradient descent, at rates that belong to the parametrization: functions start as one and part."""
    x, speed = jnp.asarray(X[0]), 0.36

    def step(rule, **how):
        net = ew.Serial(ew.Dense(b_std=0.3, **how), ew.Relu(), ew.Dense(1, frozen=True))
        params = net.init(jr.key(0), (3,), width=8, parametrization=law)
        value, slope = jax.value_and_grad(lambda p: net.apply(p, x)[0])(params)
        signs = slope if rule == "sgd" else jax.tree.map(jnp.sign, slope)
        rates = learning_rates(net, params, rule)
        moved = jax.tree.map(lambda p, g, r: p - 1e-3 * r * g, params, signs, rates)
        return value, net.apply(moved, x)[0] - value

    for rule in ("sgd", "adam"):
        (value, change), (same, slow) = step(rule), step(rule, speed=speed)
        np.testing.assert_allclose(same, value, rtol=1e-5)
        np.testing.assert_allclose(slow / change, speed, rtol=2e-2)


def test_a_speed_that_is_traced_may_be_zero():
    def slope_and_value(speed):
        net = ew.Serial(ew.Dense(speed=speed), ew.Relu(), ew.Dense(1))
        params = net.init(jr.key(0), (3,), width=4)
        return jax.grad(lambda p: net.apply(p, jnp.ones(3))[0])(params)[0].weight, params[0].weight

    slope, weight = jax.jit(slope_and_value)(jnp.asarray(0.0))
    assert (slope == 0).all()
    assert jnp.isfinite(weight).all()


def test_a_negative_speed_is_refused():
    with pytest.raises(ew.signal.ArchitectureError, match=r"Dense\(speed=-1\): speed must be at least 0"):
        ew.explain(ew.Dense(speed=-1), (3,))
