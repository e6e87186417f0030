"""Operators against the Jacobian that jax.jacobian forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.sparse.linalg import cg
from scipy.sparse.linalg import aslinearoperator, lsqr

import everwide as ew
from everwide.empirical._models import Model
from everwide.empirical._operators import activation_bytes, in_chunks, jacobian_operator, ntk_operator
from everwide.testing._draws import exact_for

pytestmark = pytest.mark.wide

KEYS = jax.random.split(jax.random.key(0), 8)
PARAMS = {
    "w": jax.random.normal(KEYS[0], (4, 3)),
    "b": jax.random.normal(KEYS[1], (4,)),
    "out": jax.random.normal(KEYS[2], (2, 4)),
}
X1, X2 = jax.random.normal(KEYS[3], (7, 3)), jax.random.normal(KEYS[4], (5, 3))
SMALL = 85 * X1.dtype.itemsize  # two examples and one vector at a time


def f(params, x):
    return params["out"] @ jnp.tanh(params["w"] @ x + params["b"])


def jacobian(x):
    """`(n * k, parameters)`, in the order of jax.tree.leaves."""
    leaves = jax.tree.leaves(jax.vmap(jax.jacobian(f), (None, 0))(PARAMS, x))
    return np.concatenate([np.asarray(a).reshape(len(x) * 2, -1) for a in leaves], 1)


J1, J2 = jacobian(X1), jacobian(X2)
FLAT = lambda tree: np.concatenate([np.asarray(a).ravel() for a in jax.tree.leaves(tree)])


def same(got, expected):
    return exact_for(X1.dtype).excess(got, expected) < 1


@pytest.fixture(params=[1 << 30, SMALL], ids=["at once", "in pieces"])
def memory(request):
    return request.param


def test_shapes(memory):
    assert jacobian_operator(f, PARAMS, X1, memory=memory).shape == J1.shape
    assert ntk_operator(f, PARAMS, X1, X2, memory=memory).shape == (14, 10)


def test_the_small_budget_cuts_examples_and_vectors():
    op = jacobian_operator(f, PARAMS, X1, memory=SMALL)
    assert op._chunks(1) == 4
    assert op._vectors(3) == 1
    assert jacobian_operator(f, PARAMS, X1)._chunks(3) == 1


def test_products_of_the_jacobian(memory):
    op = jacobian_operator(f, PARAMS, X1, memory=memory)
    tangents = jax.tree.map(lambda p: jax.random.normal(KEYS[5], (3, *p.shape)), PARAMS)
    cotangents = jax.random.normal(KEYS[6], (3, 7, 2))
    many, pulled = op.jvp(tangents), op.vjp(cotangents)
    for i in range(3):
        one = jax.tree.map(lambda t, i=i: t[i], tangents)
        assert same(many[i].ravel(), J1 @ FLAT(one))
        assert same(FLAT(jax.tree.map(lambda a, i=i: a[i], pulled)), J1.T @ np.asarray(cotangents[i]).ravel())
    assert same(op.jvp(one), many[2])
    assert same(FLAT(op.vjp(cotangents[2])), FLAT(jax.tree.map(lambda a: a[2], pulled)))


def test_products_of_the_kernel(memory):
    op = ntk_operator(f, PARAMS, X1, X2, memory=memory)
    v, u = jax.random.normal(KEYS[5], (5, 2, 3)), jax.random.normal(KEYS[6], (7, 2))
    assert same((op @ v).reshape(14, 3), J1 @ (J2.T @ np.asarray(v).reshape(10, 3)))
    assert same((op @ np.asarray(v)[..., 0]).ravel(), J1 @ (J2.T @ np.asarray(v)[..., 0].ravel()))
    assert same((op.T @ u).ravel(), J2 @ (J1.T @ np.asarray(u).ravel()))
    assert op.T.shape == (10, 14)


def test_one_batch_with_itself_is_symmetric():
    op = ntk_operator(f, PARAMS, X1)
    matrix = (op @ jnp.eye(14).reshape(7, 2, 14)).reshape(14, 14)
    assert same(matrix, J1 @ J1.T)


def test_scipy_takes_them(memory):
    kernel = aslinearoperator(ntk_operator(f, PARAMS, X1, X2, memory=memory).linear_operator())
    assert same(kernel @ np.eye(10, dtype=X1.dtype), J1 @ J2.T)
    assert same(kernel.T @ np.ones(14, X1.dtype), J2 @ J1.T @ np.ones(14))
    op = jacobian_operator(f, PARAMS, X1, memory=memory).linear_operator()
    assert same(op @ np.eye(J1.shape[1], dtype=X1.dtype), J1)
    assert same(op.H @ np.eye(14, dtype=X1.dtype), J1.T)
    assert op.dtype == X1.dtype


def test_scipy_solves_with_the_jacobian():
    op = jacobian_operator(f, PARAMS, X2).linear_operator()
    target = np.asarray(jax.random.normal(KEYS[7], (10,)))
    shortest = lsqr(op, target, atol=1e-12, btol=1e-12)[0]
    expected = np.linalg.lstsq(J2.astype(np.float64), target, rcond=None)[0]
    assert np.abs(shortest - expected).max() < 1e-3 * np.abs(expected).max()


def test_conjugate_gradients_inside_jit():
    op = ntk_operator(f, PARAMS, X2)
    b = jax.random.normal(KEYS[5], (5, 2))
    solve = jax.jit(lambda op, b: cg(lambda v: op @ v + v, b, tol=1e-12, maxiter=50)[0])
    expected = np.linalg.solve(J2.astype(np.float64) @ J2.T + np.eye(10), np.asarray(b).ravel())
    assert np.abs(solve(op, b).ravel() - expected).max() < (1e-9 if X1.dtype == np.float64 else 1e-3)


def test_modules_and_our_networks():
    module = eqx.nn.MLP(3, 2, 4, 1, key=KEYS[0])
    params, static = eqx.partition(module, eqx.is_inexact_array)
    got = jacobian_operator(module, None, X1).jvp(params)
    pushed = jax.jvp(lambda p: jax.vmap(eqx.combine(p, static))(X1), (params,), (params,))[1]
    assert same(got, pushed)
    net = ew.Serial(ew.Dense(b_std=1.0), ew.Erf(), ew.Dense(2))
    ours = net.init(KEYS[0], (3,), width=4)
    pushed = jax.jvp(lambda p: jax.vmap(lambda x: net.apply(p, x))(X1), (ours,), (ours,))[1]
    assert same(jacobian_operator(net, ours, X1).jvp(ours), pushed)


def test_scalars_and_trees_of_inputs():
    g = lambda params, x: params @ x["a"] + x["scale"] * jnp.sum(params)
    x = {"a": X1, "scale": np.arange(7, dtype=X1.dtype)}
    op = jacobian_operator(g, jnp.ones(3), x, memory=SMALL)
    assert op.shape == (7, 3)
    assert same(op.jvp(jnp.array([1.0, 0.0, 0.0])).ravel(), X1[:, 0] + x["scale"])


def test_activations_are_counted_without_the_parameters():
    width = 50
    g = lambda params, x: jnp.tanh((2 * params).T @ x)
    counted = activation_bytes(Model(g, jnp.ones((3, width))), X1)
    assert 2 * width * X1.dtype.itemsize <= counted < 4 * width * X1.dtype.itemsize


def test_loops_count_all_steps():
    def rnn(steps):
        return lambda params, x: jax.lax.scan(lambda h, _: (jnp.tanh(params * h), None), x, None, length=steps)[0]

    few, more = (activation_bytes(Model(rnn(n), jnp.ones(3)), X1) for n in (2, 20))
    assert more > 5 * few


def test_chunks_repeat_the_last_example():
    np.testing.assert_array_equal(in_chunks(jnp.arange(5), 2), [[0, 1, 2], [3, 4, 4]])


class TestBadInput:
    def test_shapes_of_vectors(self):
        op = jacobian_operator(f, PARAMS, X1)
        with pytest.raises(ValueError, match=r"shape \(2, 7\), expected \(7, 2\)"):
            op.vjp(np.ones((2, 7)))
        with pytest.raises(ValueError, match="expected those of the parameters"):
            op.jvp(jax.tree.map(lambda p: p[:1], PARAMS))
        with pytest.raises(ValueError, match=r"acts on arrays of shape \(7, 2\)"):
            ntk_operator(f, PARAMS, X1) @ np.ones(14)

    def test_budget(self):
        with pytest.raises(ew.MemoryBudgetError, match="Jacobian of one example"):
            jacobian_operator(f, PARAMS, X1, memory=10)

    @pytest.mark.parametrize(
        ("g", "message"),
        [
            (lambda p, x: jnp.outer(x, x) * p["b"][0], r"shape \(3, 3\).*written for a batch"),
            (lambda p, x: {"y": x}, "returned dict"),
            (lambda p, x: jnp.argmax(x), "int"),
        ],
    )
    def test_outputs(self, g, message):
        with pytest.raises(ValueError, match=message):
            jacobian_operator(g, PARAMS, X1)

    @pytest.mark.parametrize(
        ("x", "message"),
        [
            (np.float32(1), "one row for each example"),
            (np.ones((0, 3)), "x is empty"),
            (
                {"a": np.ones((2, 3)), "b": np.ones((3, 3))},
                r"\[2, 3\] rows: the first axis of all",
            ),
            ({}, "no arrays"),
        ],
    )
    def test_examples(self, x, message):
        with pytest.raises(ValueError, match=message):
            jacobian_operator(lambda p, x: p["b"], PARAMS, x)

    def test_different_outputs(self):
        with pytest.raises(ValueError, match="3 outputs on x1 and 2 on x2"):
            ntk_operator(lambda p, x: p * x, jnp.ones(()), X1, X2[:, :2])

    def test_torch_has_no_operator(self):
        torch = pytest.importorskip("torch")
        with pytest.raises(NotImplementedError, match="per_example_gradients"):
            jacobian_operator(torch.nn.Linear(3, 2), None, X1)


def test_a_little_more_free_memory_compiles_nothing(monkeypatch):
    made = []
    for free in (9_000_000, 9_500_000):
        monkeypatch.setattr("everwide._engine._inputs.available_memory", lambda free=free: free)
        made.append(jacobian_operator(lambda p, x: p @ x, jnp.ones(3), np.ones((2, 3))).memory)
    assert made == [1 << 22, 1 << 22]
