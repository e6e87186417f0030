"""Linear and higher Taylor models against golden numbers, polynomials and their own rates of convergence."""

import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide import InputError
from everwide.linearization import linearize, taylor
from everwide.testing._draws import Slope, exact_for

pytestmark = pytest.mark.wide

GOLDEN = Path(__file__).parent.parent / "golden"
DTYPE = jnp.result_type(float)
NET = ew.Serial(ew.Dense(b_std=0.1), ew.Tanh(), ew.Dense(b_std=0.1), ew.Erf(), ew.Dense(2))
START, END = (NET.init(jr.key(seed), (3,), width=16) for seed in (0, 1))
X = jr.normal(jr.key(2), (5, 3))


def between(start, end, share):
    return jax.tree.map(lambda a, b: a + share * (b - a), start, end)


@jax.jit
def exact(params, x):
    return jax.vmap(lambda one: NET.apply(params, one))(x)


def golden_models():
    cases = json.loads((GOLDEN / "golden.json").read_text())["cases"]
    return [case["id"] for case in cases if {"lin_x1", "taylor2_x1"} <= set(case.get("arrays", ()))]


@pytest.mark.parametrize("case", golden_models())
def test_golden_linear_and_quadratic_models(case):
    stored = np.load(GOLDEN / "golden.npz")
    array = lambda name: jnp.asarray(stored[f"{case}/{name}"], DTYPE)
    act = jax.nn.relu if "relu" in case else jnp.tanh

    def f(p, x):
        for k, fan_in in ((1, 5), (2, 7), (3, 7)):
            x = x @ p[f"W{k}"] / fan_in**0.5 + 0.1 * p[f"b{k}"]
            x = act(x) if k < 3 else x
        return x

    names = [f"{kind}{k}" for kind in "Wb" for k in (1, 2, 3)]
    params, new = ({name: array(prefix + name) for name in names} for prefix in ("", "q_"))
    tolerance, x = exact_for(DTYPE), array("x1")
    over = lambda g: jax.jit(jax.vmap(g, (None, 0)))(new, x)
    assert tolerance.excess(over(linearize(f, params)), array("lin_x1")) < 1
    assert tolerance.excess(over(taylor(f, params, 2)), array("taylor2_x1")) < 1


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_the_error_falls_with_one_power_more_than_the_degree(degree):
    model = jax.jit(jax.vmap(taylor(NET.apply, START, degree), (None, 0)))
    shares = np.array([0.08, 0.04, 0.02]) if degree < 3 or jnp.float64 == DTYPE else np.array([0.32, 0.16, 0.08])
    moved = [between(START, END, share) for share in shares]
    errors = [np.linalg.norm(model(params, X) - exact(params, X)) for params in moved]
    assert Slope(degree + 1, 0.15).excess(shares, errors) < 1


def test_a_polynomial_is_its_own_expansion_from_its_degree_on():
    f = lambda p, x: p["a"] ** 3 * x + p["b"][0] * p["a"]
    base, new = ({"a": jnp.asarray(a), "b": [jnp.asarray(b)]} for a, b in ((1.0, 2.0), (2.5, -1.0)))
    x = jnp.asarray(0.7)
    assert exact_for(DTYPE).excess(taylor(f, base, 3)(new, x), f(new, x)) < 1
    assert exact_for(DTYPE).excess(taylor(f, base, 5)(new, x), f(new, x)) < 1
    # by hand: a = 1 + 1.5 t, b = 2 - 3 t, at t = 1
    assert exact_for(DTYPE).excess(taylor(f, base, 1)(new, x), 0.7 * (1 + 3 * 1.5) + 2 + 1.5 * 2 - 3) < 1
    assert exact_for(DTYPE).excess(taylor(f, base, 2)(new, x), 0.7 * (1 + 4.5 + 3 * 1.5**2) + 2 - 3 * 1.5) < 1


def test_transformations_apply():
    f_lin = linearize(NET.apply, START)
    batch = jax.jit(jax.vmap(f_lin, (None, 0)))
    loss = jax.jit(lambda p: jnp.sum(batch(p, X) ** 2))
    slope = jax.grad(loss)(END)
    assert jax.tree.structure(slope) == jax.tree.structure(END)
    # a linear model: the loss is a parabola along any line, so its gradient is what three values say
    along = lambda t: loss(between(START, END, t))
    parabola = along(1.5) / 1.0 - along(0.5)
    towards = jax.tree.map(lambda a, b: b - a, START, END)
    directional = sum(jnp.vdot(g, d) for g, d in zip(*map(jax.tree.leaves, (slope, towards)), strict=True))
    assert directional == pytest.approx(float(parabola), rel=1e-3)


def test_its_jacobian_is_that_of_the_network_everywhere():
    far = jax.jit(jax.jacrev(linearize(NET.apply, START)))(END, X[0])
    here = jax.jit(jax.jacrev(lambda p, x: NET.apply(p, x)))(START, X[0])
    for a, b in zip(*map(jax.tree.leaves, (far, here)), strict=True):
        assert exact_for(DTYPE).excess(a, b) < 1


def test_equinox_models_expand_their_arrays_only():
    model = eqx.nn.MLP(3, 2, 8, 1, key=jr.key(0))  # activations are leaves, too
    new = jax.tree.map(lambda leaf: 1.1 * leaf if eqx.is_inexact_array(leaf) else leaf, model)
    f = lambda m, x: m(x)
    got = linearize(f, model)(new, X[0])
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    _, change = jax.jvp(lambda a: eqx.combine(a, rest)(X[0]), (arrays,), (jax.tree.map(lambda a: 0.1 * a, arrays),))
    assert exact_for(DTYPE).excess(got, model(X[0]) + change) < 1


def test_numpy_and_mixed_dtypes():
    params = {"low": jnp.ones(2, jnp.bfloat16), "high": np.ones(2, np.float32), "count": 3}
    f = lambda p, x: jnp.sum(p["low"].astype(jnp.float32) * p["high"]) * p["count"] * x
    new = {"low": 2 * params["low"], "high": params["high"], "count": 3}
    assert float(linearize(f, params)(new, np.float32(1.0))) == 12.0


@pytest.mark.parametrize("degree", [-1, True])
def test_a_degree_is_a_whole_number(degree):
    with pytest.raises(InputError, match="degree="):
        taylor(NET.apply, START, degree)


@pytest.mark.parametrize(
    ("params", "new", "message"),
    [
        ({"a": np.ones(2)}, {"a": np.ones(2), "b": np.ones(1)}, r"new_params has .* at \['b'\] and params has none"),
        ({"a": np.ones(2), "b": np.ones(1)}, {"a": np.ones(2)}, r"params has .* at \['b'\] and new_params has none"),
        ({"a": np.ones(2)}, {"a": np.ones((2, 1))}, r"at \['a'\] the shapes are \(2,\) and \(2, 1\)"),
        ([np.ones(2)], (np.ones(2),), "the trees differ"),
        ({"a": 1.0}, {"a": 1.0}, "no floating-point array"),
        ({"a": np.arange(3)}, {"a": np.arange(3)}, "no floating-point array"),
        ({"a": 1j * np.ones(2)}, {"a": np.ones(2)}, "complex"),
    ],
)
def test_parameters_that_do_not_fit(params, new, message):
    with pytest.raises(InputError, match=message):
        linearize(lambda p, x: jnp.sum(jnp.ones(2)) * x, params)(new, jnp.ones(()))


def test_outputs_that_have_no_derivative():
    with pytest.raises(InputError, match="no derivative"):
        linearize(lambda p, x: jnp.argmax(p * x), jnp.ones(3))(jnp.ones(3), jnp.ones(3))
