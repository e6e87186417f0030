"""`angle` and `arc` against mpmath, relative to themselves: near both ends and in between."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from activations.activation_table import array, dtype, tolerance
from everwide.activations import GaussianPair, _rectified
from everwide.gaussian import angle as plain_angle

arc, blurred, angle = (jax.jit(f) for f in (_rectified.arc, _rectified.blurred, plain_angle))

RESTS = np.concatenate([[1e-30, 1e-12, 1e-6, 1e-3], np.linspace(0.01, 1, 34)])
ROUNDINGS = 60


def relative(got: jax.Array, exact: list) -> float:
    """The largest relative error, in units of the rounding of the dtype."""
    errors = [abs((mp.mpf(float(g)) - e) / e) for g, e in zip(got, exact, strict=True)]
    return float(max(errors)) / float(np.finfo(dtype()).eps)


def test_angle() -> None:
    rest = array(RESTS)
    with mp.workdps(40):
        exact = [2 * mp.asin(mp.sqrt(mp.mpf(float(m)) / 2)) for m in rest]
    assert relative(angle(rest), exact) < ROUNDINGS


def test_angle_of_nothing_has_a_derivative() -> None:
    assert float(angle(array(0.0))) == 0
    slope = jax.jit(jax.grad(angle))
    assert float(slope(array(0.0))) == 0
    assert float(slope(array(0.5))) == pytest.approx(1 / np.sqrt(0.75), rel=tolerance(1e-14, 1e-6))


@pytest.mark.parametrize("sign", [1, -1])
def test_arc_from_the_complement(sign: int) -> None:
    rest = array(RESTS[:-1])
    found = arc(sign * (1 - rest), rest)
    with mp.workdps(60):
        exact = [1 - mp.mpf(float(m)) for m in rest]
        large = [i for i, c in enumerate(exact) if c > 0.5]  # below, `1 - rest` has lost digits before `arc` sees it
        assert relative(found.arcsin[np.array(large)], [sign * mp.asin(exact[i]) for i in large]) < ROUNDINGS
        assert relative(found.fold, [mp.acos(c) for c in exact]) < ROUNDINGS
        assert relative(found.cosine, [mp.sqrt((1 - c) * (1 + c)) for c in exact]) < ROUNDINGS


@pytest.mark.parametrize("sign", [1, -1])
def test_arc_of_small_numbers(sign: int) -> None:
    s = array([sign * x for x in (1e-30, 1e-7, 0.003, 0.2, 0.5, 0.7, 0.71)])
    found = arc(s, 1 - jnp.abs(s))
    with mp.workdps(60):
        assert relative(found.arcsin, [mp.asin(mp.mpf(float(x))) for x in s]) < ROUNDINGS


def test_arc_differentiates_as_arcsin() -> None:
    s = array([-0.9, -0.3, 0.0, 0.3, 0.9])
    value = lambda s: arc(s, 1 - jnp.abs(s))
    derivative = jax.jit(jax.vmap(jax.jacfwd(value)))
    slopes = derivative(s)
    np.testing.assert_allclose(slopes.arcsin, 1 / np.sqrt(1 - np.asarray(s) ** 2), rtol=tolerance(1e-14, 1e-6))
    np.testing.assert_allclose(slopes.cosine, -np.asarray(s) * slopes.arcsin, rtol=1e-6)
    np.testing.assert_allclose(slopes.fold, np.where(s < 0, slopes.arcsin, -slopes.arcsin), rtol=1e-6)
    assert all(float(a[0]) == 0 for a in derivative(array([1.0] * 5)))


def test_blurred_never_degenerates() -> None:
    """The determinant of `I + rate Sigma` for parallel numbers of huge variance is `1 + rate (var1 + var2)`."""
    var1, var2 = array([1e6, 1e-6, 0.0]), array([4e6, 4e-6, 1.0])
    cov = array([2e6, -2e-6, 0.0])
    pair = GaussianPair(var1, cov, var2, var1 + var2 - 2 * cov, var1 + var2 + 2 * cov)
    expected = 1 / np.sqrt(1 + 0.7 * (np.asarray(var1, np.float64) + np.asarray(var2, np.float64)))
    np.testing.assert_allclose(blurred(pair, 0.7).inverse_root_det, expected, rtol=tolerance(1e-9, 1e-2))
