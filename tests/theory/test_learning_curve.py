"""Predictions against exact arithmetic, simulated regressions, closed forms and finite differences."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.optimize import brentq

import everwide as ew
from everwide.theory.eigenlearning import learning_curve

LAM = np.arange(1, 11) ** -1.5
V = LAM**0.3
PLATEAU = np.r_[np.ones(10), np.full(10, 1e-200)]

SPECTRA = {
    "ordinary": (LAM, 4, 1e-3),
    "tiny": (LAM * 1e-298, 4, 0.0),
    "huge": (LAM * 1e298, 4, 0.0),
    "six hundred decades": (np.logspace(-300, 300, 61), 30, 0.0),
    "as far as the ridge": (np.logspace(-300, 300, 61), 60.5, 1e-290),
    "on a plateau": (PLATEAU, 10, 0.0),
    "above a plateau": (PLATEAU, 9.5, 0.0),
    "almost all modes": (PLATEAU, 19.999999, 0.0),
    "more examples than modes": (np.ones(5), 7, 1e-3),
    "as many examples as modes": (np.ones(5), 5, 1e-30),
    "few examples": (LAM, 1e-6, 0.0),
    "modes that cannot be learned": (np.r_[LAM, np.zeros(6)], 13, 0.1),
    "only the ridge": (np.zeros(3), 3, 2.0),
}


@pytest.mark.once
@pytest.mark.parametrize("name", SPECTRA)
def test_kappa_solves_its_equation_in_exact_arithmetic(name):
    lam, n, ridge = SPECTRA[name]
    kappa = float(learning_curve(lam, np.ones(len(lam)), n, ridge).kappa)
    with mpmath.workdps(700):

        def excess(k):
            modes = mpmath.fsum(mpmath.mpf(x) / (mpmath.mpf(x) + k) for x in lam.tolist())
            return modes + mpmath.mpf(ridge) / k - mpmath.mpf(n)

        near = mpmath.mpf(10) ** -14
        assert excess(mpmath.mpf(kappa) * (1 - near)) > 0 > excess(mpmath.mpf(kappa) * (1 + near))


@pytest.mark.once
@pytest.mark.parametrize("convention", ["simon", "canatar"])
def test_overfitting_of_equal_modes_in_closed_form(convention):
    """Ten modes of eigenvalue 1 share `n` examples; with `kappa = 1` half of each is learned, at ridge `n - 5`."""
    curve = learning_curve(np.ones(10), np.ones(10), [4.0, 8.0], [0.0, 3.0], convention=convention)
    assert curve.overfitting.tolist() == pytest.approx([1 / (1 - 4 / 10), 8 / (8 - 10 / 4)], rel=1e-12)
    left = np.sum((curve.mean - 1) ** 2, -1)  # the error of the mean predictor
    np.testing.assert_allclose(curve.test_error, curve.overfitting * left, rtol=1e-12)
    assert float(learning_curve(np.ones(10), np.ones(10), 0.0).overfitting) == 1.0


@pytest.mark.once
@pytest.mark.parametrize(("n", "ridge", "noise"), [(30, 0.0, 0.0), (30, 0.05, 0.5), (60, 1e-3, 0.3)])
def test_regressions_on_random_features_err_as_predicted(n, ridge, noise):
    rng, modes, draws = np.random.default_rng(n), 250, 100
    lam = np.arange(1, modes + 1) ** -1.6
    v = rng.normal(size=modes) / np.arange(1, modes + 1)
    found = learning_curve(lam, v, n, ridge, noise)
    test, train, guesses = [], [], []
    for _ in range(draws):
        features = rng.normal(size=(modes, n))
        y = features.T @ v + noise * rng.normal(size=n)
        weights = np.linalg.solve(features.T @ (lam[:, None] * features) + ridge * np.eye(n), y)
        guesses.append(lam * (features @ weights))
        test.append(np.sum((v - guesses[-1]) ** 2) + noise**2)
        train.append(np.mean((ridge * weights) ** 2))
    error = np.std(test) / draws**0.5
    assert abs(np.mean(test) - found.test_error) < 3 * error + 0.02 * found.test_error
    np.testing.assert_allclose(np.mean(train), found.train_error, rtol=0.1)
    guesses = np.array(guesses)[:, :10]
    slack = 4 * np.sqrt(found.variance[:10] / draws) + 0.01 * np.abs(v[:10])
    assert (np.abs(guesses.mean(0) - found.mean[:10]) < slack).all()
    np.testing.assert_allclose(guesses.var(0).sum(), found.variance[:10].sum(), rtol=0.12)


@pytest.mark.once
@pytest.mark.parametrize(("n", "ridge", "noise"), [(3, 0.0, 0.0), (3, 0.05, 0.5), (25, 1e-3, 0.3)])
def test_the_other_convention_is_that_of_its_paper(n, ridge, noise):
    def off(k):
        return k - ridge - np.sum(k * LAM / (k + n * LAM))

    kappa = brentq(off, 1e-12, 1e3, xtol=1e-16, rtol=1e-14)
    gamma = np.sum(n * LAM**2 / (kappa + n * LAM) ** 2)
    error = (np.sum(V**2 / (1 + n * LAM / kappa) ** 2) + noise**2 * gamma) / (1 - gamma)
    canatar, simon = (learning_curve(LAM, V, n, ridge, noise, convention=name) for name in ("canatar", "simon"))
    np.testing.assert_allclose([canatar.kappa, canatar.test_error], [kappa, error], rtol=1e-11)
    np.testing.assert_allclose([n * simon.kappa, simon.test_error - noise**2], [kappa, error], rtol=1e-11)
    for field in ("learnability", "train_error", "overfitting", "mean", "variance"):
        np.testing.assert_array_equal(getattr(canatar, field), getattr(simon, field))


@pytest.mark.once
def test_more_examples_than_modes_is_least_squares():
    lam, v, noise, n = np.r_[LAM, 0.0], np.r_[V, 0.7], 0.2, 25.0
    unexplained = noise**2 + 0.7**2
    found = learning_curve(lam, v, n, 0.0, noise)
    np.testing.assert_allclose(found.test_error, unexplained * n / (n - 10), rtol=1e-14)
    np.testing.assert_allclose(found.train_error, unexplained * (n - 10) / n, rtol=1e-14)
    np.testing.assert_array_equal(found.learnability, lam > 0)
    assert found.kappa == 0
    almost = learning_curve(lam, v, n, 1e-9, noise)
    for field in ("test_error", "train_error", "overfitting", "mean", "variance", "learnability"):
        np.testing.assert_allclose(getattr(almost, field), getattr(found, field), rtol=1e-6)


@pytest.mark.once
def test_without_examples_nothing_is_learned():
    for convention in ("simon", "canatar"):
        none, few = (learning_curve(LAM, V, n, 0.2, 0.5, convention=convention) for n in (0, 1e-9))
        assert not none.learnability.any()
        assert not none.variance.any()
        for field in ("test_error", "train_error", "overfitting"):
            np.testing.assert_allclose(getattr(none, field), getattr(few, field), rtol=1e-7)
        unknown = np.inf if convention == "simon" else LAM.sum() + 0.2
        np.testing.assert_allclose(none.kappa, unknown)
        np.testing.assert_allclose(none.test_error, np.sum(V**2) + (0.25 if convention == "simon" else 0))


@pytest.mark.once
def test_at_the_interpolation_peak_errors_have_their_limits():
    clean, noisy = learning_curve(LAM, V, 10, 0.0, noise=[0.0, 0.1]).test_error
    assert clean == 0
    assert noisy == np.inf
    before = learning_curve(LAM, V, 10 - 1e-7, 0.0, noise=[0.0, 0.1]).test_error
    assert before[0] < 1e-6
    assert before[1] > 1e4
    assert learning_curve(LAM, V, 10, 0.0, noise=0.1).train_error == 0


@pytest.mark.once
def test_a_multiplicity_repeats_a_mode():
    times = np.array([1, 4, 9])
    lam, power = np.array([1.0, 0.1, 0.02]), np.array([0.5, 0.3, 0.2])
    levels = learning_curve(lam, power**0.5, [3, 8], 1e-3, 0.1, multiplicities=times)
    modes = learning_curve(np.repeat(lam, times), np.repeat((power / times) ** 0.5, times), [3, 8], 1e-3, 0.1)
    for field in ("kappa", "test_error", "train_error", "overfitting"):
        np.testing.assert_allclose(getattr(levels, field), getattr(modes, field), rtol=1e-13)
    for field in ("learnability", "variance"):
        np.testing.assert_allclose(np.repeat(getattr(levels, field), times, axis=-1), getattr(modes, field), rtol=1e-13)


@pytest.mark.once
def test_settings_broadcast():
    n, ridge, noise = np.array([0, 2.5, 40]), np.array([[0.0], [0.1]]), 0.3
    every = learning_curve(LAM, V, n, ridge, noise)
    assert every.test_error.shape == (2, 3)
    assert every.mean.shape == (2, 3, 10)
    for i, j in np.ndindex(2, 3):
        one = learning_curve(LAM, V, n[j], ridge[i, 0], noise)
        for field in ("kappa", "test_error", "learnability", "variance"):
            np.testing.assert_allclose(getattr(every, field)[i, j], getattr(one, field), rtol=1e-13)


@pytest.mark.once
def test_learnabilities_add_up_to_the_examples():
    found = learning_curve(LAM, V, [1, 4, 9], [[0.0], [0.01]])
    np.testing.assert_allclose(found.learnability.sum(-1)[0], [1, 4, 9], rtol=1e-13)
    np.testing.assert_allclose(found.learnability.sum(-1)[1], [1, 4, 9] - 0.01 / found.kappa[1], rtol=1e-13)
    assert found.learnability.dtype == np.float64  # whatever JAX is in


def central(fn, x, step=1e-5):
    """A derivative in every entry, by differences of the function on the host."""
    x = np.asarray(x, np.float64)
    moves = np.eye(x.size).reshape(-1, *x.shape) * step * x.reshape(-1, *(1,) * x.ndim)
    return np.array([(fn(x + m) - fn(x - m)) / (2 * np.abs(m).sum()) for m in moves]).reshape(x.shape)


def test_derivatives_are_those_of_finite_differences():
    def error(numbers, field="test_error"):
        lam, v, times, (n, ridge, noise) = numbers[:10], numbers[10:20], numbers[20:30], numbers[30:]
        found = learning_curve(lam, v, n, ridge, noise, times)
        return found.test_error + found.train_error + found.variance[2] + found.learnability[1]

    here = np.r_[LAM, V, np.linspace(1, 3, 10), 5.0, 1e-2, 0.3]
    tolerance = 1e-6 if jax.config.read("jax_enable_x64") else 2e-3
    found = jax.jit(jax.grad(error))(jnp.asarray(here))
    np.testing.assert_allclose(found, central(error, here), rtol=tolerance, atol=tolerance)


@pytest.mark.wide
def test_derivatives_in_the_limit_of_no_ridge():
    error = lambda n, ridge: learning_curve(LAM, V, n, ridge, 0.3).test_error
    tolerance = 1e-5 if jax.config.read("jax_enable_x64") else 1e-3
    slopes = jax.jit(jax.vmap(jax.grad(error, (0, 1)), (0, None)))(jnp.array([5.0, 25.0]), jnp.zeros(()))
    for place, n in enumerate((5.0, 25.0)):
        by_n = (error(n + 1e-4, 0.0) - error(n - 1e-4, 0.0)) / 2e-4
        by_ridge = (4 * error(n, 1e-6) - error(n, 2e-6) - 3 * error(n, 0.0)) / 2e-6
        np.testing.assert_allclose([s[place] for s in slopes], [by_n, by_ridge], rtol=tolerance)


@pytest.mark.wide
def test_second_derivatives():
    error = lambda log_ridge: learning_curve(LAM, V, 6.0, jnp.exp(log_ridge), 0.3).test_error
    second = jax.jit(jax.grad(jax.grad(error)))(-3.0)
    curve = lambda log_ridge: learning_curve(LAM, V, 6.0, np.exp(log_ridge), 0.3).test_error
    np.testing.assert_allclose(second, (curve(-3 + 1e-3) - 2 * curve(-3) + curve(-3 - 1e-3)) / 1e-6, rtol=1e-5)


@pytest.mark.once
def test_constants_inside_a_compiled_function_keep_their_precision():
    scaled = jax.jit(lambda x: x * jnp.asarray(learning_curve(LAM, V, 5, 1e-3).test_error, jnp.float32))
    np.testing.assert_allclose(scaled(jnp.float32(2)), 2 * learning_curve(LAM, V, 5, 1e-3).test_error, rtol=1e-6)


@pytest.mark.once
def test_traced_eigenvalues_below_zero_are_refused():
    with pytest.raises(Exception, match="eigenvalues holds a number below 0"):
        jax.block_until_ready(jax.jit(lambda lam: learning_curve(lam, V, 5, 1e-3).kappa)(jnp.asarray(-LAM)))


@pytest.mark.once
@pytest.mark.parametrize(
    ("curve", "message"),
    [
        (lambda n: learning_curve(LAM, V, n), "n holds a number below 0, or one that is not finite"),
        (lambda a: learning_curve([1.0, 0.5], [1.0, a], 1), "coefficients holds a number that is not finite"),
    ],
    ids=["n", "a coefficient"],
)
def test_traced_numbers_that_are_not_finite_are_refused(curve, message):
    error = jax.jit(lambda value: curve(value).test_error)
    assert jnp.isfinite(error(1.5))
    with pytest.raises(Exception, match=message):
        jax.block_until_ready(error(jnp.nan))


@pytest.mark.once
def test_without_jit_a_derivative_is_one_compiled_program():
    program = jax.make_jaxpr(lambda n: learning_curve(LAM, V, n, 1e-3).test_error)(2.0)
    names = [equation.primitive.name for equation in program.eqns]
    assert not {"while", "sort", "cumsum"} & set(names)
    assert len(names) < 40


BAD = {
    "a negative eigenvalue": (
        {"eigenvalues": [1.0, -1e-17]},
        r"eigenvalues\[1\] is -1e-17.*numpy.maximum",
    ),
    "not a number": ({"eigenvalues": [np.nan, 1.0]}, r"eigenvalues\[0\] is nan"),
    "infinite": ({"coefficients": [1.0, np.inf]}, r"coefficients\[1\] is inf"),
    "no modes": ({"eigenvalues": [], "coefficients": []}, r"shape \(0,\), expected \(modes,\)"),
    "a matrix": ({"eigenvalues": np.eye(2)}, r"shape \(2, 2\), expected \(modes,\)"),
    "lengths": ({"coefficients": [1.0]}, r"coefficients has shape \(1,\), expected \(2,\)"),
    "multiplicities": ({"multiplicities": [1.0, -2.0]}, r"multiplicities\[1\] is -2"),
    "n": ({"n": -3}, r"n is -3, expected a finite number, at least 0"),
    "ridge": ({"ridge": [0.1, -0.2]}, r"ridge\[1\] is -0.2"),
    "noise": ({"noise": np.inf}, "noise is inf"),
    "broadcast": ({"n": [1, 2], "ridge": [0.1, 0.2, 0.3]}, "do not broadcast"),
    "convention": ({"convention": "bordelon"}, "expected 'simon' or 'canatar'"),
}


@pytest.mark.once
@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    changed, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        learning_curve(**({"eigenvalues": [1.0, 0.5], "coefficients": [1.0, 1.0], "n": 1} | changed))


@pytest.mark.once
def test_words_are_no_spectrum():
    with pytest.raises(ew.InputError, match="eigenvalues is a str"):
        learning_curve("flat", [1.0], 1)
