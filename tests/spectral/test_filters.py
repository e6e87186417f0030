"""Filters against their definitions: step by step, by an ODE solver, and with many digits."""

import mpmath
import numpy as np
import pytest
import scipy.integrate

from everwide import spectral as sp

pytestmark = [pytest.mark.once, pytest.mark.as_users]

VALUES = np.array([0.0, 1e-18, 1e-9, 1e-3, 0.3, 1.0, 7.0])


def stepped(values, rate, momentum, steps):
    """`g` after each step, by taking the steps."""
    g, before, found = np.zeros_like(values), np.zeros_like(values), [np.zeros_like(values)]
    for _ in range(steps):
        g, before = g + rate * (1 - values * g) + momentum * (g - before), g
        found.append(g)
    return np.stack(found)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_steps_one_by_one(momentum):
    steps = [0, 1, 2, 17, 200]
    make = lambda t: sp.momentum(0.2, momentum, t)
    expected = stepped(VALUES, 0.2, momentum, 200)[steps]
    np.testing.assert_allclose(make(steps)(VALUES, 1), expected, rtol=1e-11)
    np.testing.assert_allclose(make(17)(VALUES, 1), expected[3], rtol=1e-11)
    if momentum == 0:
        descent = sp.gradient_descent(0.2, steps)
        np.testing.assert_allclose(descent(VALUES, 1), expected, rtol=1e-11)


def test_tiny_eigenvalues_keep_their_digits():
    mpmath.mp.dps = 50
    for lam in (1e-16, 1e-9, 0.1):
        exact = (1 - mpmath.exp(-mpmath.mpf(lam) * 3)) / mpmath.mpf(lam)
        assert sp.gradient_flow(3.0)(np.array([lam]))[0] == pytest.approx(float(exact), rel=1e-14)
        exact = (1 - (1 - mpmath.mpf(lam) * mpmath.mpf(0.25)) ** 40) / mpmath.mpf(lam)
        found = sp.gradient_descent(0.25, 40)(np.array([lam]))[0]
        assert found == pytest.approx(float(exact), rel=1e-14)


@pytest.mark.parametrize("rate", [1.0, 0.04])
@pytest.mark.parametrize("momentum", [0.0, 0.6, 0.99])
def test_momentum_flow_solves_its_equation(rate, momentum):
    times, friction = np.array([0.0, 0.1, 3.0, 40.0]), (1 - momentum) / np.sqrt(rate)
    critical = friction**2 / 4
    values = np.array([0.0, 1e-12, 1e-3, critical, critical * (1 + 1e-9), 2 * critical, 0.5, 9.0])
    slope = lambda _, u: np.concatenate([u[8:], 1 - friction * u[8:] - values * u[:8]])
    end = np.sqrt(rate) * times
    solved = scipy.integrate.solve_ivp(slope, (0, end[-1]), np.zeros(16), t_eval=end, rtol=1e-12, atol=1e-14)
    found = sp.momentum(rate, momentum, time=times)(values, 1)
    np.testing.assert_allclose(found, solved.y[:8].T, rtol=1e-9, atol=1e-12)


def test_what_the_kernel_does_not_see_at_any_rate():
    np.testing.assert_allclose(sp.gradient_descent(1.0, 3)(np.array([0.0, 0.5, 1.0]), 1), [3.0, 1.75, 1.0])


def test_the_end_of_training():
    values = np.array([0.5, 2.0])
    for filter in (sp.gradient_flow(np.inf), sp.momentum(0.1, 0.9, time=np.inf), sp.ridge()):
        np.testing.assert_allclose(filter(values), 1 / values, rtol=1e-15)


def test_the_mean_over_rows_is_slower_by_their_number():
    values = np.array([0.1, 1.0, 2.0, 5.0])
    pairs = [
        (sp.gradient_flow(8.0), sp.gradient_flow(2.0)),
        (sp.gradient_descent(0.1, 8), sp.gradient_descent(0.025, 8)),
        (sp.momentum(0.1, 0.5, 8), sp.momentum(0.025, 0.5, 8)),
    ]
    for filter, of_one_row in pairs:
        np.testing.assert_allclose(filter(values), of_one_row(values, 1))
        np.testing.assert_allclose(filter(values[:2], 4), filter(values)[:2])
    # Time counts steps and friction is of one step: a slower equation is the same one, of smaller eigenvalues.
    flow = sp.momentum(0.1, 0.5, time=8.0)
    np.testing.assert_allclose(flow(values), flow(values / 4, 1) / 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sp.gradient_flow(-1.0), "from 0 on"),
        (lambda: sp.gradient_flow([2.0, 1.0]), "ascending order"),
        (lambda: sp.gradient_flow(np.nan), "from 0 on"),
        (lambda: sp.gradient_descent(0.1, 1.5), "whole numbers"),
        (lambda: sp.gradient_descent(0.0, 1), "above 0"),
        (lambda: sp.momentum(0.1, 1.0, 1), "below 1"),
        (lambda: sp.ridge(-1.0), "at least 0"),
        (lambda: sp.gradient_flow([]), "a time, or several"),
        (lambda: sp.gradient_descent(0.1, np.inf), "ridge\\(\\) the end"),
        (lambda: sp.momentum(0.1, 0.9), "expected one of them"),
    ],
)
def test_bad_filters(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("kept", "limit"), [(0.0, 4.0), (0.5, 6.0)])
def test_steps_diverge_above_their_largest_rate_only(kept, limit):
    """Of three rows with the largest eigenvalue 3/2."""
    make = (lambda rate: sp.momentum(rate, kept, 2000)) if kept else (lambda rate: sp.gradient_descent(rate, 2000))
    assert make(1.0).stability(1.5, 3)[:2] == (1.0, limit)
    below, above = (make(share * limit)(np.array([1.5]), 3).item() for share in (0.99, 1.01))
    assert below == pytest.approx(1 / 1.5, rel=1e-3)
    assert abs(above) > 1e3


@pytest.mark.parametrize("filter", [sp.ridge(), sp.gradient_flow(1.0), sp.momentum(1e9, 0.5, time=1.0)], ids=str)
def test_flows_and_ridges_are_stable_at_any_rate(filter):
    assert filter.stability(1e300, 1).largest_rate == np.inf
