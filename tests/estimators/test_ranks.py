"""Columns by their ranks, against scipy's ranks and against rows that are repeated."""

import numpy as np
import pytest
import scipy.stats

from everwide.estimators._scaling import Quantiles, TwoViews

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(40, 3)), 1)  # with ties
ONES = np.ones(40)


def test_ranks_are_quantiles_of_a_gaussian():
    expected = scipy.stats.norm.ppf((scipy.stats.rankdata(X, axis=0) - 0.5) / 40)
    np.testing.assert_allclose(Quantiles.of(X, ONES)(X), expected, rtol=1e-12)


def test_weights_are_copies():
    copies = RNG.integers(1, 4, 40)
    repeated = Quantiles.of(np.repeat(X, copies, axis=0), np.ones(copies.sum()))
    np.testing.assert_allclose(Quantiles.of(X, copies.astype(float))(X), repeated(X), rtol=1e-12)


def test_units_do_not_matter():
    """Any increasing map of a column leaves its ranks alone."""
    bent = np.exp(3 * X)
    np.testing.assert_allclose(Quantiles.of(bent, ONES)(bent), Quantiles.of(X, ONES)(X), rtol=1e-12)


def test_beyond_the_outermost_rows_nothing_grows():
    quantiles = Quantiles.of(X, ONES)
    far, last = quantiles(np.full((1, 3), 1e9)), quantiles(X.max(0, keepdims=True))
    np.testing.assert_array_equal(far, last)


def test_many_values_have_few_knots():
    x = RNG.normal(size=(5000, 1))
    quantiles = Quantiles.of(x, np.ones(5000))
    assert len(quantiles.knots[0]) <= 1000
    expected = scipy.stats.norm.ppf((scipy.stats.rankdata(x, axis=0) - 0.5) / 5000)
    inner = np.abs(expected) < 2  # in the tails, values are far apart
    np.testing.assert_allclose(quantiles(x)[inner], expected[inner], atol=0.02)


def test_both_views_have_mean_zero_and_size_one():
    shown = TwoViews.of(X, ONES)(X)
    assert shown.shape == (40, 6)
    np.testing.assert_allclose(shown.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(shown.std(0), 1, rtol=1e-12)
