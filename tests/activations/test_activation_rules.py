"""What single activations promise beyond the table: special values, conventions and messages."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
import everwide.activations as act
from activations.activation_table import array, dual, tolerance
from everwide.activations import GaussianPair
from everwide.kernel import Block
from everwide.signal import ArchitectureError

pytestmark = pytest.mark.as_users

PAIR = GaussianPair(array([1.0, 2.0]), array([0.3, -0.9]), array([1.5, 0.8]))


@eqx.filter_jit
def kernels(net: ew.Serial, x1: jax.Array, x2: jax.Array) -> Block:
    return ew.Infinite(net, x1.shape[1:]).block(ew.Inputs(x1), ew.Inputs(x2))


def test_erf_keeps_the_digits_of_small_correlations() -> None:
    """Relative to itself: the form `pi/2 - angle` would lose all of them."""
    cov = array([1e-7, 1e-5])
    got = dual(act.Erf(), GaussianPair(array(1.0), cov, array(1.0))).moment
    np.testing.assert_allclose(got, (2 / np.pi) * np.arcsin(np.asarray(cov, np.float64) / 1.5), rtol=tolerance(1e-14))


def test_gelu_far_left() -> None:
    """`x Phi(x)` by the tail of `Phi`: `1 + erf` would cancel to 0."""
    expected = -10 * 7.61985302416052606597e-24  # Phi(-10), Abramowitz and Stegun, table 26.2
    assert float(act.Gelu()(array(-10.0))) == pytest.approx(expected, rel=tolerance(1e-13, 1e-5))


def test_sigmoid_like_is_like_sigmoid() -> None:
    x = jnp.linspace(-8, 8, 101)
    assert float(jnp.max(jnp.abs(act.SigmoidLike()(x) - 1 / (1 + jnp.exp(-x))))) < 0.02


def test_rbf_is_the_gaussian_kernel_of_distances() -> None:
    x, y = np.array([[0.3, -1.0], [0.8, 0.5]]), np.array([[0.1, 0.2], [-0.7, 1.1]])
    net = ew.Serial(ew.Dense(), act.Rbf(gamma=0.7), ew.Dense(1))
    block = kernels(net, array(x), array(y))
    squared = np.sum((x[:, None] - y[None]) ** 2, -1) / 2
    np.testing.assert_allclose(block.nngp, np.exp(-0.7 * squared), rtol=tolerance(1e-13))


def test_rbf_distance_of_nearly_equal_examples() -> None:
    near = array([1e-12, 1e-3])
    found = dual(act.Rbf(0.7), GaussianPair(array(1.0), 1 - near / 2, array(1.0), near))
    np.testing.assert_allclose(found.minus, -2 * np.expm1(-0.7 * np.asarray(near, np.float64)), rtol=tolerance(1e-14))


def test_waves_of_large_variances_do_not_overflow() -> None:
    huge = array([1e4])
    found = dual(act.Sin(), GaussianPair(huge, huge, huge))
    np.testing.assert_allclose([found.moment[0], found.slope[0]], [0.5, 0.5], rtol=tolerance(1e-13))


def test_sign_and_step_of_a_constant_zero() -> None:
    zero = GaussianPair(array([0.0, 0.0]), array([0.0, 0.0]), array([0.0, 1.0]))
    known = GaussianPair(zero.var1, zero.cov, zero.var2, zero.var2, zero.var2)
    for pair in (zero, known):
        np.testing.assert_array_equal(dual(act.Sign(), pair).moment, [0, 0])
        np.testing.assert_allclose(dual(act.Step(), pair).moment, [0.25, 0.25], rtol=tolerance(1e-15, 1e-7))
    np.testing.assert_array_equal(dual(act.Sign(), known).minus, [0, 1])
    np.testing.assert_array_equal(dual(act.Step(), known).minus, [0, 0.25])
    np.testing.assert_array_equal(act.Sign().moments(array([0.0, 2.0])).moment, [0, 1])
    np.testing.assert_array_equal(act.Step().moments(array([0.0, 2.0])).moment, [0.25, 0.5])


def test_nothing_below_a_sign_is_trained() -> None:
    net = ew.Serial(ew.Dense(), act.Sign(), ew.Dense(1))
    x = array([[1.0, 2.0], [0.5, -1.0]])
    block = kernels(net, x, x)
    np.testing.assert_allclose(block.ntk, block.nngp, rtol=tolerance(1e-15, 1e-7))


@pytest.mark.parametrize("degree", [0, 1, 2, 5])
def test_hermite_keeps_the_rule_of_unit_variance(degree: int) -> None:
    found, single = dual(act.Hermite(degree), PAIR), act.Hermite(degree).moments(PAIR.var1)
    cov, var = np.asarray(PAIR.cov, np.float64), np.asarray(PAIR.var1, np.float64)
    np.testing.assert_allclose(found.moment, cov**degree, rtol=tolerance(1e-14, 1e-6))
    np.testing.assert_allclose(found.slope, degree * cov ** max(degree - 1, 0), rtol=tolerance(1e-14, 1e-6))
    np.testing.assert_allclose(single.moment, var**degree, rtol=tolerance(1e-14, 1e-6))
    x = np.linspace(-2, 2, 7)
    exact = np.polynomial.hermite_e.hermeval(x, np.eye(degree + 1)[degree])
    exact /= np.sqrt(float(np.prod(np.arange(1, degree + 1))))
    np.testing.assert_allclose(act.Hermite(degree)(array(x)), exact, rtol=tolerance(1e-13, 1e-5), atol=1e-6)


def test_hermite_is_orthonormal_as_a_polynomial() -> None:
    """The rule of `Hermite` is that of the same polynomial, spelled out, at unit variance."""
    pair = GaussianPair(array(1.0), array(0.6), array(1.0))
    spelled = dual(act.Polynomial([0.0, -3 / 6**0.5, 0.0, 1 / 6**0.5]), pair)
    rule = dual(act.Hermite(3), pair)
    np.testing.assert_allclose(spelled[:2], rule[:2], rtol=tolerance(1e-13))


def test_polynomial_takes_any_sequence() -> None:
    spellings = ([1, 2, 3], (1.0, 2.0, 3.0), np.array([1.0, 2.0, 3.0]), jnp.array([1.0, 2.0, 3.0]))
    found = [dual(act.Polynomial(c), PAIR).moment for c in spellings]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=tolerance(1e-14, 1e-6))


def test_a_monomial_of_high_degree() -> None:
    """`E[u^20 v^20]` at correlation 1 is `39!!`; the incumbents' tables end at 5."""
    one = array(1.0)
    exact = float(np.prod(np.arange(1.0, 40.0, 2.0)))
    assert float(dual(act.Monomial(20), GaussianPair(one, one, one)).moment) == pytest.approx(exact, rel=tolerance())
    assert float(act.Monomial(20).moments(one).moment) == pytest.approx(exact, rel=tolerance())


def test_exp_normalized() -> None:
    activation = act.ExpNormalized(1.3, -0.8)
    found = dual(activation, PAIR)
    var1, cov, var2 = (np.asarray(a, np.float64) for a in (PAIR.var1, PAIR.cov, PAIR.var2))
    scale = np.sqrt(var1 * var2)
    weight = np.exp(1.3 * (cov / scale - 0.8))
    np.testing.assert_allclose(found.moment, scale * weight, rtol=tolerance(1e-14, 1e-6))
    np.testing.assert_allclose(found.slope, 1.3 * weight, rtol=tolerance(1e-14, 1e-6))
    assert float(activation.moments(array(2.0)).mean) == 0
    with pytest.raises(ArchitectureError, match="ExpNormalized has no finite network"):
        activation(array(1.0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: act.Gaussian(1.0, 0.5), r"Gaussian\(b=0.5\): b must be below 0"),
        (lambda: act.Gaussian(1.0, 0.0), "Pass a negative b"),
        (lambda: act.Rbf(-1.0), r"Rbf\(gamma=-1.0\)"),
        (lambda: act.Monomial(-1), r"Monomial\(degree=-1\): degree must be a whole number"),
        (lambda: act.Hermite(-2), r"Hermite\(degree=-2\)"),
        (lambda: act.RectifiedMonomial(-1), r"RectifiedMonomial\(degree=-1\)"),
        (lambda: act.Polynomial(()), "at least one coefficient"),
        (lambda: act.Monomial(200).moments(array(1.0)), "lower the degree"),
        (lambda: act.Polynomial((0.0,) * 400).moments(array(1.0)), "lower the degree"),
    ],
)
def test_messages(make, message: str) -> None:
    with pytest.raises(ArchitectureError, match=message):
        make()
