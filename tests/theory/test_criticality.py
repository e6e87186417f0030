"""Critical points and susceptibilities, against closed forms, adaptive integrals and the recursion itself."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import erf, expit

import everwide as ew
from everwide import activations as act
from everwide.signal import ArchitectureError
from everwide.theory._host import host_function
from everwide.theory.criticality import critical_init, susceptibilities
from everwide.theory.criticality._critical_init import Kind

once = pytest.mark.once


def gelu(z):
    return z * (1 + erf(z / math.sqrt(2))) / 2


def silu(z):
    return z * expit(z)


def mean(fn, variance, kinks=(0.0,)):
    """`E[fn(z)]` for `z ~ N(0, variance)`, by adaptive integration between the kinks."""
    std = math.sqrt(variance)
    edges = [-12.0, *sorted(k / std for k in kinks if abs(k) < 12 * std), 12.0]
    density = lambda z: math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    integrand = lambda z: fn(std * z) * density(z)
    parts = (quad(integrand, a, b, epsabs=1e-13, epsrel=1e-12, limit=200)[0] for a, b in itertools.pairwise(edges))
    return sum(parts)


# --- critical points ---------------------------------------------------------------------------------------------

GELU = (Kind.HALF_STABLE, (3 + math.sqrt(17)) / 2, 1.98305826, 0.17292239)
SILU = (Kind.HALF_STABLE, 14.32017362, 1.98800468, 0.55514317)
POINTS = {
    "relu": (ew.Relu(), Kind.SCALE_INVARIANT, 1.0, 2.0, 0.0),
    "leaky": (ew.LeakyRelu(0.2), Kind.SCALE_INVARIANT, 1.0, 2 / 1.04, 0.0),
    "two slopes": (ew.activations.TwoSlope(-0.3, 1.2), Kind.SCALE_INVARIANT, 1.0, 2 / (0.09 + 1.44), 0.0),
    "abs": (ew.activations.Abs(), Kind.SCALE_INVARIANT, 1.0, 1.0, 0.0),
    "linear": (ew.Identity(), Kind.SCALE_INVARIANT, 1.0, 1.0, 0.0),
    "a user's relu": (lambda x: jnp.maximum(3 * x, 0), Kind.SCALE_INVARIANT, 1.0, 2 / 9, 0.0),
    "tanh": (act.Tanh(), Kind.ZERO, 0.0, 1.0, 0.0),
    "numpy tanh": (np.tanh, Kind.ZERO, 0.0, 1.0, 0.0),
    "jax tanh": (jnp.tanh, Kind.ZERO, 0.0, 1.0, 0.0),
    "sin": (act.Sin(b=2.0), Kind.ZERO, 0.0, 0.25, 0.0),
    "erf": (ew.Erf(), Kind.ZERO, 0.0, math.pi / 4, 0.0),
    "gelu": (ew.Gelu(), *GELU),
    "numpy gelu": (gelu, *GELU),
    "jax gelu": (lambda x: jax.nn.gelu(x, approximate=False), *GELU),
    "silu": (act.Silu(), *SILU),
    "a user's silu": (act.Elementwise(lambda x: x * jax.nn.sigmoid(x)), *SILU),
}


@pytest.mark.parametrize("name", POINTS)  # in both precisions of JAX: the numbers do not depend on it
def test_critical_points_are_the_known_ones(name):
    activation, kind, *expected = POINTS[name]
    point = critical_init(activation)
    assert point.kind is kind
    np.testing.assert_allclose([point.K_star, point.C_w, point.C_b], expected, atol=1.01e-8, rtol=0)


@once
@pytest.mark.parametrize(
    ("fn", "slope", "bend"),
    [
        (
            gelu,
            lambda z: (1 + erf(z / math.sqrt(2))) / 2 + z * math.exp(-z * z / 2) / math.sqrt(2 * math.pi),
            lambda z: (2 - z * z) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi),
        ),
        (
            silu,
            lambda z: expit(z) * (1 + z * expit(-z)),
            lambda z: expit(z) * expit(-z) * (2 + z * (expit(-z) - expit(z))),
        ),
    ],
    ids=["gelu", "silu"],
)
def test_half_stable_points_meet_all_three_conditions(fn, slope, bend):
    point = critical_init(fn)
    k = point.K_star
    assert point.C_w * mean(lambda z: slope(z) ** 2, k) == pytest.approx(1, abs=1e-10)
    assert mean(lambda z: fn(z) * bend(z), k) == pytest.approx(0, abs=1e-10)  # chi_par - chi_perp
    assert point.C_b + point.C_w * mean(lambda z: fn(z) ** 2, k) == pytest.approx(k, abs=1e-9)


@once
@pytest.mark.parametrize(("activation", "fn"), [(ew.Gelu(), gelu), (act.Silu(), silu), (act.Mish(), None)])
def test_half_stable_points_are_approached_from_one_side_only(activation, fn):
    fn = fn or (lambda z: z * math.tanh(math.log1p(math.exp(z))))
    point = critical_init(activation)
    ahead = []
    for share in (0.998, 1.002):  # for silu, the next order takes over at a percent
        k = share * point.K_star
        ahead.append(point.C_b + point.C_w * mean(lambda z: fn(z) ** 2, k) - k)
        np.testing.assert_allclose(ahead[-1], -point.a1 * (k - point.K_star) ** 2, rtol=0.3)
    assert ahead[0] * ahead[1] > 0
    assert point.depth_scale == pytest.approx(1 / (abs(point.a1) * point.K_star))


@once
@pytest.mark.parametrize(
    ("activation", "fn", "a1", "b1"),
    [
        (np.tanh, np.tanh, 2.0, 2.0),
        (ew.Erf(), erf, 2.0, 2.0),
        (act.Sin(), np.sin, 1.0, 1.0),
        (lambda x: np.tanh(x + 0.5 * x**2 / (1 + x**2)), None, 2 - 0.75, 1.0),  # s'' = 1 at zero, and s''' = -2
        (lambda x: np.abs(np.tanh(x)), np.tanh, 2.0, 2.0),  # a kink that the square does not show
    ],
    ids=["tanh", "erf", "sin", "bent", "folded"],
)
def test_at_zero_variances_fall_as_one_over_depth(activation, fn, a1, b1):
    point = critical_init(activation)
    np.testing.assert_allclose([point.a1, point.b1], [a1, b1], rtol=1e-6)
    assert point.depth_scale == pytest.approx(1 / a1)
    fn = fn or activation
    x, w = np.polynomial.hermite_e.hermegauss(80)
    k, depth = 1.0, 4000
    for _ in range(depth):
        k = point.C_w * np.sum(w * fn(math.sqrt(k) * x) ** 2) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(depth * k, 1 / a1, rtol=0.02)


@once
def test_a_kink_at_zero_makes_variances_fall_faster_than_one_over_depth():
    point = critical_init(act.Elu())
    assert (point.kind, point.C_w, point.a1, point.b1) == (Kind.ZERO, pytest.approx(1), math.inf, math.inf)
    start = k = 1e-4
    square = lambda z: (z if z > 0 else math.expm1(z)) ** 2
    steps = 0
    while k > start / 2:
        k = mean(square, k)
        steps += 1
    assert steps == pytest.approx(point.depth_scale / math.sqrt(start), rel=0.05)


@once
@pytest.mark.parametrize(("activation", "weight"), [(act.HardTanh(), 1.0), (act.Relu6(), 2.0)], ids=["tanh", "relu6"])
def test_functions_that_are_straight_around_zero_keep_small_signals(activation, weight):
    point = critical_init(activation)
    assert (point.kind, point.K_star, point.a1, point.b1) == (Kind.ZERO, 0, 0, 0)
    assert (point.C_w, point.depth_scale) == (pytest.approx(weight), math.inf)


@once
@pytest.mark.parametrize(
    ("activation", "reasons"),
    [
        (act.Softplus(), ["s(0) = 0.693147", "chi_parallel stays above"]),
        (act.Sigmoid(), ["s(0) = 0.5", "chi_parallel stays below"]),
        (act.Sign(), ["jumps at 0"]),
        (lambda x: np.where(x > 1, x + 1, x), ["jumps at 1"]),
        (act.Monomial(3), ["s'(0) = 0", "chi_parallel stays above"]),
        (act.Exp(), ["s(0) = 1", "chi_parallel stays above"]),
        (lambda x: x + x**3, ["unstable", "a1 = -6"]),
        (lambda x: np.maximum(x + 1, 0), ["negative C_b"]),
        (lambda x: np.sign(x) * np.sqrt(np.abs(x)), ["not differentiable"]),
        (lambda x: 0 * x, ["constant"]),
        (np.floor, ["jumps at 0"]),
        (np.round, ["jumps at -0.5"]),
        (lambda x: np.sin(x * x), ["none that could be found", "oscillates fast"]),
        (lambda x: np.tanh(x.astype(np.float32)).astype(np.float64), ["computed in float32"]),
        (lambda x: np.log1p(np.exp(x / 1000)), ["chi_parallel stays above", "from 2e+03"]),
    ],
)
def test_where_there_is_no_critical_point_the_reason_says_which_condition_fails(activation, reasons):
    point = critical_init(activation)
    assert point.kind == "none"
    assert all(reason in point.reason for reason in reasons)
    with pytest.raises(ArchitectureError, match="has no critical point"):
        point.C_w  # noqa: B018 - there is no number to be had


@once
@pytest.mark.parametrize(
    ("activation", "message"),
    [
        (lambda x: 1.0 if x > 0 else 0.0, "np.where instead of if"),
        (lambda x: jnp.tanh(x.astype(jnp.float32)), "keeps float64"),
        (lambda x: x - np.mean(x), "changes other elements"),
        (lambda x: np.sqrt(x), "not finite"),
    ],
    ids=["scalar", "float32", "mean", "undefined"],
)
def test_functions_that_are_no_activations_are_refused(activation, message):
    with pytest.raises(ArchitectureError, match=message):
        critical_init(activation)


@once
def test_an_activation_is_not_named_by_a_string():
    with pytest.raises(ArchitectureError, match="named by value, not by a string"):
        host_function("tanh")


# --- other units of the input ---------------------------------------------------------------------------------------


@once
@pytest.mark.parametrize("scale", [50.0, 1e3, 1e-3, 1e-5, 3e8, 1e-9])
@pytest.mark.parametrize(("fn", "point"), [(gelu, GELU), (silu, SILU)], ids=["gelu", "silu"])
def test_a_rescaled_input_rescales_the_half_stable_point(fn, point, scale):
    kind, *expected = point
    plain, found = critical_init(fn), critical_init(lambda x: scale * fn(x / scale))
    assert found.kind is kind
    units = scale**2, 1.0, scale**2
    np.testing.assert_allclose([found.K_star, found.C_w, found.C_b], np.multiply(expected, units), rtol=1e-7)
    np.testing.assert_allclose([found.a1, found.b1], np.array([plain.a1, plain.b1]) / scale**2, rtol=1e-4)
    assert found.depth_scale == pytest.approx(plain.depth_scale, rel=1e-4)


@once
@pytest.mark.parametrize("b", [1e-4, 1e2, 1e4, 1e5, 1e9])
@pytest.mark.parametrize(("fn", "a1"), [(np.tanh, 2.0), (np.sin, 1.0)], ids=["tanh", "sin"])
def test_steep_and_flat_odd_functions_have_their_point_at_zero(fn, a1, b):
    found = critical_init(lambda x: fn(b * x))
    assert found.kind is Kind.ZERO
    expected = [b**-2, a1 * b**2, a1 * b**2, 1 / (a1 * b**2)]
    np.testing.assert_allclose([found.C_w, found.a1, found.b1, found.depth_scale], expected, rtol=1e-9)


@once
@pytest.mark.parametrize("top", [1e3, 1e7])
def test_a_bound_far_out_is_no_scale_invariance(top):
    found = critical_init(lambda x: np.clip(x, 0, top))
    assert (found.kind, found.C_w) == (Kind.ZERO, pytest.approx(2.0))


@once
def test_a_kink_at_zero_in_other_units():
    """`s = x - x^2/2 ...` on the right and `x` on the left, so that `E[s^2] = K - sqrt(2/pi) K^1.5 ...`."""
    steep = critical_init(lambda x: np.where(x > 0, -np.expm1(-1e4 * np.abs(x)), 1e4 * x))
    assert (steep.kind, steep.a1) == (Kind.ZERO, math.inf)
    assert steep.C_w == pytest.approx(1e-8)
    assert steep.depth_scale == pytest.approx(2 * (math.sqrt(2) - 1) / math.sqrt(2 / math.pi) / 1e4, rel=1e-9)


@once
def test_the_slope_at_zero_is_not_that_of_a_plateau_beside_it():
    for b in (1e3, 1e5):
        fn = lambda x, b=b: np.tanh(b * x)
        assert susceptibilities(fn, 0.0, b**-2) == pytest.approx((1.0, 1.0))
    two_sizes = critical_init(lambda x: np.tanh(1e6 * x) + np.sinh(np.tanh(x)))
    assert (two_sizes.kind, two_sizes.C_w) == (Kind.ZERO, pytest.approx((1e6 + 1) ** -2))


# --- susceptibilities --------------------------------------------------------------------------------------------


@once
@pytest.mark.parametrize(
    ("activation", "fn", "slope", "kinks"),
    [
        (act.Tanh(), np.tanh, lambda z: 1 / np.cosh(z) ** 2, (0.0,)),
        (lambda x: np.abs(x - 0.337), lambda z: abs(z - 0.337), lambda z: 1.0, (0.337,)),  # a kink to be found
        (act.Selu(), None, None, (0.0,)),
        (act.HardTanh(), lambda z: min(max(z, -1), 1), lambda z: float(abs(z) < 1), (-1.0, 1.0)),
    ],
    ids=["tanh", "hidden kink", "selu", "hard tanh"],
)
def test_susceptibilities_are_derivatives_of_the_recursion(activation, fn, slope, kinks):
    a, b = 1.6732632423543772, 1.0507009873554805
    fn = fn or (lambda z: b * z if z > 0 else a * b * math.expm1(z))
    slope = slope or (lambda z: b if z > 0 else a * b * math.exp(z))
    for k in (0.05, 0.7, 20.0):
        found = susceptibilities(activation, k, 1.3)
        h = 1e-3 * k
        ends = [mean(lambda z: fn(z) ** 2, k + d, kinks) for d in (-2 * h, -h, h, 2 * h)]
        difference = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h)
        assert found.parallel == pytest.approx(1.3 * difference, rel=1e-8)
        assert found.perpendicular == pytest.approx(1.3 * mean(lambda z: slope(z) ** 2, k, kinks), rel=1e-10)


@once
def test_susceptibilities_of_vanishing_signals_and_of_arrays():
    found = susceptibilities(act.Cos(), np.array([[0.0, 1e-7], [1.0, 2.0]]), np.array([1.0, 2.0]))
    k, c = np.array([[0.0, 1e-7], [1.0, 2.0]]), np.array([1.0, 2.0])
    np.testing.assert_allclose(found.parallel, -c * np.exp(-2 * k), atol=2e-7)  # E[cos^2] = (1 + exp(-2K)) / 2
    np.testing.assert_allclose(found.perpendicular, c * (1 - np.exp(-2 * k)) / 2, atol=1e-9)
    assert susceptibilities(ew.Relu(), 0.0, 2.0) == pytest.approx((1.0, 1.0))
    assert isinstance(susceptibilities(ew.Relu(), 1.0, 2.0).parallel, float)


@once
@pytest.mark.parametrize(
    ("activation", "k", "weight", "message"),
    [
        (ew.Relu(), -1.0, 1.0, "K=-1.0: expected finite"),
        (ew.Relu(), math.nan, 1.0, "K=nan: expected finite"),
        (ew.Relu(), 1.0, -2.0, "C_w=-2.0: expected finite"),
        (act.Step(), 1.0, 1.0, "jumps at 0"),
        (lambda x: np.maximum(x, 0) + 1, 0.0, 1.0, "kink at zero"),
        (act.Exp(), 1e4, 1.0, "grows too fast"),
    ],
)
def test_susceptibilities_refuse_what_has_no_answer(activation, k, weight, message):
    with pytest.raises(ValueError, match=message):
        susceptibilities(activation, k, weight)
