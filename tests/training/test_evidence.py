"""The evidence and its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
from everwide import training as tr

pytestmark = [pytest.mark.once, pytest.mark.as_users]

RNG = np.random.default_rng(0)
X = RNG.normal(size=(15, 2))
Y = np.sin(2 * X[:, :1]) + 0.1 * RNG.normal(size=(15, 1))


def network(w, b):
    return ew.Serial(ew.Dense(w_std=w, b_std=b), ew.Erf(), ew.Dense(1, w_std=1.3))


@pytest.mark.parametrize("which", ["nngp", "ntk"])
def test_evidence_is_that_of_the_process(which):
    with jax.enable_x64(True):
        evidence = jax.jit(lambda x, y: tr.log_marginal_likelihood(network(1.5, 0.5), x, y, 0.1, which=which))
        found = evidence(jnp.asarray(X), jnp.asarray(Y))
    matrix = getattr(ew.gram(network(1.5, 0.5), X), which)
    assert float(found) == pytest.approx(tr.GaussianProcess(matrix, Y, noise=0.1).log_marginal_likelihood(), rel=1e-9)


def test_gradients_in_every_scale_by_differences():
    with jax.enable_x64(True):
        x, y = jnp.asarray(X), jnp.asarray(Y)
        value = jax.jit(lambda p: tr.log_marginal_likelihood(network(p[0], p[1]), x, y, p[2]))
        at = jnp.array([1.5, 0.5, 0.1])
        found, h = jax.jit(jax.grad(value))(at), 1e-5
        for i in range(3):
            step = jnp.zeros(3).at[i].set(h)
            assert float(found[i]) == pytest.approx(float(value(at + step) - value(at - step)) / (2 * h), rel=1e-6)


def test_fitted_scales_are_a_maximum():
    found = tr.fit_evidence(network(1.0, 1.0), X, Y, noise=0.5)
    assert found.after > found.before + 1
    assert found.noise < 0.2
    matrix = ew.nngp(found.net, X)
    best = tr.GaussianProcess(matrix, Y, noise=found.noise).log_marginal_likelihood()
    assert best == pytest.approx(found.after, rel=1e-6)
    for factor in (0.8, 1.25):
        assert tr.GaussianProcess(matrix, Y, noise=factor * found.noise).log_marginal_likelihood() < best


def test_bad_input():
    with pytest.raises(ValueError, match="15 rows and y 3"):
        tr.fit_evidence(network(1.0, 1.0), X, Y[:3])
    with pytest.raises(ValueError, match="above 0"):
        tr.fit_evidence(network(1.0, 1.0), X, Y, noise=0.0)
    with pytest.raises(ValueError, match="'nngp' or 'ntk'"):
        tr.log_marginal_likelihood(network(1.0, 1.0), jnp.asarray(X), jnp.asarray(Y), 0.1, which="rbf")
