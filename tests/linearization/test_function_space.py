"""Steps in function space against steps of the parameters."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import everwide as ew
from everwide import InputError
from everwide.linearization import function_space_step, influence
from everwide.testing import Slope, exact_for

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


def test_a_step_of_the_parameters_is_a_step_of_the_outputs_up_to_its_square(network):
    f, start, jacobian = network
    loss = lambda out: jnp.sum(jnp.sin(out[:3]) ** 2)  # any loss, of three of the examples
    gradient = jax.grad(loss)(f(start))[:3]
    kernel = jnp.einsum("iap,jbp->ijab", jacobian, jacobian[:3])
    direction = jax.grad(lambda p: loss(f(p)))(start)
    rests = []
    for rate in RATES:
        moved = f(start - rate * direction) - f(start)
        rests.append(np.linalg.norm(moved - function_space_step(kernel, gradient, float(rate))))
    assert Slope(2.0, 0.15).excess(RATES, rests) < 1


def test_a_kernel_that_outputs_share():
    kernel, gradient = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(3, 2)
    full = np.einsum("ij,ab->ijab", kernel, np.eye(2))
    for rate in (0.5, jnp.asarray(0.5)):
        expected = -0.5 * kernel @ gradient
        assert exact_for(DTYPE).excess(function_space_step(kernel, gradient, rate), expected) < 1
        assert exact_for(DTYPE).excess(function_space_step(full, gradient, rate), expected) < 1
        assert exact_for(DTYPE).excess(function_space_step(kernel, gradient[:, 0], rate), expected[:, 0]) < 1


def test_influence_is_what_a_step_on_one_example_does(network):
    f, start, jacobian = network
    first = jacobian[:, 0]  # of the first output
    y = jnp.array([1.0, -1.0, 0.5, 0.0])
    residual = f(start)[:, 0] - y

    def moved(j, rate):
        direction = jax.grad(lambda p: (f(p)[j, 0] - y[j]) ** 2)(start)
        return f(start - rate * direction)[:, 0] - f(start)[:, 0]

    rests = []
    for rate in RATES:
        true = np.stack([moved(j, rate) for j in range(4)], 1)
        rests.append(np.linalg.norm(true - influence(first @ first.T, residual, float(rate))))
    assert Slope(2.0, 0.15).excess(RATES, rests) < 1


def test_orthogonal_examples_leave_each_other_alone_and_parallel_ones_move_together():
    changes = influence(np.array([[1.0, 0.0, 1.0]] * 2), np.array([1.0, 2.0, 1.0]), 0.1)
    assert np.all(np.asarray(changes)[:, 1] == 0)
    assert np.all(np.asarray(changes)[:, 0] == np.asarray(changes)[:, 2])


def test_influence_with_outputs():
    rng = np.random.default_rng(0)
    kernel, residual = rng.normal(size=(2, 3, 4, 4)), rng.normal(size=(3, 4))
    expected = [[-0.2 * kernel[i, j] @ residual[j] for j in range(3)] for i in range(2)]
    assert exact_for(DTYPE).excess(influence(kernel, residual, 0.1), expected) < 1
    shared = np.einsum("ij,ab->ijab", kernel[:, :, 0, 0], np.eye(4))
    both = (influence(k, residual, 0.1) for k in (kernel[:, :, 0, 0], shared))
    assert exact_for(DTYPE).excess(*both) < 1


@pytest.mark.parametrize("shapes", [((2, 3), (2,)), ((3,), (3,)), ((2, 3, 4, 4), (3, 2)), ((2, 3), (3, 1, 1))])
def test_shapes_that_do_not_fit(shapes):
    with pytest.raises(InputError, match="do not fit together"):
        function_space_step(*map(np.ones, shapes), 0.1)
    with pytest.raises(InputError, match="do not fit together"):
        influence(*map(np.ones, shapes), 0.1)
