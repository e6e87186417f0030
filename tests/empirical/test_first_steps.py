"""What people who come from other libraries do first: it works, or a sentence says what to do instead."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
import everwide.empirical as emp
import everwide.training as tr
from empirical.models_zoo import w
from everwide.empirical._factors import as_outputs
from everwide.empirical._ntk import tangents_of

DTYPE = jnp.zeros(()).dtype
TOLERANCE = 1e-10 if np.float64 == DTYPE else 1e-4
X = np.random.default_rng(0).normal(size=(6, 3)).astype(DTYPE)
PARAMS = {"w": w(3, 5), "v": w(5, 2)}


def one(p, x):
    return jnp.tanh(x @ p["w"]) @ p["v"]


def contracted(p, x):
    return jnp.tanh(jnp.tensordot(x, p["w"], ((1,), (0,)))) @ p["v"]


def mapped(p, x):
    return jax.vmap(lambda row: one(p, row))(x)


@pytest.mark.parametrize("f", [contracted, mapped])
@pytest.mark.parametrize("call", [emp.empirical_ntk, emp.ntk_operator, emp.jacobian_operator])
def test_a_function_of_a_batch_is_recognized(f, call):
    with pytest.raises(ew.InputError, match=r"f takes a batch.*\(n, 2\).*f\(params, x\[None\]\)\[0\]"):
        call(f, PARAMS, X)
    advised = lambda params, x: f(params, x[None])[0]
    np.testing.assert_allclose(
        emp.empirical_ntk(advised, PARAMS, X), emp.empirical_ntk(one, PARAMS, X), atol=100 * TOLERANCE
    )


def test_a_function_of_a_batch_that_makes_something_of_one_example():
    f = lambda p, x: jax.vmap(lambda row: jnp.ravel(row) @ p)(x)  # of an image it maps over lines
    with pytest.raises(ew.InputError, match=r"makes more than a vector of one example.*\(n, 2\)|f takes a batch"):
        emp.empirical_ntk(f, w(9, 2), np.ones((4, 3, 3), DTYPE))


def test_other_faults_of_a_function_are_its_own():
    with pytest.raises(KeyError, match="missing"):
        emp.empirical_ntk(lambda p, x: x @ p["missing"], PARAMS, X)
    with pytest.raises(TypeError, match="contracting"):
        emp.empirical_ntk(lambda p, x: x @ p["v"], PARAMS, X)


@pytest.mark.once
def test_outputs_lists_its_choices():
    with pytest.raises(ew.InputError, match="'full', 'trace', 'diagonal', 'sum'"):
        emp.empirical_ntk(one, PARAMS, X, outputs="all")
    for outputs in (3, None, ["full"]):
        with pytest.raises(ew.InputError, match="'full', 'trace', 'diagonal', 'sum'"):
            as_outputs(outputs)


def test_inputs_that_are_not_finite_are_refused_as_in_gram():
    bad = X.copy()
    bad[1, 2] = np.nan
    with pytest.raises(ew.InputError, match=r"x1 has 1 values that are not finite.*nan in row 1, column 2"):
        emp.empirical_ntk(one, PARAMS, bad)
    with pytest.raises(ew.InputError, match="x2 has 1 values"):
        emp.empirical_ntk(one, PARAMS, X, bad)
    with pytest.raises(ew.InputError, match=r"nan in row 3\. Drop"):
        emp.empirical_ntk(lambda p, x: x * p, jnp.ones(()), np.array([1, 2, 3, np.nan], DTYPE))


def test_masked_sites_need_not_be_finite():
    net = ew.Serial(ew.Dense(), ew.Relu(), ew.GlobalAvgPool(), ew.Dense(1))
    params = net.init(jax.random.key(0), (3, 2), width=4)
    x = np.ones((2, 3, 2), DTYPE)
    mask = np.array([[True, True, False], [True, True, True]])
    padded = np.where(mask[..., None], x, np.nan)
    expected = emp.empirical_ntk(net, params, ew.Inputs(jnp.asarray(x), mask=jnp.asarray(mask)))
    found = emp.empirical_ntk(net, params, ew.Inputs(jnp.asarray(padded), mask=jnp.asarray(mask)))
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE)


def test_kernels_that_are_not_finite_are_never_returned():
    with pytest.raises(ew.InputError, match=r"The parameter params\['v'\] is not finite"):
        emp.empirical_ntk(one, PARAMS | {"v": PARAMS["v"].at[0, 0].set(jnp.nan)}, X)
    with pytest.raises(ew.InputError, match="no finite derivative there, such as a root"):
        emp.empirical_ntk(lambda p, x: jnp.sqrt(x @ p), jnp.zeros(3), X)


def test_the_largest_rate_is_that_of_all_pairs_of_outputs():
    """Gradient descent on ten outputs: the rate of the full kernel is the edge, with that of the trace it diverges."""
    weights = w(3, 10)
    f = lambda p, x: p["scale"] @ (x @ weights) * jnp.ones(10) + x @ p["w"]
    params = {"scale": w(10), "w": jnp.zeros((3, 10))}
    full, trace = (emp.empirical_ntk(f, params, X, outputs=outputs) for outputs in ("full", "trace"))
    edge, of_trace = tr.max_learning_rate(full), tr.max_learning_rate(trace)
    assert of_trace > 1.5 * edge

    def grows(rate):
        jacobian = jax.jacrev(lambda p: jax.vmap(lambda x: f(p, x))(X))(params)
        flat = np.concatenate([np.asarray(j, np.float64).reshape(60, -1) for j in jax.tree.leaves(jacobian)], 1)
        step = np.eye(flat.shape[1]) - rate * flat.T @ flat / len(X)  # of parameters, on the mean of |f - y|^2 / 2
        return np.abs(np.linalg.eigvalsh(step)).max() > 1 + 1e-9

    assert not grows(0.999 * edge)
    assert grows(1.001 * edge)
    assert grows(of_trace)


@pytest.mark.parametrize(
    "kind", ["GRUCell", *(pytest.param(c, marks=pytest.mark.slow) for c in ("LSTMCell", "SimpleCell"))]
)
def test_recurrent_modules_of_flax(kind):
    nnx = pytest.importorskip("flax.nnx")

    class Reader(nnx.Module):
        def __init__(self):
            self.rnn = nnx.RNN(getattr(nnx, kind)(3, 4, rngs=nnx.Rngs(0), param_dtype=DTYPE, dtype=DTYPE))
            self.out = nnx.Linear(4, 2, rngs=nnx.Rngs(1), param_dtype=DTYPE)

        def __call__(self, x):
            return self.out(self.rnn(x)[:, -1])

    module, x = Reader(), np.random.default_rng(1).normal(size=(4, 3, 3)).astype(DTYPE)
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    f = lambda p, x: nnx.merge(graph, p, rest, copy=True)(x[None])[0]
    jacobians = [jax.jacrev(f)(params, row) for row in x]
    flat = np.stack([np.concatenate([j.reshape(2, -1) for j in jax.tree.leaves(js)], 1) for js in jacobians])
    found, expected = emp.empirical_ntk(module, None, x), np.einsum("iap,jbp->ijab", flat, flat)
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()
    plan = tangents_of(emp.as_model(module), x).plan
    plain = {plan.names[i] for i in plan.plain}
    assert not any("kernel" in name for name in plain), plain
