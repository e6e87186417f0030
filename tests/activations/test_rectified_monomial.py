"""Arc-cosine kernels of any order against the definition, relative to themselves."""

import jax
import mpmath as mp
import numpy as np
import pytest

from activations.activation_table import array, dtype, dual
from everwide.activations import GaussianPair, RectifiedMonomial, Relu, Step
from everwide.activations._polynomial import _loss, arc_power
from everwide.signal import ArchitectureError

pytestmark = pytest.mark.as_users


def by_definition(n: int, rest: float, sign: int) -> mp.mpf:
    """`E[u^n v^n; u, v > 0]` in polar coordinates: an integral of a positive function."""
    folded = 2 * mp.asin(mp.sqrt(mp.mpf(rest) / 2))
    angle = folded if sign > 0 else mp.pi - folded
    # measured from the edge of the wedge in units of its opening: near opposite numbers the wedge is thin
    opening = mp.pi - angle
    one = lambda t: mp.sin(opening * t) * mp.sin(opening * (1 - t))
    return 2**n * mp.factorial(n) / (2 * mp.pi) * opening * mp.quad(lambda t: one(t) ** n, [0, 1])


def cho_and_saul(n: int, rest: float, sign: int) -> mp.mpf:
    """The published forms of `J_n` for `n <= 2`, with digits to spare for their cancellation."""
    folded = 2 * mp.asin(mp.sqrt(mp.mpf(rest) / 2))
    t = folded if sign > 0 else mp.pi - folded
    s, c = mp.sin(t), mp.cos(t)
    forms = (mp.pi - t, s + (mp.pi - t) * c, 3 * s * c + (mp.pi - t) * (1 + 2 * c**2))
    return forms[n] / (2 * mp.pi)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("rest", [1e-9, 1e-4, 0.3, 1.0])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_published_forms(order: int, rest: float, sign: int) -> None:
    rest = float(dtype()(rest))
    got = float(arc_power(order, array(sign * (1 - rest)), array(rest)))
    with mp.workdps(80):
        exact = cho_and_saul(order, rest, sign)
        assert abs(mp.mpf(got) / exact - 1) < 30 * np.finfo(dtype()).eps


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("order", [3, 4, 7, 12])
def test_higher_orders(order: int, sign: int) -> None:
    for rest in (0.01, 0.4, 1.0):
        rest = float(dtype()(rest))
        got = float(arc_power(order, array(sign * (1 - rest)), array(rest)))
        with mp.workdps(30):
            assert abs(mp.mpf(got) / by_definition(order, rest, sign) - 1) < 60 * np.finfo(dtype()).eps


@pytest.mark.parametrize("order", [0, 1, 2, 5])
def test_loss_of_a_small_angle(order: int) -> None:
    for rest in (1e-9, 1e-3, 0.6):
        rest = float(dtype()(rest))
        got = float(_loss(order, array(rest)))
        with mp.workdps(60):
            exact = by_definition(order, 0.0, 1) - by_definition(order, rest, 1)
            assert abs(mp.mpf(got) / exact - 1) < 30 * np.finfo(dtype()).eps


def test_degree_one_is_relu_and_degree_zero_is_a_step() -> None:
    pair = GaussianPair(array([1.0, 2.0, 1.0, 1.0]), array([0.3, -1.1, 1.0, -1.0]), array([1.5, 0.9, 1.0, 1.0]))
    for one, other in ((RectifiedMonomial(1), Relu()), (RectifiedMonomial(0), Step())):
        for a, b in zip(dual(one, pair)[:2], dual(other, pair)[:2], strict=True):
            np.testing.assert_allclose(a, b, atol=10 * np.finfo(dtype()).eps)


def test_degree_zero_counts_zero_as_positive() -> None:
    found = dual(RectifiedMonomial(0), GaussianPair(array([0.0, 0.0]), array([0.0, 0.0]), array([0.0, 1.0])))
    np.testing.assert_allclose(found.moment, [1.0, 0.5])
    known = GaussianPair(*(array(a) for a in ([0.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0])))
    np.testing.assert_allclose(dual(RectifiedMonomial(0), known).minus, [0.0, 0.5])
    assert float(RectifiedMonomial(0)(array(0.0))) == 1


def test_a_high_degree_needs_a_wide_dtype() -> None:
    one = array(1.0)
    with pytest.raises(ArchitectureError, match="moments at unit variance reach 1e"):
        RectifiedMonomial(200).moments(one)
    if jax.config.jax_enable_x64:
        assert np.isfinite(float(dual(RectifiedMonomial(100), GaussianPair(one, one / 2, one)).moment))


@pytest.mark.parametrize("degree", [-1, 1.5])
def test_bad_degrees(degree: float) -> None:
    with pytest.raises((ArchitectureError, TypeError), match="degree"):
        RectifiedMonomial(degree)  # type: ignore[arg-type]
