"""Learning curves that go on as laws do; features, computed in another way; the numbers that are shipped."""

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import nnls

import everwide.forecasting as fc
from everwide._checks import InputError
from everwide.forecasting import _curves

SIZES = np.array([16, 32, 64, 128, 256, 512])
ERRORS = 0.08 + 1.5 * SIZES**-0.45
pytestmark = [pytest.mark.once]


@pytest.mark.parametrize(("floor", "exponent"), [(0.0, 0.1), (0.0, 0.3), (0.0, 0.5), (0.1, 0.5), (0.2, 0.8)])
@pytest.mark.parametrize("learner", [None, "linear", "mlp"])
def test_exact_laws_go_on(floor, exponent, learner):
    law = lambda n: floor + 0.15 * (n / 512) ** -exponent
    sizes = np.unique(np.geomspace(16, 512, 21).astype(int)).astype(float)
    curve = fc.extrapolate(sizes, law(sizes), [1024, 2048, 8192], learner=learner)
    np.testing.assert_allclose(curve.error[:2], law(curve.n)[:2], rtol=0.05)
    np.testing.assert_allclose(curve.error[2], law(8192), rtol=0.14)
    assert (curve.low < law(curve.n)).all()
    assert (law(curve.n) < curve.high).all()


def test_a_fit_is_that_of_nonnegative_least_squares():
    rng = np.random.default_rng(0)
    errors = np.stack([ERRORS, ERRORS[::-1], 0.4 * (SIZES / 16) ** -1.5, ERRORS * rng.uniform(0.8, 1.2, 6)])
    begun = _curves.beginning(SIZES, errors, np.nan * errors)
    weights = rng.uniform(0.5, 2, begun.errors.shape)
    shapes = np.append(2**begun.grid, 4096) ** -np.linspace(0.1, 1.5, 7)[:, None]
    best, mean, _, misfit = _curves._fit(shapes, begun, weights)
    for row, (y, w) in enumerate(zip(begun.errors, weights, strict=True)):
        fits = [nnls(np.sqrt(w)[:, None] * np.stack([np.ones(len(y)), g[:-1]], 1), np.sqrt(w) * y) for g in shapes]
        rest = np.array([residual for _, residual in fits]) ** 2
        ahead = np.log([np.clip(c[0] + c[1] * g[-1], 2e-3, 1) for (c, _), g in zip(fits, shapes, strict=True)])
        np.testing.assert_allclose(best[row], ahead[rest.argmin()], rtol=1e-5)
        np.testing.assert_allclose(misfit[row], np.log(np.sqrt(rest.min() / w.sum()) / y[-1] + 1e-4), rtol=1e-5)
        chance = np.exp(-(rest - rest.min()) * 2 / 6 / (rest.min() + 1e-7 * w.sum()))  # six sizes, four parameters
        np.testing.assert_allclose(mean[row], chance @ ahead / chance.sum(), rtol=1e-4)


def test_slopes_and_levels_are_those_of_local_lines():
    begun = _curves.beginning(SIZES, ERRORS[None] * [1, 1.1, 0.9, 1, 1.05, 1], np.full((1, 6), 0.01))
    logs, at = np.log(begun.errors[0]), begun.grid - begun.grid[-1]
    line = lambda back, width: np.polyfit(at, logs, 1, w=np.exp(-(((at + back) / width) ** 2) / 4))
    levels = _curves._levels(begun)[0]
    np.testing.assert_allclose(levels[_curves.SLOPE], line(0, 0.8)[0], rtol=1e-9)
    np.testing.assert_allclose(levels[[1, 3]], [np.polyval(line(b, 0.2), -b) - logs[-1] for b in (1, 2)], rtol=1e-8)
    rises = [logs[late] - logs[early] for late in range(len(logs)) for early in range(late + 1)]
    np.testing.assert_allclose(levels[[_curves.RISE, _curves.LAST]], [max(rises), logs[-1]], rtol=1e-12)
    assert np.isnan(levels[9]) == (begun.grid[-1] - begun.grid[0] < 4.95)


def test_sizes_are_brought_to_a_regular_grid():
    dense = np.arange(10, 321, 2.0)
    begun = _curves.beginning(dense, (3 / dense)[None], np.nan * dense[None])
    np.testing.assert_allclose(np.diff(begun.grid), 1 / 8)
    np.testing.assert_allclose(begun.errors[0, 1:-1], 3 / 2 ** begun.grid[1:-1], rtol=0.03)
    assert begun.different <= len(begun.grid) + 1 < len(dense)
    sparse = _curves.beginning(SIZES, (SIZES**-0.5)[None], np.nan * SIZES[None])
    np.testing.assert_allclose(sparse.errors[0, ::8], SIZES**-0.5)
    np.testing.assert_allclose(sparse.errors[0, 4], (SIZES[0] ** -0.5 + SIZES[1] ** -0.5) / 2)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"sizes": SIZES[:3], "errors": ERRORS[:3]}, "at least 4 sizes"),
        ({"sizes": [16, 32, 32, 64, 128, 256]}, "all different"),
        ({"sizes": [100, 101, 102, 103, 104, 105]}, "1.5 times the smallest"),
        ({"sizes": [0, 32, 64, 128, 256, 512]}, "sizes=.*above 0"),
        ({"errors": [*ERRORS[:5], np.nan]}, "errors holds nan"),
        ({"errors": [*ERRORS[:5], 0.0]}, "too few rows were tested"),
        ({"errors": [*ERRORS[:5], -0.1]}, "above 0"),
        ({"errors": ERRORS[:5]}, "equal length"),
        ({"stderr": [0.01] * 5}, "equal length"),
        ({"stderr": [-0.01] * 6}, "no stderr below 0"),
        ({"learner": "perceptor"}, "None, or one of network, trees.*mlp.*gaussian_nb"),
        ({"others": {"knn": ERRORS[:5]}}, "equal length"),
        ({"others": {"knn": 0 * ERRORS}}, r"others\['knn'\]"),
        ({"others": [ERRORS]}, "by the name of a model"),
        ({"n": 0}, "extrapolate.n=0.: expected rows"),
        ({"n": [1000.5]}, "whole numbers"),
    ],
)
def test_what_cannot_be_used_is_refused(change, sentence):
    with pytest.raises(InputError, match=sentence):
        fc.extrapolate(**({"sizes": SIZES, "errors": ERRORS, "n": 4096} | change))


def test_the_order_of_sizes_does_not_matter():
    order = [3, 0, 5, 1, 4, 2]
    others, stderr = {"knn": 1.2 * ERRORS, "tree": ERRORS**0.9}, 0.05 * ERRORS**2
    sorted_ = fc.extrapolate(SIZES, ERRORS, [4096, 600], stderr=stderr, others=others)
    mixed = {name: each[order] for name, each in others.items()}
    again = fc.extrapolate(SIZES[order], ERRORS[order], [4096, 600], stderr=stderr[order], others=mixed)
    np.testing.assert_allclose(again.low, sorted_.low, rtol=1e-12)
    np.testing.assert_allclose(again.error, sorted_.error, rtol=1e-12)
    assert list(again.measured.sizes) == list(SIZES)


@pytest.mark.parametrize("unit", [1e3, 1e7])
def test_units_of_errors_that_are_no_shares_do_not_matter(unit):
    squares = 30 * ERRORS
    one = fc.extrapolate(SIZES, squares, [100, 4096, 10**6], stderr=0.1 * squares)
    other = fc.extrapolate(SIZES, unit * squares, [100, 4096, 10**6], stderr=0.1 * unit * squares)
    for name in ("error", "low", "high"):
        np.testing.assert_allclose(getattr(other, name), unit * getattr(one, name), rtol=1e-9)
    assert other.samples_needed(unit * one.error[1]) == one.samples_needed(one.error[1]) == 4096


def test_tiny_errors_are_not_raised_to_a_floor():
    tiny = fc.extrapolate(SIZES, 1e-3 * ERRORS, [4096])
    assert tiny.error[0] < 1e-3 * ERRORS[-1]


def test_intervals_hold_for_noisy_laws():
    rng, held = np.random.default_rng(0), []
    for _ in range(120):
        floor, exponent, last = rng.uniform(0, 0.6), rng.uniform(0.2, 0.9), rng.uniform(0.05, 0.25)
        law = lambda n, f=floor, e=exponent, y=last: y * (f + (1 - f) * (n / 512) ** -e)
        noise = 0.03 * law(SIZES)
        curve = fc.extrapolate(SIZES, law(SIZES) + noise * rng.standard_normal(6), [2048, 8192], stderr=noise)
        held.append((curve.low <= law(curve.n)) & (law(curve.n) <= curve.high))
    share = np.mean(held, 0)
    assert (share >= 0.82).all(), share  # 90 %, less three standard errors


def test_what_is_known_beside_the_curve_counts():
    at = lambda **known: fc.extrapolate(SIZES, ERRORS, 8192, **known).error[0]
    others = {"knn": 0.5 * ERRORS, "forest": 0.4 * ERRORS * (SIZES / 16) ** -0.3}
    forecasts = [at(), at(learner="bayes"), at(learner="network"), at(learner="mlp"), at(others=others)]
    forecasts += [at(others=others, learner="network"), at(others={"knn": 2 * ERRORS}, learner="network")]
    assert len(np.unique(np.round(forecasts, 6))) == len(forecasts)
    assert at(learner="bayes") > at(learner="network")  # naive Bayes stops learning early


def test_as_measured_then_by_the_prior_then_wider():
    n = np.array([16, 64, 512, 513, 724, 512 * 64, 512 * 65, 512 * 640, 512 * 64_000])
    curve = fc.extrapolate(SIZES, ERRORS, n, stderr=0.02 * ERRORS)
    np.testing.assert_allclose(curve.error[:3], ERRORS[[0, 2, 5]], rtol=1e-9)
    np.testing.assert_allclose(np.log(curve.high / curve.error)[:3], 0.02 * 1.6449, rtol=0.9)
    assert abs(np.log(curve.error[3] / curve.error[2])) < 0.01
    assert abs(np.log(curve.error[6] / curve.error[5])) < 0.01
    width = np.log(curve.high / curve.low)
    assert (np.diff(width[4:]) > 0).all()


def test_a_share_is_at_most_1():
    useless = fc.extrapolate(SIZES, [0.9, 0.92, 0.91, 0.93, 0.94, 0.95], [600, 10**7], stderr=[0.05] * 6)
    np.testing.assert_allclose(useless.high, 1)
    assert fc.extrapolate(SIZES, [90, 92, 91, 93, 94, 95], [10**7]).high[0] > 95


def test_rows_that_a_target_needs():
    curve = fc.extrapolate(SIZES, ERRORS, [2048, 8192], learner="linear")
    assert curve.samples_needed(curve.error[1]) == 8192
    assert curve.samples_needed(curve.high[1], quantile=0.95) == 8192
    assert curve.samples_needed(0.125, quantile=0.9) > curve.samples_needed(0.125) > 512
    assert curve.samples_needed(ERRORS[1]) == 32
    assert curve.samples_needed(0.9) == 16
    assert curve.samples_needed(1e-6) == np.inf
    with pytest.raises(InputError, match="target"):
        curve.samples_needed(0.0)
    with pytest.raises(InputError, match="quantile"):
        curve.samples_needed(0.1, quantile=1.0)


def test_a_result_can_be_read_and_drawn():
    plt = pytest.importorskip("matplotlib.pyplot")
    curve = fc.extrapolate(SIZES, ERRORS, [8192, 2048], learner="knn")
    assert [row["n"] for row in curve.table()] == [8192, 2048]
    assert curve.table()[1] == {"n": 2048, "error": curve.error[1], "low": curve.low[1], "high": curve.high[1]}
    text = str(curve)
    assert "8192" in text
    assert "6 sizes up to 512; learner: knn" in text
    ax = curve.plot()
    assert list(ax.lines[0].get_xdata()) == [2048, 8192]
    assert list(ax.lines[1].get_xdata()) == list(SIZES)
    plt.close(ax.figure)


def test_the_prior_is_small_and_says_where_it_is_from():
    path = Path(_curves.__file__).with_name("_curves.npz")
    assert path.stat().st_size < 400_000
    assert "LCDB 1.1" in str(_curves.prior()["source"])
    assert "CC BY 4.0" in str(_curves.prior()["source"])


def test_the_shipped_numbers_say_what_they_said():
    """Forecasts of three typed curves, kept: whoever learns the prior again, changes them knowingly."""
    logistic = fc.extrapolate([32, 64, 128, 256], [0.301, 0.182, 0.107, 0.0745], [1024, 4096], learner="logistic")
    errors, stderr = [0.42, 0.38, 0.41, 0.33, 0.29, 0.3], [0.02, 0.02, 0.02, 0.015, 0.01, 0.01]
    rough = fc.extrapolate([20, 30, 50, 80, 130, 200], errors, [2000, 50_000], stderr=stderr)
    others = {"knn": [60.0, 55.0, 51.0, 47.0, 44.0], "forest": [45.0, 38.0, 33.0, 29.0, 26.5]}
    sizes, squares = [100, 200, 400, 800, 1600], [52.0, 40.5, 31.0, 25.2, 21.9]
    network = fc.extrapolate(sizes, squares, [10_000], learner="network", others=others)
    said = [np.ravel([curve.low, curve.error, curve.high]) for curve in (logistic, rough, network)]
    np.testing.assert_allclose(said[0], [0.0309964, 0.0196113, 0.0436682, 0.0361204, 0.0534483, 0.0503245], rtol=1e-3)
    np.testing.assert_allclose(said[1], [0.0691281, 0.0112964, 0.243688, 0.200156, 0.405872, 0.531757], rtol=1e-3)
    forest = fc.extrapolate(sizes, others["forest"], [10_000], learner="trees", others={"knn": others["knn"]})
    np.testing.assert_allclose(
        np.ravel([forest.low, forest.error, forest.high]), [18.3758, 21.5904, 23.4189], rtol=1e-3
    )
    np.testing.assert_allclose(said[2], [11.6237, 16.0013, 18.4824], rtol=1e-3)
