"""First layers for tables, against numpy and against random cuts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide.layers import Columns, Trees
from everwide.testing import check_layer
from everwide.testing._draws import quick_jit

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3)) * np.array([1.0, 50.0, 1e-3]) + np.array([0.0, 1e3, 0.0])
X[3] = X[4]
METRIC = np.array([[0.5, 0.2], [0.1, 0.3], [0.0, 0.4]])
WEIGHTS = np.array([0.3, 0.0, 1.2])
TIGHT = {"float64": 1e-9, "float32": 2e-3}  # float32 knows 1000 +- 50 to 1e-4 only


def shares(x, table):
    """Half of the equal ones are below."""
    return np.array(
        [[(np.sum(c < v) + np.sum(c == v) / 2) / len(c) for c, v in zip(table.T, row, strict=True)] for row in x]
    )


def second_moments(x):
    z, u = (x - X.mean(0)) / X.std(0), shares(x, X)
    apart = np.abs(u[:, None] - u[None])
    return z @ METRIC @ METRIC.T @ z.T + np.exp(-apart / 0.4) @ WEIGHTS


def relu_ntk(cov, b2):
    """Of one hidden layer with a readout of gain 2, by angles."""
    cov = cov + b2
    size = np.sqrt(np.outer(cov.diagonal(), cov.diagonal()))
    angle = np.arccos(np.clip(cov / size, -1, 1))
    moment = size * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / np.pi
    return moment + cov * (1 - angle / np.pi)


def test_kernels_are_those_of_the_formula():
    net = ew.Serial(
        Columns.of(X, METRIC, WEIGHTS, length=0.4), ew.Dense(b_std=0.3), ew.Relu(), ew.Dense(1, w_std=2**0.5)
    )
    k = ew.gram(net, X)
    np.testing.assert_allclose(k.ntk, relu_ntk(second_moments(X), 0.09), rtol=max(TIGHT[k.ntk.dtype.name], 1e-7))
    np.testing.assert_allclose(k.ntk[3, 3], k.ntk[3, 4], rtol=1e-6)  # equal rows
    new = X[:5] + 0.01
    linear = ew.Serial(Columns.of(X, METRIC, WEIGHTS, length=0.4), ew.Dense(1))
    assert ew.nngp(linear, new, X).shape == (5, 12)
    np.testing.assert_allclose(ew.nngp(linear, X), second_moments(X), rtol=TIGHT[k.ntk.dtype.name], atol=1e-4)


def test_diagonal_metrics_are_matrices():
    diagonal = Columns.of(X, np.array([0.5, 2.0, 0.1]))
    full = Columns.of(X, np.diag([0.5, 2.0, 0.1]))
    both = [ew.nngp(ew.Serial(first, ew.Dense(1)), X) for first in (diagonal, full)]
    np.testing.assert_allclose(*both, rtol=1e-5)


def test_trees_say_how_often_no_cut_falls_between_two_rows():
    rates, rng = np.array([2.0, 0.5, 4.0]), np.random.default_rng(1)
    net, trees = ew.Serial(Trees.of(X, rates), ew.Dense(1)), 4000
    a, b = shares(X[:2], X)
    together = [
        all(not np.any((c > min(p, q)) & (c < max(p, q))) for c, p, q in zip(cuts, a, b, strict=True))
        for cuts in ([rng.random(rng.poisson(r)) for r in rates] for _ in range(trees))
    ]
    expected = float(ew.nngp(net, X[:2])[0, 1])
    error = np.sqrt(expected * (1 - expected) / trees)
    assert abs(np.mean(together) - expected) < 4 * error


def test_kernels_have_derivatives_in_all_numbers():
    x = ew.Inputs(jnp.asarray(X[[0, 1, 3, 4]]))  # two of which are equal

    def total(first):
        net = ew.Serial(first, ew.Dense(b_std=0.3), ew.Relu(), ew.Dense(1))
        return jnp.sum(ew.Infinite(net, (3,)).block(x, x).ntk)

    numbers = Columns.of(X, METRIC, WEIGHTS)
    slopes = quick_jit(jax.grad(total))(jax.tree.map(lambda a: jnp.asarray(a, x.x.dtype), numbers))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    step = 1e-3
    run = quick_jit(total)
    more, less = (run(Columns.of(X, METRIC + sign * step * np.eye(3, 2), WEIGHTS)) for sign in (1, -1))
    np.testing.assert_allclose(np.trace(slopes.metric), (more - less) / (2 * step), rtol=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [Columns.of(X, METRIC, WEIGHTS), Columns.of(X), Trees.of(X)], ids=["full", "even", "trees"]
)
def test_finite_layers_converge(first):
    net = ew.Serial(first, ew.Dense(b_std=0.3), ew.Relu(), ew.Dense())
    check_layer(net, (3,), whole=True, widths=(30, 120), draws=200)


def test_a_finite_layer_has_the_second_moments_of_its_limit():
    first = Columns.of(X, METRIC, WEIGHTS, length=0.4)
    params = first.init(jr.key(0), (3,), width=30_000)
    values = jax.vmap(lambda row: first.apply(params, row))(jnp.asarray(X))
    np.testing.assert_allclose(values @ values.T / values.shape[1], second_moments(X), atol=0.05)


def test_columns_that_do_not_vary_are_not_seen():
    x = np.concatenate([X, np.full((12, 1), 7.0)], 1)
    k = ew.nngp(ew.Serial(Columns.of(x, np.ones(4), np.zeros(4)), ew.Dense(1)), x)
    without = ew.nngp(ew.Serial(Columns.of(X, np.ones(3), np.zeros(3)), ew.Dense(1)), X)
    np.testing.assert_allclose(k, without, rtol=1e-5, atol=1e-5)


def test_what_cannot_be_read_is_refused():
    first = Columns.of(X)
    with pytest.raises(ew.ArchitectureError, match="Columns reads 3 columns"):
        ew.explain(ew.Serial(first, ew.Dense(1)), (4,))
    with pytest.raises(ew.ArchitectureError, match="Put it first"):
        ew.explain(ew.Serial(ew.Dense(3), first, ew.Dense(1)), (3,))
    with pytest.raises(ew.ArchitectureError, match=r"rank_weights \(2,\)"):
        ew.explain(eqx.tree_at(lambda one: one.rank_weights, first, np.ones(2)), (3,))
    with pytest.raises(ew.ArchitectureError, match="length must be above 0"):
        ew.explain(Columns.of(X, length=0.0), (3,))
    with pytest.raises(ew.ArchitectureError, match=r"rates \(2,\)"):
        ew.explain(eqx.tree_at(lambda one: one.rates, Trees.of(X), np.ones(2)), (3,))
    for layer, said in (
        (Columns.of(X, rank_weights=-WEIGHTS), "rank_weights must be finite numbers of at least 0"),
        (Columns.of(X, METRIC * np.nan), "metric must be finite numbers"),
        (Trees.of(X, -np.ones(3)), "rates must be finite numbers of at least 0"),
    ):
        with pytest.raises(ew.ArchitectureError, match=said):
            ew.explain(layer, (3,))
    with pytest.raises(ew.ArchitectureError, match="pass width= to init"):
        Trees.of(X).init(jr.key(0), (3,))
    with pytest.raises(ValueError, match="expected finite numbers"):
        Columns.of(np.array([[np.nan]]))
