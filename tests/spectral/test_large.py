"""Solvers that never hold a whole kernel, against dense solutions in numpy."""

import numpy as np
import pytest

import everwide as ew
import everwide.spectral as sp
from everwide import InputError
from everwide._engine import KernelOperator, MatrixBlocks, RowBlocks, coarse
from everwide.spectral._pivots import pivoted
from everwide.spectral._preconditioner import Preconditioner, operator_pivots
from spectral.oracles import RNG, each_without_one_copy, ridge_at
from spectral.some_rows import RIDGE, ROUNDED, WEIGHTS, Flat, K, Laplace, N, Smooth, X, Y, exact, relative, rows

pytestmark = [pytest.mark.once, pytest.mark.as_users]


@pytest.mark.parametrize("memory", [None, 1000], ids=["kept", "recomputed"])
@pytest.mark.parametrize("tile", [64, 77, 500])
def test_an_operator_multiplies_as_its_matrix_does(memory, tile):
    kernel = rows(memory, tile)
    v = RNG(3).normal(size=(N, 4))
    assert kernel.keeps == (memory is None)
    for _ in range(2):
        np.testing.assert_allclose(kernel @ v, ROUNDED @ v, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(kernel @ v[:, 0], ROUNDED @ v[:, 0], rtol=1e-12, atol=1e-12)
    single = kernel @ v.astype(np.float32)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, ROUNDED @ v, atol=2e-5)
    assert kernel.done == (1.0 if memory is None else 0.0)
    np.testing.assert_array_equal(kernel.dense(), K.astype(np.float32))


def test_sixteen_bits_multiply_with_the_precision_of_their_steps():
    kernel, v = rows(200_000), RNG(3).normal(size=(N, 4)).astype(np.float32)
    fast = coarse(kernel)
    assert fast.bytes == kernel.bytes // 2
    step = (K.max() - K.min()) / 65_534
    spread = np.sqrt(np.sum(v.astype(float) ** 2, axis=0)) * step / np.sqrt(12)
    for _ in range(2):
        off = (fast @ v) - ROUNDED @ v
        assert 0.5 * spread.min() < off.std() < 1.5 * spread.max()  # as steps round, and not better
    assert not kernel.done
    assert coarse(rows()) is None
    assert coarse(rows(1000)) is None
    assert coarse(KernelOperator(MatrixBlocks(K), memory=200_000)) is None
    assert coarse(rows(200_000, elsewhere=lambda v: K @ v)) is None


def test_a_flat_tile_keeps_its_number():
    kernel = KernelOperator(RowBlocks(Flat(), X), memory=200_000, tile=64)
    np.testing.assert_allclose(coarse(kernel) @ np.ones((N, 1), np.float32), np.full((N, 1), 2.0 * N), rtol=1e-6)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-9])
def test_what_sixteen_bits_round_is_mended(tolerance):
    how = sp.ConjugateGradients(tolerance=tolerance)
    solution = sp.solve(rows(200_000), Y, ridge=RIDGE, weights=WEIGHTS, solver=how)
    assert solution.report.solver == "conjugate gradients, 16 bits"
    assert solution.report.residual < tolerance
    assert relative(solution.coefficients, exact()) < 20 * tolerance
    assert solution.report.bytes < sp.solve(rows(), Y, ridge=RIDGE, solver=how).report.bytes


def test_where_the_ridge_is_below_sixteen_bits_the_true_residual_is_told():
    kernel = KernelOperator(RowBlocks(Smooth(), X), memory=200_000, tile=64)
    solution = sp.solve(kernel, Y, ridge=1e-6, solver=sp.ConjugateGradients(tolerance=1e-4, rank=20))
    left = (Smooth().cross(X, X) + 1e-6 * np.eye(N)) @ solution.coefficients - Y
    by_hand = (np.linalg.norm(left, axis=0) / np.linalg.norm(Y, axis=0)).max()
    assert solution.report.residual == pytest.approx(by_hand, rel=0.1)
    assert solution.report.residual > 1e-4
    assert solution.report.stopped_by != "residual"


@pytest.mark.parametrize("held", [0, 30])
def test_seconds_are_those_of_all_iterations(held):
    told = []
    how = sp.ConjugateGradients(tolerance=1e-6, held=held, progress=told.append)
    assert sp.solve(rows(), Y, ridge=RIDGE, solver=how).report.seconds >= told[-1].seconds > 0


def test_a_network_as_an_operator():
    net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    x = X.astype(np.float32)
    for which in ("ntk", "nngp"):
        kernel = ew.operator(net, x, which=which, tile=128)
        matrix = getattr(ew, which)(net, x)
        np.testing.assert_allclose(kernel.dense(), matrix, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(kernel.predict(x[:7], Y), matrix[:7] @ Y, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(kernel.block(np.array([3, 5]), slice(0, N)).shape, (2, N))


def test_an_interrupt_keeps_the_tiles_that_are_done():
    told = []

    def stop(progress):
        told.append(progress)
        if len(told) == 4:
            raise KeyboardInterrupt

    kernel = rows(progress=stop)
    with pytest.raises(KeyboardInterrupt):
        kernel @ Y
    assert kernel.done == 4 / 15
    assert told[3].left == pytest.approx(told[3].seconds * 11 / 4)
    kernel @ Y
    assert len(told) == 15
    assert told[-1][:2] == (11, 11)


def test_pivots_stand_for_the_kernel_as_well_as_one_at_a_time():
    rank, many = 40, 20
    best = np.sort(np.linalg.eigvalsh(K))[:-rank].sum()

    def one_at_a_time(seed):
        rng, left, features = RNG(seed), np.diagonal(K).copy(), np.zeros((N, 0))
        for _ in range(rank):
            row = rng.choice(N, p=left / left.sum())
            column = K[:, row] - features @ features[row]
            features = np.column_stack([features, column / np.sqrt(column[row])])
            left = np.maximum(np.diagonal(K) - (features**2).sum(1), 0)
            left[row] = 0
        return left.sum()

    ours = [pivoted(lambda some: K[:, some], np.diagonal(K), rank, seed=seed) for seed in range(many)]
    left = np.array([one.left.sum() for one in ours])
    others = np.array([one_at_a_time(seed) for seed in range(100, 100 + many)])
    assert best < left.min()
    error = np.hypot(left.std(), others.std()) / np.sqrt(many)
    assert abs(left.mean() - others.mean()) < 4 * error
    for one in ours:
        assert len(set(one.rows)) == rank
        inner = K[np.ix_(one.rows, one.rows)]
        nystrom = K[:, one.rows] @ np.linalg.solve(inner, K[one.rows])
        np.testing.assert_allclose(one.features @ one.features.T, nystrom, atol=1e-8)
        np.testing.assert_allclose(one.left, np.diagonal(K - nystrom), atol=1e-8)


def test_pivots_end_where_nothing_is_left():
    half = RNG(5).normal(size=(N, 6)).astype(np.float32)
    low = half @ half.T
    found = operator_pivots(KernelOperator(MatrixBlocks(low)), 50, 0)
    assert len(found.rows) == 6
    np.testing.assert_allclose(found.features @ found.features.T, low, atol=1e-4)


def test_a_preconditioner_is_the_inverse_of_what_it_says():
    pivots = operator_pivots(rows(), 30, 0)
    noise = RIDGE / WEIGHTS
    there = np.arange(N) % 7 > 0
    for mask in (np.ones(N, bool), there):
        near = Preconditioner.of(pivots, noise, mask)
        features = pivots.features.astype(np.float64)[mask]
        matrix = features @ features.T + np.diag(noise[mask] + pivots.left.mean())
        expected = np.zeros_like(Y)
        expected[mask] = np.linalg.solve(matrix, Y[mask])
        np.testing.assert_allclose(near.solve(Y), expected, atol=1e-8)
        inverse = np.zeros(N)
        inverse[mask] = np.diagonal(np.linalg.inv(matrix))
        np.testing.assert_allclose(near.precision(), inverse, atol=1e-8)


@pytest.mark.parametrize("memory", [None, 1000], ids=["kept", "recomputed"])
@pytest.mark.parametrize("tolerance", [1e-3, 1e-10])
@pytest.mark.parametrize("ridge", [RIDGE, 0.0])
def test_conjugate_gradients_solve(ridge, tolerance, memory):
    how = sp.ConjugateGradients(tolerance=tolerance, rank=50)
    found = sp.solve(rows(memory), Y, ridge=ridge, weights=WEIGHTS, solver=how)
    matrix = ROUNDED + np.diag(ridge / WEIGHTS)
    residual = np.linalg.norm(matrix @ found.coefficients - Y, axis=0) / np.linalg.norm(Y, axis=0)
    assert residual.max() <= tolerance
    assert found.report.residual == pytest.approx(residual.max(), rel=0.05)
    assert relative(found.coefficients, exact(ridge)) < 1000 * tolerance
    assert found.report.stopped_by == "residual"
    assert 0 < found.report.iterations < 300


def test_pivots_save_iterations():
    few, none = (
        sp.solve(K, Y, ridge=RIDGE, solver=sp.ConjugateGradients(rank=rank)).report.iterations for rank in (60, 1)
    )
    assert few < 0.7 * none


def test_leave_one_out_is_nearly_that_of_refitting():
    some = 100
    copies, y, k = RNG(8).integers(1, 4, some).astype(float), Y[:some], K[:some, :some]
    how = sp.ConjugateGradients(tolerance=1e-6, rank=25)
    found = sp.solve(k, y, ridge=RIDGE, weights=copies, copies=copies, solver=how)
    refit = each_without_one_copy(lambda *task: ridge_at(*task[:3], RIDGE, task[3]), k, y, copies, copies)
    estimated, expected = (np.mean((left - y) ** 2) for left in (found.left_out(), refit))
    assert found.report.left_out == "estimated"
    assert estimated == pytest.approx(expected, rel=0.15)
    assert np.corrcoef((found.left_out() - y).ravel(), (refit - y).ravel())[0, 1] > 0.97


def test_several_ridges_at_once():
    base = sp.solve(rows(), Y, ridge=RIDGE, weights=WEIGHTS, solver=sp.ConjugateGradients(tolerance=1e-8))
    for ridge, other in zip([0.01, 1.0], base.along([0.01, 1.0]), strict=True):
        assert other.ridge == ridge
        assert relative(other.coefficients, exact(ridge)) < 1e-5


@pytest.mark.parametrize("ridge", [RIDGE, 1e-5])
def test_single_precision_is_refined_in_one_matrix(ridge):
    found = sp.solve(rows(), Y, ridge=ridge, weights=WEIGHTS, solver=sp.SingleCholesky())
    matrix = ROUNDED + np.diag(ridge / WEIGHTS)
    residual = np.linalg.norm(matrix @ found.coefficients - Y, axis=0) / np.linalg.norm(Y, axis=0)
    assert residual.max() < 1e-11
    assert relative(found.coefficients, exact(ridge)) < 1e-9
    assert found.report.bytes == 4 * N**2
    assert found.report.jitter == 0
    assert found.report.iterations < 20
    np.testing.assert_allclose(found.precision, np.diagonal(np.linalg.inv(matrix)), rtol=1e-3)
    dense = sp.solve(ROUNDED, Y, ridge=ridge, weights=WEIGHTS)
    np.testing.assert_allclose(found.left_out(), dense.left_out(), rtol=0, atol=1e-3)


def test_single_precision_takes_other_ridges_into_the_same_matrix():
    found = sp.solve(rows(), Y, ridge=RIDGE, solver=sp.SingleCholesky())
    one, two = found.along([0.3, 0.01])
    for other, ridge in ((one, 0.3), (two, 0.01)):
        assert relative(other.coefficients, exact(ridge, np.ones(N))) < 1e-8
    two.left_out()
    with pytest.raises(InputError, match=r"ridge=0\.3 has made place"):
        one.left_out()


def test_single_precision_says_what_it_cannot_reach():
    smooth = np.exp(-0.5 * ((X[:, None, :1] - X[:, :1]) ** 2).sum(-1)).astype(np.float32)
    found = sp.solve(smooth, Y, ridge=1e-9, solver=sp.SingleCholesky(iterations=40))
    assert found.report.jitter > 0
    assert found.report.stopped_by in ("rounding", "iterations")
    matrix = smooth.astype(np.float64) + 1e-9 * np.eye(N)
    residual = np.linalg.norm(matrix @ found.coefficients - Y, axis=0) / np.linalg.norm(Y, axis=0)
    assert found.report.residual == pytest.approx(residual.max(), rel=1e-3)
    assert found.report.residual > 1e-11


def test_a_held_out_error_stops_early_and_all_rows_are_learned():
    noisy = Y + RNG(4).normal(size=Y.shape)
    how = sp.ConjugateGradients(tolerance=1e-9, held=60, rank=20)
    early = sp.solve(rows(), noisy, ridge=RIDGE, solver=how)
    long = sp.solve(rows(), noisy, ridge=RIDGE, solver=sp.ConjugateGradients(tolerance=1e-9, rank=20))
    assert early.report.stopped_by == "held-out error"
    assert early.report.iterations < long.report.iterations / 2
    assert early.coefficients.all()
    away = RNG(how.seed).choice(N, 60, replace=False)
    kept = np.setdiff1d(np.arange(N), away)
    inner = np.linalg.solve(K[np.ix_(kept, kept)] + RIDGE * np.eye(len(kept)), noisy[kept])
    error = np.mean((K[np.ix_(away, kept)] @ inner - noisy[away]) ** 2)
    assert early.report.held_out == pytest.approx(error, rel=0.05)


def test_an_interrupted_solver_goes_on():
    def stop(progress):
        if progress.done == 5:
            raise KeyboardInterrupt

    how = sp.ConjugateGradients(tolerance=1e-6, rank=20, progress=stop)
    with pytest.raises(sp.Interrupted, match=r"after 5 iterations.*start=") as fault:
        sp.solve(K, Y, ridge=RIDGE, solver=how)
    told = []
    start = fault.value.coefficients
    again = sp.ConjugateGradients(tolerance=1e-6, rank=20, start=start, progress=told.append)
    found = sp.solve(K, Y, ridge=RIDGE, solver=again)
    assert relative(found.coefficients, exact(weights=np.ones(N))) < 1e-4
    fresh = sp.solve(K, Y, ridge=RIDGE, solver=sp.ConjugateGradients(tolerance=1e-6, rank=20))
    assert found.report.iterations < fresh.report.iterations
    assert told[-1].total == told[-1].done == found.report.iterations
    assert abs(told[len(told) // 2].total - told[-1].done) < told[-1].done  # the forecast


def test_spectra_without_a_decomposition():
    values = np.linalg.eigvalsh(ROUNDED)[::-1]
    leading = sp.leading(rows(), 4, tolerance=1e-5)
    np.testing.assert_allclose(leading.values, values[:4], rtol=1e-4)
    density = sp.density(rows(), samples=4, length=30)
    first = density.moment(1)
    assert abs(first.value - values.mean()) < 4 * first.error + 1e-3
    assert sp.trace(rows(), samples=60).value == pytest.approx(N, rel=0.05)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: sp.solve(rows(), Y[:5], solver=sp.ConjugateGradients()), "expected \\(300,\\)"),
    (lambda: sp.solve(K[:5], Y[:5], solver=sp.ConjugateGradients()), "expected \\(n, n\\)"),
    (lambda: sp.solve(rows(), Y, ridge=-1.0, solver=sp.ConjugateGradients()), "at least 0"),
    (lambda: sp.solve(rows(), Y, solver=sp.ConjugateGradients(tolerance=0.0)), "above 0"),
    (lambda: sp.solve(rows(), Y, ridge=1.0, solver=sp.ConjugateGradients(held=200)), "at most half"),
    (lambda: sp.solve(rows(), Y, ridge=1.0, solver=sp.ConjugateGradients(start=Y[:4])), "as the targets"),
    (lambda: sp.solve(rows(), Y, ridge=1.0, solver=sp.Nystrom(centres=0)), "1 or more"),
    (lambda: sp.solve(rows(), Y, ridge=1.0, solver=sp.Nystrom(centres=20, rows=10)), "rows=10.*20 or more"),
    (lambda: sp.solve(0 * K, Y, ridge=1.0, solver=sp.Nystrom()), "nothing to learn"),
    (lambda: sp.solve(rows(), Y, solver="fast"), "expected one of"),
    (lambda: rows() @ Y[:9], "cannot be multiplied"),
    (lambda: KernelOperator(MatrixBlocks(K)).predict(X, Y), "knows no other rows"),
    (lambda: ew.operator(ew.Dense(1), X, which="both"), "expected 'ntk' or 'nngp'"),
])  # fmt: skip
def test_bad_input_has_a_sentence(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_copies_of_rows_without_a_ridge_have_a_sentence():
    twice = np.concatenate([X, X[:3]])
    kernel = KernelOperator(RowBlocks(Laplace(), twice))
    y = np.concatenate([Y, -Y[:3]])
    with pytest.raises(InputError, match=r"3 of 303 rows are copies.*1e-06.*weights="):
        sp.solve(kernel, y, solver=sp.ConjugateGradients())
    assert sp.solve(kernel, y, ridge=1e-2, solver=sp.ConjugateGradients()).report.residual < 1e-4
