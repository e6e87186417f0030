"""Rates and times against simulated training: in outputs, and of networks of finite width."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import everwide as ew
import everwide.training as tr
from everwide.theory import rates

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 5))
Y = np.sin(X[:, 0]) + X[:, 1]
NET = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu(), ew.Dense(1))
K = np.asarray(ew.ntk(NET, X))
RATES = rates.stable_rates(NET, X, Y)
pytestmark = pytest.mark.once


def descend(rate, steps, momentum=0.0):
    """The residual after steps of gradient descent on the mean loss, in outputs."""
    f, velocity = np.zeros(len(Y)), np.zeros(len(Y))
    for _ in range(steps):
        velocity = momentum * velocity + K @ (f - Y) / len(Y)
        f = f - rate * velocity
    return float(np.linalg.norm(f - Y))


def adam_star(rate, b1, b2, steps):
    """Norms of the gradient, as functions, along ADAM*."""
    f, first, second, norms = np.zeros(len(Y)), np.zeros(len(Y)), 0.0, []
    for step in range(1, steps + 1):
        slope = (f - Y) / len(Y)
        first, square = b1 * first + (1 - b1) * slope, slope @ K @ slope
        second = b2 * second + (1 - b2) * square
        f = f - rate * (K @ first) / (1 - b1**step) / np.sqrt(second / (1 - b2**step))
        norms.append(square**0.5)
    return np.array(norms)


@pytest.mark.parametrize(("momentum", "steps"), [(0.0, 20_000), (0.9, 4_000)])
def test_training_diverges_just_above_the_rate(momentum, steps):
    limit = RATES.momentum if momentum else RATES.gradient_descent
    below, above = (descend(limit * share, steps, momentum) for share in (0.999, 1.001))
    assert below < np.linalg.norm(Y) < 1e3 < above, (below, above)


def test_the_best_rate_contracts_as_promised_and_no_other_does_better():
    contraction = lambda rate: np.abs(1 - rate * np.linalg.eigvalsh(K) / len(Y)).max()
    assert contraction(RATES.best) == pytest.approx(RATES.contraction, rel=1e-9)
    assert min(contraction(RATES.best * share) for share in (0.97, 1.03)) > RATES.contraction
    assert RATES.condition_number == pytest.approx(np.linalg.cond(K), rel=1e-6)


@pytest.mark.parametrize(("b1", "b2"), [(0.0, 0.99), (0.5, 0.99), (0.9, 0.99)])
def test_adam_star_hovers_where_it_is_said_to(b1, b2):
    found = rates.stable_rates(K, y=Y, b1=b1)
    rate = 0.05 * found.adam_star
    norms = adam_star(rate, b1, b2, 6000)
    assert norms.max() == norms[0]
    assert np.sqrt(np.mean(norms[-2000:] ** 2)) == pytest.approx(found.hovers_at(rate), rel=0.12 if b1 else 1e-3)


def test_the_first_step_of_adam_star_overshoots_above_its_rate():
    top = np.linalg.eigh(K)[1][:, -1]  # a target along the steepest direction
    found = rates.stable_rates(K, y=top)
    left = lambda rate: np.linalg.norm(top - rate * (K @ top) / np.sqrt(top @ K @ top))
    assert left(0.999 * found.adam_star) < 1 < left(1.001 * found.adam_star)


def test_a_wide_network_has_the_rate_of_its_limit():
    wide = lambda key: ew.empirical_ntk(NET, NET.init(key, (5,), width=1024), jnp.asarray(X, float))
    found = [
        2 * len(X) / np.linalg.eigvalsh(np.asarray(wide(jax.random.key(seed)))[..., 0, 0])[-1] for seed in range(3)
    ]
    assert np.mean(found) == pytest.approx(RATES.gradient_descent, rel=0.1)


def test_rates_fall_as_the_inverse_of_the_number_of_layers():
    block, depths = ew.Serial(ew.Dense(w_std=2**0.5), ew.Relu()), np.array([2, 8, 32])
    nets = [ew.Serial(ew.Repeat(block, int(depth)), ew.Dense(1)) for depth in depths]
    by_depth = [rates.stable_rates(net, X).gradient_descent for net in nets]
    slope = np.polyfit(np.log(depths + 1), np.log(by_depth), 1)[0]
    assert -1.3 < slope < -0.95


def test_rate_table_of_each_parametrization():
    factors = {
        kind: [row.factor for row in rates.rate_table(NET, (5,), [64, 256], parametrization=kind)]
        for kind in ("ntk", "standard", "mean_field", "mup")
    }
    assert factors["ntk"] == [1.0] * 4
    assert factors["standard"] == pytest.approx([2 / 5, 1 / 64, 2 / 5, 1 / 256])
    assert factors["mean_field"] == [64.0, 64.0, 256.0, 256.0]
    assert factors["mup"] == pytest.approx([64 * 2 / 5, 1 / 64, 256 * 2 / 5, 1 / 256])
    assert rates.rate_table(NET, (5,), [64], rate=0.5)[1] == (64, "[2].weight", (64, 1), 1.0, 0.5)


@pytest.mark.parametrize("hidden", [1, 4])
def test_rates_over_the_depth_keep_the_largest_eigenvalue(hidden):
    """With `eta_l = eta / (n_in (L + 1))` in the standard parametrization the sum over layers of `eta_l J_l J_l^T` is
    that of the NTK parametrization over `L + 1`, at every width: by finite networks."""
    net = ew.Serial(*(layer for _ in range(hidden) for layer in (ew.Dense(w_std=2**0.5), ew.Relu())), ew.Dense(1))
    limit = np.linalg.eigvalsh(ew.ntk(net, X))[-1] / (hidden + 1)
    for width in (128, 512):
        table = rates.rate_table(net, (5,), [width], parametrization="standard", over_depth=True)
        sizes = np.array([2 / 5, *[2 / width] * (hidden - 1), 1 / width])
        assert [row.rate for row in table] == pytest.approx(sizes / (hidden + 1))
        params = net.init(jax.random.key(0), (5,), width=width, parametrization="standard")
        parts = ew.empirical.empirical_ntk_blocks(net, params, jnp.asarray(X, float), outputs="trace")
        kernel = sum(row.rate * np.asarray(parts[row.parameter], float) for row in table)
        assert np.linalg.eigvalsh(kernel)[-1] == pytest.approx(limit, rel=0.3)


def test_schedules_that_come_to_rest_and_others():
    optax = pytest.importorskip("optax")
    check = rates.schedule_check
    assert check(lambda t: 1 / (10 + t)).holds
    assert check(lambda t: (1 + t) ** -0.75).exponent == pytest.approx(0.75, abs=1e-4)
    assert check(np.arange(1, 2000) ** -0.75).holds
    root = check(lambda t: (1 + t) ** -0.5)
    assert (root.sum_diverges, root.squares_converge) == (True, False)
    fast = check(lambda t: (1 + t) ** -1.5)
    assert (fast.sum_diverges, fast.squares_converge) == (False, True)
    constant = check(optax.constant_schedule(0.1))
    assert (constant.limit, constant.exponent, constant.holds) == (pytest.approx(0.1), 0.0, False)
    assert not check(optax.cosine_decay_schedule(0.1, 1000)).sum_diverges  # ends at 0
    assert not check(optax.exponential_decay(0.1, 100, 0.9)).sum_diverges


def test_what_noise_leaves_of_a_quadratic():
    """1/2 sum h w^2 with gradients of noise C: constant rates stall at `rate tr C / 4`, rates c / t come to rest."""
    rng, h, c, runs = np.random.default_rng(5), np.array([1.0, 0.5]), np.array([0.3, 0.7]), 4000

    def loss(schedule, steps):
        w = np.ones((runs, 2))
        for step in range(steps):
            w = w - schedule(step) * (h * w + np.sqrt(c) * rng.normal(size=w.shape))
        return np.mean(np.sum(h * w**2, 1)) / 2

    stalled = loss(lambda step: 0.02, 600)
    assert stalled == pytest.approx(0.02 * c.sum() / 4, rel=0.06)
    decayed = lambda step: 4 / (40 + step)
    assert rates.schedule_check(decayed).holds
    assert loss(decayed, 4000) < 0.25 * loss(decayed, 900) < 0.1 * stalled


def test_times_are_those_of_gradient_flow():
    values, vectors = np.linalg.eigh(K)
    power = (vectors.T @ Y) ** 2 / (Y @ Y)
    times = rates.fit_times(NET, X, Y)
    for fraction in (0.3, 0.9, 0.999):
        time = times.time(fraction)
        assert power @ np.exp(-2 * values * time / len(Y)) == pytest.approx(1 - fraction, rel=1e-6)
    assert times.left([0.0, np.inf]) == pytest.approx([1.0, 0.0], abs=1e-12)
    assert times.steps(0.9, 0.01) == np.ceil(times.time(0.9) / 0.01)
    parts = times.parts()
    assert sum(part.share for part in parts) == pytest.approx(1.0)
    top = values > parts[0].upper / 10
    assert parts[0].share == pytest.approx(power[top].sum(), rel=1e-6)
    assert [part.time for part in parts] == sorted(part.time for part in parts)


def test_times_of_a_large_kernel_need_few_products():
    n = 400
    vectors, values = np.linalg.qr(RNG.normal(size=(n, n)))[0], np.arange(1.0, n + 1) ** -1.5
    targets = vectors @ RNG.normal(size=(n, 2))  # spread over all modes
    kernel = (vectors * values) @ vectors.T
    found, power = rates.fit_times(kernel, None, targets), ((vectors.T @ targets) ** 2).sum(1) / (targets**2).sum()
    assert len(found.values) < n
    for fraction in (0.5, 0.9):
        left = power @ np.exp(-2 * values * found.time(fraction) / n)
        assert left == pytest.approx(1 - fraction, rel=1e-2)


def test_what_cannot_be_learned_takes_for_ever():
    times = rates.fit_times(np.diag([1.0, 0.0]), None, [1.0, 1.0])
    assert times.time(0.6) == np.inf > times.time(0.4)
    assert times.parts()[-1] == (0.0, 0.0, pytest.approx(0.5), np.inf)
    twice = rates.stable_rates(np.ones((2, 2)))
    assert (twice.lambda_min, twice.condition_number, twice.adam_star) == (0.0, np.inf, None)


def test_what_float32_has_done_to_a_kernel_is_neither_an_error_nor_a_slow_mode():
    smooth = ew.Serial(ew.Dense(b_std=0.3), ew.Erf(), ew.Dense(1))
    x = RNG.normal(size=(300, 2)).astype(np.float32)
    y = np.sin(x[:, 0]) + RNG.normal(size=300)
    single, double = (rates.stable_rates(smooth, x.astype(dtype), y) for dtype in (np.float32, np.float64))
    assert single.gradient_descent == pytest.approx(double.gradient_descent, rel=1e-5)
    assert single.condition_number == np.inf
    assert rates.fit_times(smooth, x, y).time(0.5) > 1e4 * rates.fit_times(smooth, x, np.sin(x[:, 0])).time(0.5)
    assert rates.fit_times(smooth, x, y).values[-1] == 0.0


def test_losses_are_values():
    assert rates.stable_rates(K, loss=tr.Mse()).best == RATES.best


def test_other_losses_have_no_best_rate():
    found = rates.stable_rates(K, y=(Y > 0).astype(int), loss=tr.SoftmaxCrossEntropy())
    assert (found.best, found.contraction) == (None, None)
    assert found.gradient_descent > RATES.gradient_descent


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: rates.stable_rates(NET), "x is missing"),
        (lambda: rates.stable_rates(ew.Conv((3,)), np.ones((3, 5, 2))), "End it with Flatten"),
        (lambda: rates.fit_times(np.diag([1.0, -0.5]), None, [1.0, 1.0]), "not positive semidefinite"),
        (lambda: rates.fit_times(np.zeros((2, 2)), None, [1.0, 1.0]), "kernel is zero"),
        (lambda: rates.fit_times(K, None, Y).left(-1.0), "from 0 on"),
        (lambda: rates.stable_rates(K, X[:3]), "x 3 rows"),
        (lambda: rates.stable_rates(K, momentum=1.0), "momentum=1.0"),
        (lambda: rates.stable_rates(K, b1=-0.1), "b1=-0.1"),
        (lambda: rates.stable_rates(K, y=Y[:3]), "y has 3 rows"),
        (lambda: rates.stable_rates(K, y=np.zeros(30)), "gradient at the start is 0"),
        (lambda: rates.stable_rates(np.zeros((3, 3))), "kernel is zero"),
        (lambda: rates.stable_rates(K).hovers_at(0.0), "above 0"),
        (lambda: rates.fit_times(K, None, np.zeros(30)), "nothing to fit"),
        (lambda: rates.fit_times(K, None, Y[:4]), "y has 4 rows"),
        (lambda: rates.fit_times(K, None, Y).time(1.0), "below 1"),
        (lambda: rates.fit_times(np.diag([1.0, 0.0]), None, [1.0, 1.0]).steps(0.9, 0.1), "cannot be learned"),
        (lambda: rates.rate_table(NET, (5,), [8], rate=-1.0), "above 0"),
        (lambda: rates.schedule_check([0.1, 0.2]), "16 or more steps"),
        (lambda: rates.schedule_check(lambda step: -0.1), "0 or more"),
    ],
)
def test_bad_input(run, message):
    with pytest.raises(ew.InputError, match=message):
        run()
