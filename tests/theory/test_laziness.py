"""Laziness against closed forms, explicit Hessians and the laws of wide two-layer networks."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax import lax
from jax.flatten_util import ravel_pytree

import everwide as ew
from everwide import InputError
from everwide.linearization import kernel_distance
from everwide.testing._draws import Slope
from everwide.theory.finite_width import lazy_kappa

pytestmark = pytest.mark.once

DIM = 6


def two_layers(params, x):
    return jnp.dot(params["a"], jnp.tanh(params["w"] @ x)) / jnp.sqrt(len(params["a"])).astype(x.dtype)


def draw(key, width):
    first, second, third = jr.split(key, 3)
    x = jr.normal(third, (DIM,))
    params = {"w": jr.normal(first, (width, DIM)), "a": jr.normal(second, (width,))}
    return params, x / jnp.linalg.norm(x)


def closed_form(params, x):
    """|D f|^2 and |D^2 f| of a two-layer network for |x| = 1: second derivatives decouple by neurons."""
    w, a = np.asarray(params["w"], float), np.asarray(params["a"], float)
    t = np.tanh(w @ np.asarray(x, float))
    first, second = 1 - t**2, -2 * a * t * (1 - t**2)
    slope = np.sum(t**2) + np.sum(a**2 * first**2)
    return slope / len(a), np.max(np.abs(second) + np.sqrt(second**2 + 4 * first**2)) / 2 / np.sqrt(len(a))


@jax.jit
def distant(params, x):
    """The laziness of one example whose target is at distance 1."""
    y = two_layers(params, x) + 1
    return lazy_kappa(two_layers, params, x[None], y[None])


@pytest.mark.parametrize("width", [7, 300])
def test_two_layers_have_a_closed_form(width):
    for key in jr.split(jr.key(0), 5):
        params, x = draw(key, width)
        found, (slope, curvature) = distant(params, x), closed_form(params, x)
        assert found.converged
        assert float(found.slope) ** 2 == pytest.approx(slope, rel=1e-4)
        assert float(found.curvature) == pytest.approx(curvature, rel=1e-3)
        assert float(found.residual) == pytest.approx(1.0, rel=1e-5)
        assert float(found.kappa) == pytest.approx(curvature / slope, rel=2e-3)


@pytest.mark.slow
def test_the_two_layer_laws():
    """kappa sqrt(m / log m) is constant: the largest of m neurons brings the logarithm."""
    widths = [200, 2000]

    def kappa(width):
        each = jax.jit(lambda keys: lax.map(lambda key: distant(*draw(key, width)).kappa, keys))
        return np.mean(each(jr.split(jr.key(7), 100)))

    kappas = np.array([kappa(width) for width in widths])
    constant = kappas * np.sqrt(widths / np.log(widths))
    assert np.abs(constant / constant.mean() - 1).max() < 0.05
    assert Slope(-0.5, 0.1).excess(widths, kappas) < 1


def test_larger_outputs_are_lazier_in_proportion():
    params, x = draw(jr.key(1), 100)

    @jax.jit
    def kappa(alpha):
        f = lambda p, one: alpha * (two_layers(p, one) - two_layers(params, one))  # f = 0 at the start
        return lazy_kappa(f, params, x[None], jnp.ones(1)).kappa

    one, ten, hundred = (float(kappa(alpha)) for alpha in (1.0, 10.0, 100.0))
    assert one == pytest.approx(10 * ten, rel=1e-4)
    assert one == pytest.approx(100 * hundred, rel=1e-4)


def test_larger_outputs_keep_their_kernel():
    """Trained with the rate over alpha^2, the kernel moves by 1 / alpha."""
    x, y = jr.normal(jr.key(2), (4, DIM)), jnp.array([1.0, -1.0, 0.5, 0.0])
    start, _ = draw(jr.key(3), 32)

    @jax.jit
    def change(alpha):
        f = lambda p, one: alpha * (two_layers(p, one) - two_layers(start, one))
        outputs = lambda p: jax.vmap(lambda one: f(p, one))(x)
        gradient = jax.grad(lambda p: jnp.sum((outputs(p) - y) ** 2) / 2)
        descend = lambda _, p: jax.tree.map(lambda q, g: q - 0.1 / alpha**2 * g, p, gradient(p))
        jacobian = lambda p: jnp.concatenate([j.reshape(4, -1) for j in jax.tree.leaves(jax.jacrev(outputs)(p))], 1)
        before, after = jacobian(start), jacobian(lax.fori_loop(0, 50, descend, start))
        return kernel_distance(before @ before.T, after @ after.T).relative

    alphas = [3.0, 10.0, 30.0]
    assert Slope(-1.0, 0.15).excess(alphas, [change(alpha) for alpha in alphas]) < 1


def test_several_outputs_against_explicit_second_derivatives():
    net = ew.Serial(ew.Dense(b_std=0.3), ew.Tanh(), ew.Dense(2))
    params, x = net.init(jr.key(0), (2,), width=4), jr.normal(jr.key(1), (3, 2))
    start, rebuild = ravel_pytree(params)
    f = lambda vector: jax.vmap(lambda one: net.apply(rebuild(vector), one))(x).reshape(-1)
    jacobian, hessian = np.asarray(jax.jit(jax.jacfwd(f))(start)), np.asarray(jax.jit(jax.hessian(f))(start))
    rng = np.random.default_rng(0)
    best = 0.0
    for w in rng.normal(size=(200, 6)):
        for _ in range(30):  # the same norm, by another ascent: eigenvectors of explicit matrices
            values, vectors = np.linalg.eigh(np.tensordot(w / np.linalg.norm(w), hessian, 1))
            u = vectors[:, np.argmax(np.abs(values))]
            w = hessian @ u @ u
        best = max(best, np.linalg.norm(w))
    found = [lazy_kappa(net.apply, params, x, jnp.zeros((3, 2)), seed=seed) for seed in range(4)]
    assert all(lazy.converged for lazy in found)
    assert float(found[0].slope) == pytest.approx(np.linalg.norm(jacobian, 2), rel=1e-3)
    curvatures = [float(lazy.curvature) for lazy in found]
    assert max(curvatures) == pytest.approx(best, rel=2e-3)
    assert min(curvatures) > 0.5 * best  # local maxima are lower bounds
    assert max(curvatures) <= best * (1 + 1e-4)


def test_linear_functions_are_lazy():
    found = lazy_kappa(lambda p, x: p @ x, jnp.ones(3), jnp.eye(3)[:2], jnp.zeros(2))
    assert found.converged
    assert float(found.kappa) == 0.0
    assert float(found.slope) == pytest.approx(1.0)


def test_the_status_says_when_cycles_ran_out():
    params, x = draw(jr.key(0), 300)
    found = lazy_kappa(two_layers, params, x[None], jnp.zeros(1), tolerance=1e-6, max_cycles=1)
    assert not found.converged
    assert int(found.cycles) == 2


@pytest.mark.parametrize("options", [{"tolerance": 0.0}, {"tolerance": 2.0}, {"max_cycles": 0}])
def test_searches_that_cannot_end(options):
    with pytest.raises(InputError, match=r"tolerance=|max_cycles="):
        lazy_kappa(two_layers, *(v for v in ({}, jnp.ones((1, 2)), jnp.zeros(1))), **options)


def test_targets_must_fit():
    params, x = draw(jr.key(0), 5)
    with pytest.raises(InputError, match=r"y has shape \(2,\)"):
        lazy_kappa(two_layers, params, x[None], jnp.zeros(2))
