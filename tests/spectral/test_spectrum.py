import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from everwide import spectral as sp

pytestmark = [pytest.mark.once, pytest.mark.as_users]


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


def test_weights_are_copies():
    k, y = kernel(rank=4), np.random.default_rng(1).normal(size=(6, 2))
    weights = np.array([1, 3, 1, 2, 1, 1])
    rows = np.repeat(np.arange(6), weights)
    for filter in (sp.ridge(0.3), sp.gradient_flow([0.1, 2.0])):
        once = sp.Spectrum.of(k, weights=weights).apply(filter, y, len(rows))
        many = sp.Spectrum.of(k[np.ix_(rows, rows)]).apply(filter, y[rows])
        np.testing.assert_allclose(k @ once, k[:, rows] @ many, atol=1e-10)


@pytest.mark.parametrize("features", [3, 6, 11])
@pytest.mark.parametrize("weights", [None, np.array([1.0, 3, 0.5, 2, 1, 4])])
@pytest.mark.parametrize("filter", [sp.ridge(0.3), sp.ridge(), sp.gradient_flow([0.1, 2.0, np.inf])])
def test_the_primal_is_the_dual(features, weights, filter):
    g, y = np.random.default_rng(0).normal(size=(6, features)), np.random.default_rng(1).normal(size=(6, 2))
    primal, dual = sp.Spectrum.of_features(g, weights=weights), sp.Spectrum.of(g @ g.T, weights=weights)
    assert primal.rank == dual.rank == min(6, features)
    assert primal.vectors.shape == (6, min(6, features))
    found, expected = (spectrum.apply(filter, y) for spectrum in (primal, dual))
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=1e-12)
    new = np.random.default_rng(2).normal(size=(4, features)) @ g.T
    np.testing.assert_allclose(new @ found / scale, new @ expected / scale, rtol=0, atol=1e-11)


def test_dependent_features_and_bad_ones():
    g = np.random.default_rng(0).normal(size=(8, 2))
    assert sp.Spectrum.of_features(g @ np.ones((2, 5))).rank == 1
    assert sp.Spectrum.of_features((g @ np.ones((2, 5))).astype(np.float32)).rank == 1
    for bad, message in (([1.0], "expected .n, features"), ([[np.nan]], "nan"), (np.ones((0, 3)), "empty")):
        with pytest.raises(ValueError, match=message):
            sp.Spectrum.of_features(bad)
    with pytest.raises(ValueError, match="all above 0"):
        sp.Spectrum.of(np.eye(2), weights=[1.0, -1.0])


@pytest.mark.parametrize("n", [2, 40, 300])
def test_extremes(n):
    k = kernel(n, n + 5) / n
    values = np.linalg.eigvalsh(k)
    assert sp.Spectrum.largest(k) == pytest.approx(values[-1], rel=1e-10)
    assert sp.Spectrum.largest(lambda v: k @ v, n) == pytest.approx(values[-1], rel=1e-10)
    assert sp.Spectrum.smallest(k) == pytest.approx(values[0], rel=1e-6)
    sp.Spectrum.check(k)
    with pytest.raises(sp.KernelError, match="smallest eigenvalue is -"):
        sp.Spectrum.check(k - 2 * values[0] * np.eye(n))


def test_roots_and_products_in_any_order():
    k, y = np.stack([kernel(seed=s) for s in range(3)]), np.random.default_rng(1).normal(size=(6, 2))
    root = sp.Spectrum.root(k)
    np.testing.assert_allclose(root @ np.swapaxes(root, 1, 2), k, atol=1e-10)
    spectrum = sp.Spectrum.of(k[0], weights=np.arange(1.0, 7.0))
    for r in (1, 30):
        cross = np.random.default_rng(2).normal(size=(r, 6))
        times = np.stack([spectrum.modes(y), 2 * spectrum.modes(y)])
        np.testing.assert_allclose(spectrum.rows(times, cross), cross @ spectrum.rows(times), atol=1e-11)


@pytest.mark.parametrize("rank", [3, 30])
def test_lanczos_measures_what_a_vector_is_made_of(rank):
    k, vector = kernel(30, rank), np.random.default_rng(1).normal(size=30)
    values, vectors = np.linalg.eigh(k)
    parts = (vectors.T @ vector) ** 2
    found = sp.lanczos(k, vector, 30).measure()
    assert (np.diff(found.values) <= 0).all()
    assert found.weights.sum() == pytest.approx(vector @ vector)
    for power in (1, 2, 5):
        assert found.weights @ found.values**power == pytest.approx(parts @ values**power, rel=1e-9)
    few = sp.lanczos(lambda v: k @ v, vector, 4).measure()  # Gauss quadrature with 4 nodes: exact to the power 7
    assert len(few.values) <= 4
    assert few.weights @ few.values**7 == pytest.approx(parts @ values**7, rel=1e-9)
    assert not sp.lanczos(k, np.zeros(30), 5).measure().weights.any()


def test_lanczos_finds_the_extreme_inside_jit():
    matrix = kernel(12, 12) - 30 * np.eye(12)
    values, vectors = np.linalg.eigh(matrix)
    best = np.argmax(np.abs(values))
    value, vector = jax.jit(lambda m, v: sp.lanczos(m, v, 12).extreme())(jnp.asarray(matrix), jnp.ones(12))
    assert float(value) == pytest.approx(values[best], rel=1e-4)
    assert abs(float(vector @ vectors[:, best])) == pytest.approx(1, rel=1e-3)


def test_traced_factors_and_spectra_have_gradients():
    k, y = jnp.asarray(kernel()) / 6, jnp.asarray(np.random.default_rng(1).normal(size=(6, 2)))
    host = sp.Factor.of(np.asarray(k), 0.5)
    evidence = lambda noise: sp.Factor.traced(k, noise).log_evidence(y)
    assert float(evidence(0.5)) == pytest.approx(host.log_evidence(np.asarray(y)), rel=1e-4)
    step = 1e-2
    slope = (float(evidence(0.5 + step)) - float(evidence(0.5 - step))) / (2 * step)
    assert float(jax.grad(evidence)(0.5)) == pytest.approx(slope, rel=1e-2)
    np.testing.assert_allclose(sp.Factor.traced(k, 0.5).solve(y), host.solve(np.asarray(y)), rtol=1e-3, atol=1e-4)
    values, vectors = sp.Spectrum.traced(jnp.asarray(kernel(rank=3)))
    assert int((values > 0).sum()) == 3
    np.testing.assert_allclose((vectors * values) @ vectors.T, kernel(rank=3), atol=1e-4)


def test_evidence_is_the_density_of_a_gaussian():
    k, noise, y = kernel(), np.linspace(0.1, 1, 6), np.random.default_rng(1).normal(size=(6, 2))
    law = scipy.stats.multivariate_normal(np.zeros(6), k + np.diag(noise))
    assert sp.Factor.of(k, noise).log_evidence(y) == pytest.approx(law.logpdf(y.T).sum(), rel=1e-10)
