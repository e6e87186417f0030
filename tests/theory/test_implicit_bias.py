"""Where gradient descent ends, against weights that are trained, general optimizers, and machines of others."""

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
from sklearn.svm import SVC

import everwide as ew
from everwide.theory import implicit_bias

pytestmark = pytest.mark.once
RNG = np.random.default_rng(0)
X, START = RNG.normal(size=(6, 20)), RNG.uniform(0.5, 1.5, 20)
SPARSE = np.r_[1.5, -1.0, np.zeros(18)]
Y = X @ SPARSE


def trained(scale, time):
    """Gradient flow of the weights themselves, on half the mean square."""

    def velocity(_, weights):
        u, v = np.split(weights, 2)
        slope = X.T @ (X @ (u**2 - v**2) - Y) / len(X)
        return np.r_[-2 * slope * u, 2 * slope * v]

    start = np.tile(scale * START, 2)
    u, v = np.split(scipy.integrate.solve_ivp(velocity, (0, time), start, "DOP853", rtol=1e-10, atol=1e-14).y[:, -1], 2)
    return u**2 - v**2


@pytest.mark.parametrize(("scale", "middle", "end"), [(0.05, 0.9, 60.0), (0.5, 0.3, 60.0), (3.0, 0.01, 6.0)])
def test_a_flow_of_rows_is_that_of_all_weights(scale, middle, end):
    network = implicit_bias.diagonal_network(X, Y, scale=scale, start=START)
    course = network.flow([end, 0.0, middle])
    assert not course[1].any()
    np.testing.assert_allclose(course[2], trained(scale, middle), atol=1e-6)
    np.testing.assert_allclose(course[0], trained(scale, end), atol=1e-6)
    np.testing.assert_allclose(network.limit(), network.flow(4000.0)[0], atol=1e-6)
    assert np.abs(course[2] - course[0]).max() > 0.05


@pytest.mark.parametrize("scale", [0.05, 0.5, 3.0])
def test_of_all_that_fits_the_limit_has_the_smallest_penalty(scale):
    """A general optimizer, among coefficients that fit; the penalty is an integral of `asinh(z / 2)`."""
    network = implicit_bias.diagonal_network(X, Y, scale=scale, start=START)
    _, _, rows = np.linalg.svd(X)
    free, units = rows[len(X) :].T, (scale * START) ** 2

    def penalty(b):
        z = b / units
        return np.sum(units * (2 - np.sqrt(4 + z**2) + z * np.arcsinh(z / 2)))

    best = scipy.optimize.minimize(
        lambda a: penalty(SPARSE + free @ a),
        np.zeros(14),
        jac=lambda a: free.T @ np.arcsinh((SPARSE + free @ a) / units / 2),
        options={"gtol": 1e-10, "maxiter": 5000},
    )
    np.testing.assert_allclose(network.limit(), SPARSE + free @ best.x, atol=1e-5)
    some = RNG.normal(size=20)
    areas = [scipy.integrate.quad(lambda z: np.arcsinh(z / 2), 0, b / u)[0] for b, u in zip(some, units, strict=True)]
    assert network.penalty(some) == pytest.approx(np.sum(units * areas), rel=1e-9)
    assert network.penalty(some) == pytest.approx(penalty(some), rel=1e-6)


def test_small_weights_are_rich_and_large_ones_lazy():
    networks = {
        scale: implicit_bias.diagonal_network(X, Y, scale=scale, start=START) for scale in (1e-120, 1e-6, 1, 300)
    }
    sums = {scale: np.abs(network.limit()).sum() for scale, network in networks.items()}
    rich, lazy = networks[1].rich(), networks[1].lazy()
    np.testing.assert_allclose(rich, SPARSE, atol=1e-9)  # six rows suffice for two coefficients
    assert 2.5 <= sums[1e-120] < 2.5 + 1e-6 < sums[1e-6] < 2.55 < sums[1] < sums[300]
    np.testing.assert_allclose(lazy, START * (np.linalg.pinv(X * START) @ Y), atol=1e-10)
    np.testing.assert_allclose(networks[300].limit(), lazy, atol=1e-8)


def test_the_penalty_has_both_limits():
    b = RNG.normal(size=20)
    small = [
        implicit_bias.diagonal_network(X, Y, scale=scale, start=START).penalty(b) / np.log(scale**-2)
        for scale in (1e-3, 1e-40, 1e-140)
    ]
    off = np.abs(np.array(small) / np.abs(b).sum() - 1)
    assert off[0] > off[1] > off[2]
    assert off[2] < 0.01
    large = implicit_bias.diagonal_network(X, Y, scale=1e4, start=START).penalty(b)
    assert 1e8 * large == pytest.approx(np.sum(b**2 / START**2) / 4, rel=1e-6)


def test_rows_that_say_the_same_are_one():
    twice = implicit_bias.diagonal_network(np.r_[X, 2 * X[:1]], np.r_[Y, 2 * Y[:1]], scale=0.1)
    np.testing.assert_allclose(twice.limit(), implicit_bias.diagonal_network(X, Y, scale=0.1).limit(), atol=1e-8)
    np.testing.assert_allclose(twice.flow(500.0)[0], twice.limit(), atol=1e-6)
    assert not implicit_bias.diagonal_network(X, np.zeros(6), scale=0.1).limit().any()


def classes(n, p, seed, apart=2.0, shift=0.0):
    rng = np.random.default_rng(seed)
    y = rng.choice([-1, 1], n)
    direction = rng.normal(size=p)
    return rng.normal(size=(n, p)) + (apart * y[:, None] + shift) * direction / np.linalg.norm(direction) * 1.5, y


@pytest.mark.parametrize(("n", "p", "seed"), [(12, 2, 3), (30, 5, 1), (10, 40, 2)])
def test_the_margin_is_that_of_a_general_optimizer(n, p, seed):
    x, y = classes(n, p, seed)
    signed = y[:, None] * x
    best = scipy.optimize.minimize(
        lambda w: w @ w / 2,
        np.ones(p),
        jac=lambda w: w,
        constraints={"type": "ineq", "fun": lambda w: signed @ w - 1, "jac": lambda w: signed},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    ).x
    largest = implicit_bias.max_margin(x @ x.T, y)
    np.testing.assert_allclose(x.T @ largest.coefficients, best, atol=1e-5 * np.abs(best).max())
    assert largest.margin == pytest.approx(1 / np.linalg.norm(best), rel=1e-6)
    on_it = np.flatnonzero(signed @ best < 1 + 1e-6)
    assert set(largest.support) <= set(on_it)
    np.testing.assert_allclose(y * largest.decision(x @ x.T), np.maximum(signed @ best, 1), atol=1e-4)
    assert (largest.multipliers[largest.support] > 0).all()
    assert largest.bias == 0


@pytest.mark.parametrize("kind", ["linear", "rbf"])
def test_the_margin_with_a_bias_is_that_of_support_vector_machines(kind):
    x, y = classes(60, 3, 5, shift=3.0)
    if kind == "rbf":
        x = RNG.uniform(-1.5, 1.5, size=(60, 2))
        x = x[np.abs(x).min(1) > 0.2]
        y = np.where(x[:, 0] * x[:, 1] > 0, 1, -1)
    kernel = x @ x.T if kind == "linear" else np.exp(-np.sum((x[:, None] - x) ** 2, -1))
    machine = SVC(kernel="precomputed", C=1e9, tol=1e-9).fit(kernel, y)
    largest = implicit_bias.max_margin(kernel, y, bias=True)
    np.testing.assert_allclose(largest.decision(kernel), machine.decision_function(kernel), atol=1e-4)
    assert largest.coefficients.sum() == pytest.approx(0, abs=1e-9 * largest.multipliers.sum())
    assert set(largest.support) == set(machine.support_)


def test_what_a_bias_is_needed_for():
    x, y = np.array([[3.0], [5.0], [6.0]]), [-1, 1, 1]
    with pytest.raises(ew.InputError, match="cannot be parted"):
        implicit_bias.max_margin(x @ x.T, y)
    largest = implicit_bias.max_margin(x @ x.T, y, bias=True)
    assert (largest.margin, largest.bias) == pytest.approx((1.0, -4.0))
    assert largest.support.tolist() == [0, 1]


DATA, LABELS = classes(12, 2, 2)
LOGS = np.array([5.0, 10, 20, 40, 80, 160, 320])


@pytest.mark.parametrize("logistic", [True, False])
def test_the_way_to_the_margin(logistic):
    run = implicit_bias.margin_trajectory(DATA @ DATA.T, LABELS, LOGS, logistic=logistic)
    slope = np.polyfit(np.log(LOGS[2:]), np.log(run.direction_errors[2:]), 1)[0]
    assert slope == pytest.approx(-1, abs=0.05)
    held = (LABELS * run.outputs)[:, run.limit.support]
    np.testing.assert_allclose(held[-3:], run.asymptotes[-3:], atol=1e-8)
    np.testing.assert_allclose(run.log_losses[-3:] + LOGS[-3:], np.log(run.limit.multipliers.sum()), atol=1e-8)
    assert run.margins[-1] == pytest.approx(run.limit.margin, rel=0.01)
    np.testing.assert_allclose(run.coefficients @ DATA @ DATA.T, run.outputs, atol=1e-8)


@pytest.mark.parametrize("logistic", [True, False])
def test_descent_is_on_that_way(logistic):
    """Steps of 0.01 on the weights; the flow of the mean loss."""
    signed, w, rate, steps = LABELS[:, None] * DATA, np.zeros(2), 0.01, 30_000
    for _ in range(steps):
        held = signed @ w
        pull = 1 / (1 + np.exp(held)) if logistic else np.exp(-held)
        w = w + rate * pull @ signed / len(signed)
    run = implicit_bias.margin_trajectory(DATA @ DATA.T, LABELS, [np.log(rate * steps)], logistic=logistic)
    np.testing.assert_allclose(run.outputs[0], DATA @ w, rtol=2e-3)
    held = LABELS * (DATA @ w)
    assert run.log_losses[0] == pytest.approx(
        np.log(np.mean(np.log1p(np.exp(-held)) if logistic else np.exp(-held))), rel=1e-2
    )
    assert run.margins[0] == pytest.approx(held.min() / np.linalg.norm(w), rel=1e-3)


@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_the_way_knows_no_units(size):
    """Rows that are longer move faster by their squares."""
    kernel = DATA @ DATA.T
    run, other = (
        implicit_bias.margin_trajectory(k, LABELS, at)
        for k, at in ((kernel, LOGS), (size * kernel, LOGS - np.log(size)))
    )
    np.testing.assert_allclose(other.outputs, run.outputs, rtol=1e-5)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: implicit_bias.diagonal_network(X[0], Y), "expected .n, p."),
        (lambda: implicit_bias.diagonal_network(X, Y[:3]), "y has shape .3,., expected .6,."),
        (lambda: implicit_bias.diagonal_network(X, Y, scale=0.0), "above 0"),
        (lambda: implicit_bias.diagonal_network(X, Y, scale=1e-200), "rich.. and lazy.."),
        (lambda: implicit_bias.diagonal_network(X, Y, start=-START), "expected first weights"),
        (lambda: implicit_bias.diagonal_network(np.nan * X, Y), "finite"),
        (lambda: implicit_bias.diagonal_network(X.T, np.arange(20.0)).limit(), "no coefficients fit y"),
        (lambda: implicit_bias.diagonal_network(X, Y).flow(-1.0), "from 0 on"),
        (lambda: implicit_bias.diagonal_network(X, Y).flow([[1.0]]), "one time"),
        (lambda: implicit_bias.diagonal_network(X, Y).penalty(Y), "expected .20,."),
        (lambda: implicit_bias.max_margin(np.ones((2, 2)), [1, -1]), "cannot be parted"),
        (lambda: implicit_bias.max_margin(np.zeros((2, 2)), [1, 1]), "cannot be parted"),
        (lambda: implicit_bias.max_margin(np.eye(3), [0, 1, 1]), "-1"),
        (lambda: implicit_bias.max_margin(np.eye(3), [1, -1]), "they must agree"),
        (lambda: implicit_bias.max_margin(np.eye(2), [1, 1], bias=True), "one class"),
        (lambda: implicit_bias.max_margin(np.eye(2), [1, -1]).decision(np.eye(3)), "expected .m, 2."),
        (lambda: implicit_bias.margin_trajectory(np.eye(2), [1, -1], 3.0), "expected .times,."),
        (lambda: implicit_bias.margin_trajectory(np.eye(2), [1, -1], [-800.0]), "nothing moved before"),
        (lambda: implicit_bias.margin_trajectory(np.ones((2, 2)), [1, -1], [3.0]), "cannot be parted"),
    ],
)
def test_bad_input(run, message):
    with pytest.raises(ew.InputError, match=message):
        run()
