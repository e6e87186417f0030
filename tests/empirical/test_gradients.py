"""Gradients of single examples against jax.grad and autograd; projections against what they estimate."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import everwide as ew
from everwide.empirical import _gradients
from everwide.empirical._gradients import (
    Projection,
    per_example_gradients,
    project_gradients,
)
from everwide.empirical._models import Model
from everwide.testing._draws import SAMPLED, exact_for

pytestmark = pytest.mark.wide

KEYS = jr.split(jr.key(0), 6)
PARAMS = {"w": jr.normal(KEYS[0], (4, 3)), "b": jr.normal(KEYS[1], (4,)), "out": jr.normal(KEYS[2], (2, 4))}
X, Y = jr.normal(KEYS[3], (7, 3)), jr.normal(KEYS[4], (7, 2))
SMALL = 130 * X.dtype.itemsize  # two examples at a time


def f(params, x):
    return params["out"] @ jnp.tanh(params["w"] @ x + params["b"])


def loss(out, y):
    return jnp.sum((out - y) ** 2)


def same(got, expected):
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True)
    return all(exact_for(X.dtype).excess(a, b) < 1 for a, b in pairs)


def one_by_one(scalar, *data):
    """The gradients of a scalar function, from a loop over the examples."""
    rows = [jax.grad(scalar)(PARAMS, *row) for row in zip(*data, strict=True)]
    return jax.tree.map(lambda *a: jnp.stack(a), *rows)


@pytest.mark.parametrize("memory", [1 << 30, SMALL], ids=["at once", "in pieces"])
def test_gradients_of_a_loss(memory):
    expected = one_by_one(lambda p, x, y: loss(f(p, x), y), X, Y)
    got = per_example_gradients(f, PARAMS, X, loss, Y, memory=memory)
    assert jax.tree.structure(got) == jax.tree.structure(PARAMS)
    assert same(got, expected)


def test_the_small_budget_cuts_examples():
    assert _gradients._task(Model(f, PARAMS), X, None, None, SMALL)[0].chunks > 1


def test_gradients_of_the_sum_and_of_a_loss_without_targets():
    assert same(per_example_gradients(f, PARAMS, np.asarray(X)), one_by_one(lambda p, x: f(p, x).sum(), X))
    first = one_by_one(lambda p, x: f(p, x)[0] ** 2, X)
    assert same(per_example_gradients(f, PARAMS, X, lambda out: out[0] ** 2), first)


def test_gradients_of_an_equinox_module():
    module = eqx.nn.Linear(3, 2, key=KEYS[0])
    got = per_example_gradients(module, None, X, loss, Y)
    error = 2 * (jax.vmap(module)(X) - Y)
    assert same(got.weight, error[:, :, None] * X[:, None, :])
    assert same(got.bias, error)


def test_gradients_of_a_torch_module():
    torch = pytest.importorskip("torch")
    dtype = torch.float64 if X.dtype == np.float64 else torch.float32
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2)).to(dtype)
    x, y = (torch.from_numpy(np.array(a)) for a in (X, Y))
    rows = []
    for a, b in zip(x, y, strict=True):
        total = ((module(a[None])[0] - b) ** 2).sum()
        rows.append(torch.autograd.grad(total, list(module.parameters())))
    names = [name for name, _ in module.named_parameters()]
    expected = {n: torch.stack(g).numpy() for n, g in zip(names, zip(*rows, strict=True), strict=True)}
    for memory in (1 << 30, 1000 * X.dtype.itemsize):
        got = per_example_gradients(module, None, X, loss, Y, memory=memory)
        assert got.keys() == expected.keys()
        assert all(exact_for(X.dtype).excess(got[n], expected[n]) < 1 for n in expected)
    projected = project_gradients(module, None, X, KEYS[0], 5, loss=loss, y=Y)
    assert same(projected, Projection(jr.rademacher, 5).of(list(got.values()), KEYS[0]))


@pytest.mark.parametrize("law", [jr.rademacher, jr.normal])
def test_projections_keep_inner_products_on_average(law):
    gradients = jax.tree.leaves(per_example_gradients(f, PARAMS, X[:3], loss, Y[:3]))
    flat = np.concatenate([np.asarray(g).reshape(3, -1) for g in gradients], 1)
    draw = lambda key: project_gradients(f, PARAMS, X[:3], key, 4, loss=loss, y=Y[:3], law=law)
    projected = np.asarray(jax.jit(jax.vmap(draw))(jr.split(KEYS[5], 1000)))
    draws = np.einsum("sid,sjd->sij", projected, projected)
    assert SAMPLED.excess(draws, flat @ flat.T) < 1
    assert draws.std(0).min() > 0.1 * np.abs(flat @ flat.T).min()  # or the check would be empty


def test_the_error_of_projections_falls_with_their_number():
    """The variance of a Gaussian estimate of `g . h` is `(|g|^2 |h|^2 + (g . h)^2) / dim`."""
    g = np.asarray(jr.normal(KEYS[0], (2, 30)))
    dim = 6
    draw = lambda key: Projection(jr.normal, dim).of([jnp.asarray(g[:, :10]), jnp.asarray(g[:, 10:])], key)
    projected = np.asarray(jax.jit(jax.vmap(draw))(jr.split(KEYS[1], 2000)))
    products = np.einsum("sd,sd->s", projected[:, 0], projected[:, 1])
    norm, inner = (g**2).sum(1), g[0] @ g[1]
    assert SAMPLED.excess((products - inner) ** 2, (norm[0] * norm[1] + inner**2) / dim) < 1


def test_projections_in_blocks(monkeypatch):
    """A leaf that is cut into blocks is multiplied by one random matrix: its rows can be read off."""
    monkeypatch.setattr(_gradients, "BLOCK", 12)
    projection = Projection(jr.normal, 4)  # three rows at a time
    matrix = projection.of([jnp.eye(8)], KEYS[0])
    g = jr.normal(KEYS[1], (5, 8))
    assert same(projection.of([g], KEYS[0]), g @ matrix)
    assert len(np.unique(np.asarray(matrix))) == 32  # no block repeats another


def test_the_same_key_is_the_same_projection():
    whole = project_gradients(f, PARAMS, X, KEYS[0], 16)
    part = project_gradients(f, PARAMS, X[4:], KEYS[0], 16, memory=SMALL)
    assert same(part, whole[4:])
    assert not np.allclose(project_gradients(f, PARAMS, X, KEYS[1], 16), whole)


def test_inside_jit():
    got = jax.jit(lambda p, x, y: per_example_gradients(f, p, x, loss, y, memory=SMALL))(PARAMS, X, Y)
    assert same(got, one_by_one(lambda p, x, y: loss(f(p, x), y), X, Y))


class TestBadInput:
    def test_a_loss_of_a_batch(self):
        with pytest.raises(ValueError, match="expected a scalar"):
            per_example_gradients(f, PARAMS, X, lambda out, y: out - y, Y)

    def test_targets_of_another_length(self):
        with pytest.raises(ValueError, match="first axis of all of them is the examples"):
            per_example_gradients(f, PARAMS, X, loss, Y[:3])

    def test_budget(self):
        with pytest.raises(ew.MemoryBudgetError, match="gradient of one example"):
            per_example_gradients(f, PARAMS, X, memory=100)

    def test_no_columns(self):
        with pytest.raises(ValueError, match="dim=0: expected a whole number, 1 or more"):
            project_gradients(f, PARAMS, X, KEYS[0], 0)
