"""A tree of exact leaves, against the same leaves solved in plain numpy."""

import numpy as np
import pytest

import everwide.spectral as sp
from everwide import InputError
from everwide._engine import KernelOperator, RowBlocks
from everwide.spectral._leaves import grown
from spectral.oracles import RNG
from spectral.some_rows import Laplace

pytestmark = [pytest.mark.once, pytest.mark.as_users]

N, RIDGE = 400, 0.02
X = RNG(0).normal(size=(N, 2)) * [3.0, 1.0]
Y = np.stack([np.sin(X[:, 0]), X[:, 1]], 1)
WEIGHTS = RNG(2).uniform(0.3, 3.0, N)


def shares_of(tree, seen):
    """All shares of all leaves."""
    shares = np.zeros((len(seen), len(tree.leaves())))
    for leaf, (rows, part) in enumerate(tree.asked(seen, np.arange(len(seen)), np.ones(len(seen)))):
        shares[rows, leaf] = part
    return shares


def solved(how, y=Y, ridge=RIDGE, **options):
    return sp.solve(KernelOperator(RowBlocks(Laplace(), X)), y, ridge=ridge, solver=how, **options)


def test_leaves_halve_the_rows_along_their_widest_direction():
    tree = grown(X, np.arange(N), 100, 0.0)
    leaves = tree.leaves()
    assert [len(leaf.rows) for leaf in leaves] == [100] * 4
    assert sorted(np.concatenate([leaf.rows for leaf in leaves])) == list(range(N))
    assert abs(tree.direction[0]) > 0.99
    shares = shares_of(tree, X)
    assert set(np.unique(shares)) == {0.0, 1.0}
    for leaf, share in zip(leaves, shares.T, strict=True):
        np.testing.assert_array_equal(np.flatnonzero(share), np.sort(leaf.rows))


def test_rows_at_borders_belong_to_both_sides():
    tree = grown(X, np.arange(N), 100, 0.2)
    shares = shares_of(tree, X)
    np.testing.assert_allclose(shares.sum(1), 1.0)
    for leaf, share in zip(tree.leaves(), shares.T, strict=True):
        assert 100 < len(leaf.rows) < 160
        assert set(np.flatnonzero(share > 0)) <= set(leaf.rows)
    assert ((shares > 0).sum(1) > 1).sum() > 40
    path = np.linspace(-9, 9, 2001)[:, None] * tree.direction  # across all borders: nothing jumps
    assert np.abs(np.diff(shares_of(tree, path), axis=0)).max() < 0.1


@pytest.mark.parametrize("overlap", [0.0, 0.2])
def test_leaves_predict_and_leave_out_as_by_hand(overlap):
    how = sp.Leaves(size=100, overlap=overlap)
    found = solved(how, weights=WEIGHTS)
    tree = grown(X, np.arange(N), 100, overlap)
    new = RNG(5).normal(size=(50, 2)) * [3.0, 1.0]
    predicted = np.zeros((50, 2))
    own = shares_of(tree, X)
    for number, (leaf, share) in enumerate(zip(tree.leaves(), shares_of(tree, new).T, strict=True)):
        x, y, w = X[leaf.rows], Y[leaf.rows], WEIGHTS[leaf.rows]
        kernel = Laplace().cross(x, x)
        predicted += share[:, None] * (Laplace().cross(new, x) @ np.linalg.solve(kernel + np.diag(RIDGE / w), y))
        for i in range(0, len(x), 9):
            kept = np.delete(np.arange(len(x)), i)
            inner = kernel[np.ix_(kept, kept)] + np.diag(RIDGE / w[kept])
            part = kernel[i, kept] @ np.linalg.solve(inner, y[kept])
            np.testing.assert_allclose(found.leaves[number].left_out[i], part, atol=1e-9)
    np.testing.assert_allclose(found.predict(new), predicted, atol=1e-9)
    expected = sum(
        share[:, None] * np.stack([_spread(leaf, k) for k in range(2)], 1)
        for leaf, share in zip(found.leaves, own.T, strict=True)
    )
    np.testing.assert_allclose(found.left_out(), expected, atol=1e-12)
    assert found.report.solver.startswith("4 leaves")
    assert found.report.left_out == "exact"
    assert len(found.centres) == len(found.coefficients)


def _spread(leaf, k):
    values = np.zeros(N)
    values[leaf.rows] = leaf.left_out[:, k]
    return values


def test_other_ridges_other_solvers_and_other_views():
    how = sp.Leaves(size=150)
    one, two = solved(how).along([RIDGE, 1.0])
    np.testing.assert_allclose(one.predict(X), solved(how).predict(X), atol=1e-10)
    np.testing.assert_allclose(two.predict(X), solved(how, ridge=1.0).predict(X), atol=1e-10)

    def best(kernel, problem):  # a solver that chooses a ridge in every leaf
        base = sp.solve(kernel, problem.y, solver="eigen")
        return min((base.at(r) for r in (1e-4, 1e-2, 1.0)), key=lambda s: np.sum((s.left_out() - problem.y) ** 2))

    noisy = Y + RNG(7).normal(size=Y.shape) * (X[:, :1] > 0)
    chosen = solved(sp.Leaves(size=200, solver=best), noisy)
    assert chosen.leaves[0].ridge != chosen.leaves[1].ridge
    told = []
    turned = solved(sp.Leaves(size=200, view=lambda x: x * [0.0, 1.0], progress=told.append))
    assert abs(turned.tree.direction[1]) == pytest.approx(1.0)
    assert told[-1][:2] == (2, 2)


def test_rows_that_are_all_equal_are_one_leaf():
    tree = grown(np.ones((N, 2)), np.arange(N), 100, 0.1)
    assert len(tree.leaves()) == 1


@pytest.mark.parametrize(("call", "message"), [
    (lambda: sp.solve(np.eye(5), np.ones(5), solver=sp.Leaves()), "this kernel is a matrix"),
    (lambda: solved(sp.Leaves(size=1)), "2 or more"),
    (lambda: solved(sp.Leaves(overlap=1.0)), "from 0 to below 1"),
    (lambda: solved(sp.Leaves(view=lambda x: x[:, 0])), "expected \\(rows, columns\\)"),
])  # fmt: skip
def test_bad_input_has_a_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_auto_goes_down_the_ladder_as_rows_grow_and_memory_shrinks():
    def chosen(n, columns, memory, held=10**12):
        kernel = KernelOperator(RowBlocks(Laplace(), np.zeros((n, columns), np.float32)), memory=held)
        return type(sp.Auto(memory).chosen(kernel))

    gb = 10**9
    assert chosen(1000, 5, gb) is sp.SingleCholesky
    assert chosen(20_000, 5, gb) is sp.ConjugateGradients
    assert chosen(20_000, 5, gb // 2) is sp.Leaves
    assert chosen(20_000, 5, gb, held=gb // 2) is sp.Leaves
    assert chosen(20_000, 784, gb // 2) is sp.Nystrom
    found = solved(sp.Auto())
    exact = np.linalg.solve(Laplace().cross(X, X) + RIDGE * np.eye(N), Y)
    np.testing.assert_allclose(found.coefficients, exact, atol=1e-4)
