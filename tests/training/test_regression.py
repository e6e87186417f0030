"""Closed forms on the squared loss: against steps, an ODE solver, and the definitions."""

import jax
import numpy as np
import pytest
import scipy.integrate

import everwide as ew
from everwide import spectral as sp
from everwide import training as tr

pytestmark = [pytest.mark.once, pytest.mark.as_users]

RNG = np.random.default_rng(0)
X, X_TEST = RNG.normal(size=(12, 3)), RNG.normal(size=(4, 3))
NET = ew.Serial(ew.Dense(w_std=1.5, b_std=0.3), ew.Relu(), ew.Dense(2))
K, K_TEST = ew.gram(NET, X), ew.gram(NET, X_TEST, X)
OWN = ew.gram(NET, X_TEST)
Y, F0, F0_TEST = (RNG.normal(size=(n, 2)) for n in (12, 12, 4))
FIT = tr.Regression(K.ntk, Y, f0=F0)


def test_gradient_flow_solves_its_equation():
    times = np.array([0.0, 0.5, 10.0, 300.0])
    both = np.concatenate([K.ntk, K_TEST.ntk])
    slope = lambda _, f: (-both @ (f.reshape(16, 2)[:12] - Y) / 12).ravel()
    start = np.concatenate([F0, F0_TEST]).ravel()
    solved = scipy.integrate.solve_ivp(slope, (0, 300), start, t_eval=times, method="DOP853", rtol=1e-13, atol=1e-13)
    expected = solved.y.T.reshape(4, 16, 2)
    np.testing.assert_allclose(FIT.train(sp.gradient_flow(times)), expected[:, :12], atol=1e-10)
    found = FIT.predict(K_TEST.ntk, sp.gradient_flow(times), f0=F0_TEST)
    np.testing.assert_allclose(found, expected[:, 12:], atol=1e-10)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_are_those_of_train(momentum):
    rate = 0.5 * tr.max_learning_rate(K.ntk)
    filter = sp.momentum(rate, momentum, 40) if momentum else sp.gradient_descent(rate, 40)
    run = tr.train(K.ntk, Y, loss=tr.Mse(), optimizer=tr.SGD(rate, momentum), f0=F0, steps=40)
    np.testing.assert_allclose(FIT.coefficients(filter), run.coefficients, atol=1e-9)
    np.testing.assert_allclose(FIT.train(filter), run.outputs, atol=1e-9)
    np.testing.assert_allclose(
        FIT.predict(K_TEST.ntk, filter, f0=F0_TEST), run.predict(K_TEST.ntk, f0=F0_TEST), atol=1e-9
    )


def test_single_precision_is_asked_for():
    """The same to its rounding, and in it; what is below rounding is not learned."""
    fit = tr.Regression(K.ntk, Y, f0=F0, dtype=np.float32)
    filter = sp.gradient_flow([0.5, 30.0])
    for one, other in (
        (fit.train(filter), FIT.train(filter)),
        (fit.coefficients(filter), FIT.coefficients(filter)),
        (fit.predict(K_TEST.ntk, filter, f0=F0_TEST), FIT.predict(K_TEST.ntk, filter, f0=F0_TEST)),
    ):
        assert one.dtype == np.float32
        assert 0 < np.abs(one - other).max() < 1e-4 * np.abs(other).max()
    features = tr.FeatureKernel(np.linalg.cholesky(K.ntk))
    primal = tr.Regression(features, Y, f0=F0, dtype=np.float32)
    np.testing.assert_allclose(primal.train(filter), FIT.train(filter), atol=1e-4)
    tiny = np.diag([1.0, 1e-9])
    assert [tr.Regression(tiny, [1.0, 1.0], dtype=d).spectrum.rank for d in (np.float64, np.float32)] == [2, 1]
    with pytest.raises(ew.InputError, match=r"dtype=.*expected np.float32 or np.float64"):
        tr.Regression(K.ntk, Y, dtype=np.int32)


def test_both_ways_to_multiply_agree():
    wide = np.repeat(K_TEST.ntk, 10, 0)
    found = FIT.predict(wide, sp.gradient_flow([1.0, 2.0]))
    np.testing.assert_allclose(found[:, ::10], FIT.predict(K_TEST.ntk, sp.gradient_flow([1.0, 2.0])), atol=1e-12)


def test_kernels_that_mix_outputs():
    j = RNG.normal(size=(3, 2, 9))
    full, y = np.einsum("nip,mjp->nmij", j, j), RNG.normal(size=(3, 2))
    fit = tr.Regression(full, y)
    flat = j.reshape(6, 9)
    theta = np.linalg.lstsq(flat, y.ravel(), rcond=None)[0]
    np.testing.assert_allclose(fit.train(sp.ridge()), y, atol=1e-10)
    np.testing.assert_allclose(fit.predict(full, sp.ridge()), (flat @ theta).reshape(3, 2), atol=1e-9)


def test_what_a_singular_kernel_cannot_learn_stays():
    x = np.concatenate([X[:5], X[:5]])  # every row twice, with different targets
    y = np.arange(10.0)
    fit = tr.Regression(ew.ntk(NET, x), y)
    found = fit.train(sp.gradient_flow([1.0, np.inf]))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[1].ravel(), np.tile((y[:5] + y[5:]) / 2, 2), rtol=1e-6)
    # Half of every difference of 5 cannot be learned.
    assert fit.unlearnable == pytest.approx(10 * 2.5**2 / np.sum(y**2), rel=1e-6)
    assert FIT.unlearnable == 0


def test_rates_above_the_limit_are_named():
    limit = tr.max_learning_rate(K.ntk, momentum=0.5)
    with pytest.warns(tr.DivergenceWarning, match=f"{limit:.6g}"):
        FIT.train(sp.momentum(1.01 * limit, 0.5, 3))
    FIT.train(sp.momentum(0.99 * limit, 0.5, 3))


def test_nested_training_is_training_on_all():
    # B24: at a fixed kernel, training to the end on a part first changes nothing.
    part = tr.Regression(K.ntk[:6, :6], Y[:6], f0=F0[:6])
    after = part.predict(K.ntk[:, :6], sp.ridge(), f0=F0)
    twice = tr.Regression(K.ntk, Y, f0=after).predict(
        K_TEST.ntk, sp.ridge(), f0=part.predict(K_TEST.ntk[:, :6], sp.ridge(), f0=F0_TEST)
    )
    np.testing.assert_allclose(twice, FIT.predict(K_TEST.ntk, sp.ridge(), f0=F0_TEST), atol=1e-8)


def test_posterior_is_that_of_the_joint_law():
    noise = np.linspace(0.1, 0.5, 12)
    found = tr.GaussianProcess(K.nngp, Y, noise=noise).predict(K_TEST.nngp, OWN.nngp)
    joint = np.block([[K.nngp + np.diag(noise), K_TEST.nngp.T], [K_TEST.nngp, OWN.nngp]])
    precision = np.linalg.inv(joint)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(precision[12:, 12:]), atol=1e-10)
    mean = -np.linalg.solve(precision[12:, 12:], precision[12:, :12] @ Y)
    np.testing.assert_allclose(found.mean, mean, atol=1e-9)


def test_leave_one_out_is_leaving_one_out():
    found = tr.GaussianProcess(K.nngp, Y, noise=0.2).leave_one_out()
    for row in (0, 7):
        rest = np.delete(np.arange(12), row)
        process = tr.GaussianProcess(K.nngp[np.ix_(rest, rest)], Y[rest], noise=0.2)
        law = process.predict(K.nngp[row : row + 1, rest], K.nngp[row : row + 1, row : row + 1])
        np.testing.assert_allclose(found.residual[row], Y[row] - law.mean[0], atol=1e-9)
        assert found.variance[row] == pytest.approx(law.covariance[0, 0] + 0.2)


def test_evidence_is_the_density_of_the_targets():
    scipy_stats = pytest.importorskip("scipy.stats")
    found = tr.GaussianProcess(K.nngp, Y, noise=0.2).log_marginal_likelihood()
    law = scipy_stats.multivariate_normal(np.zeros(12), K.nngp + 0.2 * np.eye(12))
    assert found == pytest.approx(sum(law.logpdf(Y[:, i]) for i in range(2)))


def test_ensembles_are_averages_over_initial_functions():
    # Draw initial functions, train each in closed form, and compare mean and covariance.
    times, draws = [2.0, np.inf], 4000
    law = tr.Ensemble(K.nngp, K.ntk, Y)
    found = law.predict(K_TEST.nngp, K_TEST.ntk, OWN.nngp, sp.gradient_flow(times))
    prior = np.block([[K.nngp, K_TEST.nngp.T], [K_TEST.nngp, OWN.nngp]])
    start = np.linalg.cholesky(prior + 1e-10 * np.eye(16)) @ RNG.normal(size=(16, draws))
    ones = tr.Regression(K.ntk, np.repeat(Y[:, :1], draws, 1), f0=start[:12])
    trained = ones.predict(K_TEST.ntk, sp.gradient_flow(times), f0=start[12:])
    spread = np.sqrt(np.diagonal(found.covariance, axis1=1, axis2=2))
    error = np.abs(trained.mean(-1) - found.mean[..., 0]) / (spread / np.sqrt(draws))
    assert error.max() < 5
    for t in range(2):
        size = np.outer(spread[t], spread[t])
        assert np.abs((np.cov(trained[t]) - found.covariance[t]) / size).max() < 5 / np.sqrt(draws / 2)
    at_train = law.train(sp.gradient_flow(times))
    same = law.predict(K.nngp, K.ntk, K.nngp, sp.gradient_flow(times))
    np.testing.assert_allclose(at_train.mean, same.mean, atol=1e-9)
    np.testing.assert_allclose(at_train.covariance, same.covariance, atol=1e-9)


def test_training_the_last_layer_ends_in_the_posterior():
    law = tr.Ensemble(K.nngp, K.nngp, Y).predict(K_TEST.nngp, K_TEST.nngp, OWN.nngp, sp.ridge())
    exact = tr.GaussianProcess(K.nngp, Y).predict(K_TEST.nngp, OWN.nngp)
    np.testing.assert_allclose(law.mean, exact.mean, atol=1e-8)
    np.testing.assert_allclose(law.covariance, exact.covariance, atol=1e-8)


def test_samples_have_the_law():
    import jax

    law = tr.GaussianProcess(K.nngp, Y, noise=0.1).predict(K_TEST.nngp, OWN.nngp)
    draws = law.sample(jax.random.key(0), 5000)
    assert draws.shape == (5000, 4, 2)
    scale = np.sqrt(np.outer(law.std, law.std) / 5000)
    error = np.cov(draws[..., 0].T) - law.covariance
    assert np.abs(error / np.outer(law.std, law.std)).max() < 5 * np.sqrt(2 / 5000)
    assert (np.abs(draws.mean(0) - law.mean) < 5 * np.diag(scale)[:, None]).all()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: tr.Regression(K.ntk, Y[:3]), "y has 3 rows and the kernel 12"),
        (lambda: FIT.predict(K_TEST.ntk[:, :3], sp.ridge()), r"expected \(m, 12\)"),
        (lambda: FIT.predict(K_TEST.ntk, sp.ridge(), f0=np.ones((3, 2))), "outputs of the test rows"),
        (lambda: tr.GaussianProcess(K.nngp, Y[:3]), "y has 3 rows and the kernel 12"),
        (lambda: tr.Ensemble(K.nngp, K.ntk[:3, :3], Y), "must agree"),
        (lambda: tr.max_learning_rate(np.zeros((2, 2))), "zero"),
        (lambda: tr.max_learning_rate(np.eye(2), tr.Poisson()), "no largest second derivative"),
    ],
)
def test_bad_input(run, message):
    with pytest.raises(ValueError, match=message):
        run()


def test_limit_of_rates_is_sharp():
    for momentum in (0.0, 0.7):
        limit = tr.max_learning_rate(K.ntk, momentum=momentum)
        lam = np.linalg.eigvalsh(K.ntk)[-1:]
        left = [abs(1 - lam * sp.momentum(rate * limit, momentum, 8000)(lam, 12))[0] for rate in (0.999, 1.001)]
        assert left[0] < 1e-3 < 1e3 < left[1]


def test_largest_eigenvalue_of_large_and_implicit_kernels():
    g = RNG.normal(size=(90, 5))
    exact = 2 * 90 / np.linalg.eigvalsh(g @ g.T)[-1]
    assert tr.max_learning_rate(g @ g.T) == pytest.approx(exact)
    assert tr.max_learning_rate(tr.FeatureKernel(g)) == pytest.approx(exact)


def test_units():
    exact = Y + scipy.linalg.expm(-3.0 / 12 * K.ntk) @ (F0 - Y)
    np.testing.assert_allclose(FIT.train(sp.gradient_flow(3.0)), exact, atol=1e-10)
    np.testing.assert_allclose(FIT.train(sp.gradient_descent(1e-4, 30_000)), exact, atol=1e-3)
    # In all but the first moments: time = rate * steps / (1 - momentum).
    np.testing.assert_allclose(FIT.train(sp.momentum(1e-5, 0.9, 30_000)), exact, atol=1e-3)


@pytest.mark.parametrize("width", [3, 40])
def test_primal_is_dual(width):
    g, other = RNG.normal(size=(12, width)), RNG.normal(size=(5, width))
    primal, dual = tr.Regression(tr.FeatureKernel(g), Y, f0=F0), tr.Regression(g @ g.T, Y, f0=F0)
    steps = sp.gradient_descent(tr.max_learning_rate(g @ g.T) / 2, [0, 1, 30])
    for filter in (sp.ridge(0.3), sp.gradient_flow([0.1, 5.0]), steps, sp.momentum(0.01, 0.5, 40)):
        np.testing.assert_allclose(primal.train(filter), dual.train(filter), rtol=1e-12, atol=1e-12)
        found, expected = (fit.predict(other @ g.T, filter) for fit in (primal, dual))
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
    weights = np.linalg.solve(g.T @ g + 0.3 * np.eye(width), g.T @ (Y - F0))
    np.testing.assert_allclose(primal.train(sp.ridge(0.3)), F0 + g @ weights, rtol=1e-11, atol=1e-12)
    rest = (Y - F0) - g @ np.linalg.lstsq(g, Y - F0)[0]
    assert primal.unlearnable == pytest.approx(np.sum(rest**2) / np.sum((Y - F0) ** 2), abs=1e-12)
    assert dual.unlearnable == pytest.approx(primal.unlearnable, abs=1e-12)


@pytest.mark.slow
def test_finite_networks_are_off_by_one_over_their_width():
    """Two steps on one row with rate `a`: `-a^2 Var(g^2) / width`, of ReLU features `E[g^4] - E[g^2]^2 = 5/4`."""
    relu = lambda key, width: np.maximum(np.asarray(jax.random.normal(key, (1, width))), 0)
    steps, key = sp.gradient_descent(1.0, [0, 1, 2]), jax.random.key(0)
    for width in (4, 16):
        found = tr.finite_bias_estimate(relu, [[0.5]], [1.0], steps, width=width, key=key, draws=3000)
        assert found.bias[0] == 0  # before training there is none, and after one step the kernel is read linearly
        assert abs(found.bias[1]) < 4 * found.error[1]
        assert abs(found.bias[2] + 1.25 / width) < 4 * found.error[2] < 0.3 / width
