"""Moving features against changing the readout, by quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everwide.training import reweight_for_feature_update

pytestmark = pytest.mark.once  # quadrature in float64

INPUTS = np.array([[-1.5, 0.3], [-0.4, 1.0], [0.2, -0.7], [1.0, 0.1], [2.0, 0.5]])


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def move_features(omega, velocity, step):
    """Every feature, along the leading axis of `omega`, one step along the velocity."""
    return jax.tree.map(lambda at, along: at + step * along, omega, jax.vmap(velocity)(omega))


def grid(dimension, nodes):
    """Points and weights of a standard normal density."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    points = np.stack(np.meshgrid(*[x] * dimension, indexing="ij"), -1).reshape(-1, dimension)
    weights = np.stack(np.meshgrid(*[w] * dimension, indexing="ij"), -1).reshape(-1, dimension).prod(1)
    return points, weights / weights.sum()


class Line:
    points, weights = grid(1, 160)
    velocity = staticmethod(lambda omega: jnp.sin(omega) + 0.5)
    m_hat = staticmethod(lambda omega: 1 + 0.7 * omega[0] + 0.2 * jnp.cos(2 * omega[0]))


class Plane:
    points, weights = grid(2, 60)
    velocity = staticmethod(lambda w: jnp.stack([jnp.sin(w[1]) + 0.3 * w[0], 0.2 * w[0] * w[1] - 0.4]))
    m_hat = staticmethod(lambda w: jnp.stack([1 + w[0] * w[1], jnp.cos(w[0]) + 0.5 * w[1]]))  # two outputs


def normal(omega):
    return 3.0 - jnp.sum(omega**2) / 2  # constants do not matter


def network(problem, omega, readout):
    """`f(x) = E[g(x, omega) readout]`."""
    g = jnp.tanh(omega @ jnp.asarray(INPUTS[:, : omega.shape[1]]).T + 0.3)
    return jnp.einsum("w,wx,w...->x...", problem.weights, g, readout)


def error(problem, step, carried, formula):
    """Between a network whose features have moved, and one whose readout has changed instead."""
    moved = move_features(problem.points, problem.velocity, step)
    readout = jax.vmap(problem.m_hat)(problem.points if carried else moved)
    changed = reweight_for_feature_update(problem.m_hat, problem.velocity, normal, step, carry_weights=formula)
    found = network(problem, problem.points, jax.vmap(changed)(problem.points))
    return float(jnp.abs(found - network(problem, moved, readout)).max())


@pytest.mark.parametrize("problem", [Line, Plane])
@pytest.mark.parametrize(
    ("carried", "formula", "gain"),
    [(True, True, 100), (False, False, 100), (True, False, 10)],  # the last: what is not carried is of first order
)
def test_errors_are_of_second_order(problem, carried, formula, gain):
    ratio = error(problem, 1e-2, carried, formula) / error(problem, 1e-3, carried, formula)
    assert 0.8 * gain < ratio < 1.2 * gain


def test_a_rotation_leaves_a_round_density_alone():
    turn = lambda omega: jnp.array([-omega[1], omega[0]])
    changed = reweight_for_feature_update(lambda omega: omega[0], turn, normal, 0.1)
    fixed = reweight_for_feature_update(lambda omega: omega[0], turn, normal, 0.1, carry_weights=False)
    np.testing.assert_allclose(
        jax.vmap(changed)(Plane.points), Plane.points[:, 0] + 0.1 * Plane.points[:, 1], atol=1e-12
    )
    np.testing.assert_allclose(jax.vmap(fixed)(Plane.points), Plane.points[:, 0], atol=1e-12)


def test_features_may_be_trees():
    split = lambda omega: {"w": omega[:1], "b": omega[1]}
    joined = lambda tree: jnp.concatenate([tree["w"], tree["b"][None]])
    velocity = lambda tree: split(Plane.velocity(joined(tree)))
    args = (lambda tree: Plane.m_hat(joined(tree)), velocity, lambda tree: normal(joined(tree)))
    of_trees = lambda omega: reweight_for_feature_update(*args, 0.1)(split(omega))
    expected = reweight_for_feature_update(Plane.m_hat, Plane.velocity, normal, 0.1)
    points = Plane.points[::100]
    np.testing.assert_allclose(jax.vmap(of_trees)(points), jax.vmap(expected)(points), rtol=1e-12)
    moved = move_features(jax.vmap(split)(points), velocity, 0.1)
    np.testing.assert_allclose(jax.vmap(joined)(moved), move_features(points, Plane.velocity, 0.1), rtol=1e-12)


def test_a_velocity_of_another_form_is_refused():
    changed = reweight_for_feature_update(Plane.m_hat, lambda omega: omega[:1], normal, 0.1)
    with pytest.raises(ValueError, match=r"\(1,\), expected that of omega: \(2,\)"):
        changed(Plane.points[0])
