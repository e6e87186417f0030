"""Real runs of gradient descent stay below everything that is proved about them."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.stats

from everwide import InputError
from everwide.spectral import KernelError
from everwide.theory import finite_width

host = pytest.mark.once

RNG = np.random.default_rng


def slopes(w, x):
    return 1 - np.tanh(w @ x.T) ** 2


def frozen_kernel(w, a, x):
    s = slopes(w, x) * a[:, None]
    return (x @ x.T) * (s.T @ s) / len(a)


class FrozenRun:
    """Gradient descent in small steps on the hidden weights of a tanh network, with output weights 1 and -1."""

    def __init__(self, x, residual, width, step, steps, seed):
        rng, rows = RNG(seed), len(x)
        w, a = rng.normal(size=(width, x.shape[1])), rng.choice([-1.0, 1.0], width)
        start, y = w.copy(), a @ np.tanh(w @ x.T) / width**0.5 - residual
        self.kernel, self.times = frozen_kernel(w, a, x), step * np.arange(steps)
        self.losses, self.moves, self.changes = [], [], []
        for _ in range(steps):
            r = a @ np.tanh(w @ x.T) / width**0.5 - y
            self.losses.append(r @ r / (2 * rows))
            self.moves.append(np.linalg.norm(w - start, axis=1).max())
            self.changes.append(np.linalg.norm(frozen_kernel(w, a, x) - self.kernel, 2))
            w = w - step * ((slopes(w, x) * a[:, None] * r) @ x) / (rows * width**0.5)


@host
def test_a_certified_run():
    run = FrozenRun(np.eye(2), np.array([0.2, -0.2]), width=3000, step=0.25, steps=120, seed=0)
    found = finite_width.certificate(run.kernel, initial_loss=run.losses[0], width=3000)
    assert found.holds
    assert found.movement < found.radius
    assert np.all(run.losses <= run.losses[0] * np.exp(-found.rate * run.times) * (1 + 1e-9))
    assert max(run.moves) <= found.movement
    assert max(run.changes) <= found.lambda_min / 2
    assert np.all(run.changes <= 2 * 2 * np.array(run.moves) + 1e-12)
    assert run.losses[-1] < 1e-3 * run.losses[0]
    assert "Certified" in str(found)


def slowest_loss(kernel, per_row, time):
    """The loss that gradient flow has left of 1 in the slowest direction of a kernel."""
    left = scipy.linalg.expm(-per_row * time * kernel) @ np.linalg.eigh(kernel)[1][:, 0]
    return left @ left


@host
def test_the_rates_are_those_of_the_slowest_flow_that_is_left():
    """Of a kernel that has lost half of its smallest eigenvalue, on the mean over rows; from both sides."""
    features = RNG(3).normal(size=(4, 6))
    kernel = features @ features.T
    proof = finite_width.certificate(kernel, initial_loss=1e-9, width=10**9)
    assert slowest_loss(kernel / 2, 1 / 4, 0.7) == pytest.approx(np.exp(-0.7 * proof.rate), rel=1e-12)
    law = finite_width.convergence_rate(kernel, 0.3)
    assert slowest_loss(kernel, 0.3 / 4, 0.7) == pytest.approx(np.exp(-0.7 * law.exponent), rel=1e-12)
    lee = finite_width.lee_certificate(kernel, width=10**9, rate=0.3, lipschitz=1.0, residual=2.0)
    third = 2.0 * slowest_loss(kernel / 3, 0.3 / 4, 0.7) ** 0.5  # a residual, and a third of the eigenvalue
    assert lee.residual_at(0.7) == pytest.approx(third, rel=1e-12)
    assert lee.residual_at([0.0, 0.7]).tolist() == pytest.approx([2.0, third])


@host
def test_networks_converge_far_below_the_certified_width():
    x = RNG(1).normal(size=(6, 4))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    run = FrozenRun(x, RNG(2).normal(size=6), width=300, step=1.0, steps=400, seed=3)
    found = finite_width.certificate(run.kernel, initial_loss=run.losses[0], width=300)
    assert not found.holds
    assert found.sufficient_width > 1e6
    assert run.losses[-1] < 0.2 * run.losses[0]
    assert "no advice" in str(found)
    assert "Not certified" in str(found)


@host
def test_kernels_whose_powers_leave_the_range_of_numbers():
    faint = finite_width.certificate(1e-90 * np.eye(2), initial_loss=1.0, width=10)
    assert (faint.holds, faint.sufficient_width) == (False, float("inf"))
    assert faint.movement == pytest.approx(4 * 2**0.5 * 1e90 / 10**0.5)
    strong = finite_width.certificate(1e90 * np.eye(2), initial_loss=1.0, width=10)
    assert strong.holds
    assert strong.sufficient_width < 1e-300
    done = finite_width.certificate(1e-90 * np.eye(2), initial_loss=0.0, width=10)
    assert (done.holds, done.movement, done.sufficient_width) == (True, 0.0, 0.0)
    for size in (1e-200, 1e200):
        gap = finite_width.lee_certificate(
            size * np.eye(2), width=100, rate=0.1, lipschitz=1.0, residual=size
        ).taylor_gap
        assert gap == pytest.approx(0.9 * 2**0.5)


@host
def test_the_constants_of_the_certificate_close_the_circle():
    kernel, loss = np.diag([0.3, 0.5, 0.9]), 0.7
    needed = finite_width.certificate(kernel, initial_loss=loss, width=10).sufficient_width
    assert needed == pytest.approx(128 * 3**4 * loss / 0.3**4)
    below, above = (finite_width.certificate(kernel, initial_loss=loss, width=int(needed) + i) for i in (0, 1))
    assert (below.holds, above.holds) == (False, True)
    assert above.movement == pytest.approx(above.radius, rel=1e-3)
    assert 2 * 3 * above.radius == pytest.approx(above.lambda_min / 2)  # what the kernel may lose
    # One row and a linear network, whose kernel stays: rows move by |r| / (K sqrt(n)), half of the bound.
    linear = finite_width.certificate([[1.0]], initial_loss=0.5 * 0.3**2, width=100)
    assert linear.movement == pytest.approx(2 * 0.3 / 10)


@host
def test_a_kernel_moves_by_twice_the_movement_of_rows_at_most():
    rng, worst = RNG(4), 0.0
    x = rng.normal(size=(5, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    w, a = rng.normal(size=(60, 3)), rng.uniform(-1, 1, 60)
    for trial in range(200):
        move = rng.normal(size=w.shape) if trial % 2 else np.sign(w)  # the second: all slopes fall together
        size = 10 ** rng.uniform(-3, 0)
        move *= size / np.linalg.norm(move, axis=1, keepdims=True)
        changed = np.linalg.norm(frozen_kernel(w + move, a, x) - frozen_kernel(w, a, x), 2)
        worst = max(worst, changed / (2 * len(x) * size))
    assert 0.005 < worst <= 1


class StandardRun:
    """Gradient descent with rate `rate / width` on `a . tanh(w x)`, in the standard parametrization, mean loss."""

    def __init__(self, x, residual, width, rate, steps, seed):
        rng = RNG(seed)
        w, a = rng.normal(size=(width, x.shape[1])), rng.normal(size=width) / width**0.5
        flat = lambda w, a: np.concatenate([w.ravel(), a])
        start, y = flat(w, a), a @ np.tanh(w @ x.T) - residual
        first, f0 = self.jacobian(w, a, x), y + residual
        self.kernel = first @ first.T / width
        self.residuals, self.changes, self.gaps, self.sizes, lengths = [], [], [], [], [0.0]
        for _ in range(steps):
            here, jacobian, f = flat(w, a), self.jacobian(w, a, x), a @ np.tanh(w @ x.T)
            self.residuals.append(np.sqrt(np.mean((f - y) ** 2)))
            self.changes.append(np.linalg.norm(jacobian @ jacobian.T / width - self.kernel))
            self.gaps.append(np.sqrt(np.mean((f - f0 - first @ (here - start)) ** 2)))
            self.sizes.append(np.linalg.norm(jacobian) / width**0.5)
            update = -rate / width * (f - y) @ jacobian / len(y)
            lengths.append(np.linalg.norm(update))
            w, a = w + update[: w.size].reshape(w.shape), a + update[w.size :]
        self.length = sum(lengths)

    @staticmethod
    def jacobian(w, a, x):
        by_w = (slopes(w, x) * a[:, None]).T[:, :, None] * x[:, None, :]
        return np.concatenate([by_w.reshape(len(x), -1), np.tanh(w @ x.T).T], 1)


@host
def test_a_run_that_lee_et_al_certify():
    rate, width = 2.0, 1500
    run = StandardRun(np.eye(2), np.array([0.15, -0.2]), width, rate, steps=100, seed=5)
    # The Jacobian's own change for a unit step is about 1, far below 1 * sqrt(width): its size decides.
    found = finite_width.lee_certificate(run.kernel, width=width, rate=rate, lipschitz=1.0, residual=run.residuals[0])
    steps = np.arange(100)
    assert found.holds
    assert max(run.sizes) <= 1.0
    assert np.all(run.residuals <= found.residual_after(steps) * (1 + 1e-12))
    assert np.all(found.residual_after(steps) <= found.residual_at(steps))
    assert run.length <= found.movement
    assert max(run.changes) <= found.kernel_change
    assert np.all(run.gaps <= found.taylor_gap_after(steps) + 1e-15)
    assert found.taylor_gap_after(10**6) == pytest.approx(found.taylor_gap)
    assert run.residuals[-1] < 1e-6


@host
def test_lees_constants():
    kernel, k, r, eta = np.diag([0.4, 1.1]), 1.7, 2.3, 0.9
    # The paper's rate is that of the sum, ours (of the mean over 2 rows) is twice that; its residual is not a mean.
    given = {"lipschitz": k, "residual": r / 2**0.5}
    found = finite_width.lee_certificate(kernel, width=1000, rate=2 * eta, **given)
    n = found.sufficient_width
    assert 1 - 2 / 3 * eta * 0.4 + 6 * eta * k**3 * r / (0.4 * n**0.5) == pytest.approx(1 - eta * 0.4 / 3)
    shares = 3 * eta * k**3 * r**2 / 0.4 * found.contraction ** np.arange(7) / 1000**0.5
    assert found.taylor_gap_after(7) * 2**0.5 == pytest.approx(shares.sum())
    assert found.contraction == pytest.approx(1 - eta * 0.4 / 3)
    assert found.movement == pytest.approx(3 * k * r / 0.4 / 1000**0.5)
    assert found.kernel_change == pytest.approx(6 * k**3 * r / 0.4 / 1000**0.5)
    assert (found.stable_rate, found.residual) == pytest.approx((2 * 2 / 1.5, r / 2**0.5))
    assert not finite_width.lee_certificate(kernel, width=int(n) + 1, rate=2.7, **given).holds  # 4 / 1.5
    assert finite_width.lee_certificate(kernel, width=int(n) + 1, rate=2.6, **given).holds
    assert not finite_width.lee_certificate(kernel, width=int(n) - 1, rate=2.6, **given).holds
    tiny = finite_width.lee_certificate(np.eye(2) * 1e-13, width=100, rate=1.0, **given)
    assert np.isfinite(tiny.sufficient_width)  # 1e56, beyond float32
    assert "Not certified" in str(tiny)


@host
def test_the_linearized_flow_stays_within_gronwalls_bound():
    rng, rate, worst = RNG(6), 4.0, 0.0
    x = rng.normal(size=(4, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    for width in (40, 400):
        scale, step = width**-0.5, 0.01
        w, a = rng.normal(size=(width, 3)), rng.normal(size=width)

        def jacobian(w, a, scale=scale):
            return StandardRun.jacobian(w, a, x) * scale

        first = jacobian(w, a)
        start, y, times, change = first @ first.T, rng.normal(size=4), [], []
        residual = linear = a @ np.tanh(w @ x.T) * scale - y
        size, gaps = np.sqrt(np.mean(residual**2)), []
        for t in range(1500):
            here = jacobian(w, a)
            times.append(t * step)
            change.append(np.linalg.norm(here @ here.T - start, 2))
            gaps.append(np.sqrt(np.mean((residual - linear) ** 2)))
            update = -rate * step * residual @ here / 4
            w, a = w + update[: w.size].reshape(w.shape), a + update[w.size :]
            residual, linear = a @ np.tanh(w @ x.T) * scale - y, linear - rate * step * start @ linear / 4
        moved, least = np.maximum.accumulate(change), np.linalg.eigvalsh(start)[0]
        bound = finite_width.convergence_rate(start, rate).gronwall_bound(times, kernel_change=moved, residual=size)
        at = rate * np.array(times) / 4
        looser = at * moved * np.exp(at * (moved - least)) * size
        assert np.all(bound <= looser * (1 + 1e-12))
        worst = max(worst, np.max(np.array(gaps[1:]) / bound[1:]))
    assert 0.05 < worst <= 1


@host
def test_gradient_descent_falls_at_the_rate_that_is_named():
    rng = RNG(7)
    features = rng.normal(size=(5, 8))
    kernel, y = features @ features.T, rng.normal(size=5)
    values, vectors = np.linalg.eigh(kernel)
    for share in (0.9, 0.3):
        rate = share * 5 / values[-1]
        found = finite_width.convergence_rate(kernel, rate)
        assert (found.lambda_min, found.lambda_max) == pytest.approx((values[0], values[-1]))
        for start, tight in ((y, False), (vectors[:, 0], True)):
            r, losses = start, []
            for _ in range(30):
                losses.append(r @ r)
                r = r - rate / 5 * kernel @ r
            bound = losses[0] * found.contraction ** (2 * np.arange(30))
            assert np.all(losses <= bound * (1 + 1e-9))
            assert np.all(bound <= losses[0] * np.exp(-found.exponent * np.arange(30)) * (1 + 1e-9))
            assert not tight or losses == pytest.approx(list(bound))
        steps = found.steps_to(0.01)
        assert found.contraction ** (2 * steps) <= 0.01 < found.contraction ** (2 * (steps - 1))
    assert not finite_width.convergence_rate(kernel, 5 * 2.1 / values[-1]).converges


def two_outputs(params, x):
    w, a = params
    f = a @ jnp.tanh(w @ x)
    return jnp.stack([f, 2 * f])


def test_the_change_of_a_jacobian_in_closed_form():
    """Second derivatives of `a s(w . x)` couple no two neurons: `[[a s'' x x^T, s' x], [s' x^T, 0]]` of each."""
    rng = RNG(9)
    w, a, x = rng.normal(size=(8, 3)), 2 * rng.normal(size=8), rng.normal(size=(4, 3))
    s = np.tanh(w @ x.T)
    first, second = 1 - s**2, -2 * s * (1 - s**2)
    blocks = np.zeros((8, 4, 4, 4))  # neurons, rows, and a matrix
    blocks[:, :, :3, :3] = np.einsum("ji,ia,ib->jiab", a[:, None] * second, x, x)
    blocks[:, :, :3, 3] = blocks[:, :, 3, :3] = first[..., None] * x
    largest = np.sqrt(5 * np.linalg.eigvalsh(np.einsum("jiab,jibc->jac", blocks, blocks)).max())  # 5 = 1 + 2^2
    norm = np.sqrt(5 * (np.sum(s**2) + np.sum((a[:, None] * first) ** 2 * np.sum(x**2, 1))))
    params = (jnp.asarray(w), jnp.asarray(a))
    found = finite_width.estimate_jacobian_lipschitz(two_outputs, params, jnp.asarray(x), 0.0, points=0)
    assert bool(found.converged)
    assert float(found.lipschitz) == pytest.approx(largest, rel=1e-4)
    assert float(found.norm) == pytest.approx(norm, rel=1e-5)
    assert float(found.constant(4)) == pytest.approx(max(norm, largest) / 2, rel=1e-4)


def test_jacobians_are_looked_at_around_the_start():
    cube = lambda p, x: x * p**3
    found = finite_width.estimate_jacobian_lipschitz(cube, jnp.array(1.0), jnp.ones(1), 0.5, points=6)
    assert (float(found.norm), float(found.lipschitz)) == pytest.approx((3 * 1.5**2, 6 * 1.5), rel=1e-5)


@host
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: finite_width.certificate(np.ones((2, 2)), initial_loss=1.0, width=10),
            KernelError,
            "singular up to rounding",
        ),
        (
            lambda: finite_width.certificate(np.eye(2, dtype=np.float32) + 1e9, initial_loss=1.0, width=10),
            KernelError,
            "float64",
        ),
        (lambda: finite_width.certificate(np.eye(2), initial_loss=-1.0, width=10), InputError, "initial_loss"),
        (lambda: finite_width.certificate(np.eye(2), initial_loss=float("nan"), width=10), InputError, "initial_loss"),
        (lambda: finite_width.certificate(np.eye(2), initial_loss=1.0, width=0), InputError, "width"),
        (lambda: finite_width.convergence_rate(np.eye(2), 0.0), InputError, "rate"),
        (lambda: finite_width.convergence_rate(np.eye(2), 5.0).steps_to(0.1), InputError, "never gets there"),
        (lambda: finite_width.convergence_rate(np.eye(2), 0.5).steps_to(1.0), InputError, "fraction"),
        (
            lambda: finite_width.lee_certificate(np.eye(2), width=9, rate=0.1, lipschitz=0.0, residual=1.0),
            InputError,
            "lipschitz",
        ),
        (
            lambda: finite_width.convergence_rate(np.eye(2), 1.0).gronwall_bound(
                [1.0, -1.0], kernel_change=0.1, residual=1.0
            ),
            InputError,
            "from 0 on",
        ),
        (
            lambda: finite_width.convergence_rate(np.eye(2), 1.0).gronwall_bound(
                [1.0, 2.0], kernel_change=[0.1] * 3, residual=1.0
            ),
            InputError,
            "one for each",
        ),
        (lambda: finite_width.initial_residual_quantile(np.eye(2), np.zeros(3), 0.1), InputError, "2 rows"),
        (lambda: finite_width.initial_residual_quantile(np.eye(2), np.zeros(2), 0.0), InputError, "probability"),
        (lambda: finite_width.initial_residual_quantile(np.eye(2), [0.0, np.inf], 0.1), InputError, "finite"),
        (
            lambda: finite_width.initial_residual_quantile(np.diag([1.0, -1.0]), np.zeros(2), 0.1),
            KernelError,
            "semidefinite",
        ),
        (
            lambda: finite_width.estimate_jacobian_lipschitz(two_outputs, jnp.ones(2), jnp.ones((1, 2)), -1.0),
            InputError,
            "radius",
        ),
        (
            lambda: finite_width.estimate_jacobian_lipschitz(
                two_outputs, jnp.ones(2), jnp.ones((1, 2)), 1.0, points=-1
            ),
            InputError,
            "points",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
