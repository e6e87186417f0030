"""Eigenpairs, traces and densities by products alone, against dense decompositions."""

import numpy as np
import pytest
import scipy.linalg

from everwide.spectral import density, leading, trace

RNG = np.random.default_rng(0)


def symmetric(values):
    """A matrix with these eigenvalues."""
    q = scipy.linalg.qr(RNG.normal(size=(len(values), len(values))))[0]
    return (q * values) @ q.T


class Counted:
    """A matrix that counts its products."""

    def __init__(self, matrix):
        self.matrix, self.shape, self.products = matrix, matrix.shape, 0

    def __matmul__(self, v):
        self.products += 1
        return self.matrix @ v


VALUES = np.concatenate([[30.0, 20.0, 19.0, 8.0], RNG.normal(size=290), [-12.0, -11.0]])
MATRIX = symmetric(VALUES)


@pytest.mark.parametrize("which", ["largest", "smallest", "magnitude"])
@pytest.mark.parametrize("k", [1, 4])
def test_leading(which, k):
    order = {"largest": -VALUES, "smallest": VALUES, "magnitude": -np.abs(VALUES)}[which]
    expected = VALUES[np.argsort(order)][:k]
    pairs = leading(MATRIX, k, end=which, tolerance=1e-8)
    assert np.allclose(pairs.values, expected, atol=1e-6)
    assert np.allclose(MATRIX @ pairs.vectors, pairs.vectors * pairs.values, atol=1e-5)
    assert np.allclose(pairs.vectors.T @ pairs.vectors, np.eye(k), atol=1e-9)
    assert (pairs.residuals < 1e-6).all()


def test_a_space_that_is_begun_anew():
    """Eigenvalues that are near each other: the first space is too small."""
    values = np.linspace(1, 2, 400)
    pairs = leading(symmetric(values), 3, tolerance=1e-9)
    assert np.allclose(pairs.values, values[::-1][:3], atol=1e-8)


@pytest.mark.parametrize("matrix", [np.eye(200), np.zeros((200, 200)), np.diag(np.repeat([3.0, 1.0], [5, 195]))])
def test_few_different_eigenvalues(matrix):
    assert np.allclose(leading(matrix, 3).values, np.sort(np.diag(matrix))[::-1][:3], atol=1e-8)


def test_warm_starts_save_products():
    cold, moved = Counted(MATRIX), MATRIX + 1e-3 * symmetric(RNG.normal(size=len(VALUES)))
    before = leading(cold, 3, tolerance=1e-5)
    warm = Counted(moved)
    after = leading(warm, 3, start=before.vectors, tolerance=1e-5)
    assert np.allclose(after.values, np.sort(np.linalg.eigvalsh(moved))[::-1][:3], rtol=1e-6)
    assert warm.products < cold.products / 2
    one = Counted(moved)
    assert np.isclose(leading(one, 1, start=before.vectors[:, 0]).values[0], after.values[0], rtol=1e-5)


def test_share_and_outliers():
    pairs = leading(MATRIX, 8, end="magnitude", tolerance=1e-8)
    assert pairs.outliers() == 6
    assert np.isclose(pairs.share(MATRIX @ pairs.vectors), 1)
    assert pairs.share(RNG.normal(size=(len(VALUES), 50))) < 0.06


def test_trace():
    """Within three of its errors, and far nearer than plain averages where few eigenvalues are large."""
    values = np.where(np.abs(VALUES) > 5, VALUES, VALUES / 10)
    estimate = trace(symmetric(values), samples=60)
    assert abs(estimate.value - values.sum()) < 3 * estimate.error
    assert estimate.error < 0.1 * np.sqrt(2 * np.sum(values**2) / 60)
    assert np.isclose(trace(MATRIX[:12, :12]).value, np.trace(MATRIX[:12, :12]))


def test_density():
    measured = density(MATRIX, samples=16, length=40)
    for power in (1, 2, 3):
        moment = measured.moment(power)
        assert abs(moment.value - np.mean(VALUES**power)) < 4 * moment.error
    points = np.linspace(-15, 35, 60)
    smooth, error = measured.at(points, 1.0)
    exact = np.mean(np.exp(-((points[:, None] - VALUES) ** 2) / 2), 1) / np.sqrt(2 * np.pi)
    assert np.mean(np.abs(smooth - exact) <= 3 * error + 1e-4) > 0.9
    assert np.isclose(np.trapezoid(smooth, points), 1, atol=1e-2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: leading(np.ones((3, 2))), "expected \\(n, n\\)"),
        (lambda: leading(MATRIX, 0), "size=0"),
        (lambda: leading(np.eye(3), 4), "3 at most"),
        (lambda: leading(MATRIX, end="lower"), "smallest"),
        (lambda: leading(MATRIX, start=np.ones(3)), "start has shape"),
        (lambda: leading(MATRIX * np.nan), "not finite"),
        (lambda: trace(MATRIX, samples=3), "6 or more"),
        (lambda: density(MATRIX, samples=1), "2 or more"),
        (lambda: leading(MATRIX, 2).share(np.zeros(len(VALUES))), "direction"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()


class Diagonal:
    """Large, and never formed."""

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, (len(values), len(values)), values.dtype

    def __matmul__(self, v):
        return (self.values * v.T).T


def test_of_large_matrices_few_vectors_are_remembered_and_densities_stay():
    values = np.concatenate([np.linspace(0, 1, 120_000), [5.0, 9.0]]) ** 2  # a bulk, and two that stand apart
    estimate = density(Diagonal(values), samples=2, length=40)
    np.testing.assert_allclose(estimate.moment(1).value, values.mean(), rtol=1e-10)  # signs know the diagonal
    np.testing.assert_allclose(estimate.moment(2).value, np.mean(values**2), rtol=1e-10)
    np.testing.assert_allclose(estimate.weights.sum(1), 1, rtol=1e-10)
    far = estimate.values > 20
    np.testing.assert_allclose(estimate.values[far], np.where(estimate.values[far] > 50, 81, 25), rtol=1e-8)
    share = np.where(estimate.values > 50, estimate.weights, 0).sum(1)  # found once or several times
    np.testing.assert_allclose(share, 1 / len(values), rtol=1e-6)
    assert trace(Diagonal(values), samples=6).value == pytest.approx(values.sum(), rel=1e-3)


class Long:
    """A diagonal matrix and one direction, of so many entries that vectors are taken a few at a time."""

    shape, dtype = (100_500, 100_500), np.dtype(np.float32)
    diagonal = np.linspace(0, 1, 100_500, dtype=np.float32)
    direction = np.full(100_500, 100_500**-0.5, np.float32)

    def __matmul__(self, v):
        assert v.ndim == 1
        return self.diagonal * v + 1000 * self.direction * (self.direction @ v)


def test_long_vectors():
    expected = Long.diagonal.sum(dtype=np.float64) + 1000
    estimate = trace(Long(), samples=15)
    assert abs(estimate.value - expected) < 4 * estimate.error
    assert estimate.error < 200  # plain averages: 630
    pairs = leading(Long(), 1, tolerance=1e-5)
    assert np.isclose(pairs.values[0], 1000.5, rtol=1e-5)
    assert pairs.vectors.shape == (100_500, 1)
    assert np.isclose(abs(pairs.vectors[:, 0] @ Long.direction), 1, rtol=1e-5)
    nodes = density(Long(), samples=3, length=6)
    assert nodes.values.shape == (3, 6)
    assert abs(nodes.moment(1).value - expected / 100_500) < 4 * nodes.moment(1).error + 1e-3
    assert len({*nodes.moment(1)}) == 2


def test_bases_are_made_of_a_copy_of_what_is_given():
    start = RNG.normal(size=(len(VALUES), 3))
    kept = start.copy()
    leading(MATRIX, 3, start=start)
    assert np.array_equal(start, kept)
