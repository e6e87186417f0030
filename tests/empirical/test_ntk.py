"""`empirical_ntk` as people call it: every kind of outputs, blocks, groups, models, and what it refuses."""

import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import everwide as ew
import everwide.empirical as emp
from empirical.models_sequences import ZOO
from empirical.models_zoo import w
from everwide.empirical import _ntk
from everwide.empirical._factors import Job, Outputs
from everwide.empirical._factors._forms import Form, Sizes, cheaper
from everwide.empirical._tiles import _kernels, _programs
from everwide.testing._draws import quick_jit

pytestmark = pytest.mark.as_users

TOLERANCE = 1e-10 if jnp.zeros(()).dtype == np.float64 else 1e-4
READ = {
    "full": lambda k: k,
    "trace": lambda k: np.einsum("nmaa->nm", k) / k.shape[-1],
    "diagonal": lambda k: np.einsum("nmaa->nma", k),
    "sum": lambda k: k.sum((2, 3)),
}


def brute_force(f, params, x1, x2):
    """`(n1, n2, k, k)`."""

    def jacobian(x):
        found = jax.vmap(lambda one: jax.jacrev(lambda p: jnp.ravel(f(p, one)))(params))(x)
        return np.concatenate([np.asarray(j).reshape(*j.shape[:2], -1) for j in jax.tree.leaves(found)], -1)

    return np.einsum("nap,mbp->nmab", jacobian(x1), jacobian(x2))


def assert_close(found, expected):
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()


def net(p, x):
    h = jnp.tanh(p["E"][(x[:2] > 0).astype(int)].sum(0) + x @ p["w1"] + p["b1"])
    return (h * p["g"]) @ p["w2"]


PARAMS = {"w1": w(3, 4), "b1": w(4), "E": w(3, 4), "g": w(4), "w2": w(4, 3), "dead": w(5)}
X = np.random.default_rng(1).standard_normal((7, 3)).astype(jnp.zeros(()).dtype)
EXPECTED = brute_force(net, PARAMS, X, X)


@pytest.mark.parametrize("outputs", READ)
def test_every_kind_of_outputs(outputs):
    expected = READ[outputs](EXPECTED)
    found = emp.empirical_ntk(net, PARAMS, X, outputs=outputs)
    assert found.dtype == X.dtype
    assert_close(found, expected)
    assert_close(emp.empirical_ntk(net, PARAMS, X[:3], X, outputs=outputs), expected[:3])


def in_blocks(monkeypatch, size, held):
    monkeypatch.setattr(_kernels, "at_once", lambda *_: False)
    monkeypatch.setattr(_kernels, "fit", lambda *_: _programs.Fit(size, held))


@pytest.mark.parametrize("outputs", READ)
def test_blocks_of_examples_and_outputs_that_do_not_divide(outputs, monkeypatch):
    # Two examples and two of three outputs at a time, with two blocks in memory, so that blocks are computed again.
    in_blocks(monkeypatch, _programs.Size(2, 1 if outputs == "sum" else 2), held=2)
    found = emp.empirical_ntk(net, PARAMS, X, outputs=outputs)
    assert_close(found, READ[outputs](EXPECTED))
    assert (found == (found.transpose(1, 0, 3, 2) if outputs == "full" else found.swapaxes(0, 1))).all()
    assert_close(emp.empirical_ntk(net, PARAMS, X[:3], X, outputs=outputs), READ[outputs](EXPECTED)[:3])


@pytest.mark.parametrize("outputs", READ)
@pytest.mark.parametrize("strips", [2, 3])
def test_strips_of_a_symmetric_kernel(outputs, strips, monkeypatch):
    monkeypatch.setattr(_kernels, "strips_of", lambda *_: strips)
    found = emp.empirical_ntk(net, PARAMS, X, outputs=outputs)
    assert_close(found, READ[outputs](EXPECTED))
    assert (found == (found.transpose(1, 0, 3, 2) if outputs == "full" else found.swapaxes(0, 1))).all()


def test_a_symmetric_request_is_bitwise_symmetric():
    kernel = emp.empirical_ntk(net, PARAMS, X)
    assert (kernel == kernel.transpose(1, 0, 3, 2)).all()
    flat = kernel.transpose(0, 2, 1, 3).reshape(len(X) * 3, -1)
    assert np.shares_memory(flat, kernel)
    assert np.linalg.eigvalsh(flat.astype(float)).min() > -1e-5 * np.trace(flat)


def test_parts_add_up_and_dead_parameters_have_none():
    parts = emp.empirical_ntk_blocks(net, PARAMS, X)
    assert sorted(parts) == sorted(f"['{name}']" for name in PARAMS)
    assert_close(sum(parts.values()), EXPECTED)
    assert not parts["['dead']"].any()
    without = lambda name: brute_force(lambda q, x: net(PARAMS | q, x), {name: PARAMS[name]}, X, X)
    for name in ("w1", "b1", "E"):
        assert_close(parts[f"['{name}']"], without(name))


def test_groups_of_parameters():
    group = lambda path: "first" if "1" in path else "rest"
    parts = emp.empirical_ntk_blocks(net, PARAMS, X[:3], X, outputs="trace", group=group)
    assert sorted(parts) == ["first", "rest"]
    assert_close(sum(parts.values()), READ["trace"](EXPECTED)[:3])


def test_inside_jit():
    run = quick_jit(lambda p, a, b: {outputs: emp.ntk_block(net, p, a, b, outputs) for outputs in READ})
    for outputs, kernel in run(PARAMS, X[:3], X[3:]).items():
        assert_close(np.asarray(kernel), READ[outputs](EXPECTED)[:3, 3:])
    nothing = emp.ntk_block(lambda p, x: x, PARAMS, X[:2, 0], X[:3, 0])
    assert nothing.shape == (2, 3, 1, 1)
    assert not nothing.any()


def test_trees_of_inputs():
    f, params, x, _ = ZOO["tree_of_inputs"]
    full = brute_force(f, params, x, x)
    assert_close(emp.empirical_ntk(f, params, x), full)
    some = jax.tree.map(lambda a: a[1:], x)
    assert_close(emp.empirical_ntk(f, params, some, x, outputs="trace"), READ["trace"](full)[1:])


def test_modules_and_networks():
    x = np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32)
    module = eqx.nn.Linear(4, 2, key=jax.random.key(0), dtype=jnp.float32)
    found = emp.empirical_ntk(module, None, x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.einsum("nm,ab->nmab", x @ x.T + 1, np.eye(2)), rtol=1e-5, atol=1e-6)
    # A kernel of an everwide network estimates that of the infinite one, with the mean over its outputs.
    wide = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(32))
    params = jax.tree.map(lambda a: a.astype(jnp.float32), wide.init(jax.random.key(2), (4,), width=2048))
    limit = ew.ntk(wide, x)
    assert np.abs(emp.empirical_ntk(wide, params, x, outputs="trace") - limit).max() < 0.1 * limit.max()


def test_normalization_where_a_compiler_is_wrong():
    # jaxlib 0.10.2 sums over tokens and channels wrongly, for the last outputs, from 16 examples on.
    rng = np.random.default_rng(5)
    x, head = rng.standard_normal((16, 32, 128)), rng.standard_normal((128, 10))

    def f(p, one):
        h = one + p["shift"]
        h = h - h.mean(-1, keepdims=True)
        return (h * lax.rsqrt((h**2).mean(-1, keepdims=True) + 1e-5)).mean(0) @ jnp.asarray(head, jnp.float32)

    found = emp.empirical_ntk(f, {"shift": jnp.zeros((32, 128), jnp.float32)}, x.astype(np.float32), outputs="trace")
    centred = x - x.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    normal, g = (centred * scale)[:, None], np.broadcast_to(head.T[:, None] / 32, (16, 10, 32, 128))
    jacobian = scale[:, None] * (g - g.mean(-1, keepdims=True) - normal * (g * normal).mean(-1, keepdims=True))
    expected = np.einsum("nktc,mktc->nm", jacobian, jacobian) / 10
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * expected.max())


def test_leaves_of_several_dtypes():
    params = {"w": w(3, 4).astype(jnp.float32), "v": w(4, 2).astype(jnp.bfloat16), "b": w(2).astype(jnp.float32)}
    f = lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"].astype(jnp.float32) + p["b"]
    x = np.random.default_rng(4).standard_normal((3, 3)).astype(np.float32)
    found = emp.empirical_ntk(f, params, x)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, brute_force(f, params, x, x), rtol=2e-2, atol=2e-2)
    low = jax.tree.map(lambda a: a.astype(jnp.bfloat16), {"w": params["w"]})
    assert emp.empirical_ntk(lambda p, x: x.astype(jnp.bfloat16) @ p["w"], low, x).dtype == jnp.bfloat16


def test_progress_counts_tiles(monkeypatch):
    in_blocks(monkeypatch, _programs.Size(3, 3), held=9)
    seen = []
    emp.empirical_ntk(net, PARAMS, X, progress=seen.append)
    assert [(p.done, p.total) for p in seen] == [(i, 6) for i in range(1, 7)]


def test_other_parameters_of_a_known_function_cost_no_new_trace():
    traces = []

    def f(p, x):
        traces.append(1)
        return jnp.tanh(x @ p["w"])

    x = np.ones((5, 3), jnp.zeros(()).dtype)
    first = emp.empirical_ntk(f, {"w": w(3, 2)}, x)
    seen = len(traces)
    second = emp.empirical_ntk(f, {"w": w(3, 2)}, x)
    assert len(traces) == seen
    assert not np.allclose(first, second)


def test_parameters_are_not_kept():
    f, x = lambda p, x: jnp.tanh(x @ p["w"]), np.ones((2, 3), jnp.zeros(()).dtype)
    leaf = w(3, 2) + 1.0
    alive = weakref.ref(leaf)
    emp.empirical_ntk(f, {"w": leaf}, x)
    del leaf
    gc.collect()
    assert alive() is None


def test_the_cheaper_form():
    choose = lambda outputs, *sizes: cheaper(Sizes(*sizes), Job(64, 64, outputs, ()))
    dense, wide_image = (10, 1, 1, 1024, 1024, 1024**2), (10, 1, 1024, 27, 64, 27 * 64)
    assert choose(Outputs.FULL, *dense) is Form.FACTORS
    assert choose(Outputs.TRACE, *dense) is Form.FACTORS
    assert choose(Outputs.FULL, *wide_image) is Form.PRODUCT
    assert choose(Outputs.FULL, 10, 1, 8, 1, 64, 50000 * 64) is Form.FACTORS  # rows of a large table


BAD = {
    "a tree": (lambda p, x: (x @ p, x), np.ones((2, 3)), ew.ArchitectureError, "tuple with 2 arrays.*ravel_pytree"),
    "a matrix": (lambda p, x: x[:, None] * p[None], np.ones((2, 3)), ew.ArchitectureError, r"\(3, 3\).*jnp.ravel"),
    "an integer": (lambda p, x: (x @ p).astype(int), np.ones((2, 3)), ew.ArchitectureError, "returns int"),
    "nothing": (lambda p, x: (x * p)[:0], np.ones((2, 3)), ew.ArchitectureError, r"\(0,\)"),
    "no rows": (lambda p, x: x @ p, np.ones((0, 3)), ew.InputError, "empty"),
    "lists": (lambda p, x: x @ p, [1.0, 2.0], ew.InputError, "numpy.asarray"),
    "no arrays": (lambda p, x: x @ p, {}, ew.InputError, "no arrays"),
    "text": (lambda p, x: x @ p, np.array([["a"]]), ew.InputError, "expected numbers"),
    "ragged": (lambda p, x: x[0] @ p, (np.ones((2, 3)), np.ones(3)), ew.InputError, r"\[2, 3\] rows"),
}


@pytest.mark.parametrize("case", BAD)
def test_clear_errors(case):
    f, x, error, message = BAD[case]
    with pytest.raises(error, match=message):
        emp.empirical_ntk(f, jnp.ones(3), jax.tree.map(lambda a: a if np.ndim(a) == 0 else np.asarray(a), x))


def test_two_batches_must_agree():
    f, params, x = lambda p, x: x @ p, jnp.ones(3), np.ones((2, 3))
    with pytest.raises(ew.InputError, match="x1 holds examples of shape"):
        emp.empirical_ntk(f, params, x, np.ones((2, 4)))
    with pytest.raises(ew.InputError, match="x1 is a tree"):
        emp.empirical_ntk(f, params, x, {"a": x})
    with pytest.raises(ew.InputError, match="ntk_block"):
        jax.jit(lambda x: emp.empirical_ntk(f, params, x))(x)
    with pytest.raises(ew.InputError, match="outputs='everything': expected one of 'full', 'trace', 'diagonal', 'sum'"):
        emp.empirical_ntk(f, params, x, outputs="everything")


def test_loops_without_a_reverse_mode_are_refused():
    def f(p, x):
        return lax.while_loop(lambda h: h.sum() < 10, lambda h: h + jnp.exp(h @ p), x)

    with pytest.raises(ew.ArchitectureError, match="while_loop"):
        emp.empirical_ntk(f, jnp.eye(3), np.ones((2, 3), jnp.zeros(()).dtype))


@pytest.mark.once
@pytest.mark.slow
def test_plans_are_remembered_from_many_threads():
    """More functions than are remembered, each in several threads at once: every answer is the right one."""
    functions = [lambda p, x, i=i: (i + 1) * (x @ p) for i in range(2 * _ntk._REMEMBERED)]
    x, p = np.eye(3, dtype=np.float32), jnp.ones((3, 1), jnp.float32)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            kernels = list(pool.map(lambda i: emp.empirical_ntk(functions[i % len(functions)], p, x), range(64)))
    finally:
        sys.setswitchinterval(interval)
    for i, kernel in enumerate(kernels):
        np.testing.assert_allclose(kernel[:, :, 0, 0], (i % len(functions) + 1) ** 2 * np.eye(3), rtol=1e-6)
    assert len(_ntk._plans._results) <= _ntk._REMEMBERED


def test_a_function_is_traced_once_while_its_parameters_change():
    calls = []

    def f(p, x):
        calls.append(1)
        return jnp.tanh(x @ p)

    first = emp.empirical_ntk(f, jnp.ones((3, 2)), np.eye(3))
    traces = len(calls)
    assert not np.array_equal(first, emp.empirical_ntk(f, 2 * jnp.ones((3, 2)), np.eye(3)))
    assert len(calls) == traces
