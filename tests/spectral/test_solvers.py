"""Leaving rows out in closed form, against fitting again without them; both factorizations, and their growth."""

import numpy as np
import pytest

import everwide.spectral as sp
from everwide.spectral._solvers import cholesky, resolvents
from spectral.oracles import RNG, each_without_one_copy, flow_at, kernel, process_variance, ridge_at

pytestmark = [pytest.mark.once, pytest.mark.as_users]

N = 9
Y = RNG(1).normal(size=(N, 2))
ONES = np.ones(N)
FRACTIONS = RNG(2).uniform(0.2, 1.0, N)
REPEATED = np.array([1.0, 3, 1, 2, 1, 1, 4, 1, 1])
BALANCED = REPEATED * np.array([2.0, 2, 2, 0.5, 0.5, 0.5, 0.5, 1, 1])  # as class weights make of repetitions
WEIGHTS = {
    "alone": (ONES, ONES),
    "fractions": (FRACTIONS, FRACTIONS),
    "repeated": (REPEATED, REPEATED),
    "balanced": (BALANCED, REPEATED),
}
each_weights = pytest.mark.parametrize(("weights", "copies"), WEIGHTS.values(), ids=WEIGHTS)
each_solver = pytest.mark.parametrize("solver", ["eigen", "cholesky"])


def solve(solver, k, y, weights, copies, ridge):
    return sp.solve(k, y, weights=weights, copies=copies, ridge=ridge, solver=solver)


def stopped(k, y, weights, copies, time):
    return sp.solve(k, y, weights=weights, copies=copies, solver="eigen").at(time=time)


def close(found, expected, tolerance=1e-9):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1, np.abs(expected).max()))


@each_solver
@each_weights
@pytest.mark.parametrize("ridge", [1e-4, 0.3])
def test_a_ridge_without_a_row_is_fitted_again(solver, weights, copies, ridge):
    k = kernel(N)
    found = solve(solver, k, Y, weights, copies, ridge)
    refit = each_without_one_copy(lambda *task: ridge_at(*task[:3], ridge, task[3]), k, Y, weights, copies)
    close(found.left_out(), refit)
    close(k @ found.coefficients, ridge_at(k, k, Y, ridge, weights))
    inverse = np.linalg.inv(k + np.diag(ridge / weights))
    close(found.solve(Y), inverse @ Y)
    close(found.precision(), np.diag(inverse))
    report = found.report
    assert report.solver == solver
    assert report.jitter == report.iterations == 0
    assert report.residual < 1e-12
    assert report.bytes > k.nbytes // 2
    assert report.seconds > 0


@each_weights
@pytest.mark.parametrize("time", [1e-3, 0.5, 20.0, 500.0])
def test_gradient_flow_without_a_row_is_run_again(weights, copies, time):
    k = kernel(N)
    found = stopped(k, Y, weights, copies, time)
    rerun = each_without_one_copy(lambda *task: flow_at(*task[:3], time, task[3]), k, Y, weights, copies)
    close(found.left_out(), rerun)
    close(k @ found.coefficients, flow_at(k, k, Y, time, weights))
    assert found.report.jitter == 0


def test_at_the_time_0_nothing_is_learned():
    found = stopped(kernel(N), Y, ONES, ONES, 0.0)
    assert not found.left_out().any()
    assert not found.coefficients.any()


def test_resolvents_add_up_to_gradient_flow():
    shifts, factors = resolvents()
    x = np.append(0.0, 10.0 ** np.linspace(-6, 9, 100))
    exact = -np.expm1(-x) / np.where(x, x, 1) + (x == 0)
    found = np.real(factors / (x[:, None] + shifts)).sum(1)
    np.testing.assert_allclose(found, exact, rtol=1e-10)


@each_solver
def test_weights_are_copies(solver):
    k, times = kernel(N), REPEATED.astype(int)
    rows = np.repeat(np.arange(N), times)
    once = solve(solver, k, Y, REPEATED, REPEATED, 0.1)
    many = solve(solver, k[np.ix_(rows, rows)], Y[rows], np.ones(len(rows)), np.ones(len(rows)), 0.1)
    close(many.left_out(), once.left_out()[rows])
    close(many.left_out_variance(), once.left_out_variance()[rows])
    close(k[:, rows] @ many.coefficients, k @ once.coefficients)


@each_solver
@each_weights
def test_variances_of_a_row_given_the_others(solver, weights, copies):
    k, ridge = kernel(N), 0.05

    def variance(cross, others, _, less):
        return process_variance(k[row, row], cross, others, ridge / less)

    found = solve(solver, k, Y, weights, copies, ridge).left_out_variance()
    for row in range(N):
        less = weights.copy()
        less[row] *= max(1 - 1 / copies[row], 0)
        kept = np.flatnonzero(less > 1e-12)
        close(found[row], variance(k[row, kept], k[np.ix_(kept, kept)], None, less[kept]))


def test_a_factor_grows_into_that_of_all_rows():
    k, old = kernel(N), 5
    parts = [Y, REPEATED, REPEATED]
    first = solve("cholesky", k[:old, :old], *(part[:old] for part in parts), 0.02)
    grown = first.extended(k[old:, :old], k[old:, old:], *(part[old:] for part in parts))
    whole = solve("cholesky", k, *parts, 0.02)
    close(grown.factor.lower, whole.factor.lower)
    close(whole.factor.lower[:old, :old], first.factor.lower)
    close(grown.coefficients, whole.coefficients)
    close(grown.left_out(), whole.left_out())
    close(grown.left_out_variance(), whole.left_out_variance())
    assert grown.report.residual < 1e-12
    assert len(first.coefficients) == old


@each_solver
@pytest.mark.filterwarnings("ignore:The kernel with ridge=0 is singular:UserWarning")
def test_a_singular_kernel_needs_jitter_and_says_so(solver):
    k = kernel(N, features=3)
    y = k[:, :2]  # within reach of the kernel
    found = solve(solver, k, y, ONES, ONES, 0.0)
    assert 0 < found.report.jitter < 1e-10 * np.trace(k) / N
    close(k @ found.coefficients, y, 1e-4)
    for part in (found.left_out(), found.left_out_variance(), found.precision()):
        assert np.isfinite(part).all()


def test_equal_rows_without_a_ridge_are_spoken_of():
    k, y = np.tile(kernel(N, features=3), (2, 2)), np.tile(Y, (2, 1))
    with pytest.warns(UserWarning, match=r"ridge=0 is singular up to rounding: .* Are rows equal\?"):
        found = sp.solve(k, y)
    assert found.report.jitter > 0
    sp.solve(k, y, ridge=1e-6)  # which says nothing


def test_twins_of_old_rows_need_jitter_and_say_so():
    k = kernel(N)
    first = solve("cholesky", k, Y, ONES, ONES, 0.0)
    assert first.report.jitter == 0
    grown = first.extended(k[:2], k[:2, :2], Y[:2], ONES[:2], ONES[:2])
    assert 0 < grown.report.jitter < 1e-12
    close(k[:, [*range(N), 0, 1]] @ grown.coefficients, Y, 1e-4)


def test_what_is_no_kernel_is_refused():
    with pytest.raises(ValueError, match="9 rows is not positive definite"):
        solve("cholesky", np.eye(N) - 1, Y, ONES, ONES, 0.0)


def test_a_kernel_that_vanishes_predicts_nothing():
    found = solve("eigen", np.zeros((N, N)), Y, ONES, ONES, 0.0)
    assert not found.coefficients.any()
    assert np.isfinite(found.left_out()).all()


@each_solver
@each_weights
def test_variances_at_other_rows(solver, weights, copies):
    whole, ridge = kernel(N + 3), 0.05
    k, cross, own = whole[:N, :N], whole[N:, :N], np.diag(whole)[N:]
    found = solve(solver, k, Y, weights, copies, ridge).variance(cross, own)
    close(found, [process_variance(o, c, k, ridge / weights) for o, c in zip(own, cross, strict=True)])


@each_solver
def test_ensembles_begin_at_random_and_are_trained(solver):
    """What is left of a start is linear in it, so that its variance is a quadratic form."""
    k, start, ridge = kernel(N), kernel(N, seed=5), 0.05
    found = solve(solver, k, Y, ONES, ONES, ridge)
    without = found.ensemble_left_out_variance(start)
    for row in range(N):
        rest = [at for at in range(N) if at != row]
        reach = np.zeros(N)
        reach[row], reach[rest] = 1, -np.linalg.solve(k[np.ix_(rest, rest)] + ridge * np.eye(N - 1), k[rest, row])
        close(without[row], reach @ start @ reach)


def test_a_solver_of_ones_own_has_the_same_face():
    twice = lambda kernel, problem: cholesky(2 * kernel, problem)
    close(sp.solve(np.eye(N), Y, ridge=1.0, solver=twice).coefficients, Y / 3)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: sp.solve(np.eye(2), [1.0, 2.0], solver="magic"), "solver='magic': expected one of 'cholesky'"),
    (lambda: sp.solve(np.eye(2), [1.0]), r"y has shape \(1,\), expected \(2,\)"),
    (lambda: sp.solve(np.eye(2), [1.0, np.nan]), "y holds nan"),
    (lambda: sp.solve(np.eye(2), [1.0, 2.0], ridge=-1.0), "ridge=-1.0: expected"),
    (lambda: sp.solve(np.eye(2), [1.0, 2.0], weights=[1.0, 0.0]), "all above 0"),
    (lambda: sp.solve(np.ones((2, 3)), [1.0, 2.0]), "expected \\(n, n\\)"),
])  # fmt: skip
def test_what_cannot_be_solved_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_kernel_is_left_alone_unless_it_may_be_used_up():
    k = kernel(N)
    for solver in ("eigen", "cholesky"):
        sp.solve(k, Y, ridge=0.1, weights=REPEATED, solver=solver)
    close(k, kernel(N), 0)


def test_a_smoother_is_a_mean_of_targets():
    weights, y = [[1.0, 2.0, 1.0], [0.0, 0.0, 5.0]], np.array([[4.0, 0.0], [2.0, 1.0], [0.0, 6.0]])
    np.testing.assert_allclose(sp.kernel_smoother(weights, y), [[2.0, 2.0], [0.0, 6.0]])
    np.testing.assert_allclose(sp.kernel_smoother(weights, y[:, 0]), [2.0, 0.0])
    np.testing.assert_allclose(sp.kernel_smoother(np.full((2, 3), 0.1), y), [y.mean(0)] * 2)
    with pytest.raises(ValueError, match=r"cross\[1\] sums to 0"):
        sp.kernel_smoother([[1.0], [0.0]], [1.0])
    with pytest.raises(ValueError, match="expected"):
        sp.kernel_smoother(weights, y.T)
