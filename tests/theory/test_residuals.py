"""How large residuals are before training: against laws in closed form and networks that are drawn."""

import numpy as np
import pytest
import scipy.stats

from everwide.theory import finite_width

pytestmark = pytest.mark.once


@pytest.mark.parametrize("delta", [0.9, 0.5, 0.05, 1e-6, 1e-12])
def test_quantiles_of_laws_in_closed_form(delta):
    equal = finite_width.initial_residual_quantile(2.5 * np.eye(3), [1.0, -2.0, 0.5], delta)
    law = scipy.stats.ncx2(3, 5.25 / 2.5)
    assert law.sf(3 * equal.quantile**2 / 2.5) == pytest.approx(delta, rel=1e-7)
    a, b = 2.0, 0.3  # two pairs: sums of exponential variables
    pairs = finite_width.initial_residual_quantile(np.diag([a, b, a, b]), np.zeros(4), delta)
    q = 4 * pairs.quantile**2
    assert (a * np.exp(-q / (2 * a)) - b * np.exp(-q / (2 * b))) / (a - b) == pytest.approx(delta, rel=1e-8)
    outputs = finite_width.initial_residual_quantile(
        np.diag([a, b]), np.zeros((2, 2)), delta
    )  # the same, as two outputs
    assert outputs.quantile == pytest.approx(2**0.5 * pairs.quantile, rel=1e-10)
    assert max(equal.quantile / equal.bound, pairs.quantile / pairs.bound) <= 1


def test_directions_without_variance_only_shift_the_residual():
    targets = np.array([0.3, 2.0])
    found = finite_width.initial_residual_quantile(np.diag([1.0, 0.0]), targets, 0.05)
    law = scipy.stats.ncx2(1, 0.09)
    assert law.sf(2 * found.quantile**2 - 4.0) == pytest.approx(0.05, rel=1e-8)
    nothing = finite_width.initial_residual_quantile(np.zeros((2, 2)), targets, 0.05)
    assert nothing == pytest.approx((2.045**0.5, 2.045**0.5))


def test_the_simple_bound_on_the_residual_in_numbers():
    """`|y| = 5`, an eigenvalue 4, and closed forms of the tails of two and four squares."""
    two = finite_width.initial_residual_quantile(np.diag([4.0, 0.5]), [3.0, 4.0], np.exp(-2.0))
    assert two.bound == pytest.approx((5 + 2 * 2) / 2**0.5, rel=1e-10)
    q = 3.0
    delta = (1 + q**2 / 2) * np.exp(-(q**2) / 2)
    four = finite_width.initial_residual_quantile(np.diag([4.0, 0.5]), [[3.0, 0.0], [0.0, 4.0]], delta)
    assert four.bound == pytest.approx((5 + 2 * q) / 2**0.5, rel=1e-10)


def test_residuals_of_networks_exceed_their_quantile_as_often_as_said():
    rng, width, draws = np.random.default_rng(8), 200, 6000
    x = rng.normal(size=(5, 3))
    y = rng.normal(size=5)
    std = np.sqrt(np.diag(x @ x.T) * 2 / 3)
    angle = np.arccos(np.clip(x @ x.T * 2 / 3 / np.outer(std, std), -1, 1))
    kernel = np.outer(std, std) * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / np.pi  # of one ReLU layer
    w, a = rng.normal(size=(draws, 3, width)), rng.normal(size=(draws, width, 1))
    f = (np.maximum(x @ w * (2 / 3) ** 0.5, 0) @ a)[..., 0] * (2 / width) ** 0.5
    sizes = np.sqrt(np.mean((f - y) ** 2, axis=1))
    for delta in (0.5, 0.1):
        found = finite_width.initial_residual_quantile(kernel, y, delta)
        measured, error = np.mean(sizes > found.quantile), (delta * (1 - delta) / draws) ** 0.5
        assert abs(measured - delta) < 5 * error
        assert np.mean(sizes > found.bound) <= delta
