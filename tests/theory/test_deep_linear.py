"""Deep linear networks against mpmath, quadrature, and networks that are really drawn."""

import math

import mpmath
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
import scipy.optimize
import scipy.special
import scipy.stats

from everwide._checks import hidden_widths
from everwide.theory import deep_linear
from everwide.theory.deep_linear._law import ScaleLaw

pytestmark = pytest.mark.once


def data(count, inputs, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, inputs)), rng.normal(size=count)


def statistics(x, y):
    """Squared norm of the interpolant, and the determinant, by ways of their own."""
    theta = np.linalg.pinv(x) @ y
    return theta @ theta, np.linalg.slogdet(x @ x.T)[1]


def log_evidence(x, y, hidden_widths, variance=1.0):
    return deep_linear.posterior(x, y, hidden_widths, math.sqrt(variance)).log_evidence


def meijer_evidence(x, y, widths, variance):
    """Hanin and Zlokapa's formula, with many digits."""
    count, inputs = x.shape
    norm, logdet = statistics(x, y)
    with mpmath.workdps(30):
        layers = [2 * mpmath.mpf(variance) / n for n in widths]
        product = mpmath.fprod(layers)
        argument = inputs * mpmath.mpf(norm) / (2 * variance) / product
        g = mpmath.meijerg([[], []], [[0] + [mpmath.mpf(n - count) / 2 for n in widths], []], argument)
        front = -mpmath.mpf(count) / 2 * mpmath.log(2 * mpmath.pi * variance * product / inputs)
        return float(front - logdet / 2 - sum(mpmath.loggamma(mpmath.mpf(n) / 2) for n in widths) + mpmath.log(g))


@pytest.mark.parametrize(
    ("widths", "count", "inputs", "variance"),
    [
        ((5, 7, 6), 4, 12, 1.3),
        ((9,), 3, 5, 1.0),
        ((2, 3), 8, 12, 0.7),  # narrower than the data
        ((1,), 6, 7, 1.0),
        ((1, 1, 2, 40), 3, 5, 1.0),
    ],
)
def test_the_evidence_is_a_meijer_g_function(widths, count, inputs, variance):
    x, y = data(count, inputs)
    expected = meijer_evidence(x, y, widths, variance)
    assert log_evidence(x, y, widths, variance) == pytest.approx(expected, abs=1e-10)
    assert log_evidence(x, y[:, None], list(widths), variance) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(("width", "depth", "size"), [(10_000, 64, 1.0), (40, 64, 0.3), (3, 1, 0.01), (300, 16, 1e4)])
def test_the_evidence_of_extreme_networks(width, depth, size):
    """The same integral on another contour, a vertical line, with 40 digits."""
    count, inputs = 200, 300
    with mpmath.workdps(40):
        power, rate = mpmath.mpf(count) / 2, inputs * count * mpmath.mpf(size) ** 2 / 2
        moment = lambda d: (
            depth
            * (
                mpmath.loggamma(mpmath.mpf(width) / 2 + d)
                - mpmath.loggamma(mpmath.mpf(width) / 2)
                + d * mpmath.log(2 / mpmath.mpf(width))
            )
        )
        exponent = lambda s: mpmath.loggamma(s) - s * mpmath.log(rate) + moment(s - power)
        pole = max(mpmath.mpf(0), power - mpmath.mpf(width) / 2)
        slope = lambda s: (
            mpmath.digamma(s)
            - mpmath.log(rate)
            + depth * (mpmath.digamma(mpmath.mpf(width) / 2 + s - power) + mpmath.log(2 / mpmath.mpf(width)))
        )
        low, high = pole + mpmath.mpf(10) ** -6, pole + mpmath.mpf(10) ** 12
        for _ in range(80):  # bisection, in logarithms
            middle = pole + mpmath.sqrt((low - pole) * (high - pole))
            low, high = (low, middle) if slope(middle) > 0 else (middle, high)
        saddle = (low + high) / 2
        scale = 1 / mpmath.sqrt(mpmath.diff(slope, saddle))
        # trapezoids converge geometrically on a line
        step, top, total, k = scale / 8, exponent(saddle), mpmath.mpf(1) / 2, 1
        while True:
            term = mpmath.exp(exponent(saddle + 1j * step * k) - top)
            total, k = total + term.real, k + 1
            if abs(term) < mpmath.mpf(10) ** -20:
                break
        tilted = top + mpmath.log(total * step / mpmath.pi)
        expected = float(tilted - power * mpmath.log(2 * mpmath.pi / inputs))
    found = log_evidence(np.eye(count, inputs), np.full(count, size), [width] * depth)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-10)


def test_one_hidden_layer_by_an_integral_over_its_scale():
    x, y = data(3, 6)
    norm, logdet = statistics(x, y)
    for width in (2, 9):
        scale = scipy.stats.chi2(width, scale=1.5 / width)
        density = lambda s, scale=scale: scale.pdf(s) * (2 * np.pi * 1.5 * s / 6) ** -1.5 * np.exp(-6 * norm / (3 * s))
        total = scipy.integrate.quad(density, 0, np.inf, epsabs=0, epsrel=1e-11)[0]
        found = log_evidence(x, y, [width], 1.5)
        assert found == pytest.approx(np.log(total) - logdet / 2, abs=1e-9)


def test_without_hidden_layers_it_is_linear_regression():
    x, y = data(4, 9)
    expected = scipy.stats.multivariate_normal(np.zeros(4), 0.7 / 9 * x @ x.T).logpdf(y)
    assert log_evidence(x, y, [], 0.7) == pytest.approx(expected, abs=1e-12)
    wide = log_evidence(x, y, [10**8], 1.0)
    assert wide == pytest.approx(log_evidence(x, y, []), abs=2e-5)


def test_targets_of_zero_are_the_limit_of_small_ones():
    x, y = data(3, 6)
    small = log_evidence(x, 1e-30 * y, [12, 20])
    assert log_evidence(x, 0 * y, [12, 20]) == pytest.approx(small, abs=1e-10)


def drawn_networks(rng, widths, draws):
    """`theta` of deep linear networks with weights of variance 1 / fan_in, from the products of their matrices."""
    inputs, *hidden = widths
    theta = rng.normal(size=(draws, 1, hidden[-1])) / np.sqrt(hidden[-1])
    for n, m in zip(hidden[::-1], [*hidden[-2::-1], inputs], strict=True):
        theta = theta @ (rng.normal(size=(draws, n, m)) / np.sqrt(m))
    return theta[:, 0]


def test_the_posterior_of_networks_that_happen_to_interpolate():
    """One example: drawn networks whose output is near the target, within 4 standard errors."""
    rng = np.random.default_rng(3)
    theta = drawn_networks(rng, [2, 3, 4], 400_000)
    x, y, near = np.array([1.0, 0.5]), 0.9, 0.05
    kept = theta[np.abs(theta @ x - y) < near]
    posterior = deep_linear.posterior(x[None], [y], [3, 4])
    assert len(kept) / len(theta) / (2 * near) == pytest.approx(
        math.exp(posterior.log_evidence), rel=4 / np.sqrt(len(kept))
    )
    new = np.array([[-0.5, 1.0], [0.3, 2.0]])
    mean, variance = posterior.predict(new)
    outputs = kept @ new.T
    np.testing.assert_array_less(np.abs(outputs.mean(0) - mean), 4 * outputs.std(0) / np.sqrt(len(kept)))
    spread = ((outputs - mean) ** 2).std(0) / np.sqrt(len(kept))
    np.testing.assert_array_less(np.abs(((outputs - mean) ** 2).mean(0) - variance), 4 * spread)
    squares = np.sum(kept**2, 1)
    assert abs(squares.mean() - posterior.squared_norm) < 4 * squares.std() / np.sqrt(len(kept))


def test_the_posterior_of_the_scale():
    x, y = data(4, 12)
    norm, _ = statistics(x, y)
    widths, variance = (5, 7, 6), 1.3
    posterior = deep_linear.posterior(x, y, widths, math.sqrt(variance))
    logs = np.linspace(-5, 5, 101)  # trapezoids converge geometrically: nothing is left at the ends
    density = np.exp(posterior.scale_logpdf(np.exp(logs)))
    moment = lambda k: np.sum(density * np.exp((k + 1) * logs)) * 0.1
    mean = moment(1)
    assert moment(0) == pytest.approx(1, rel=1e-8)
    assert posterior.scale_mean == pytest.approx(mean, rel=1e-8)
    assert posterior.scale_variance == pytest.approx(moment(2) - mean**2, rel=1e-7)
    s = np.prod([variance / n * np.random.default_rng(4).chisquare(n, 400_000) for n in widths], 0)
    weight = s**-2 * np.exp(-12 * norm / (2 * variance * s))
    assert np.sum(weight * s) / np.sum(weight) == pytest.approx(posterior.scale_mean, rel=0.02)
    new = np.random.default_rng(5).normal(size=(3, 12))
    aside = new - new @ np.linalg.pinv(x) @ x
    expected = np.sum(aside**2, 1) * variance * posterior.scale_mean / 12
    np.testing.assert_allclose(posterior.predict(new).variance, expected, rtol=1e-10)
    np.testing.assert_allclose(posterior.predict(x).mean, y, rtol=1e-10)
    np.testing.assert_allclose(posterior.predict(x).variance, 0, atol=1e-25)


def test_the_law_of_the_prior_norm():
    single = ScaleLaw((7,), 1.4)
    values = np.array([1e-3, 0.2, 1.0, 3.0, 20.0])
    np.testing.assert_allclose(single.logpdf(values), scipy.stats.chi2(7, scale=0.2).logpdf(values), rtol=1e-11)
    # the product of two Gamma variables: a Bessel function
    a, b, v = 3.5, 2.0, values / (0.2 * 0.35)
    bessel = np.log(2 * v ** ((a + b) / 2 - 1) * scipy.special.kve(a - b, 2 * np.sqrt(v))) - 2 * np.sqrt(v)
    bessel -= scipy.special.gammaln(a) + scipy.special.gammaln(b)
    # variance s and widths 7 and 4: factors 2 s / 7 and 2 s / 4, with s = 0.7
    np.testing.assert_allclose(ScaleLaw((7, 4), 0.7).logpdf(values), bessel - np.log(0.2 * 0.35), rtol=1e-10)
    law = deep_linear.prior_norm(4, [5, 3])
    logs = np.log(np.sum(drawn_networks(np.random.default_rng(6), [4, 5, 3], 40_000) ** 2, 1))
    assert abs(logs.mean() - law.log_mean) < 4 * logs.std() / 200
    assert logs.var() == pytest.approx(law.log_variance, rel=0.05)
    assert np.log(law.sample(40_000, seed=7)).mean() == pytest.approx(law.log_mean, abs=0.03)
    assert law.log_moment(1.0) == pytest.approx(0.0, abs=1e-14)
    assert law.log_moment(-1.5) == math.inf


def test_depth_and_width_do_not_commute():
    """`log |theta|` is near a Gaussian of mean `-L / 2n` and variance `L / 2n` for `L` random layers of width `n`."""
    law = ScaleLaw((50,) * 30)
    assert law.log_mean / 2 == pytest.approx(-30 / 100, rel=0.02)
    assert law.log_variance / 4 == pytest.approx(30 / 100, rel=0.03)


@pytest.mark.slow
def test_depth_brings_the_evidence_towards_the_best_variance():
    """1000 examples of 4000 inputs, widths of 4000, and targets that are large for a variance of 1."""
    count, inputs, norm = 1000, 4000, 0.6
    x, y = np.eye(count, inputs), np.full(count, np.sqrt(norm / count))
    evidence = np.array([log_evidence(x, y, [inputs] * depth) for depth in (0, 1, 2, 4, 8, 16, 64)])
    np.testing.assert_allclose(evidence[1:] - evidence[1], [0, 39.6, 82.2, 119.7, 147.2, 174.4], atol=0.06)
    best = -count / 2 * (np.log(2 * np.pi * norm / count) + 1)  # one layer with variance norm / alpha
    assert np.all(np.diff(evidence) > 0)
    assert evidence[-1] < best


def test_the_scale_at_large_size():
    count, inputs, norm = 250, 1000, 0.6
    x, y = np.eye(count, inputs), np.full(count, np.sqrt(norm / count))
    for width, depth in ((25_000, 20), (5_000, 20), (1_000, 20), (125, 20)):
        exact = deep_linear.posterior(x, y, [width] * depth)
        assert exact.effective_depth == pytest.approx(count * depth / width)
        scale = deep_linear.posterior_scale(norm, count / inputs, exact.effective_depth)
        assert scale == pytest.approx(exact.scale_mean, rel=0.01)


@pytest.mark.parametrize("target", [0.01, 0.8, 1.0, 2.4, 1e3])
def test_the_equation_of_the_scale(target):
    for lam in (1e-3, 0.5, 7.0, 1e4):
        s = deep_linear.posterior_scale(0.5 * target, 0.5, lam)
        assert s * (1 + np.log(s) / lam) == pytest.approx(target, rel=1e-9)
    assert deep_linear.posterior_scale(0.5 * target, 0.5, 0.0) == pytest.approx(1.0, rel=1e-12)
    assert deep_linear.posterior_scale(0.5 * target, 0.5, math.inf) == pytest.approx(target, rel=1e-14)


@pytest.mark.parametrize("widths", [[], [20] * 4, [2, 3]])
def test_the_variance_of_largest_evidence(widths):
    x, y = data(4, 9)
    found = deep_linear.evidence_optimal_w_std(x, y, widths) ** 2
    search = scipy.optimize.minimize_scalar(
        lambda v: -log_evidence(x, y, widths, math.exp(v)),
        bracket=(-1, 1),
        options={"xtol": 1e-9},
    )
    assert math.log(found) == pytest.approx(search.x, abs=1e-6)
    if not widths:
        assert found == pytest.approx(9 * statistics(x, y)[0] / 4, rel=1e-12)


@pytest.mark.parametrize("alpha", [0.05, 0.4, 1.0, 3.0])
def test_marchenko_pastur_is_a_law(alpha):
    law = deep_linear.marchenko_pastur(alpha, variance=2.0)
    low, high = law.edges
    assert law.zeros == pytest.approx(max(0, 1 - 1 / alpha))
    for share in (0.1, 0.5, 0.9, 1.0):
        # over an angle, so that the edges are smooth
        place = lambda a: low + (high - low) * math.sin(a) ** 2
        slope = lambda a: (high - low) * math.sin(2 * a)
        end = math.asin(math.sqrt(share))
        area = scipy.integrate.quad(lambda a: law.pdf(place(a)) * slope(a), 0, end, epsabs=1e-12)[0]  # noqa: B023
        assert law.cdf(place(end)) == pytest.approx(law.zeros + area, abs=1e-9)
    np.testing.assert_allclose(law.cdf([-1.0, high + 1]), [0, 1], atol=1e-15)
    np.testing.assert_array_equal(law.pdf([-1.0, 0.0, high + 1]), 0)


@pytest.mark.parametrize(("rows", "columns"), [(200, 500), (400, 200)])
def test_noise_has_the_spectrum_of_marchenko_and_pastur(rows, columns):
    a = np.random.default_rng(8).normal(size=(rows, columns))
    values = np.linalg.eigvalsh(a @ a.T / columns)
    law = deep_linear.marchenko_pastur(rows / columns)
    grid = np.linspace(*law.edges, 9)[1:-1]
    np.testing.assert_allclose([(values < g).mean() for g in grid], law.cdf(grid), atol=0.012)


def test_outliers_are_signal():
    rng = np.random.default_rng(9)
    law = deep_linear.marchenko_pastur(0.5, variance=3.0)
    noise = [np.sqrt(3.0) * rng.normal(size=(40, 80)) for _ in range(300)]
    false = [law.outliers(a @ a.T / 80).count for a in noise]
    assert np.mean(np.array(false) > 0) < 0.01 + 3.5 * np.sqrt(0.01 / 300)
    loud = np.linalg.qr(rng.normal(size=(40, 3)))[0] @ np.diag([12.0, 9.0, 7.0]) @ rng.normal(size=(3, 80))
    found = law.outliers((noise[0] + loud) @ (noise[0] + loud).T / 80)
    assert found.count == 3
    assert np.all(found.values > law.edges[1])
    assert found.level > law.edges[1]


def test_the_evidence_of_huge_targets_grows_as_the_norm_to_a_power():
    """`-log p` is about `(L + 1) (n/2)^(L/(L+1)) rate^(1/(L+1))`, for large targets and `L` layers of width `n`."""
    x, y = data(3, 5)
    for depth in (1, 4):
        rate = 5 * np.sum(np.linalg.lstsq(x, y, rcond=None)[0] ** 2) / 2
        for scale in 10.0 ** np.array([6, 9, *range(15, 105, 5)]):
            found = log_evidence(x, scale * y, [20] * depth)
            power = (rate * scale**2) ** (1 / (depth + 1))
            law = -(depth + 1) * 10 ** (depth / (depth + 1)) * power
            assert found == pytest.approx(law, rel=20 * np.log(power) * 10 / power + 1e-12)


def test_the_evidence_of_large_targets_is_smooth_where_the_formula_changes():
    """Second differences of a smooth function of the logarithm are small; 3e10 is where digits of the path end."""
    x, y = data(3, 5)
    scales = 10 ** np.linspace(8.5, 9.5, 41)
    values = np.array([log_evidence(x, s * y, [20]) / s for s in scales])
    assert np.ptp(values) < 1e-6 * abs(values[0])
    assert np.all(np.diff(values) < 0)


X, Y = data(3, 5)
BAD = {
    "more rows than inputs": (
        lambda: log_evidence(X.T, np.ones(5), [3]),
        "5 rows of dimension 3",
    ),
    "dependent rows": (lambda: log_evidence(np.ones((2, 5)), [1, 1], [3]), "only 1 of them"),
    "one vector": (lambda: log_evidence(X[0], [1.0], [3]), "shape"),
    "images": (lambda: log_evidence(np.ones((2, 3, 4)), [1, 1], [3]), "Flatten"),
    "two outputs": (lambda: log_evidence(X, np.ones((3, 2)), [3]), r"y has shape \(3, 2\)"),
    "too few targets": (lambda: deep_linear.posterior(X, Y[:2], [3]), r"y has shape \(2,\)"),
    "missing targets": (lambda: deep_linear.posterior(X, [1, np.nan, 2], [3]), "y holds nan"),
    "huge targets": (lambda: deep_linear.posterior(X, 1e200 * Y, [3]), "Rescale"),
    "lost scales": (
        lambda: deep_linear.posterior(X, 1e50 * Y, [3]).scale_mean,
        "Rescale y, or w_std",
    ),
    "an empty layer": (lambda: log_evidence(X, Y, [3, 0]), r"widths\[1\]=0"),
    "half a unit": (lambda: hidden_widths([2.5]), r"widths\[0\]=2.5"),
    "one number": (lambda: hidden_widths(7), r"\[7\] \* depth"),
    "no variance": (lambda: log_evidence(X, Y, [3], 0.0), "w_std=0.0"),
    "infinite evidence": (lambda: log_evidence(X, 0 * Y, [3]), "width 3 is not wider"),
    "zero targets": (lambda: deep_linear.evidence_optimal_w_std(X, 0 * Y, [30]), "No best one"),
    "other inputs": (lambda: deep_linear.posterior(X, Y, [3]).predict(np.ones((2, 4))), r"\(n, 5\)"),
    "too much data": (lambda: deep_linear.posterior_scale(1.0, 1.5, 1.0), "alpha=1.5"),
    "a negative depth": (lambda: deep_linear.posterior_scale(1.0, 0.5, -1.0), "effective_depth=-1"),
    "no norm": (lambda: deep_linear.posterior_scale(0.0, 0.5, 1.0), "squared_norm=0"),
    "no alpha": (lambda: deep_linear.marchenko_pastur(0.0), "alpha=0"),
    "negative values": (lambda: ScaleLaw((3,)).logpdf([-1.0]), "above 0"),
    "a constant": (lambda: ScaleLaw(()).logpdf([1.0]), "no density"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()
