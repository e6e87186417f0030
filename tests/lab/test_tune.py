"""Grids grow until the best rate lies inside, or say that it does not."""

import math

import pytest

from everwide_lab.sernau2024._arms import tune

pytestmark = pytest.mark.once


@pytest.mark.parametrize("best", [0.01, 0.1, 1.0, 10.0, 100.0])
def test_the_best_rate_is_found_inside_of_the_grid(best):
    found = tune(lambda rate: abs(math.log10(rate / best)), 1.0)
    assert found.rate == pytest.approx(best)
    assert found.inside
    assert len(found.tried) <= 7


def test_no_rate_is_tried_twice():
    seen = []
    tune(lambda rate: seen.append(rate) or -rate if rate < 5 else 1.0, 1.0)
    assert len(seen) == len(set(seen))


def test_a_best_rate_on_the_edge_is_reported():
    found = tune(lambda rate: -rate, 1.0, most=5)
    assert not found.inside
    assert len(found.tried) == 5
    assert found.rate == max(found.tried)


def test_rates_that_diverge_are_left_behind():
    found = tune(lambda rate: math.inf if rate > 0.05 else rate, 1.0, most=9)
    assert found.rate < 0.05


def test_where_the_best_neighbour_diverges_the_grid_ends():
    found = tune(lambda rate: math.inf if rate > 20 else -rate, 1.0)
    assert found.rate == pytest.approx(10.0)
    assert found.inside
