"""The two-slope family beyond the table: identities and conventions."""

import equinox as eqx
import mpmath as mp
import numpy as np
import pytest

import everwide as ew
from activations.activation_table import array, dual, known, lines, tolerance
from everwide.activations import Abs, GaussianPair, LeakyRelu, Relu, TwoSlope

pytestmark = pytest.mark.as_users

PAIR = GaussianPair(array([1.0, 2.0, 0.5]), array([0.3, -0.9, 0.5]), array([1.5, 0.8, 0.5]))


@pytest.mark.parametrize(
    ("named", "spelled"),
    [(Relu(), TwoSlope(0.0, 1.0)), (LeakyRelu(0.2), TwoSlope(0.2, 1.0)), (Abs(), TwoSlope(-1.0, 1.0))],
    ids=["relu", "leaky_relu", "abs"],
)
def test_names_are_pairs_of_slopes(named, spelled) -> None:
    x = array(np.linspace(-2, 2, 9))
    np.testing.assert_array_equal(named(x), spelled(x))
    for pair in (PAIR, known(lines((0.5, 1.0), (1e-9, 0.3)))):
        for a, b in zip(dual(named, pair)[:2], dual(spelled, pair)[:2], strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance(1e-13, 1e-6), atol=tolerance(1e-15, 1e-7))


def test_equal_slopes_are_linear() -> None:
    """No angle is left: the kernel is that of a linear map."""
    found = dual(TwoSlope(1.5, 1.5), PAIR)
    np.testing.assert_allclose(found.moment, 2.25 * PAIR.cov, rtol=tolerance(1e-14, 1e-6))
    np.testing.assert_allclose(found.slope, [2.25] * 3, rtol=tolerance(1e-14, 1e-6))


def test_positively_homogeneous() -> None:
    """`f(3 x) = 3 f(x)`: moments scale, slopes stay."""
    bigger = GaussianPair(9 * PAIR.var1, 9 * PAIR.cov, 9 * PAIR.var2)
    once, thrice = dual(LeakyRelu(0.1), PAIR), dual(LeakyRelu(0.1), bigger)
    np.testing.assert_allclose(thrice.moment, 9 * once.moment, rtol=tolerance(1e-13))
    np.testing.assert_allclose(thrice.slope, once.slope, rtol=tolerance(1e-7, 1e-3))


def test_relu_of_nearly_equal_rows_through_a_deep_network() -> None:
    """Rows 1e-3 apart, 10 layers: the slopes would lose half of the digits of the angle in every layer."""
    x = np.random.default_rng(0).normal(size=(1, 20))
    rows = np.concatenate([x, x + 1e-3 * np.random.default_rng(1).normal(size=(1, 20))])
    blocks = [layer for _ in range(10) for layer in (ew.Dense(w_std=2**0.5), ew.Relu())]
    kernel = ew.Infinite(ew.Serial(*blocks, ew.Dense(1)), (20,))
    inputs = ew.Inputs(array(rows))
    block, own = eqx.filter_jit(lambda k, x: (k.block(x, x), k.diagonal(x)))(kernel, inputs)
    exact = _relu_ntk(rows, depth=10)
    np.testing.assert_allclose(own.ntk, np.diag(exact), rtol=tolerance(1e-12, 1e-5))
    np.testing.assert_allclose(block.ntk, exact, rtol=tolerance(1e-6, 2e-3))


def _relu_ntk(rows: np.ndarray, depth: int) -> np.ndarray:
    """The recursion of Jacot et al. (2018) in 50 digits; weights of variance 2 keep variances, the last halves them."""
    rows = np.asarray(array(rows), np.float64)
    return np.array([[_relu_ntk_of(a, b, depth) for b in rows] for a in rows])


def _relu_ntk_of(a: np.ndarray, b: np.ndarray, depth: int) -> float:
    dot = lambda a, b: mp.fsum(mp.mpf(float(s)) * mp.mpf(float(t)) for s, t in zip(a, b, strict=True)) / len(a)
    with mp.workdps(50):
        size = mp.sqrt(dot(a, a) * dot(b, b))
        nngp = ntk = min(dot(a, b) / size, mp.mpf(1))
        for _ in range(depth):
            angle = mp.acos(nngp)
            nngp, slope = (mp.sin(angle) + (mp.pi - angle) * mp.cos(angle)) / mp.pi, (mp.pi - angle) / mp.pi
            ntk = nngp + slope * ntk
        return float(size * ntk)
