"""Laws of noisy descent, against many simulated runs, and an equation that others solve."""

import numpy as np
import pytest
import scipy.linalg

import everwide as ew
from everwide.theory import eigenlearning, rates, sgd_noise

pytestmark = pytest.mark.once
RNG = np.random.default_rng(0)
N, P, BATCH, RATE = 40, 4, 8, 0.05
X = RNG.normal(size=(N, P))
Y = X @ RNG.normal(size=P) + 0.8 * RNG.normal(size=N)


def batches(runs, rng, momentum=0.0, steps=1000):
    """Linear regression in batches of independent rows, many runs: parameters, gradients of all rows, steps / rate."""
    w, velocity = np.zeros((runs, P)), np.zeros((runs, P))
    for _ in range(steps):
        left = w @ X.T - Y
        drawn = (rng.random((runs, N)) < BATCH / N) * left
        velocity = momentum * velocity + drawn @ X / BATCH
        yield w, left @ X / N, velocity
        w = w - RATE * velocity


BEST = np.linalg.lstsq(X, Y, rcond=None)[0]


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_what_noise_pushes_out_gradients_pull_back(momentum):
    """Averages over runs, with gradients of all rows (nothing telescopes), from the minimum (any origin will do)."""
    monitor = sgd_noise.FluctuationDissipation(RATE, momentum, window=200, tolerance=0.05)
    for w, slope, step in batches(800, np.random.default_rng(1), momentum, 1400):
        monitor = monitor.update(np.sum((w - BEST) * slope, 1).mean(), np.sum(step**2, 1).mean())
    assert monitor.windows[0].ratio > 1.1
    assert np.mean([window.ratio for window in monitor.windows[-3:]]) == pytest.approx(1, abs=0.015)
    assert monitor.stationary
    np.testing.assert_allclose(slope.mean(0), 0, atol=0.02)


def test_one_run_is_enough():
    products, squares = [], []
    for w, _, step in batches(1, np.random.default_rng(2), steps=12_000):
        products.append(float(np.sum(w * step)))
        squares.append(float(np.sum(step**2)))
    monitor = sgd_noise.FluctuationDissipation(RATE, window=2000)
    assert not monitor.update(products[:5999], squares[:5999]).stationary
    at_once = monitor.update(products, squares)
    assert at_once.stationary
    step_by_step = monitor
    for pull, push in zip(products[:4100], squares[:4100], strict=True):
        step_by_step = step_by_step.update(pull, push)
    np.testing.assert_allclose(step_by_step.windows, at_once.windows[:2])
    assert step_by_step.recent[2] == 100


def test_training_on_its_way_is_not_stationary():
    """Parameters grow towards what is far away."""
    monitor, w, rng = sgd_noise.FluctuationDissipation(1e-3, window=50), 0.0, np.random.default_rng(0)
    for _ in range(400):
        gradient = w - 10 + rng.normal()
        monitor = monitor.update(w * gradient, gradient**2)
        w -= 1e-3 * gradient
    assert not monitor.stationary
    assert all(window.ratio < -1 for window in monitor.windows)


@pytest.mark.parametrize("sampling", ["without replacement", "with replacement", "independent"])
def test_covariances_are_those_of_drawn_batches(sampling):
    slopes, draws, rng = (X @ np.ones(P) - Y)[:, None] * X, 40_000, np.random.default_rng(3)
    if sampling == "independent":
        drawn = (rng.random((draws, N)) < BATCH / N) @ slopes / BATCH
    elif sampling == "with replacement":
        drawn = slopes[rng.integers(0, N, (draws, BATCH))].mean(1)
    else:
        drawn = slopes[rng.random((draws, N)).argpartition(BATCH, 1)[:, :BATCH]].mean(1)
    covariance = sgd_noise.gradient_covariance(slopes, BATCH, sampling=sampling)
    np.testing.assert_allclose(covariance, np.cov(drawn.T), atol=0.03 * np.abs(covariance).max())
    if sampling == "without replacement":
        noise = rates.gradient_noise(lambda w, x: w @ x, np.ones(P), X, Y, batch_size=BATCH)
        assert noise.trace == pytest.approx(np.trace(covariance), rel=1e-4)


HESSIAN = np.diag([0.5, 1.0, 2.0]) + 0.1
NOISE = np.array([[1, 0.3, 0], [0.3, 0.5, 0.1], [0, 0.1, 0.8]])


@pytest.mark.parametrize("rate", [1e-3, 0.3, 0.85])
def test_the_stationary_covariance_solves_its_equation(rate):
    spread = sgd_noise.stationary_covariance(HESSIAN, NOISE, rate)
    step = np.eye(3) - rate * HESSIAN
    np.testing.assert_allclose(spread, scipy.linalg.solve_discrete_lyapunov(step, rate**2 * NOISE), rtol=1e-9)
    dissipation, fluctuation = np.trace(HESSIAN @ spread), rate / 2 * np.trace(NOISE + HESSIAN @ spread @ HESSIAN)
    assert dissipation == pytest.approx(fluctuation)


def test_the_stationary_covariance_is_that_of_runs():
    """Of linear regression, whose noise changes little around the minimum: to the first order in the rate."""
    slopes, moment = (X @ BEST - Y)[:, None] * X, np.zeros((P, P))
    for place, (w, _, _) in enumerate(batches(600, np.random.default_rng(4), steps=900)):
        moment += (w - BEST).T @ (w - BEST) / len(w) if place >= 600 else 0
    predicted = sgd_noise.stationary_covariance(
        X.T @ X / N, sgd_noise.gradient_covariance(slopes, BATCH, sampling="independent"), RATE
    )
    np.testing.assert_allclose(predicted, moment / 300, atol=0.15 * np.abs(predicted).max())


def test_noise_in_proportion_to_curvature_is_a_temperature():
    spread = sgd_noise.stationary_covariance(HESSIAN, 0.7 * HESSIAN, 1e-3)
    np.testing.assert_allclose(spread, 0.7 * 1e-3 / 2 * np.eye(3), atol=1e-6)


def test_flat_directions_without_noise_stay():
    flat = sgd_noise.stationary_covariance(np.diag([0.0, 1.0]), np.diag([0.0, 1.0]), 0.1)
    np.testing.assert_allclose(flat, np.diag([0, 0.1 / 1.9]))


def test_descent_drifts_as_predicted():
    """Simulated: the loss is `(1 + z^2) w^2`, the noise of its gradient along `w` is twice its curvature."""
    rng, runs, rate, heat, steps = np.random.default_rng(5), 3000, 0.02, 2.0, 2000
    w, z, middle = np.zeros(runs), np.ones(runs), []
    for _ in range(steps):
        curvature = 2 + 2 * z**2
        pull, along = curvature * w + np.sqrt(heat * curvature) * rng.normal(size=runs), 2 * z * w**2
        w, z = w - rate * pull, z - rate * along
        middle.append(z.mean())
    drift = sgd_noise.entropic_drift(lambda z: 2 + 2 * z**2, [1.0], rate, temperature=heat, steps=steps)
    np.testing.assert_allclose(drift.places[[500, 1000, 2000], 0], np.array(middle)[[499, 999, 1999]], rtol=0.04)
    assert middle[-1] < 0.25


def test_the_trace_falls_by_the_square_of_its_slope():
    rate, heat, start = 1e-3, 2.0, np.array([0.5, -0.3])
    drift = sgd_noise.entropic_drift(lambda z: 1 + z**2 * np.array([1.0, 3.0]), start, rate, temperature=heat, steps=1)
    change = drift.curvatures.sum(1)[1] - drift.curvatures.sum(1)[0]
    assert change == pytest.approx(-heat * rate**2 / 4 * np.sum((2 * start * [1, 3]) ** 2), rel=2e-3)


def covering_radius(points, balls):
    """Of centres that are chosen one by one, each far from the others: at most twice the smallest."""
    distances = np.linalg.norm(points - points[0], axis=1)
    for _ in range(balls - 1):
        distances = np.minimum(distances, np.linalg.norm(points - points[distances.argmax()], axis=1))
    return distances.max()


@pytest.mark.parametrize("axes", [(1.0, 1.0), (1.0, 0.1), (2.0, 0.5, 0.5)])
@pytest.mark.parametrize("bits", [1, 4, 7])
def test_entropy_numbers_lie_between_their_bounds(axes, bits):
    rng = np.random.default_rng(6)
    points = rng.normal(size=(20_000, len(axes)))
    points *= rng.random((20_000, 1)) ** (1 / len(axes)) / np.linalg.norm(points, axis=1, keepdims=True)
    radius = covering_radius(points * axes, 2**bits)
    bounds = eigenlearning.entropy_number(np.square(axes), bits)
    assert bounds.lower < 1.05 * radius
    assert radius / 2 < bounds.upper
    assert bounds.upper == 6 * bounds.lower


def test_entropy_numbers_of_intervals_and_power_laws():
    assert eigenlearning.entropy_number(0.49, 5).lower == pytest.approx(0.7 / 32)
    bits = [50, 200, 800, 3200]
    lower = [eigenlearning.entropy_number(np.arange(1, 50_001.0) ** -2, b).lower for b in bits]
    assert np.polyfit(np.log(bits), np.log(lower), 1)[0] == pytest.approx(-1, abs=0.03)
    assert eigenlearning.entropy_number([0.0], 3) == (0, 0)


@pytest.mark.parametrize("bits", [0.5, 5, 60])
def test_equal_eigenvalues_are_counted(bits):
    values, times = np.array([0.1, 1.0, 0.01]), np.array([5, 1, 30])
    counted = eigenlearning.entropy_number(values, bits, multiplicities=times)
    assert counted == pytest.approx(eigenlearning.entropy_number(np.repeat(values, times), bits))


MONITOR = sgd_noise.FluctuationDissipation(0.1)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: sgd_noise.FluctuationDissipation(0.0), "above 0"),
        (lambda: sgd_noise.FluctuationDissipation(0.1, window=0), "1 or more"),
        (lambda: MONITOR.update(np.nan, 1.0), "finite"),
        (lambda: MONITOR.update([1.0, 2.0], [1.0]), "one number of each"),
        (lambda: MONITOR.update(1.0, -1.0), "at least 0"),
        (lambda: sgd_noise.gradient_covariance(Y, 2), "expected .n, p."),
        (lambda: sgd_noise.gradient_covariance(X, 41), "at most 40"),
        (lambda: sgd_noise.gradient_covariance(X, 4, sampling="poisson"), "not a valid Sampling"),
        (lambda: sgd_noise.stationary_covariance(HESSIAN, NOISE, 1.0), "nothing is stationary"),
        (lambda: sgd_noise.stationary_covariance(HESSIAN, np.eye(2), 0.1), "expected that of the hessian"),
        (lambda: sgd_noise.stationary_covariance(-HESSIAN, NOISE, 0.1), "not positive semidefinite"),
        (lambda: sgd_noise.stationary_covariance(np.diag([0.0, 1.0]), np.eye(2), 0.1), "flat directions"),
        (lambda: sgd_noise.entropic_drift(lambda z: z, [[1.0]], 0.1, temperature=1.0, steps=2), "expected .k,."),
        (lambda: sgd_noise.entropic_drift(lambda z: z[0], [1.0], 0.1, temperature=1.0, steps=2), "expected .m,."),
        (lambda: sgd_noise.entropic_drift(lambda z: 30 * z, [1.0], 0.1, temperature=1.0, steps=2), "below 2 / rate"),
        (lambda: sgd_noise.entropic_drift(lambda z: z, [1e-4], 0.1, temperature=1.0, steps=9), "above 0"),
        (lambda: eigenlearning.entropy_number([-1.0], 3), "from 0 on"),
        (lambda: eigenlearning.entropy_number([1.0], -3), "at least 0"),
        (lambda: eigenlearning.entropy_number([1.0], 3, multiplicities=[1, 2]), "expected .modes,."),
    ],
)
def test_bad_input(run, message):
    with pytest.raises((ew.InputError, ew.spectral.KernelError), match=message):
        run()
