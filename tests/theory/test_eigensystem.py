"""Eigenvalues against Bessel functions, exact integrals and full kernel matrices; eigenfunctions against theorems."""

import itertools
import math

import mpmath
import numpy as np
import pytest
import scipy.integrate
import scipy.special

import everwide as ew
from everwide.theory.eigenlearning import definiteness, eigensystem, hermite_coefficients
from everwide.theory.eigenlearning._eigensystem import _check as check_eigensystem
from everwide.theory.eigenlearning._eigensystem import krawtchouk

pytestmark = pytest.mark.once

NET = ew.Serial(ew.Dense(w_std=1.4, b_std=0.3), ew.Relu(), ew.Dense(1, w_std=1.1))


def arccos(order, cosine):
    """Twice the moments of two rectifiers (1) or their steps (0), of unit variance."""
    angle = np.arccos(np.clip(cosine, -1, 1))
    if order == 0:
        return 1 - angle / np.pi
    return (np.sqrt(np.maximum(1 - cosine**2, 0)) + cosine * (np.pi - angle)) / np.pi


@pytest.mark.parametrize("d", [2, 3, 8, 100])
def test_of_an_exponential_kernel_they_are_bessel_functions(d):
    levels = np.arange(6)
    expected = math.gamma(d / 2) * 2 ** (d / 2 - 1) * scipy.special.iv(levels + d / 2 - 1, 1.0)
    found = eigensystem("circle" if d == 2 else "sphere", np.exp, d, levels=6)
    np.testing.assert_allclose(found.eigenvalues, expected, rtol=1e-11 * d)
    np.testing.assert_allclose(found.rest, math.e - np.sum(expected * found.multiplicities), rtol=1e-6, atol=1e-13)


def test_kernels_with_a_kink_at_angle_zero_are_as_accurate():
    d, levels = 5, (0, 1, 2, 4, 10)
    found = eigensystem("sphere", lambda r: arccos(1, r) + r * arccos(0, r), d, levels=11).eigenvalues
    with mpmath.workdps(30):
        kernel = lambda a: (mpmath.sin(a) + 2 * mpmath.cos(a) * (mpmath.pi - a)) / mpmath.pi
        mass = mpmath.quad(lambda a: mpmath.sin(a) ** (d - 2), [0, mpmath.pi])
        for level in levels:
            unit = mpmath.gegenbauer(level, 1.5, 1)
            zonal = lambda a, k=level: mpmath.gegenbauer(k, 1.5, mpmath.cos(a)) * mpmath.sin(a) ** (d - 2)
            inner = lambda a, zonal=zonal: kernel(a) * zonal(a)
            exact = mpmath.quad(inner, [*np.linspace(0, np.pi, 5).tolist()[:-1], mpmath.pi]) / mass / unit
            np.testing.assert_allclose(found[level], float(exact), rtol=1e-12, atol=1e-16)


def test_rectifiers_without_biases_do_not_see_odd_levels():
    kernel = lambda r: r * arccos(0, r) / 2  # of the gradients
    found = eigensystem("sphere", kernel, 4, levels=9).eigenvalues
    np.testing.assert_array_equal(found > 0, [True, True, True, False, True, False, True, False, True])
    biased = lambda r: kernel((r + 1) / 2)  # one more coordinate, equal in all inputs
    assert (eigensystem("sphere", biased, 4, levels=9).eigenvalues[[3, 5, 7]] > 3e-5).all()


def test_a_hypercube_is_decomposed_exactly():
    x = np.array(list(itertools.product([-1.0, 1.0], repeat=6)))
    for which in ("ntk", "nngp"):
        kernel = getattr(ew.gram(NET, x), which)
        found = eigensystem("hypercube", NET, 6, which=which)
        np.testing.assert_array_equal(found.multiplicities, [1, 6, 15, 20, 15, 6, 1])
        each = np.repeat(found.eigenvalues, found.multiplicities.astype(int))
        np.testing.assert_allclose(np.sort(each), np.linalg.eigvalsh(kernel / 64), atol=1e-14)
        np.testing.assert_allclose(found.rest, 0, atol=1e-14)
        for level in range(7):
            phi = found.functions(level, x)
            np.testing.assert_allclose(kernel @ phi / 64, found.eigenvalues[level] * phi, atol=1e-13)
            np.testing.assert_allclose(phi.T @ phi / 64, np.eye(phi.shape[1]), atol=1e-14)


def test_functions_of_the_circle_are_orthonormal_eigenfunctions():
    angles = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    x = 2.0 * np.stack([np.cos(angles), np.sin(angles)], 1)
    found = eigensystem("circle", NET, levels=5, radius=2.0)
    kernel = ew.ntk(NET, x)
    phi = np.concatenate([found.functions(level, x) for level in range(5)], 1)
    np.testing.assert_allclose(phi.T @ phi / 400, np.eye(9), atol=1e-13)
    each = np.repeat(found.eigenvalues, found.multiplicities.astype(int))
    np.testing.assert_allclose(kernel @ phi / 400, each * phi, atol=2e-4)  # the grid meets a kink


@pytest.mark.parametrize(("d", "level"), [(2, 3), (3, 0), (3, 4), (4, 3), (8, 2)])
def test_functions_of_the_sphere_obey_the_addition_theorem(d, level):
    rng = np.random.default_rng(d)
    x, y = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in rng.normal(size=(2, 7, d)))
    found = eigensystem("sphere", np.exp, d, levels=5)
    one, two = found.functions(level, x), found.functions(level, 3 * y)
    count = one.shape[1]
    assert count == found.multiplicities[level]
    if d == 2:
        expected = count * np.cos(level * np.arccos(np.clip(x @ y.T, -1, 1)))
    else:
        index = d / 2 - 1
        unit = scipy.special.eval_gegenbauer(level, index, 1.0)
        expected = count * scipy.special.eval_gegenbauer(level, index, x @ y.T) / unit
    np.testing.assert_allclose(one @ two.T, expected, atol=1e-12)
    turned = np.concatenate([rng.normal(size=(7, d - 1)), x[:, -1:]], 1)
    turned[:, :-1] *= np.sqrt(1 - x[:, -1:] ** 2) / np.linalg.norm(turned[:, :-1], axis=1, keepdims=True)
    np.testing.assert_allclose(found.functions(level, turned)[:, 0], one[:, 0], atol=1e-12)


def test_multiplicities_are_dimensions_of_polynomials():
    for d in (2, 3, 8):
        times = eigensystem("sphere", np.exp, d, levels=6).multiplicities
        # on the sphere, polynomials of degree up to k are the homogeneous ones of degrees k and k - 1
        np.testing.assert_array_equal(np.cumsum(times), [math.comb(d + k - 1, k) + (k and math.comb(d + k - 2, k - 1))
                                                         for k in range(6)])  # fmt: skip
    np.testing.assert_array_equal(eigensystem("sphere", np.exp, 3, levels=4).multiplicities, [1, 3, 5, 7])


def test_a_large_hypercube_builds_only_the_levels_that_are_asked_for():
    found = eigensystem("hypercube", np.exp, 300, levels=4)  # exp(x.x'/d) is a product over the coordinates
    levels = np.arange(4)
    np.testing.assert_allclose(
        found.eigenvalues, np.cosh(1 / 300) ** (300 - levels) * np.sinh(1 / 300) ** levels, rtol=1e-9, atol=1e-13
    )
    for d in (1, 2, 7):
        corners = np.array(list(itertools.product([1, -1], repeat=d)))
        flips = (corners < 0).sum(1)
        sums = [[int(corners[flips == f, :level].prod(1).sum()) for f in range(d + 1)] for level in range(d + 1)]
        assert krawtchouk(d, d + 1) == sums
        assert krawtchouk(d, 2) == sums[:2]


def test_hermite_coefficients_of_a_rectifier():
    found = hermite_coefficients(ew.Relu(), 400)
    closed = [1 / math.sqrt(2 * math.pi), 0.5, 0.5 / math.sqrt(math.pi), 0.0, -1 / math.sqrt(48 * math.pi)]
    np.testing.assert_allclose(found[:5], closed, atol=1e-14)
    for cosine in (-0.9, 0.3, 0.8):
        np.testing.assert_allclose(np.sum(found**2 * cosine ** np.arange(401)), arccos(1, cosine) / 2, rtol=1e-12)
    np.testing.assert_allclose(np.sum(found**2), 0.5, rtol=1e-4)


def test_hermite_coefficients_find_kinks_and_steep_places():
    polynomials = (lambda z: 1.0, lambda z: z, lambda z: (z * z - 1) / 2**0.5, lambda z: (z**3 - 3 * z) / 6**0.5)
    for std in (1.0, 3.0):
        edges = (-12.0, -1.3 / std, 0.7 / std, 12.0)
        weighed = lambda z, std=std: np.clip(std * z, -1.3, 0.7) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
        mean = lambda he, fn=weighed, edges=edges: sum(
            scipy.integrate.quad(lambda z: fn(z) * he(z), a, b, epsabs=1e-12)[0] for a, b in itertools.pairwise(edges)
        )
        found = hermite_coefficients(lambda x: np.clip(x, -1.3, 0.7), 3, std=std)
        np.testing.assert_allclose(found, [mean(he) for he in polynomials], atol=1e-10)
    slope = hermite_coefficients(lambda x: scipy.special.erf(1e4 * x), 1)[1]
    assert slope == pytest.approx(2e4 / np.sqrt(np.pi) / np.sqrt(1 + 2e8), rel=1e-11)  # E[z erf(b z)]


def test_hermite_coefficients_at_another_scale():
    found = hermite_coefficients(np.sin, 7, std=2.0)
    k = np.arange(8)
    closed = np.where(k % 2, np.sin(k * np.pi / 2) * 2.0**k / np.sqrt(scipy.special.factorial(k)) * math.exp(-2), 0)
    np.testing.assert_allclose(found, closed, atol=1e-14)


def test_what_is_called_definite_is():
    x = np.random.default_rng(0).normal(size=(5, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    both = np.concatenate([x, -x[:1]])
    z, weight = np.polynomial.hermite_e.hermegauss(24)
    nodes = np.array(list(itertools.product(z, repeat=3)))
    mass = np.prod(list(itertools.product(weight / weight.sum(), repeat=3)), axis=1)
    line = lambda z: 2.0 * z + z**2
    certain = [(np.tanh, x), (np.exp, both), (np.cos, x)]
    cases = [(np.tanh, both), (np.cos, both), (line, np.eye(3)[:2]), (line, both), (np.sin, x[[0, 1, 0]])]
    cases = [(*case, True) for case in certain] + [(*case, False) for case in cases]
    for function, rows, expected in cases:
        features = function(rows @ nodes.T)
        smallest = np.linalg.eigvalsh((features * mass) @ features.T)[0]
        assert definiteness(function, rows).guaranteed is expected
        if expected:
            assert smallest > 1e-6
        elif len(rows) > 2 and function is not line:
            assert smallest < 1e-12


BAD = {
    "domain": (lambda: eigensystem("torus", np.exp), "domain='torus'"),
    "a circle in space": (lambda: eigensystem("circle", np.exp, 3), "expected 2"),
    "a sphere on a line": (lambda: eigensystem("sphere", np.exp, 1), "d=1: expected a whole number, 2 or more"),
    "levels": (lambda: eigensystem("sphere", np.exp, 3, levels=0), "levels=0"),
    "which": (lambda: eigensystem("sphere", NET, 3, which="both"), "which='both'"),
    "radius": (lambda: eigensystem("sphere", NET, 3, radius=-1.0), "radius=-1.0"),
    "no kernel": (lambda: eigensystem("sphere", np.sin, 3), "not positive semidefinite.* at level 3"),
    "infinite": (lambda: eigensystem("sphere", lambda r: np.where(r == 1, np.inf, r), 3), "is inf at a cosine of 1"),
    "a constant": (lambda: eigensystem("sphere", lambda r: 1.0, 3), r"to \(\), expected one value for each"),
    "level": (lambda: eigensystem("sphere", np.exp, 3).functions(40, np.eye(3)), "level=40: expected 0 to 29"),
    "points": (lambda: eigensystem("sphere", np.exp, 3).functions(1, np.eye(2)), r"shape \(2, 2\), expected"),
    "no point": (lambda: eigensystem("sphere", np.exp, 3).functions(1, np.zeros((1, 3))), r"x\[0\] is 0"),
    "no corner": (lambda: eigensystem("hypercube", np.exp, 3).functions(1, np.eye(3)), "no corners"),
    "many": (lambda: eigensystem("sphere", np.exp, 50).functions(20, np.ones((9, 50))), "too many for 9 points"),
    "degree": (lambda: hermite_coefficients(np.sin, -1), "degree=-1"),
    "std": (lambda: hermite_coefficients(np.sin, 3, std=0.0), "std=0.0"),
    "lengths": (lambda: definiteness(ew.Relu(), np.diag([1.0, 2.0])), "lengths 1 to 2, expected one"),
    "not finite": (lambda: hermite_coefficients(lambda z: 1 / (z * 0), 3), "function is not finite"),
    "too large": (lambda: hermite_coefficients(np.exp, 3, std=100.0), "is inf at .*expected finite"),
    "half a dimension": (lambda: check_eigensystem("sphere", 2.5, None, "ntk"), "d=2.5: expected a whole number"),
    "half a level": (lambda: check_eigensystem("sphere", 3, 2.5, "ntk"), "levels=2.5: expected a whole number"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_bad_input(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_networks_that_see_more_than_the_angle_are_refused():
    with pytest.raises(ValueError, match=r"not a function of the cosine.*mercer"):
        eigensystem("sphere", ew.Serial(ew.LayerNorm(), ew.Dense(1)), 3)
