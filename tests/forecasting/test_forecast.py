"""Forecasts against refits, curves of a known law, and errors measured with more rows."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits

import everwide as ew
import everwide.forecasting as fc
from everwide.forecasting import _pilot
from everwide.forecasting._pilot import measure, targets_of
from everwide.forecasting._shapes import weigh

NET = ew.Serial(ew.Dense(w_std=2**0.5, b_std=0.1), ew.Relu(), ew.Dense(1))
RNG = np.random.default_rng(0)
X = RNG.normal(size=(1600, 4))
CLEAN = np.abs(X[:, 0]) + np.maximum(X[:, 1] + X[:, 2], 0)
NOISY = CLEAN + 0.5 * RNG.normal(size=len(X))
KERNEL = np.asarray(ew.ntk(NET, X))
pytestmark = [pytest.mark.once, pytest.mark.as_users]


@pytest.fixture(autouse=True)
def few_orders(monkeypatch, request):
    """Enough for all but the noise of the orders themselves."""
    if "seeds" not in request.node.name:
        monkeypatch.setattr(_pilot, "_ORDERS", 50)


def fitted(kernel, y, train, test, ridge):
    mean = y[train].mean(0)
    dual = np.linalg.solve(kernel[np.ix_(train, train)] + ridge * np.eye(len(train)), y[train] - mean)
    return kernel[np.ix_(test, train)] @ dual + mean


def measured_error(y, n, ridge):
    train = np.arange(400, 400 + n)
    test = np.setdiff1d(np.arange(len(X)), train)
    return np.mean((fitted(KERNEL, y, train, test, ridge) - y[test]) ** 2)


def pilot(y, n, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fc.ForecastWarning)
        return fc.forecast(KERNEL[:400, :400], None, y[:400], n=n, **options)


def test_the_measured_beginning_is_that_of_refits():
    kernel, y = KERNEL[:70, :70], targets_of(NOISY[:70], "auto")
    found = measure(kernel, y, 0.1, seed=5)
    rng, curves = np.random.default_rng(5), []
    for _ in range(len(found.errors)):
        order = rng.permutation(70)
        parts = [(order[:size], order[size:]) for size in found.sizes]
        refit = lambda a, b: (
            kernel[np.ix_(b, a)] @ np.linalg.solve(kernel[np.ix_(a, a)] + 0.1 * np.eye(len(a)), y.values[a])
        )
        curves.append([np.mean((refit(a, b) - y.values[b]) ** 2) for a, b in parts])
    np.testing.assert_allclose(found.errors, curves, rtol=1e-9)
    left_out = [np.mean((refit(np.delete(np.arange(70), i), [i]) - y.values[i]) ** 2) for i in range(70)]
    np.testing.assert_allclose(found.row_errors, left_out, rtol=1e-9)


def test_the_ridge_has_the_smallest_leave_one_out_error():
    found = pilot(NOISY, [500])
    errors = [pilot(NOISY, [500], ridge=found.ridge * factor).measured.row_errors.mean() for factor in (0.3, 1, 3.2)]
    assert np.argmin(errors) == 1


@pytest.mark.parametrize(
    ("floor", "start", "exponent"), [(0.0, 0.0, 0.3), (0.0, 0.0, 1.5), (0.5, 0.0, 0.8), (0.0, 0.4, 1)]
)
def test_exact_curves_go_on_as_they_must(floor, start, exponent):
    curve = lambda n: floor + (1 - floor) * ((n / 500 + start) / (1 + start)) ** -exponent
    sizes = np.array([31, 43, 60, 83, 115, 160, 222, 308, 425])
    n = np.append(sizes, 499.0)
    found = weigh(n, np.log(3.0 * curve(n)), 4e-4 * np.eye(len(n)), np.append(0.0, np.full(14, -4.0)))
    typical = found.log_ratios([5000])[0]
    order = np.argsort(typical)
    median = typical[order][np.searchsorted(np.cumsum(found.weights[order]), 0.5)]
    assert median == pytest.approx(np.log(curve(5000)), abs=0.25 if floor or start else 0.1)


@pytest.mark.parametrize("y", [CLEAN, NOISY], ids=["clean", "noisy"])
def test_the_error_with_more_rows_is_as_forecast(y):
    found = pilot(y, [200, 1000])
    for at, n in enumerate((200, 1000)):
        truth = measured_error(y, n, found.ridge)
        assert found.error[at] == pytest.approx(truth, rel=0.3)
        assert 0.8 * found.low[at] < truth < 1.25 * found.high[at]
    assert (found.low < found.error).all()
    assert (found.error < found.high).all()


def test_noise_is_told_from_what_is_not_learned_yet():
    x = RNG.normal(size=(400, 2))
    y = x @ [1.0, -1.0] + 0.5 * RNG.normal(size=400)
    found = fc.forecast(ew.Dense(1), x, y, n=[400, 4000])
    assert found.noise > 0.5 * (found.noise + found.tail)
    assert found.error[1] == pytest.approx(0.25, rel=0.15)
    clean = pilot(CLEAN, [1000])
    assert clean.noise < 0.1 * (clean.noise + clean.tail)
    assert found.noise + found.tail == pytest.approx(found.measured.row_errors.mean())


def test_classes_have_an_accuracy_and_names_do_not_matter():
    images, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    order = np.random.default_rng(1).permutation(len(labels))
    x, labels = images[order] / 16.0, labels[order]
    kernel = np.asarray(ew.ntk(NET, x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fc.ForecastWarning)
        found = fc.forecast(kernel[:250, :250], None, labels[:250], n=[1200])
        named = fc.forecast(kernel[:250, :250], None, np.array([f"digit {k}" for k in labels[:250]]), n=[1200])
        coded = fc.forecast(kernel[:250, :250], None, np.eye(10)[labels[:250]], n=[1200])
    predicted = fitted(kernel, np.eye(10)[labels], np.arange(250, 1450), np.arange(1450, 1797), found.ridge)
    truth = np.mean(predicted.argmax(1) == labels[1450:])
    assert found.accuracy[0] == pytest.approx(truth, abs=0.025)
    assert found.accuracy_low[0] <= found.accuracy[0] <= found.accuracy_high[0]
    assert (named.error, coded.error) == (found.error, found.error)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fc.ForecastWarning)
        assert found.samples_needed(float(found.accuracy[0])) == pytest.approx(1200, abs=2)
    assert "accuracy" in str(found)
    assert found.table()[0]["accuracy"] == found.accuracy[0]


def test_targets_are_centred():
    assert pilot(NOISY + 100.0, [1000]).error == pytest.approx(pilot(NOISY, [1000]).error, rel=1e-9)
    assert targets_of(["a"] * 70 + ["b"] * 30, "auto").values.mean(0) == pytest.approx([0.0, 0.0])


def test_accuracy_has_the_spread_of_few_wrong_rows():
    labels = (np.median(NOISY) < NOISY).astype(int)
    found = pilot(labels, [400])
    wrong = found.measured.row_wrong.mean()
    expected = 2 * 1.645 * np.sqrt(wrong * (1 - wrong) / 400)
    assert 0.9 < (found.accuracy_high[0] - found.accuracy_low[0]) / expected < 1.8  # another pilot differs too
    assert 0.5 - 0.01 < pilot(labels, [1]).accuracy[0] < 0.62


@pytest.mark.parametrize("ridge", [None, 0.0])
def test_kernels_in_float32_keep_their_ridge_above_their_rounding(ridge):
    smooth = ew.Serial(ew.Dense(b_std=0.3), ew.Erf(), ew.Dense(1))
    x = X[:300, :2].astype(np.float32)
    found = pilot_of(smooth, x, np.sin(x[:, 0]) + x[:, 1], ridge=ridge)
    assert found.ridge > 0
    assert np.isfinite(found.error).all()


def pilot_of(net, x, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fc.ForecastWarning)
        return fc.forecast(net, x, y, n=[2 * len(x)], **options)


def test_seeds_hardly_matter():
    errors = [pilot(NOISY, [1600], seed=seed).error[0] for seed in range(3)]
    assert max(errors) < 1.15 * min(errors)


@pytest.mark.parametrize("seed", range(3))
def test_noise_that_the_curve_does_not_show_yet_is_in_the_forecast(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(200, 3))
    found = pilot_of(NET, x, np.abs(x[:, 0]) + 0.1 * rng.normal(size=200))
    high = np.exp(np.quantile(found.beliefs.log_errors([1000]), 0.95, axis=-1))[0]
    assert high > 0.01  # its variance


@pytest.mark.slow
def test_intervals_hold_on_small_noisy_pilots():
    """Of `|x0|` with noise, from 200 rows, for 1 000: beside errors that are measured, with the noise known."""
    held = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(2200, 3))
        clean = np.abs(x[:, 0])
        y = clean + 0.1 * rng.normal(size=len(x))
        kernel = np.asarray(ew.ntk(NET, x), np.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fc.ForecastWarning)
            found = fc.forecast(kernel[:200, :200], None, y[:200], n=[1000])
        predicted = fitted(kernel, y, np.arange(200, 1200), np.arange(1200, 2200), found.ridge)
        held.append(found.low[0] < np.mean((predicted - clean[1200:]) ** 2) + 0.01 < found.high[0])
    assert np.mean(held) >= 0.75


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_column_without_biases_is_learned_as_far_as_it_goes_and_the_advice_helps(dtype):
    x = RNG.uniform(-2, 2, size=(120, 1)).astype(dtype)
    plain, biased = (ew.Serial(ew.Dense(b_std=b), ew.Relu(), ew.Dense(1)) for b in (0.0, 0.1))
    with pytest.warns(fc.ForecastWarning, match=r"rank 2.*b_std=0\.1"):
        found = fc.forecast(plain, x, np.sin(3 * x[:, 0]), n=[120])
    signs = np.column_stack([np.maximum(x[:, 0], 0), np.maximum(-x[:, 0], 0), np.ones(120)]).astype(np.float64)
    best = np.sin(3 * x[:, 0]) - signs @ np.linalg.lstsq(signs, np.sin(3 * x[:, 0]), rcond=None)[0]
    assert found.error[0] == pytest.approx(np.mean(best**2), rel=0.15)
    assert pilot_of(biased, x, np.sin(3 * x[:, 0])).error[0] < 0.1 * found.error[0]


def test_rows_that_lie_far_away_are_named_and_widen_the_interval():
    x = X[:200].copy()
    near = pilot_of(NET, x, NOISY[:200])
    x[7, 2] = 100.0
    with pytest.warns(fc.ForecastWarning, match="far from the others"):
        found = fc.forecast(NET, x, NOISY[:200], n=[200])
    assert np.log(found.high / found.low)[0] > 2 * np.log(near.high / near.low)[0]
    assert found.trusted_to == 200


def test_matrices_that_are_no_kernels_are_still_refused():
    matrix = np.diag(np.append(np.ones(79), -0.1))
    with pytest.raises(ew.spectral.KernelError, match="not positive semidefinite"):
        fc.forecast(matrix, None, CLEAN[:80], n=[100])


def test_few_rows_of_a_class_are_forecast_between_nothing_and_chance():
    labels = (np.quantile(CLEAN[:100], 0.95) < CLEAN[:100]).astype(int)
    found = pilot_of(NET, X[:100], labels)
    assert (found.accuracy_low >= 0.95 - 2 * (0.95 * 0.05 / 100) ** 0.5 - 1e-9).all()  # how rare it is, is not known
    assert (found.accuracy_high < 1).all()


def test_numbers_among_objects_are_numbers():
    assert targets_of(NOISY[:70].astype(object), "auto").task == "regression"
    assert targets_of(np.array(["a", "b"] * 35, object), "auto").task == "classification"


def test_units_do_not_matter_and_little_data_is_no_better_than_none():
    found = pilot(NOISY, [1, 1000])
    assert pilot(1e-14 * NOISY, [1, 1000]).error == pytest.approx(1e-28 * found.error, rel=1e-6)
    assert found.error[0] <= np.var(NOISY[:400]) * (1 + 1e-9)


def test_trust_does_not_depend_on_the_interval_asked_for():
    assert pilot(NOISY, [400], level=0.5).trusted_to == pilot(NOISY, [400], level=0.99).trusted_to


def test_rows_needed_lead_back_to_the_forecast():
    found = pilot(CLEAN, [300, 2000])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fc.ForecastWarning)
        assert [found.samples_needed(error) for error in found.error] == pytest.approx([300, 2000], abs=1)
        assert found.samples_needed(found.error[1], quantile=0.9) > 2000
    assert found.samples_needed(1e9) == 1
    with pytest.warns(fc.ForecastWarning, match="samples_needed"):
        assert pilot(NOISY, [500]).samples_needed(1e-6) == np.inf


def test_the_interval_holds_the_level_and_grows_with_distance():
    found = pilot(NOISY, [400, 4000, 40_000])
    width = np.log(found.high / found.low)
    assert width[0] < width[1] < width[2]
    spread = found.measured.row_errors.std() / found.measured.row_errors.mean() / 400**0.5
    assert 2 * 1.645 * spread < width[0] < 2 * 3.3 * spread  # of rows alone; the law of what was drawn is not known
    narrow = pilot(NOISY, [400], level=0.5)
    assert np.log(narrow.high / narrow.low)[0] < 0.6 * width[0]


def test_beyond_its_support_a_forecast_warns():
    with pytest.warns(fc.ForecastWarning, match="trusted to"):
        found = fc.forecast(KERNEL[:100, :100], None, NOISY[:100], n=[10**6])
    assert found.trusted_to < 10**6
    assert found.high[0] > 1.5 * found.low[0]


def test_architectures_are_ranked_by_what_they_will_reach():
    nets = {"linear": ew.Dense(1), "relu": NET}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fc.ForecastWarning)
        ranked = fc.compare_forecasts(nets, X[:200], CLEAN[:200], n=[1000])
    assert [one.name for one in ranked] == ["relu", "linear"]
    assert ranked[0].best > 0.95
    assert sum(one.best for one in ranked) == pytest.approx(1.0)


def test_inputs_are_left_alone_and_seeds_repeat():
    kernel, y = KERNEL[:100, :100].copy(), NOISY[:100].copy()
    first = fc.forecast(kernel, None, y, n=[100])
    assert (kernel == KERNEL[:100, :100]).all()
    assert (y == NOISY[:100]).all()
    assert fc.forecast(kernel, None, y, n=[100]).error == first.error


def test_a_plot_has_the_measured_points_and_the_interval():
    import matplotlib as mpl

    mpl.use("Agg")
    axes = pilot(CLEAN, None).plot()
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert len(axes.collections) == 1


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: fc.forecast(NET, X[:40], CLEAN[:40], n=[100]), "at least 64"),
        (lambda: fc.forecast(NET, X[:80], CLEAN[:70], n=[100]), "y has 70 rows and x 80"),
        (lambda: fc.forecast(NET, X[:80], CLEAN[:7], n=[100]), "y has 7 rows and x 80"),
        (lambda: fc.forecast(NET, X[:80], np.ones(80), n=[100]), "equal"),
        (lambda: fc.forecast(NET, X[:80], np.ones(80, int), n=[100]), "nothing to learn"),
        (lambda: fc.forecast(NET, np.ones((80, 4)), CLEAN[:80], n=[100]), "cannot be told apart"),
        (lambda: fc.forecast(NET, X[:80], np.full(80, np.nan), n=[100]), "Row 0 of y"),
        (lambda: fc.forecast(NET, X[:80], CLEAN[:80], n=[0]), "from 1 to"),
        (lambda: fc.forecast(NET, X[:80], CLEAN[:80], n=[99.5]), "whole numbers"),
        (lambda: fc.forecast(NET, X[:80], CLEAN[:80], n=[100], ridge=-1.0), "at least 0"),
        (lambda: fc.forecast(NET, X[:80], CLEAN[:80], n=[100], level=1.0), "level=1.0"),
        (lambda: fc.forecast(NET, X[:80], CLEAN[:80], n=[100], task="ranking"), "'ranking'"),
        (lambda: fc.forecast(NET, X[:80], CLEAN[:80], n=[100], which="both"), "'both'"),
        (lambda: fc.forecast(NET, None, CLEAN[:80], n=[100]), "x is missing"),
        (lambda: fc.forecast(NET, X[:80], CLEAN[:80], n=[10**30]), "1 to 1e"),
        (lambda: fc.forecast(NET, X[:80], CLEAN[:80], n=[100], seed=-1), "seed=-1"),
        (lambda: fc.forecast(NET, X[:80], ["a"] * 79 + [None], n=[100]), "Row 79 of y has no class"),
        (lambda: fc.forecast(NET, X[:80], [1.0] * 40 + [2.0] * 39 + [np.nan], task="classification"), "Row 79"),
        (lambda: fc.forecast(NET, X[:80], [f"row {k}" for k in range(80)], n=[100]), "80 classes in 80 rows"),
        (lambda: fc.compare_forecasts({}, X, CLEAN), "at least one"),
        (lambda: pilot(CLEAN, [500]).samples_needed(-1.0), "above 0"),
        (lambda: pilot(CLEAN, [500]).samples_needed(1.0, quantile=1.0), "below 1"),
    ],
)
def test_bad_input(run, message):
    with pytest.raises(ValueError, match=message):
        run()
