"""Phase diagrams against the closed forms of the error function, and of ReLU."""

import math

import numpy as np
import pytest

import everwide as ew
from everwide import activations as act
from everwide.signal import ArchitectureError
from everwide.theory.criticality import critical_init, phase_diagram, susceptibilities

pytestmark = pytest.mark.once

WEIGHTS, BIASES = np.array([0.5, 1.0, 2.0, 4.0]), np.array([0.0, 0.03, 0.5])


def iterated(weight, bias):
    """Fixed point, both susceptibilities, settled correlation and the susceptibility there, for the error function."""
    second = lambda k, q: bias + weight * (2 / math.pi) * math.asin(2 * q / (1 + 2 * k))
    k, c = 1.0, 0.2
    for _ in range(20_000):
        k = second(k, k)
    par = weight * (4 / math.pi) / ((1 + 2 * k) * math.sqrt(1 + 4 * k))
    perp = weight * (4 / math.pi) / math.sqrt(1 + 4 * k)
    if k < 1e-12:
        return 0.0, par, perp, 1.0, perp
    for _ in range(20_000):
        c = second(k, c * k) / k
    slope = weight * (4 / math.pi) / math.sqrt((1 + 2 * k) ** 2 - (2 * c * k) ** 2)
    return k, par, perp, c, slope


def test_the_error_function_has_the_phases_of_its_closed_form():
    found = phase_diagram(ew.Erf(), C_w=WEIGHTS, C_b=BIASES)
    assert found.K_star.shape == (3, 4)
    for i, bias in enumerate(BIASES):
        for j, weight in enumerate(WEIGHTS):
            k, par, perp, c, slope = iterated(weight, bias)
            here = [a[i, j] for a in (found.K_star, found.chi_par, found.chi_perp, found.correlation)]
            np.testing.assert_allclose(here, [k, par, perp, c], atol=1e-8)
            assert found.phase[i, j] == ("ordered" if perp < 1 else "chaotic")
            np.testing.assert_allclose([found.xi_par[i, j], found.xi_perp[i, j]], -1 / np.log([par, slope]), rtol=1e-7)
    assert {"ordered", "chaotic"} <= set(found.phase.ravel())


def test_the_critical_line_parts_the_phases():
    found = phase_diagram(ew.Erf(), C_w=1.0, C_b=0.0)
    weights, biases = found.line.T
    np.testing.assert_allclose(weights[0], math.pi / 4, rtol=1e-6)
    np.testing.assert_allclose(biases[0], 0, atol=1e-7)
    weight, bias = found.line[np.argmin(np.abs(biases - 0.2))]
    sides = phase_diagram(ew.Erf(), C_w=[weight * 0.999, weight, weight * 1.001], C_b=bias)
    assert sides.phase.tolist() == ["ordered", "critical", "chaotic"]
    assert sides.xi_perp[1] == math.inf
    assert sides.xi_par[1] < 10  # only angles are critical there


def test_numbers_give_single_numbers():
    found = phase_diagram(act.Sin(), C_w=0.9, C_b=0.0)
    assert found.K_star.shape == found.phase.shape == ()
    assert float(found.xi_perp) == pytest.approx(-1 / math.log(0.9))
    assert str(found.phase) == "ordered"


def test_a_value_at_zero_that_is_rounding_counts_as_none():
    shifted = lambda x: np.logaddexp(x, 0) - np.log(2) + 1e-17
    found = phase_diagram(shifted, C_w=2.0, C_b=0.0)
    assert float(found.K_star) == 0
    np.testing.assert_allclose([found.chi_par, found.chi_perp], 0.5, rtol=1e-9)


def test_scale_invariant_functions_keep_vanish_or_explode():
    found = phase_diagram(ew.Relu(), C_w=[1.0, 2.0, 3.0], C_b=[0.0, 0.5])
    assert found.K_star.tolist() == [[0.0, 1.0, math.inf], [pytest.approx(1.0), math.inf, math.inf]]
    assert found.phase.tolist() == [["ordered", "critical", "unbounded"], ["ordered", "unbounded", "unbounded"]]
    np.testing.assert_allclose(found.chi_perp, [[0.5, 1.0, 1.5]] * 2)


@pytest.mark.parametrize("activation", [ew.Gelu(), act.Tanh()], ids=["gelu", "tanh"])
def test_a_critical_point_is_critical(activation):
    point = critical_init(activation)
    found = phase_diagram(activation, C_w=point.C_w, C_b=point.C_b)
    assert str(found.phase) == "critical"
    assert float(found.K_star) == point.K_star
    np.testing.assert_allclose([found.chi_par, found.chi_perp], 1, atol=1e-9)
    assert math.isinf(found.xi_par)
    assert math.isinf(found.xi_perp)


def test_fixed_points_are_fixed():
    found = phase_diagram(act.Silu(), C_w=[1.0, 1.7, 1.95], C_b=[0.1, 1.0])
    x = np.linspace(-12, 12, 4001)
    w = np.exp(-x * x / 2) * (x[1] - x[0])
    for i, bias in enumerate(found.C_b):
        for j, weight in enumerate(found.C_w):
            z = math.sqrt(found.K_star[i, j]) * x
            image = bias + weight * np.sum(w * (z / (1 + np.exp(-z))) ** 2) / math.sqrt(2 * math.pi)
            assert image == pytest.approx(found.K_star[i, j], rel=1e-8)
            par, perp = susceptibilities(act.Silu(), found.K_star[i, j], weight)
            np.testing.assert_allclose([found.chi_par[i, j], found.chi_perp[i, j]], [par, perp], rtol=1e-10)


def test_a_picture_has_the_line_and_the_axes():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    found = phase_diagram(ew.Erf(), C_w=[0.5, 1.0, 2.0], C_b=[0.0, 0.1])
    ax = found.plot()
    assert found.plot(ax) is ax
    np.testing.assert_allclose(ax.lines[0].get_xydata(), found.line)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("C_w", "C_b")
    import matplotlib.pyplot as plt

    plt.close(ax.figure)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"activation": ew.Relu(), "C_w": -1.0}, "C_w=-1.0: expected finite numbers"),
        ({"activation": ew.Relu(), "C_b": [0.1, math.nan]}, "C_b=.*expected finite numbers"),
        ({"activation": act.Step()}, "jumps at 0"),
    ],
)
def test_phase_diagrams_refuse(arguments, message):
    with pytest.raises((ValueError, ArchitectureError), match=message):
        phase_diagram(**arguments)


def test_a_picture_of_one_point_is_refused():
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="at least two values of C_w"):
        phase_diagram(ew.Erf(), C_w=1.0, C_b=0.0).plot()
