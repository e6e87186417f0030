"""Numeric activations against closed forms and against a slow quadrature that shares nothing with them."""

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import everwide as ew
from everwide.activations import GaussianPair

pytestmark = pytest.mark.wide

X64 = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
SMOOTH, KINKED = (1e-8, 1e-6) if X64 else (1e-5, 1e-5)
NAMED = {
    "tanh": (ew.Tanh(), np.tanh, SMOOTH),
    "softplus": (ew.activations.Softplus(), lambda x: np.logaddexp(0, x), SMOOTH),
    "silu": (ew.Silu(), lambda x: x / (1 + np.exp(-x)), SMOOTH),
    "elu": (ew.activations.Elu(), lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), KINKED),
    "hard tanh": (ew.activations.HardTanh(), lambda x: np.clip(x, -1, 1), KINKED),
}

RARE = {"silu", "elu"}


def reference(f, var1: float, cov: float, var2: float) -> float:
    """`E[f(u) f(v)]` by nested adaptive quadrature, split where the functions have kinks."""
    std1, slope = np.sqrt(var1), cov / var1
    rest = np.sqrt(max(var2 - cov * slope, 0.0))
    density = lambda z: np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    cuts = lambda centre, std: sorted({-9.0, 9.0, *(np.clip((p - centre) / std, -9, 9) for p in (-1.0, 0.0, 1.0))})

    def expected(g, centre: float, std: float) -> float:
        parts = zip(cuts(centre, std)[:-1], cuts(centre, std)[1:], strict=True)
        panels = [integrate.fixed_quad(lambda z: g(centre + std * z) * density(z), a, b, n=48)[0] for a, b in parts]
        return float(sum(panels))

    inner = np.vectorize(lambda u: f(u) * expected(f, slope * u, rest))
    return expected(inner, 0.0, std1)


def dual(activation, *pairs):
    """Of `(var1, cov, var2)` each, compiled once."""
    columns = (jnp.asarray(column) for column in zip(*pairs, strict=True))
    return eqx.filter_jit(lambda *columns: activation.dual(GaussianPair(*columns)))(*columns)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in ("silu", "elu") else n for n in NAMED]
)
def test_moments_against_nested_quadrature(name):
    activation, f, tolerance = NAMED[name]
    pairs = [(v1, c * np.sqrt(v1 * v2), v2) for v1, c, v2 in ((1.0, 0.5, 1.0), (2.0, -0.7, 0.3), (0.1, 0.95, 4.0))]
    for found, (var1, cov, var2) in zip(dual(activation, *pairs).moment, pairs, strict=True):
        scale = np.sqrt(reference(f, var1, 0.999999 * var1, var1) * reference(f, var2, 0.999999 * var2, var2))
        np.testing.assert_allclose(found, reference(f, var1, cov, var2), atol=2 * tolerance * scale)


@pytest.mark.slow
def test_any_function_agrees_with_closed_forms():
    x = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float64 if X64 else np.float32)
    x = np.concatenate([x, x[:1], -x[:1], 0 * x[:1]])
    network = lambda act: ew.Serial(ew.Dense(w_std=1.3, b_std=0.2), ew.Repeat(ew.Serial(act, ew.Dense(b_std=0.1)), 2))
    for numeric, exact, tolerance in (
        (ew.Elementwise(jax.scipy.special.erf), ew.Erf(), SMOOTH),
        (ew.Elementwise(jax.nn.relu, kinks=(0.0,)), ew.Relu(), KINKED),
    ):
        for mine, other in zip(ew.gram(network(numeric), x), ew.gram(network(exact), x), strict=True):
            np.testing.assert_allclose(mine, other, atol=20 * tolerance * np.abs(other).max())


def test_a_kink_that_is_not_named_is_found_out():
    hidden = ew.Elementwise(lambda x: jnp.abs(x - 0.7))
    with pytest.raises(eqx.EquinoxRuntimeError, match="name its kinks"):
        jax.block_until_ready(dual(hidden, (1.0, 0.99, 1.0)))


def test_slopes_are_derivatives_and_finite_at_the_edges():
    edges = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (1.0, -1.0, 1.0), (1.0, 0.0, 0.0)
    var1, cov, var2 = (jnp.asarray(column) for column in zip((1.3, 0.4, 0.8), *edges, strict=True))
    moments = lambda cov: ew.Tanh().dual(GaussianPair(var1, cov, var2))[:2]
    (_, slope), (derivative, bend) = jax.jit(lambda c: jax.jvp(moments, (c,), (jnp.ones_like(c),)))(cov)
    np.testing.assert_allclose(slope[0], derivative[0], rtol=1e-7 if X64 else 1e-3)
    assert bool(jnp.isfinite(jnp.stack([slope, derivative, bend])).all())


def test_named_activations_pickle_and_say_their_name():
    for activation, _, _ in NAMED.values():
        assert repr(pickle.loads(pickle.dumps(activation))) == repr(activation)


def test_a_function_that_cannot_be_hashed_is_refused():
    class Scaled(eqx.Module):
        by: jax.Array

        def __call__(self, x):
            return jnp.tanh(self.by * x)

    with pytest.raises(ew.ArchitectureError, match=r"must be hashable.*plain function"):
        ew.Elementwise(Scaled(jnp.asarray(2.0)))
