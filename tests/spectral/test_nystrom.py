"""Nystrom: ridge regression on features of some rows, in one pass over all."""

import numpy as np
import pytest

import everwide.spectral as sp
from everwide._engine import KernelOperator, RowBlocks
from spectral.oracles import RNG
from spectral.some_rows import RIDGE, WEIGHTS, K, Laplace, N, X, Y, exact, relative, rows

pytestmark = [pytest.mark.once, pytest.mark.as_users]


def nystrom_features(centres):
    root = np.linalg.cholesky(K[np.ix_(centres, centres)])
    return np.linalg.solve(root, K[centres]).T


@pytest.mark.parametrize("copied", [False, True])
def test_nystrom_is_ridge_regression_on_features_of_its_centres(copied):
    copies = RNG(8).integers(1, 4, N).astype(float) if copied else np.ones(N)
    weights = copies if copied else WEIGHTS
    how = sp.Nystrom(centres=40, rows=200)
    found = sp.solve(rows(), Y, ridge=RIDGE, weights=weights, copies=copies, solver=how)
    assert len(set(found.centres)) == 40
    features = nystrom_features(found.centres)

    def fit(f, y, w, ridge=RIDGE):
        return np.linalg.solve((f.T * w) @ f + ridge * np.eye(f.shape[1]), f.T @ (w[:, None] * y))

    inside = fit(features, Y, weights)
    np.testing.assert_allclose(K[:, found.centres] @ found.coefficients, features @ inside, atol=1e-8)
    np.testing.assert_allclose(found.predict(X[:9]), (features @ inside)[:9], atol=1e-8)
    some = np.arange(0, N, 17)
    expected = []
    for row in some:
        less = weights.copy()
        less[row] *= 1 - 1 / copies[row]
        expected.append(features[row] @ fit(features, Y, less))
    np.testing.assert_allclose(found.left_out(some), expected, atol=1e-8)
    np.testing.assert_allclose(found.left_out()[some], expected, atol=1e-8)
    (other,) = found.along([0.7])
    np.testing.assert_allclose(
        K[:, found.centres] @ other.coefficients, features @ fit(features, Y, weights, 0.7), atol=1e-8
    )
    error = np.average(np.sum((other.left_out() - Y) ** 2, axis=1), weights=weights)
    np.testing.assert_allclose(found.errors([0.7, RIDGE])[0], error)
    assert found.report.left_out == "exact"
    assert found.report.residual < 1e-10


def test_nystrom_with_all_rows_as_centres_is_exact():
    found = sp.solve(rows(), Y, ridge=RIDGE, weights=WEIGHTS, solver=sp.Nystrom(centres=N))
    coefficients = np.zeros_like(Y)
    coefficients[found.centres] = found.coefficients
    assert relative(K @ coefficients, K @ exact()) < 1e-5


def test_nystrom_reports_blocks_and_the_time_left():
    told = []
    x = RNG(5).normal(size=(9000, 2))
    kernel = KernelOperator(RowBlocks(Laplace(), x))
    found = sp.solve(kernel, x[:, 0] > 0, ridge=0.1, solver=sp.Nystrom(centres=20, progress=told.append))
    assert [one[:2] for one in told] == [(1, 3), (2, 3), (3, 3)]
    assert told[-1].left == 0
    assert kernel.done == 0
    assert np.mean((found.left_out()[:, 0] > 0.5) == (x[:, 0] > 0)) > 0.9
