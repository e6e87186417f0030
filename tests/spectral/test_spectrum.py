import numpy as np
import pytest

from everwide import spectral as sp

pytestmark = pytest.mark.once


def kernel(n=6, rank=6, seed=0):
    g = np.random.default_rng(seed).normal(size=(n, rank))
    return g @ g.T


def test_apply_is_a_function_of_the_matrix():
    k, b = kernel(), np.random.default_rng(1).normal(size=(6, 2))
    found = sp.Spectrum.of(k).apply(sp.ridge(0.3), b)
    np.testing.assert_allclose(found, np.linalg.solve(k + 0.3 * np.eye(6), b), rtol=1e-9)


@pytest.mark.parametrize("filter", [sp.ridge(), sp.gradient_flow(np.inf), sp.gradient_flow(1e9)])
def test_what_cannot_be_learned_is_left_alone(filter):
    k = kernel(rank=3)
    spectrum = sp.Spectrum.of(k)
    assert spectrum.rank == 3
    found = spectrum.apply(filter, np.ones((6, 1)))
    np.testing.assert_allclose(found, np.linalg.pinv(k, hermitian=True) @ np.ones((6, 1)), rtol=1e-6)


def test_zero_kernel():
    spectrum = sp.Spectrum.of(np.zeros((3, 3)))
    assert spectrum.rank == 0
    assert (spectrum.apply(sp.gradient_flow(np.inf), np.ones((3, 1))) == 0).all()


def test_float32_kernels_may_be_off_by_their_rounding():
    k = kernel(n=40, rank=5).astype(np.float32)
    assert sp.Spectrum.of(k).rank == 5


def test_inputs_are_not_changed():
    k = kernel()
    before = k.copy()
    sp.Spectrum.of(k)
    sp.Factor.of(k, 1.0)
    assert (k == before).all()


def test_factor():
    k, noise = kernel(), np.linspace(0.1, 1, 6)
    factor, full = sp.Factor.of(k, noise), k + np.diag(noise)
    np.testing.assert_allclose(factor.solve(np.eye(6)), np.linalg.inv(full), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(factor.inverse_diagonal(), np.diag(np.linalg.inv(full)), rtol=1e-9)
    assert factor.logdet() == pytest.approx(np.linalg.slogdet(full)[1])
    white = factor.whiten(np.ones(6))
    assert white @ white == pytest.approx(np.ones(6) @ np.linalg.solve(full, np.ones(6)))


BAD = {
    "shape": (np.ones((2, 3)), "expected \\(n, n\\)"),
    "empty": (np.ones((0, 0)), "expected \\(n, n\\)"),
    "nan": (np.array([[1.0, np.nan], [np.nan, 1.0]]), r"nan at \(0, 1\)"),
    "asymmetric": (np.array([[1.0, 0.5], [0.4, 1.0]]), "not symmetric"),
    "indefinite": (np.array([[1.0, 2.0], [2.0, 1.0]]), "smallest eigenvalue is -1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_kernels(case):
    matrix, message = BAD[case]
    with pytest.raises(sp.KernelError, match=message):
        sp.Spectrum.of(matrix)


def test_bad_noise():
    with pytest.raises(ValueError, match=r"expected one variance or \(2,\)"):
        sp.Factor.of(np.eye(2), np.ones(3))
    with pytest.raises(ValueError, match="at least 0"):
        sp.Factor.of(np.eye(2), -1.0)
    with pytest.raises(sp.KernelError, match="singular"):
        sp.Factor.of(np.ones((3, 3)))


def test_float32_kernels_keep_what_is_above_their_rounding():
    x = np.random.default_rng(0).normal(size=(400, 5))
    square = ((x[:, None] - x[None]) ** 2).sum(-1)
    k = (np.exp(-square / 20) + 1e-3 * np.eye(400)).astype(np.float32)
    assert sp.Spectrum.of(k).rank == 400
    twice = np.tile(k, (2, 2))
    assert sp.Spectrum.of(twice).rank == 400


def test_a_matrix_beyond_the_memory_is_refused_before_it_is_copied():
    with pytest.raises(MemoryError, match="decomposed in float64, needs"):
        sp.Spectrum.of(np.broadcast_to(np.float32(0), (10**6, 10**6)))
