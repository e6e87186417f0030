"""Leave-one-out of iterations that is estimated on the way, in the products that targets need anyway."""

from dataclasses import replace

import numpy as np
import pytest

import everwide.spectral as sp
from everwide._engine import KernelOperator, MatrixBlocks
from spectral.oracles import RNG

pytestmark = [pytest.mark.once, pytest.mark.as_users]

N, RIDGE = 300, 0.05
X = RNG(0).normal(size=(N, 3))
K = np.exp(-np.sqrt(np.maximum(((X[:, None] - X) ** 2).sum(-1), 0)))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2] + 0.1 * RNG(1).normal(size=N)], 1)
HOW = sp.ConjugateGradients(tolerance=1e-3, rank=20)


class Counted(KernelOperator):
    """Remembers how many columns each product has."""

    def __init__(self):
        KernelOperator.__init__(self, MatrixBlocks(K))
        self.columns = []

    def __matmul__(self, v):
        self.columns.append(v.shape[1])
        return KernelOperator.__matmul__(self, v)


def solved(how):
    kernel = Counted()
    solution = sp.solve(kernel, Y, ridge=RIDGE, solver=how)
    return solution, solution.left_out(), kernel.columns


def test_probes_beside_targets_say_the_same_in_fewer_products():
    after, left, apart = solved(HOW)
    on_the_way, also, together = solved(replace(HOW, left_out=True))
    np.testing.assert_allclose(on_the_way.coefficients, after.coefficients, atol=1e-3)  # they err by more
    np.testing.assert_allclose(also, left, atol=1e-3)
    assert on_the_way.report.residual <= 1e-3
    assert on_the_way.coefficients.shape == Y.shape
    assert len(together) <= len(apart) - 4


def test_columns_that_are_done_are_not_multiplied():
    _, _, columns = solved(replace(HOW, left_out=True))
    assert columns[0] == columns[1] == 2 + 16  # the residual of where probes begin, and the first step
    assert min(columns) <= 2  # probes are done before targets are


def test_probes_that_are_done_do_not_end_the_refinement_of_targets():
    solution, _, _ = solved(sp.ConjugateGradients(tolerance=1e-13, rank=20, left_out=True))
    assert solution.report.stopped_by == "residual"
    matrix = K.astype(np.float32).astype(np.float64)
    np.fill_diagonal(matrix, np.diagonal(K) + RIDGE)
    rest = np.linalg.norm(matrix @ solution.coefficients - Y, axis=0) / np.linalg.norm(Y, axis=0)
    assert rest.max() < 2e-13


def test_an_interrupt_gives_coefficients_of_targets_alone():
    def stop(progress):
        if progress.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(sp.Interrupted) as fault:
        solved(replace(HOW, left_out=True, progress=stop))
    assert fault.value.coefficients.shape == Y.shape


def test_held_out_rows_and_probes_together():
    solution, left, _ = solved(replace(HOW, left_out=True, held=60))
    exact = Y - np.linalg.solve(K + RIDGE * np.eye(N), Y) / np.diagonal(np.linalg.inv(K + RIDGE * np.eye(N)))[:, None]
    assert np.isfinite(solution.report.held_out)
    assert np.mean((left - Y) ** 2) == pytest.approx(np.mean((exact - Y) ** 2), rel=0.1)


def test_a_descent_ends_near_its_tolerance_and_no_second_one_is_needed():
    told = []
    solution, _, _ = solved(replace(HOW, progress=told.append))
    assert 0.4e-3 < solution.report.residual <= 1e-3
    assert len(told) == solution.report.iterations
