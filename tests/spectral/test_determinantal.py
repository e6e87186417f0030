"""Determinantal point processes against all subsets, one by one."""

from itertools import combinations

import numpy as np
import pytest

import everwide.spectral as sp

pytestmark = [pytest.mark.once, pytest.mark.as_users]

DRAWS = 1500


@pytest.fixture(scope="module")
def kernel():
    root = np.random.default_rng(0).normal(size=(5, 4))
    return root @ root.T  # rank 4 of 5


def every_set(kernel, sizes):
    """Probabilities of all sets of these sizes, from their determinants."""
    sets = [rows for size in sizes for rows in combinations(range(len(kernel)), size)]
    weights = np.array([np.linalg.det(kernel[np.ix_(rows, rows)]) if rows else 1.0 for rows in sets])
    return dict(zip(sets, np.maximum(weights, 0) / np.maximum(weights, 0).sum(), strict=True))


@pytest.mark.parametrize("size", [None, 1, 2, 4])
def test_samples_have_the_probabilities_of_determinants(kernel, size):
    expected = every_set(kernel, range(6) if size is None else [size])
    drawn = [tuple(sp.determinantal_sample(kernel, size, seed=seed).tolist()) for seed in range(DRAWS)]
    for rows, probability in expected.items():
        share = drawn.count(rows) / DRAWS
        assert abs(share - probability) < 4.5 * np.sqrt(probability * (1 - probability) / DRAWS) + 1e-9, rows


def test_inclusion_is_the_sum_over_sets(kernel):
    expected = every_set(kernel, range(6))
    shares = [sum(p for rows, p in expected.items() if row in rows) for row in range(5)]
    np.testing.assert_allclose(sp.leverage_scores(kernel), shares, rtol=1e-8)


def test_rows_are_those_of_the_largest_determinants_step_by_step(kernel):
    found = sp.determinantal_map(kernel, 4).tolist()
    chosen = []
    for _ in range(4):
        rest = [row for row in range(5) if row not in chosen]
        chosen.append(max(rest, key=lambda row: np.linalg.det(kernel[np.ix_([*chosen, row], [*chosen, row])])))
    assert found == chosen


def test_twins_are_never_together():
    kernel = np.kron(np.eye(3), np.ones((2, 2)))
    for seed in range(20):
        assert len({row // 2 for row in sp.determinantal_sample(kernel, 3, seed=seed)}) == 3


def test_huge_and_tiny_eigenvalues_stay_finite():
    assert sp.determinantal_sample(np.diag([1e200, 1e190]), 2).tolist() == [0, 1]
    assert sp.determinantal_map(np.diag([1e200, 1e199, 1e198]), 2).tolist() == [0, 1]


@pytest.mark.parametrize("call", [sp.determinantal_sample, sp.determinantal_map])
@pytest.mark.parametrize(("kernel", "size", "message"), [
    (np.eye(3), 0, "from 1 to 3"),
    (np.eye(3), 4, "from 1 to 3"),
    (np.eye(3), True, "whole number"),
    (np.ones((3, 2)), 1, "expected \\(n, n\\)"),
    (np.full((2, 2), np.nan), 1, "nan"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(call, kernel, size, message):
    with pytest.raises(ValueError, match=message):
        call(kernel, size)


def test_more_rows_than_the_rank_are_refused(kernel):
    with pytest.raises(ValueError, match="from 1 to 4"):
        sp.determinantal_sample(kernel, 5)
    with pytest.raises(ValueError, match="only 4 rows"):
        sp.determinantal_map(kernel, 5)


def test_leverage_is_the_diagonal_of_the_smoother(kernel):
    smoother = kernel @ np.linalg.inv(kernel + 0.3 * np.eye(5))
    np.testing.assert_allclose(sp.leverage_scores(kernel, 0.3), np.diag(smoother), rtol=1e-9)
    with pytest.raises(ValueError, match="ridge=0"):
        sp.leverage_scores(kernel, 0)
