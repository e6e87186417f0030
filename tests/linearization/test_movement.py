"""Movements against numbers by hand, and against what depth and width are known to do to them."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide import InputError
from everwide.linearization import linearization_gap, movement
from everwide.testing._draws import Slope, exact_for

pytestmark = pytest.mark.wide

DTYPE = jnp.result_type(float)


def test_the_gap_of_a_square_is_the_square_of_the_movement():
    x = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    start, end = np.array([1.0, -1.0]), np.array([1.5, 1.0])
    gap = linearization_gap(lambda p, one: p**2 @ one, jnp.asarray(start), jnp.asarray(end), x)
    values, moved = x @ (end - start) ** 2, x @ (end**2 - start**2)
    assert exact_for(DTYPE).excess(gap.values, values) < 1
    assert float(gap.rms) == pytest.approx(np.sqrt(np.mean(values**2)), rel=1e-6)
    assert float(gap.largest) == pytest.approx(8.0)
    assert float(gap.relative) == pytest.approx(np.linalg.norm(values) / np.linalg.norm(moved), rel=1e-6)


def test_no_movement_no_gap():
    gap = linearization_gap(lambda p, one: jnp.sin(p @ one), jnp.ones(2), jnp.ones(2), jnp.eye(2))
    assert float(gap.rms) == float(gap.relative) == 0.0


@pytest.mark.slow
def test_depth_degrades_the_linearization():
    """At the same relative movement of the parameters, deeper networks leave their linearization further."""
    x = jr.normal(jr.key(0), (8, 3))

    def relative_gap(depth):
        hidden = [layer for _ in range(depth) for layer in (ew.Dense(), ew.Erf())]
        net = ew.Serial(*hidden, ew.Dense(1))

        @jax.jit
        def gap(key):
            start, noise = (net.init(k, (3,), width=48) for k in jr.split(key))
            end = jax.tree.map(lambda a, b: a + 0.2 * b, start, noise)
            return linearization_gap(net.apply, start, end, x).rms / jnp.std(jax.vmap(lambda o: net.apply(end, o))(x))

        return np.mean([gap(key) for key in jr.split(jr.key(1), 16)])

    shallow, deep = (relative_gap(depth) for depth in (1, 4))
    assert deep > 1.3 * shallow


def test_parameters_move_leaf_by_leaf():
    start = {"w": jnp.array([3.0, 4.0]), "b": [jnp.zeros(2)], "still": jnp.zeros(1), "name": "net"}
    end = {"w": jnp.array([3.0, 5.0]), "b": [jnp.array([0.0, 2.0])], "still": jnp.zeros(1), "name": "net"}
    found = movement(start, end)
    assert float(found.absolute) == pytest.approx(5**0.5)
    assert float(found.relative) == pytest.approx(5**0.5 / 5)
    leaves = {path: (float(moved.absolute), float(moved.relative)) for path, moved in found.leaves.items()}
    expected = {"['w']": (1.0, 0.2), "['b'][0]": (2.0, np.inf), "['still']": (0.0, 0.0)}
    assert leaves.keys() == expected.keys()
    assert all(leaves[path] == pytest.approx(pair) for path, pair in expected.items())


@pytest.mark.parametrize("trees", [({"a": np.ones(2)}, {"b": np.ones(2)}), (np.ones(2), np.ones(3))])
def test_only_like_moves_to_like(trees):
    with pytest.raises(InputError, match="end must have the structure and the shapes of start"):
        movement(*trees)


def test_features_by_hand():
    before, after = jnp.array([1.0, 2.0]) * jnp.ones((4, 2)), jnp.array([2.0, 2.0]) * jnp.ones((4, 2))
    assert float(movement(before, after).absolute) == pytest.approx(2.0)
    assert float(movement(before, after).relative) == pytest.approx(0.2**0.5)


@pytest.mark.slow
def test_features_move_in_mean_field_networks_only():
    """Two layers of ReLU, as in the scalings 1/sqrt(n) and 1/n: hidden preactivations move like n^-1/2 and like 1."""
    x = jr.normal(jr.key(0), (8, 10))
    y = jr.normal(jr.key(1), (8,))
    hidden = lambda p, one: p["w"] @ one / 10**0.5

    def moved(width, mean_field):
        scale, rate = (1 / width, 0.2 * width) if mean_field else (width**-0.5, 0.2)
        f = lambda p, one: scale * (p["a"] @ jax.nn.relu(hidden(p, one)))
        loss = lambda p: jnp.sum((jax.vmap(lambda one: f(p, one))(x) - y) ** 2) / 2

        @jax.jit
        def run(key):
            first, second = jr.split(key)
            a = jr.normal(second, (width,))
            start = {"w": jr.normal(first, (width, 10)), "a": jnp.sign(a) if mean_field else a}
            descend = lambda _, p: jax.tree.map(lambda q, g: q - rate * g, p, jax.grad(loss)(p))
            features = jax.vmap(hidden, (None, 0))
            end = jax.lax.fori_loop(0, 100, descend, start)
            return movement(features(start, x), features(end, x)).relative

        return float(np.mean([run(key) for key in jr.split(jr.key(2), 3)]))

    widths = [64, 1024]
    assert Slope(-0.5, 0.12).excess(widths, [moved(n, mean_field=False) for n in widths]) < 1
    assert Slope(0.0, 0.12).excess(widths, [moved(n, mean_field=True) for n in widths]) < 1


@pytest.mark.parametrize("x", [np.ones(()), {"a": np.ones((2, 3)), "b": np.ones((3, 3))}])
def test_a_batch_has_one_first_axis(x):
    with pytest.raises(InputError, match="one common first axis"):
        linearization_gap(lambda p, one: jnp.sum(p), jnp.ones(3), jnp.ones(3), x)


def test_one_array_comes_out():
    with pytest.raises(InputError, match="one floating-point array"):
        linearization_gap(lambda p, one: {"out": p @ one}, jnp.ones(3), jnp.ones(3), jnp.ones((2, 3)))
