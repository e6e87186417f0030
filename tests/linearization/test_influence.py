"""What a step on some examples does to others, against steps of the parameters."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import everwide as ew
from everwide import InputError
from everwide.linearization import forgetting_score, influence
from everwide.testing._draws import Slope, exact_for

pytestmark = pytest.mark.wide

DTYPE = jnp.result_type(float)
RATES = np.array([0.04, 0.02, 0.01])


@pytest.fixture(scope="module")
def network():
    """Outputs of four examples as a function of a vector, where it starts, and its Jacobian `(4, outputs, p)`."""
    net = ew.Serial(ew.Dense(), ew.Tanh(), ew.Dense(2))
    start, rebuild = ravel_pytree(net.init(jr.key(0), (3,), width=16))
    x = jr.normal(jr.key(1), (4, 3))
    f = jax.jit(lambda p: jax.vmap(lambda one: net.apply(rebuild(p), one))(x))
    return f, start, jax.jit(jax.jacrev(f))(start)


def test_influence_is_what_a_step_on_one_example_does(network):
    f, start, jacobian = network
    first = jacobian[:, 0]  # of the first output
    y = jnp.array([1.0, -1.0, 0.5, 0.0])
    residual = f(start)[:, 0] - y

    def moved(j, rate):
        direction = jax.grad(lambda p: (f(p)[j, 0] - y[j]) ** 2 / 2)(start)
        return f(start - rate * direction)[:, 0] - f(start)[:, 0]

    rests = []
    for rate in RATES:
        true = np.stack([moved(j, rate) for j in range(4)], 1)
        rests.append(np.linalg.norm(true - influence(first @ first.T, residual, float(rate))))
    assert Slope(2.0, 0.15).excess(RATES, rests) < 1


def test_steps_on_single_examples_average_to_a_step_on_all(network):
    f, start, jacobian = network
    y = jnp.arange(8.0).reshape(4, 2)
    kernel = jnp.einsum("iap,jbp->ijab", jacobian, jacobian)
    loss = lambda p: jnp.mean(jnp.sum((f(p) - y) ** 2, 1)) / 2
    moved = lambda rate: f(start - rate * jax.grad(loss)(start)) - f(start)
    rests = [np.linalg.norm(moved(r) - influence(kernel, f(start) - y, r).mean(1)) for r in RATES.tolist()]
    assert Slope(2.0, 0.15).excess(RATES, rests) < 1


def test_forgetting_is_the_slope_of_the_loss_of_old_examples(network):
    f, start, jacobian = network
    y, old, new = jnp.arange(8.0).reshape(4, 2), np.array([0, 2, 3]), np.array([1])
    loss = lambda p, rows: jnp.mean(jnp.sum((f(p)[rows] - y[rows]) ** 2, 1)) / 2
    descent = -jax.grad(loss)(start, new)
    _, slope = jax.jvp(lambda p: loss(p, old), (start,), (descent,))
    kernel, residual = jnp.einsum("iap,jbp->ijab", jacobian[old], jacobian[new]), f(start) - y
    assert float(forgetting_score(kernel, residual[old], residual[new])) == pytest.approx(float(slope), rel=1e-4)
    with pytest.raises(InputError, match="old_residual"):
        forgetting_score(kernel, residual[new], residual[new])


def test_orthogonal_examples_leave_each_other_alone_and_parallel_ones_move_together():
    changes = influence(np.array([[1.0, 0.0, 1.0]] * 2), np.array([1.0, 2.0, 1.0]), 0.1)
    assert np.all(np.asarray(changes)[:, 1] == 0)
    assert np.all(np.asarray(changes)[:, 0] == np.asarray(changes)[:, 2])


def test_influence_with_outputs():
    rng = np.random.default_rng(0)
    kernel, residual = rng.normal(size=(2, 3, 4, 4)), rng.normal(size=(3, 4))
    expected = [[-0.1 * kernel[i, j] @ residual[j] for j in range(3)] for i in range(2)]
    assert exact_for(DTYPE).excess(influence(kernel, residual, 0.1), expected) < 1
    shared = np.einsum("ij,ab->ijab", kernel[:, :, 0, 0], np.eye(4))
    both = (influence(k, residual, 0.1) for k in (kernel[:, :, 0, 0], shared))
    assert exact_for(DTYPE).excess(*both) < 1


@pytest.mark.parametrize("shapes", [((2, 3), (2,)), ((3,), (3,)), ((2, 3, 4, 4), (3, 2)), ((2, 3), (3, 1, 1))])
def test_shapes_that_do_not_fit(shapes):
    with pytest.raises(InputError, match="do not fit together"):
        influence(*map(np.ones, shapes), 0.1)
