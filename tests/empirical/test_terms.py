"""Kernels of operators, in blocks, against Jacobians by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import everwide as ew
import everwide.empirical as emp
from empirical.models_zoo import w
from everwide.empirical._factors import Outputs
from everwide.empirical._terms import _term
from everwide.empirical._tiles import _kernels, _programs
from everwide.testing._draws import quick_jit

DTYPE = np.dtype(jnp.result_type(float))
TOLERANCE = 1e-9 if np.float64 == DTYPE else 1e-3  # second derivatives are rounded more than once
RNG = np.random.default_rng(0)
LAYERS = [{"w": w(2, 6), "b": w(6)}, {"w": w(6, 6), "b": w(6)}, {"w": w(6, 1), "b": w(1)}]
PARAMS = {"layers": LAYERS, "speed": jnp.asarray(0.7)}


def u(p, x):
    for layer in p["layers"][:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return (x @ p["layers"][-1]["w"] + p["layers"][-1]["b"])[0]


def laplace(p, x):
    return jnp.trace(jax.hessian(u, 1)(p, x)) - jnp.sin(u(p, x))


def wave(p, x):
    """Forward over forward, and a parameter of the equation."""
    second = lambda i: jax.jvp(lambda z: jax.jvp(lambda y: u(p, y), (z,), (jnp.eye(2)[i],))[1], (x,), (jnp.eye(2)[i],))[
        1
    ]
    return second(0) - p["speed"] ** 2 * second(1)


def flux(p, x):
    """Two outputs: the gradient."""
    return jax.grad(u, 1)(p, x)


def data(p, point):
    return u(p, point["x"]) - point["y"]


def transposed(p, x):
    """A weight that is seen backwards only, and in part."""
    return jnp.sum((p["layers"][1]["w"] @ jnp.tanh(x @ p["layers"][0]["w"]))[:3])


def sliced(p, x):
    return jnp.tanh(jnp.concatenate([x, x]) @ p["layers"][1]["w"][:4]).sum()


TERMS = {"laplace": laplace, "wave": wave, "flux": flux, "data": data, "transposed": transposed, "sliced": sliced}


def rows(*shape):
    return RNG.normal(size=shape).astype(DTYPE)


POINTS = {
    "laplace": rows(5, 2),
    "wave": rows(4, 2),
    "flux": rows(3, 2),
    "data": {"x": rows(6, 2), "y": rows(6)},
    "transposed": rows(2, 2),
    "sliced": rows(3, 2),
}


@functools.cache
def jacobian(name):
    """`(points * outputs, parameters)`."""
    found = jax.vmap(lambda one: jax.jacrev(lambda p: jnp.ravel(TERMS[name](p, one)))(PARAMS))(POINTS[name])
    flat = [np.asarray(j, np.float64).reshape(j.shape[0] * j.shape[1], -1) for j in jax.tree.leaves(found)]
    return np.concatenate(flat, 1)


def assert_blocks(found, names):
    assert found.names == tuple(names)
    for a in names:
        for b in names:
            expected = jacobian(a) @ jacobian(b).T
            block = found.blocks[a, b]
            assert block.shape == expected.shape
            size = np.linalg.norm(jacobian(a)) * np.linalg.norm(jacobian(b))
            assert np.abs(block - expected).max() <= TOLERANCE * size, (a, b)
            assert (block == found.blocks[b, a].T).all()


def pick(*names):
    return {n: TERMS[n] for n in names}, PARAMS, {n: POINTS[n] for n in names}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("laplace", "data"), marks=pytest.mark.slow),
        ("flux", "data"),
        ("data", "transposed", "sliced"),
        pytest.param(("wave", "flux"), marks=pytest.mark.slow),
        pytest.param(("wave", "transposed"), marks=pytest.mark.slow),
    ],
    ids="-".join,
)
def test_blocks(names):
    seen = []
    assert_blocks(emp.ntk_blocks_of(*pick(*names), progress=seen.append), names)
    assert [p.done for p in seen] == list(range(1, len(names) * (len(names) + 1) // 2 + 1))


@pytest.mark.slow
def test_tiles(monkeypatch):
    monkeypatch.setattr(_kernels, "at_once", lambda *_: False)
    monkeypatch.setattr(_kernels, "fit", lambda *_: _programs.Fit(_programs.Size(2, 1), 2))
    assert_blocks(emp.ntk_blocks_of(*pick("laplace", "data")), ("laplace", "data"))


@pytest.mark.parametrize("name", ["laplace", "flux", pytest.param("wave", marks=pytest.mark.slow)])
def test_derivatives_inside_a_term_keep_the_factors(name):
    plan = _term(name, TERMS[name], PARAMS, POINTS[name]).tangents.plan
    assert {plan.names[i] for i in plan.plain} <= {"['speed']"}
    kernel = emp.empirical_ntk(TERMS[name], PARAMS, POINTS[name])  # the same without terms: here flux has two outputs
    expected = jacobian(name) @ jacobian(name).T
    flat = kernel.transpose(0, 2, 1, 3).reshape(expected.shape)
    assert np.abs(flat - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_cotangents_of_a_function_with_turned_weights():
    """Multiples of one output: what was turned is linear in them too."""
    term = _term("laplace", laplace, PARAMS, POINTS["laplace"])
    job = _kernels.Job(5, 5, Outputs.FULL, tuple((name, "") for name in term.tangents.names))

    @quick_jit
    def run(rows):
        parts = term.tangents.factors(rows, jnp.asarray([[2.0], [-3.0]], jnp.float32))
        ready = _kernels.ready(parts, _kernels.decide(parts, job))
        return _programs.tile(ready, ready, Outputs.FULL)[""]

    found = np.asarray(run(term.rows))
    scales = np.array([2.0, -3.0])
    expected = np.einsum("ij,a,b->iajb", jacobian("laplace") @ jacobian("laplace").T, scales, scales)
    assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_traces_spectra_and_weights():
    names = ("flux", "data")
    found = emp.ntk_blocks_of(*pick(*names))
    squares = {name: (jacobian(name) ** 2).sum() for name in names}
    for name in names:
        assert np.isclose(found.traces[name], squares[name], rtol=10 * TOLERANCE)
        assert np.isclose(found.weights[name], sum(squares.values()) / squares[name], rtol=10 * TOLERANCE)
        values = np.linalg.svd(jacobian(name), compute_uv=False) ** 2
        np.testing.assert_allclose(found.spectra[name], values, atol=10 * TOLERANCE * values[0])
    assert found.matrix.shape == (12, 12)
    whole = np.concatenate([jacobian(name) for name in names])
    np.testing.assert_allclose(found.matrix, whole @ whole.T, atol=TOLERANCE * sum(squares.values()))
    # with these weights all terms of a loss of squares have kernels of one trace: their flows start equally fast
    assert np.ptp([found.weights[name] * squares[name] for name in names]) <= 20 * TOLERANCE * sum(squares.values())


@pytest.mark.slow
def test_a_scan_inside_a_term():
    """Weights that a loop uses again, differentiated by the input."""

    def f(p, x):
        loop = lambda h, _: (jnp.tanh(h @ p["w"] + p["b"]), None)
        return lax.scan(loop, x, None, length=3)[0].sum()

    params, x = {"w": w(3, 3), "b": w(3)}, rows(4, 3)
    term = lambda p, x: jnp.sum(jax.grad(f, 1)(p, x) ** 2)
    found = emp.ntk_blocks_of({"steep": term, "value": f}, params, {"steep": x, "value": x})
    for a, g in (("steep", term), ("value", f)):
        for b, h in (("steep", term), ("value", f)):
            j1, j2 = (
                np.concatenate(
                    [
                        np.asarray(j).reshape(4, -1)
                        for j in jax.tree.leaves(jax.vmap(lambda one, k=k: jax.grad(k)(params, one))(x))
                    ],
                    1,
                )
                for k in (g, h)
            )
            expected = j1 @ j2.T
            assert (
                np.abs(found.blocks[a, b] - expected).max()
                <= TOLERANCE * np.abs(j1 @ j1.T).max() ** 0.5 * np.abs(j2 @ j2.T).max() ** 0.5
            )


def test_bad_input():
    terms, params, points = pick("laplace", "data")
    with pytest.raises(ew.InputError, match=r"terms has \['data', 'laplace'\], points has \['data'\]"):
        emp.ntk_blocks_of(terms, params, {"data": points["data"]})
    with pytest.raises(ew.InputError, match="params is None"):
        emp.ntk_blocks_of(terms, None, points)
    bad = points["laplace"].copy()
    bad[2, 1] = np.nan
    with pytest.raises(ew.InputError, match=r"points\['laplace'\] has 1 values that are not finite.*row 2"):
        emp.ntk_blocks_of(terms, params, points | {"laplace": bad})
    with pytest.raises(ew.InputError, match=r"The term 'laplace' returns .* of shape \(2, 2\) for one point"):
        emp.ntk_blocks_of(terms | {"laplace": lambda p, x: jax.hessian(u, 1)(p, x)}, params, points)
    with pytest.raises(ew.InputError, match="f takes a batch"):
        emp.ntk_blocks_of(terms | {"laplace": jax.vmap(laplace, (None, 0))}, params, points)
    with pytest.raises(ew.InputError, match="complex"):
        emp.ntk_blocks_of(terms, params | {"speed": jnp.asarray(1j)}, points)
    constant = emp.ntk_blocks_of(
        {"none": lambda p, x: x[0], "data": data}, params, {"none": points["laplace"], "data": points["data"]}
    )
    assert not constant.blocks["none", "data"].any()
    with pytest.raises(ew.InputError, match="The term 'none' does not depend on the parameters"):
        _ = constant.weights
    with pytest.raises(ew.MemoryBudgetError, match="kernel"):
        emp.ntk_blocks_of(terms, params, points, memory=10)
