"""Quadratic models against explicit second derivatives, integrated gradient flow, and minimized losses."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy.integrate import solve_ivp

import everwide as ew
from everwide import InputError
from everwide.linearization import quadratic_model
from everwide.testing._draws import exact_for

pytestmark = pytest.mark.wide

DTYPE = jnp.result_type(float)
EPS = 1e-4


@functools.cache  # one function, one compilation
def form(scale):
    return lambda th, x: x[0] @ th + scale * th @ x[1] @ th / 2


class Flow(NamedTuple):
    """z = Phi' th + eps/2 th' Psi th, with its gradient flow integrated by scipy in float64."""

    phi: np.ndarray  # (n, p)
    psi: np.ndarray  # (n, p, p)
    y: np.ndarray
    start: np.ndarray

    def at(self, eps, time):
        def velocity(_, th):
            features = self.phi + eps * self.psi @ th
            residual = self.phi @ th + eps * (self.psi @ th) @ th / 2 - self.y
            return -features.T @ residual / len(self.y)  # of the mean over rows of half the square

        return solve_ivp(velocity, (0, time), self.start, rtol=1e-11, atol=1e-13, method="LSODA").y[:, -1]

    @property
    def batch(self):
        return jnp.asarray(self.phi, DTYPE), jnp.asarray(self.psi, DTYPE)

    def training(self, scale=1.0):
        model = quadratic_model(form(scale), jnp.zeros(self.phi.shape[1]))
        return model.trained(self.batch, jnp.asarray(self.y), start=jnp.asarray(self.start, DTYPE))


def flow(n, p, start=0.7):
    rng = np.random.default_rng(0)
    phi, psi = rng.normal(size=(n, p)) / np.sqrt(p), rng.normal(size=(n, p, p))
    psi = (psi + psi.transpose(0, 2, 1)) / (2 * np.sqrt(p))
    return Flow(phi, psi, rng.normal(size=n), start * rng.normal(size=p))


@pytest.fixture(scope="module")
def wide():
    return flow(5, 14)


@pytest.fixture(scope="module")
def response(wide):
    """d theta / d eps at 0, after all times, by Richardson extrapolation."""
    near, far, none = (wide.at(eps, 2000.0) for eps in (1e-3, 2e-3, 0.0))
    return 2 * (near - none) / 1e-3 - (far - none) / 2e-3, none


def test_the_linear_solution_is_where_gradient_flow_ends(wide, response):
    assert np.abs(np.asarray(wide.training().params_at(jnp.inf)) - response[1]).max() < (
        1e-7 if jnp.float64 == DTYPE else 1e-4
    )


def test_the_first_order_correction_is_the_response_of_gradient_flow(wide, response):
    found = wide.training().first_order_correction()
    span = wide.phi.T @ np.linalg.solve(wide.phi @ wide.phi.T, wide.phi)
    assert np.abs(found.parallel - span @ response[0]).max() < 5e-4
    assert np.abs(found.orthogonal - (response[0] - span @ response[0])).max() < 5e-4
    assert float(found.drift) < (1e-10 if jnp.float64 == DTYPE else 1e-3)
    assert np.abs(response[0]).max() > 0.1


@pytest.mark.parametrize("time", [0.0, 1.3])
def test_effective_features_move_with_the_linear_model(wide, time):
    rng = np.random.default_rng(1)
    phi, psi = rng.normal(size=14), rng.normal(size=(14, 14))
    psi = psi + psi.T
    found = wide.training(EPS).features_at(time, (jnp.asarray(phi, DTYPE), jnp.asarray(psi, DTYPE)))
    true = phi + EPS * psi @ (wide.at(EPS, time) if time else wide.start)
    assert np.abs(found - true).max() < 1e-6  # the rest is of second order in eps


def test_the_kernel_at_a_time_is_that_of_the_effective_features(wide):
    time, training = 0.6, wide.training(EPS)
    features = jax.vmap(lambda *x: training.features_at(time, x))(*wide.batch)
    got = training.ntk_at(time, wide.batch)
    assert exact_for(DTYPE).excess(got, features @ features.T) < 1
    one = tuple(leaf[:2] for leaf in wide.batch)
    assert exact_for(DTYPE).excess(training.ntk_at(time, one, wide.batch), got[:2]) < 1


def test_a_model_that_cannot_interpolate_keeps_its_residual():
    """The correction against the minimum of the true quadratic loss, followed by Newton's method from eps = 0."""
    small = flow(20, 6, start=0.0)

    def minimum(eps):
        th = np.linalg.lstsq(small.phi, small.y, rcond=None)[0]
        for _ in range(20):
            rest = small.phi @ th + eps * (small.psi @ th) @ th / 2 - small.y
            features = small.phi + eps * small.psi @ th
            hessian = features.T @ features + eps * np.tensordot(rest, small.psi, 1)
            th = th - np.linalg.solve(hessian, features.T @ rest)
        return th

    expected = (minimum(1e-4) - minimum(-1e-4)) / 2e-4
    found = small.training().first_order_correction()
    tolerance = 1e-6 if jnp.float64 == DTYPE else 2e-3
    assert np.abs(found.parallel - expected).max() < tolerance * np.abs(expected).max()
    assert np.abs(np.asarray(found.orthogonal)).max() < tolerance


def test_drift_is_seen_where_no_limit_exists():
    twice = flow(4, 9)
    contradiction = Flow(np.repeat(twice.phi, 2, 0), np.repeat(twice.psi, 2, 0), np.arange(8.0), twice.start)
    assert float(contradiction.training().first_order_correction().drift) < 1e-3  # equal curvatures cancel
    other = contradiction._replace(psi=flow(8, 9).psi)
    assert float(other.training().first_order_correction().drift) > 0.1


def test_values_and_features_of_a_network_are_those_of_explicit_derivatives():
    net = ew.Serial(ew.Dense(), ew.Tanh(), ew.Dense(2))
    base, new = (net.init(jr.key(seed), (3,), width=4) for seed in (0, 1))
    x = jnp.array([0.3, -1.0, 0.5])
    start, rebuild = ravel_pytree(base)
    step = ravel_pytree(new)[0] - start
    f = lambda vector: net.apply(rebuild(vector), x)
    first, second = jax.jit(jax.jacfwd(f))(start), jax.jit(jax.hessian(f))(start)
    model = quadratic_model(net.apply, base)
    value = f(start) + first @ step + jnp.einsum("kij,i,j->k", second, step, step) / 2
    assert exact_for(DTYPE).excess(model.value(new, x), value) < 1
    features = jnp.concatenate([leaf.reshape(2, -1) for leaf in jax.tree.leaves(model.effective_features(new, x))], 1)
    assert exact_for(DTYPE).excess(features, first + second @ step) < 1


def test_several_outputs_train_to_their_targets():
    net = ew.Serial(ew.Dense(), ew.Tanh(), ew.Dense(2))
    base, x, y = net.init(jr.key(0), (3,), width=16), jr.normal(jr.key(1), (3, 3)), jr.normal(jr.key(2), (3, 2))
    training = quadratic_model(net.apply, base).trained(x, y)
    solution = training.params_at(jnp.inf)
    linear = jax.vmap(lambda one: jax.jvp(lambda p: net.apply(p, one), (base,), (_minus(solution, base),)))(x)
    assert np.abs(linear[0] + linear[1] - y).max() < (1e-9 if jnp.float64 == DTYPE else 1e-3)
    assert training.ntk_at(1.0, x).shape == (6, 6)


def _minus(a, b):
    return jax.tree.map(jnp.subtract, a, b)


def test_targets_must_have_the_shape_of_the_outputs():
    model = quadratic_model(lambda p, x: p @ x, jnp.ones(3))
    with pytest.raises(InputError, match=r"y has shape \(3,\), and the outputs have shape \(2,\)"):
        model.trained(jnp.ones((2, 3)), jnp.ones(3))
    with pytest.raises(InputError, match="one common first axis"):
        model.trained(jnp.ones(()), jnp.ones(3))
    with pytest.raises(InputError, match="shapes are"):
        model.trained(jnp.ones((2, 3)), jnp.ones(2), start=jnp.ones(4))
