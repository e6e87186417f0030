"""Leaving rows out in closed form, against fitting again without them; both factorizations, and their growth."""

import numpy as np
import pytest

from estimators.oracles import (
    RNG,
    each_without_one_copy,
    flow_at,
    kernel,
    process_variance,
    ridge_at,
    weighted_mean_diagonal,
)
from everwide.estimators._flow import resolvents
from everwide.estimators._modes import decompose
from everwide.estimators._solution import Decomposed, Factored

pytestmark = pytest.mark.once

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
SOLVERS = {
    "decomposed": lambda k, y, weights, copies, ridge: Decomposed(decompose(k.copy(), y, weights, copies), ridge),
    "factored": lambda k, y, weights, copies, ridge: Factored.of(k.copy(), y, weights, copies, ridge),
}
each_solver = pytest.mark.parametrize("solve", SOLVERS.values(), ids=SOLVERS)


def close(found, expected, tolerance=1e-9):
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * max(1, np.abs(expected).max()))


@each_solver
@each_weights
@pytest.mark.parametrize("ridge", [1e-4, 0.3])
def test_a_ridge_without_a_row_is_fitted_again(solve, weights, copies, ridge):
    k = kernel(N)
    unit = k / weighted_mean_diagonal(k, weights)
    found = solve(k, Y, weights, copies, ridge)
    refit = each_without_one_copy(lambda *task: ridge_at(*task[:3], ridge, task[3]), unit, Y, weights, copies)
    close(found.left_out(), refit)
    close(k @ found.coefficients(), ridge_at(unit, unit, Y, ridge, weights))
    inverse = np.linalg.inv(unit + np.diag(ridge / weights))
    close(found.solve(Y), inverse @ Y)
    close(found.precision(), np.diag(inverse))
    assert found.jitter == 0
    assert found.scale == pytest.approx(weighted_mean_diagonal(k, weights), rel=1e-14)


@each_weights
@pytest.mark.parametrize("time", [1e-3, 0.5, 20.0, 500.0])
def test_gradient_flow_without_a_row_is_run_again(weights, copies, time):
    k = kernel(N)
    unit = k / weighted_mean_diagonal(k, weights)
    found = Decomposed(decompose(k.copy(), Y, weights, copies), 0.0, time)
    rerun = each_without_one_copy(lambda *task: flow_at(*task[:3], time, task[3]), unit, Y, weights, copies)
    close(found.left_out(), rerun)
    close(k @ found.coefficients(), flow_at(unit, unit, Y, time, weights))
    assert found.jitter == 0


def test_at_the_time_0_nothing_is_learned():
    found = Decomposed(decompose(kernel(N), Y, ONES, ONES), 0.0, 0.0)
    assert not found.left_out().any()
    assert not found.coefficients().any()


def test_resolvents_add_up_to_gradient_flow():
    shifts, factors = resolvents()
    x = np.append(0.0, 10.0 ** np.linspace(-6, 9, 100))
    exact = -np.expm1(-x) / np.where(x, x, 1) + (x == 0)
    found = np.real(factors / (x[:, None] + shifts)).sum(1)
    np.testing.assert_allclose(found, exact, rtol=1e-10)


@each_solver
def test_weights_are_copies(solve):
    k, times = kernel(N), REPEATED.astype(int)
    rows = np.repeat(np.arange(N), times)
    once = solve(k, Y, REPEATED, REPEATED, 0.1)
    many = solve(k[np.ix_(rows, rows)], Y[rows], np.ones(len(rows)), np.ones(len(rows)), 0.1)
    close(many.left_out(), once.left_out()[rows])
    close(many.left_out_variance(), once.left_out_variance()[rows])
    close(k[:, rows] @ many.coefficients(), k @ once.coefficients())


@each_solver
@each_weights
def test_variances_of_a_row_given_the_others(solve, weights, copies):
    k, ridge = kernel(N), 0.05
    unit = k / weighted_mean_diagonal(k, weights)

    def variance(cross, others, _, less):
        return process_variance(unit[row, row], cross, others, ridge / less)

    found = solve(k, Y, weights, copies, ridge).left_out_variance()
    for row in range(N):
        less = weights.copy()
        less[row] *= max(1 - 1 / copies[row], 0)
        kept = np.flatnonzero(less > 1e-12)
        close(found[row], variance(unit[row, kept], unit[np.ix_(kept, kept)], None, less[kept]))


def test_a_factor_grows_into_that_of_all_rows():
    k, old = kernel(N), 5
    unit = np.sqrt(np.diag(k))
    k = k / unit / unit[:, None]  # the old rows and all rows have the same mean of the diagonal
    parts = [Y, REPEATED, REPEATED]
    first = Factored.of(k[:old, :old].copy(), *(part[:old] for part in parts), 0.02)
    grown = first.extended(k[old:, :old], k[old:, old:], *(part[old:] for part in parts))
    whole = Factored.of(k.copy(), *parts, 0.02)
    close(grown.lower, whole.lower)
    close(grown.left_out(), whole.left_out())
    close(grown.left_out_variance(), whole.left_out_variance())
    assert len(first.y) == old


@each_solver
def test_a_singular_kernel_needs_jitter_and_says_so(solve):
    k = kernel(N, features=3)
    y = k[:, :2]  # within reach of the kernel
    found = solve(k, y, ONES, ONES, 0.0)
    assert 0 < found.jitter < 1e-10
    close(k @ found.coefficients(), y, 1e-4)
    for part in (found.left_out(), found.left_out_variance(), found.precision()):
        assert np.isfinite(part).all()


def test_twins_of_old_rows_need_jitter_and_say_so():
    k = kernel(N)
    first = Factored.of(k.copy(), Y, ONES, ONES, 0.0)
    assert first.jitter == 0
    grown = first.extended(k[:2], k[:2, :2], Y[:2], ONES[:2], ONES[:2])
    assert 0 < grown.jitter < 1e-12
    close(k[:, [*range(N), 0, 1]] @ grown.coefficients(), Y, 1e-4)


def test_what_is_no_kernel_is_refused():
    with pytest.raises(ValueError, match="9 rows is not positive definite"):
        Factored.of(np.eye(N) - 1, Y, ONES, ONES, 0.0)


def test_a_kernel_that_vanishes_predicts_nothing():
    found = Decomposed(decompose(np.zeros((N, N)), Y, ONES, ONES), 0.0)
    assert not found.coefficients().any()
    assert np.isfinite(found.left_out()).all()
