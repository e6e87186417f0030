"""One training set on a small domain: everything can be computed twice."""

import itertools

import numpy as np
import pytest

from everwide.spectral import KernelError
from everwide.theory.eigenlearning import (
    eigensystem,
    learnability,
    learning_curve,
    mercer,
    rkhs_norm,
    transfer_matrix,
)

pytestmark = pytest.mark.once

M, N = 40, 13
RNG = np.random.default_rng(0)
PHI = np.sqrt(M) * np.linalg.qr(RNG.normal(size=(M, M)))[0]
LAM = np.arange(1, M + 1) ** -1.5
KERNEL = (PHI * LAM) @ PHI.T
ROWS = RNG.permutation(M)[:N]


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_transfer_matrix_is_kernel_regression(ridge):
    transfer, f = transfer_matrix(LAM, PHI[ROWS], ridge).matrix, RNG.normal(size=M)
    learned = KERNEL[:, ROWS] @ np.linalg.solve(KERNEL[np.ix_(ROWS, ROWS)] + ridge * np.eye(N), f[ROWS])
    v = PHI.T @ f / M
    np.testing.assert_allclose(transfer @ v, PHI.T @ learned / M, atol=1e-11)
    np.testing.assert_allclose(learnability(KERNEL, ROWS, f, ridge), f @ learned / (f @ f), rtol=1e-10)
    np.testing.assert_allclose(v @ transfer @ v / (v @ v), f @ learned / (f @ f), rtol=1e-10)
    basis = np.linalg.qr(RNG.normal(size=(M, M)))[0]
    total = np.sum([learnability(KERNEL, ROWS, b, ridge) for b in basis.T])
    expected = N - ridge * np.trace(np.linalg.inv(KERNEL[np.ix_(ROWS, ROWS)] + ridge * np.eye(N)))
    np.testing.assert_allclose([total, np.trace(transfer)], expected, rtol=1e-9)
    np.testing.assert_allclose(learnability(KERNEL, ROWS, ridge=ridge), expected, rtol=1e-10)
    assert (transfer.diagonal() > 0).all()
    assert (transfer.diagonal() < 1).all()


def test_the_transfer_matrix_is_an_oblique_projection():
    transfer = transfer_matrix(LAM, PHI[ROWS]).matrix
    np.testing.assert_allclose(transfer @ transfer, transfer, atol=1e-10)
    root = np.sqrt(LAM)
    features = root[:, None] * PHI[ROWS].T
    upright = features @ np.linalg.solve(features.T @ features, features.T)
    np.testing.assert_allclose(transfer, root[:, None] * upright / root, atol=1e-10)
    assert np.abs(transfer - transfer.T).max() > 0.1


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_stronger_modes_are_learned_at_the_cost_of_others(ridge):
    jacobian = transfer_matrix(LAM, PHI[ROWS], ridge).jacobian
    for mode in (0, 3, 30):
        step = 1e-6 * LAM[mode] * np.eye(M)[mode]
        after, before = (transfer_matrix(LAM + s, PHI[ROWS], ridge).learnability for s in (step, -step))
        np.testing.assert_allclose(jacobian[mode], (after - before) / (2 * step.sum()), rtol=1e-4, atol=1e-6)
    assert (jacobian.diagonal() >= 0).all()
    assert (jacobian - np.diag(jacobian.diagonal()) <= 0).all()
    if ridge:
        assert (jacobian.sum(1) > 0).all()
    else:
        np.testing.assert_allclose(jacobian.sum(1), 0, atol=1e-9)


def test_more_examples_never_hurt_a_mode_but_may_hurt_a_mixture():
    rng, fallen = np.random.default_rng(1), 0
    for _ in range(60):
        order = rng.permutation(M)[:7]
        few, more = (transfer_matrix(LAM, PHI[order[:n]]) for n in (6, 7))
        assert (more.learnability >= few.learnability - 1e-12).all()
        v = rng.normal(size=M) * LAM ** rng.uniform(-1, 0.5)
        first, second = (learnability(KERNEL, order[:n], PHI @ v) for n in (6, 7))
        fallen += second < first - 1e-9
    assert fallen > 5


def test_the_learnability_of_a_mixture_can_leave_the_unit_interval():
    transfer = transfer_matrix(LAM, PHI[ROWS]).matrix
    bounds, mixtures = np.linalg.eigh((transfer + transfer.T) / 2)
    found = [learnability(KERNEL, ROWS, PHI @ mixtures[:, end]) for end in (0, -1)]
    np.testing.assert_allclose(found, bounds[[0, -1]], rtol=1e-8)
    assert found[0] < -0.1
    assert found[1] > 1.1


def test_nothing_is_learned_from_nothing_and_everything_from_everything():
    f = RNG.normal(size=M)
    assert learnability(KERNEL, [], f) == 0
    np.testing.assert_allclose(learnability(KERNEL, np.arange(M), f), 1)
    assert not transfer_matrix(LAM, PHI[:0]).matrix.any()
    np.testing.assert_allclose(transfer_matrix(LAM, PHI).matrix, np.eye(M), atol=1e-9)
    assert learnability(np.ones((3, 3)), [0, 1, 2]) == 1  # three times the same example


def test_the_mean_over_training_sets_is_the_learning_curve():
    rng, d, n = np.random.default_rng(2), 8, 20
    x = np.array(list(itertools.product([-1.0, 1.0], repeat=d)))
    levels = eigensystem("hypercube", np.exp, d)
    times = levels.multiplicities.astype(int)
    lam, phi = np.repeat(levels.eigenvalues, times), np.concatenate([levels.functions(k, x) for k in range(d + 1)], 1)
    draws = [transfer_matrix(lam, phi[rng.permutation(2**d)[:n]]).learnability for _ in range(30)]
    by_level = [np.mean(part) for part in np.split(np.mean(draws, 0), np.cumsum(times)[:-1])]
    expected = learning_curve(levels.eigenvalues, np.ones(d + 1), n, multiplicities=times).learnability
    np.testing.assert_allclose(by_level, expected, atol=0.03)
    assert expected[0] > 0.8
    assert expected[4] < 0.1


@pytest.mark.parametrize("weights", [None, RNG.dirichlet(np.ones(M))])
def test_mercer(weights):
    found = mercer(KERNEL, weights)
    share = np.full(M, 1 / M) if weights is None else weights
    np.testing.assert_allclose((found.eigenfunctions * found.eigenvalues) @ found.eigenfunctions.T, KERNEL, atol=1e-9)
    among = found.eigenfunctions.T @ (share[:, None] * found.eigenfunctions)
    np.testing.assert_allclose(among, np.eye(M), atol=1e-9)
    assert (np.diff(found.eigenvalues) <= 0).all()
    if weights is None:
        np.testing.assert_allclose(found.eigenvalues, LAM, rtol=1e-9)
    f = RNG.normal(size=(M, 2))
    np.testing.assert_allclose(found.eigenfunctions @ found.coefficients(f), f, atol=1e-9)


def test_norms_in_the_space_of_a_kernel():
    f, found = RNG.normal(size=M), mercer(KERNEL)
    np.testing.assert_allclose(
        rkhs_norm(found.eigenvalues, found.coefficients(f)) ** 2, f @ np.linalg.solve(KERNEL, f), rtol=1e-8
    )
    for point in (0, 7):  # the norm of a section of the kernel is the root of its diagonal
        section = found.coefficients(KERNEL[point])
        np.testing.assert_allclose(rkhs_norm(found.eigenvalues, section) ** 2, KERNEL[point, point], rtol=1e-9)


def test_functions_beyond_the_kernel_have_no_norm_in_it():
    found = mercer((PHI * np.where(np.arange(M) < 5, LAM, 0)) @ PHI.T)
    assert np.count_nonzero(found.eigenvalues) == 5
    assert rkhs_norm(found.eigenvalues, found.coefficients(PHI[:, 6])) == np.inf
    np.testing.assert_allclose(rkhs_norm(found.eigenvalues, found.coefficients(PHI[:, 3])), LAM[3] ** -0.5, rtol=1e-9)


def test_cumulative_power():
    v = RNG.normal(size=(M, 2))
    shares = mercer(KERNEL).cumulative_power(PHI @ v)
    np.testing.assert_allclose(shares, np.cumsum(np.sum(v**2, 1)) / np.sum(v**2), rtol=1e-7)
    weights, f = RNG.dirichlet(np.ones(M)), RNG.normal(size=M)
    modes = mercer(KERNEL, weights)
    explained = modes.eigenfunctions[:, :4] @ modes.coefficients(f)[:4]  # what the four strongest say of f
    share = weights @ explained**2 / (weights @ f**2)
    np.testing.assert_allclose(modes.cumulative_power(f)[[3, -1]], [share, 1], rtol=1e-9)


BAD = {
    "modes": (lambda: transfer_matrix([1.0], np.ones((2, 3))), r"shape \(2, 3\), expected \(n, 1\)"),
    "negative": (lambda: transfer_matrix([1.0, -1.0], np.ones((1, 2))), r"eigenvalues\[1\] is -1"),
    "a matrix of eigenvalues": (lambda: rkhs_norm(np.eye(2), np.ones(2)), r"shape \(2, 2\), expected \(modes,\)"),
    "ridge": (lambda: transfer_matrix([1.0], np.ones((1, 1)), -0.5), r"transfer_matrix: ridge=-0.5"),
    "too few modes": (lambda: transfer_matrix([1.0, 0.0], np.ones((2, 2))), "2 examples is singular: 1 modes"),
    "no target": (lambda: learnability(np.eye(2), [0], np.zeros(2)), "nothing to learn"),
    "target": (lambda: learnability(np.eye(2), [0], np.ones(3)), r"target has shape \(3,\), expected \(2,\)"),
    "outside": (lambda: learnability(np.eye(2), [0, 2], np.ones(2)), "from 0 to 2, expected indices from 0 to 1"),
    "twice": (lambda: learnability(np.eye(2), [0, 0], np.ones(2)), "name a point twice"),
    "no indices": (lambda: learnability(np.eye(2), [0.5], np.ones(2)), "rows is float64"),
    "weights": (lambda: mercer(np.eye(2), [0.5, 0.6]), r"weights sum to 1.1, expected 1"),
    "weight": (lambda: mercer(np.eye(2), [1.0, 0.0]), "all above 0"),
    "number of weights": (lambda: mercer(np.eye(2), [1.0]), r"weights of shape \(1,\): expected \(2,\)"),
    "not symmetric": (lambda: mercer([[1.0, 2.0], [0.0, 1.0]]), "not symmetric"),
    "not square": (lambda: mercer(np.ones((2, 3))), r"shape \(2, 3\), expected \(n, n\)"),
    "not definite": (lambda: mercer([[0.0, 1.0], [1.0, 0.0]]), "not positive semidefinite"),
    "nan": (lambda: mercer(np.eye(2)).coefficients([np.nan, 1.0]), "target holds nan"),
    "length": (lambda: mercer(np.eye(2)).coefficients([1.0]), r"shape \(1,\), expected \(2,\)"),
    "coefficients": (lambda: rkhs_norm([1.0], [1.0, 2.0]), r"shape \(2,\), expected \(1,\)"),
    "no power": (lambda: mercer(np.eye(2)).cumulative_power([0.0, 0.0]), "no power"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, message = BAD[name]
    with pytest.raises((ValueError, KernelError), match=message):
        call()
