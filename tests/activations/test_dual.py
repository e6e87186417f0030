"""`dual` and `moments` of every closed form against quadrature of the function."""

import functools

import numpy as np
import pytest

from activations import gaussian_reference as ref
from activations.activation_table import (
    KINKED,
    SMOOTH,
    Kinked,
    Line,
    Smooth,
    array,
    dual,
    known,
    lines,
    moments,
    tolerance,
)
from everwide.activations import GaussianPair

pytestmark = pytest.mark.as_users

RESTS = (0.0, 1e-10, 0.2, 0.7, 1.0)
named = lambda cases: pytest.mark.parametrize("case", cases, ids=lambda c: c.name)


@functools.cache
def exact(case: Smooth, var: float) -> tuple[float, float]:
    """`E[f(u)^2]` and `E[f'(u)^2]`."""
    return ref.smooth_moments(case.blur, var, var, var)


def natural(case: Smooth, var1: float, var2: float) -> np.ndarray:
    """`sqrt(k(u, u) k(v, v))` for the moment and the slope."""
    return np.sqrt(np.array(exact(case, var1)) * np.array(exact(case, var2)))


def worst(got, expected: np.ndarray, size: np.ndarray) -> float:
    error = np.abs(np.asarray(got, np.float64) - expected)
    assert error.shape == np.shape(expected)
    return float(np.max(error / np.where(size == 0, 1, size)))


@named(SMOOTH)
def test_the_table_blurs_the_function_itself(case: Smooth) -> None:
    x = np.linspace(-2, 2, 9)
    plain = lambda t: case.blur(t, 0.0)
    np.testing.assert_allclose(np.asarray(case.activation(array(x))), plain(x), rtol=tolerance(1e-13), atol=3e-7)
    wide = ref.blur_by_nodes(plain, 90)(x, 0.3)
    np.testing.assert_allclose(case.blur(x, 0.3), wide, rtol=1e-10, atol=1e-13)


@named(SMOOTH)
def test_smooth_dual(case: Smooth) -> None:
    found = lines(case.stds, RESTS)
    expected = np.array([ref.smooth_moments(case.blur, *p.exact) for p in found])
    size = np.array([natural(case, p.std1**2, p.std2**2) for p in found])
    got = dual(case.activation, known(found))
    assert worst(got.moment, expected[:, 0], size[:, 0]) < tolerance()
    assert worst(got.slope, expected[:, 1], size[:, 1]) < tolerance()


@named(SMOOTH)
def test_smooth_dual_from_products_alone(case: Smooth) -> None:
    """Without distances the correlation is a rounded quotient; an error of `var` roundings is allowed."""
    numbers = np.array([[float(a) for a in array(p.exact)] for p in lines((0.55, 5.5), RESTS)])
    expected = np.array([ref.smooth_moments(case.blur, *p) for p in numbers])
    size = np.array([natural(case, p[0], p[2]) for p in numbers])
    got = dual(case.activation, GaussianPair(*(array(a) for a in numbers.T)))
    assert worst(got.moment, expected[:, 0], size[:, 0]) < tolerance(in32=3e-5)
    assert worst(got.slope, expected[:, 1], size[:, 1]) < tolerance(in32=3e-5)


@named(SMOOTH)
def test_smooth_moments(case: Smooth) -> None:
    var = np.array([s**2 for s in case.stds])
    expected = np.array([exact(case, v) for v in var])
    means = np.array([ref.mean(lambda x: case.blur(x, 0.0), v) for v in var])
    found = moments(case.activation, array(var))
    assert worst(found.mean, means, np.sqrt(expected[:, 0])) < tolerance(1e-13, 1e-6)
    assert worst(found.moment, expected[:, 0], expected[:, 0]) < tolerance(1e-13, 1e-6)
    assert worst(found.slope, expected[:, 1], expected[:, 1]) < tolerance(1e-13, 1e-6)


def close_and_far(case: Kinked) -> list[Line]:
    """Nearly parallel examples of one norm; of different norms only far ones, whose angle the distances carry."""
    return lines(case.stds, (0.0, 1e-10, 1e-4), equal=True) + lines(case.stds[-3:], (0.2, 0.7, 1.0))


@named(KINKED)
def test_kinked_dual(case: Kinked) -> None:
    """Nearly parallel examples are as accurate as others, because the distances are known."""
    found = close_and_far(case)
    scale = np.array([p.std1 * p.std2 for p in found])
    got = dual(case.activation, known(found))
    for value, f, n in ((got.moment, case.function, case.degree), (got.slope, case.slope, max(case.degree - 1, 0))):
        unit = np.array([ref.homogeneous_moment(f, n, p.angle) for p in found])
        size = scale**n * ref.homogeneous_moment(f, n, 0.0)
        assert worst(value, scale**n * unit, size) < tolerance(1e-13)


@named(KINKED)
def test_kinked_moments(case: Kinked) -> None:
    var, n = np.array([s**2 for s in case.stds]), case.degree
    found = moments(case.activation, array(var))
    moment = var**n * ref.homogeneous_moment(case.function, n, 0.0)
    slope = var ** max(n - 1, 0) * ref.homogeneous_moment(case.slope, max(n - 1, 0), 0.0)
    means = np.array([ref.mean(case.function, v) for v in var])
    assert worst(found.mean, means, np.sqrt(moment)) < tolerance(1e-13, 1e-6)
    assert worst(found.moment, moment, moment) < tolerance(1e-13, 1e-6)
    assert worst(found.slope, slope, slope) < tolerance(1e-13, 1e-6)


@named(KINKED)
def test_distances_of_nearly_equal_examples_do_not_cancel(case: Kinked) -> None:
    """Relative to themselves, not to the size of the kernel."""
    found = lines((0.5, 2.0), (1e-8, 1e-3), equal=True) + lines((0.5, 1.0), (0.4, 1.0))
    got = dual(case.activation, known(found))
    assert got.minus is not None
    expected = np.array([ref.homogeneous_distances(case.function, case.degree, p.std1, p.std2, p.angle) for p in found])
    assert worst(got.minus, expected[:, 0], expected[:, 0]) < tolerance(1e-11)
    if got.plus is None:  # says that no covariance is negative
        assert np.all(np.asarray(got.moment) >= 0)
    else:
        assert worst(got.plus, expected[:, 1], expected[:, 1]) < tolerance(1e-11)
