"""Tolerances say no when they should."""

import numpy as np
import pytest

from everwide.testing._draws import (
    CANCELLING64,
    EXACT32,
    EXACT64,
    SAMPLED,
    Exact,
    Slope,
    cancelling_for,
    exact_for,
)

pytestmark = pytest.mark.once


def test_exact_is_relative_to_the_largest_entry():
    assert Exact(1e-3).excess([1000.0, 0.5], [1000.0, 0.0]) == pytest.approx(0.5)
    assert Exact(1e-3).excess([2e-3], [1e-3]) == pytest.approx(1000)
    assert Exact(1e-3, floor=True).excess([2e-3], [1e-3]) == pytest.approx(1)


@pytest.mark.parametrize("bad", [[np.nan, 1.0], [np.inf, 1.0], [1.0], [[1.0, 1.0]]])
def test_exact_never_forgives_what_is_not_finite_or_has_another_shape(bad):
    assert EXACT64.excess(bad, [1.0, 1.0]) == np.inf


def test_sampled_counts_standard_errors():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(10_000, 2))
    assert SAMPLED.excess(draws, np.zeros(2)) < 1
    assert SAMPLED.excess(draws, np.full(2, 0.1)) == pytest.approx(10 / SAMPLED.max_z, rel=0.2)
    assert SAMPLED.excess(np.full((5, 1), np.nan), np.zeros(1)) == np.inf


def test_slope_measures_a_power():
    sizes = np.array([10, 20, 40])
    assert Slope(-2.0, 0.1).measured(sizes, 3.0 * sizes**-2.0) == pytest.approx(-2)
    assert Slope(-1.0, 0.1).excess(sizes, 3.0 * sizes**-2.0) == pytest.approx(10)


def test_classes_follow_the_dtype():
    assert exact_for(np.float32) == EXACT32
    assert exact_for(np.float64) == EXACT64
    assert cancelling_for(np.float64) == CANCELLING64
