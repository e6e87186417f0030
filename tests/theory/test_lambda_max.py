"""Bounds on kernels are bounds: on random matrices, and on the kernels of many random networks."""

import numpy as np
import pytest
import scipy.stats

from everwide import InputError
from everwide.spectral import KernelError, _decompositions
from everwide.testing._draws import Slope
from everwide.theory import finite_width
from everwide.theory.finite_width._certificates import definite_extremes

pytestmark = pytest.mark.once

RNG = np.random.default_rng


def unit_rows(rng, n, inputs):
    x = rng.normal(size=(n, inputs))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def random_kernel(rng):
    """Of any rank and any decay; some with large entries off the diagonal, some nearly diagonal."""
    n, k = rng.integers(1, 30, 2)
    features = rng.normal(rng.choice([0.0, 2.0]), 1, size=(n, k)) * np.arange(1, k + 1) ** -rng.uniform(0, 2)
    return features @ features.T + rng.choice([0.0, 5.0]) * np.eye(n)


def test_no_random_kernel_has_a_larger_eigenvalue():
    rng, tightest = RNG(0), []
    for _ in range(300):
        kernel = random_kernel(rng)
        largest, bounds = np.linalg.eigvalsh(kernel)[-1], finite_width.lambda_max_bounds(kernel)
        assert min(bounds) >= largest * (1 - 1e-12)
        assert bounds.moments <= min(bounds.frobenius, bounds.trace)
        tightest.append(bounds.tightest / largest)
    assert np.median(tightest) < 1.5  # and they say something


def test_the_bounds_of_a_known_matrix():
    bounds = finite_width.lambda_max_bounds([[3, -1, 0], [-1, 2, 1], [0, 1, 1]])
    assert bounds == pytest.approx((4.0, 18**0.5, 6.0, 2 + (2 / 3 * (18 - 12)) ** 0.5))
    one = finite_width.lambda_max_bounds(np.ones((5, 5)))  # of rank one: all are attained
    assert one == pytest.approx((5.0, 5.0, 5.0, 5.0))


def test_orthogonal_inputs_where_gates_and_weights_must_not_be_taken_as_independent():
    """Their product, `|x . x'| 2 (L + 1) / n k0`, is diagonal here and far below the eigenvalue."""
    kernel = finite_width.expected_ntk((30, 10, 10, 1), np.eye(30))
    largest = np.linalg.eigvalsh(kernel)[-1]
    assert largest == pytest.approx(1.53, abs=0.005)
    assert finite_width.lambda_max_bounds(kernel).tightest >= largest > np.max(np.diag(kernel))


def tanh_kernels(rng, x, width, draws):
    """One hidden layer, the mean over its neurons: `(draws, n, n)`."""
    s = np.tanh(rng.normal(size=(draws, width, x.shape[1])) @ x.T)
    return s.swapaxes(1, 2) @ s / width


@pytest.fixture(scope="module")
def tanh():
    """Unit rows, and the mean kernel of a neuron on them, by Gauss-Hermite quadrature in the plane."""
    x = unit_rows(RNG(1), 6, 3)
    u, v = np.polynomial.hermite_e.hermegauss(60)
    weights = np.multiply.outer(v, v) / (2 * np.pi)
    corr = np.clip(x @ x.T, -1, 1)
    second = corr[..., None, None] * u[:, None] + np.sqrt(1 - corr**2)[..., None, None] * u
    return x, np.einsum("ijab,ab->ij", np.tanh(u)[:, None] * np.tanh(second), weights)


def test_the_matrix_chernoff_tail_is_above_that_of_networks(tanh):
    x, mean = tanh
    largest = np.linalg.eigvalsh(tanh_kernels(RNG(2), x, 40, 1500))[:, -1]
    levels = np.linalg.eigvalsh(mean)[-1] * np.linspace(1, 3, 9)
    tail = np.mean(largest >= levels[:, None], 1)
    bound = finite_width.lambda_max_tail(mean, levels, width=40)
    assert np.all(tail <= bound)
    assert bound[-1] < 0.05 < bound[1] == 1
    assert np.all(finite_width.lambda_max_tail(mean, levels, width=400) <= bound)
    assert finite_width.lambda_max_tail(mean, levels[-1], width=40) == bound[-1]


def test_the_chernoff_tail_of_a_case_that_can_be_counted():
    """One row, neurons 0 or 1: the kernel is a binomial mean, and the bound that of Chernoff."""
    width, share = 50, 0.2
    levels = np.array([0.1, 0.2, 0.3, 0.5])
    bound = finite_width.lambda_max_tail([[share]], levels, width=width, neuron=1.0)
    assert np.all(scipy.stats.binom.sf(np.ceil(levels * width - 1e-9) - 1, width, share) <= bound)
    d = levels[2:] / share - 1
    np.testing.assert_allclose(bound[2:], (np.exp(d) / (1 + d) ** (1 + d)) ** (share * width), rtol=1e-12)


def relu_tangent_kernels(rng, x, width, draws):
    """Two hidden layers of ReLU, He's initialization, no biases."""
    inputs, signal = x.shape[1], np.broadcast_to(x, (draws, *x.shape))
    shapes = ((inputs, width), (width, width), (width, 1))
    weights = [rng.standard_normal((draws, *shape)) * np.sqrt(2 / shape[0]) for shape in shapes]
    first = signal @ weights[0]
    second = np.maximum(first, 0) @ weights[1]
    g2 = weights[2].swapaxes(1, 2) * (second > 0)
    g1 = (g2 @ weights[1].swapaxes(1, 2)) * (first > 0)
    gram = lambda a: a @ a.swapaxes(1, 2)
    last = 2 / width * gram(np.maximum(second, 0))
    return last + 2 / width * gram(np.maximum(first, 0)) * gram(g2) + 2 / inputs * gram(signal) * gram(g1)


def test_the_tail_of_the_trace_is_above_that_of_deep_networks():
    x = unit_rows(RNG(3), 4, 3)
    kernels = relu_tangent_kernels(RNG(4), x, 10, 3000)
    traces, largest = np.einsum("dii->d", kernels), np.linalg.eigvalsh(kernels)[:, -1]
    mean = 2 * 3 * 4 / 3
    levels = mean * np.array([0.5, 1.0, 1.5, 2.0, 3.0, 5.0])
    expected = finite_width.expected_ntk((3, 10, 10, 1), x)
    bound = finite_width.lambda_max_tail(expected, levels, layer_widths=(3, 10, 10, 1))
    assert np.all(np.mean(traces >= levels[:, None], 1) <= bound)
    assert np.all(np.mean(largest >= levels[:, None], 1) <= bound)
    np.testing.assert_array_equal(bound[:2], 1.0)
    assert finite_width.lambda_max_tail(expected, levels[-1], layer_widths=(3, 10, 10, 1)) == bound[-1] < 0.05
    error = traces.std() / 3000**0.5
    assert abs(traces.mean() - mean) < 5 * error


def test_kernels_concentrate_as_said(tanh):
    x, mean = tanh
    widths, bounds, typical = (50, 200, 800), [], []
    for width in widths:
        off = np.linalg.norm(tanh_kernels(RNG(width), x, width, 400) - mean, 2, axis=(1, 2))
        bounds.append(finite_width.kernel_concentration_bound(mean, width=width, delta=0.05))
        typical.append(off.mean())
        assert np.mean(off > bounds[-1]) <= 0.05
    assert Slope(-0.5, 0.05).excess(widths, typical) < 1
    assert np.all(np.array(bounds) < 8 * np.array(typical))


def test_the_concentration_bound_solves_bernsteins_inequality():
    mean, width, delta = np.diag([1.0, 0.5, 0.2]), 300, 0.01
    t = finite_width.kernel_concentration_bound(mean, width=width, delta=delta, neuron=2.0)
    share = 2.0 / width
    assert 2 * 3 * np.exp(-(t**2) / 2 / (share * 1.0 + share * t / 3)) == pytest.approx(delta)


def test_extremes_of_a_large_matrix_need_no_spectrum(monkeypatch):
    monkeypatch.setattr(_decompositions, "_DENSE", 20)
    rng, n = RNG(5), 60
    features = rng.normal(size=(n, n)) / n**0.5
    kernel = features @ features.T + 0.01 * np.eye(n)
    values, found = np.linalg.eigvalsh(kernel), definite_extremes(kernel)
    assert found == pytest.approx((values[0], values[-1], n), rel=1e-8)
    singular = kernel.copy()
    singular[1], singular[:, 1] = singular[0], singular[:, 0]
    singular[1, 1] = singular[0, 0]
    with pytest.raises(KernelError, match="singular up to rounding"):
        definite_extremes(singular)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: finite_width.lambda_max_bounds(np.diag([1.0, -0.5])), KernelError, "not positive semidefinite"),
        (lambda: finite_width.lambda_max_bounds([[1.0, 9.0], [9.0, 1.0]]), KernelError, "not positive semidefinite"),
        (lambda: finite_width.lambda_max_bounds(np.ones((2, 3))), KernelError, "expected"),
        (lambda: finite_width.lambda_max_bounds([[np.nan]]), KernelError, "finite"),
        (lambda: finite_width.lambda_max_tail(np.eye(2), np.nan, width=5), InputError, "threshold"),
        (lambda: finite_width.lambda_max_tail(np.eye(2), 2.0, width=0), InputError, "width"),
        (lambda: finite_width.lambda_max_tail(np.eye(2), 2.0, width=5, neuron=0.5), InputError, "no bound on each"),
        (lambda: finite_width.lambda_max_tail(np.zeros((2, 2)), 2.0, width=5), KernelError, "zero"),
        (lambda: finite_width.lambda_max_tail(np.eye(2), 2.0), InputError, "one of both"),
        (lambda: finite_width.lambda_max_tail(np.eye(2), 2.0, layer_widths=(2,)), InputError, "from the inputs"),
        (lambda: finite_width.lambda_max_tail(np.zeros((2, 2)), 2.0, layer_widths=(2, 5, 1)), KernelError, "zero"),
        (lambda: finite_width.kernel_concentration_bound(np.eye(2), width=5, delta=1.0), InputError, "probability"),
    ],
)
def test_what_cannot_be_meant_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
