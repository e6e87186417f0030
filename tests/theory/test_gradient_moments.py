"""Finite ReLU networks, drawn one by one in numpy, have the moments, the laws and the kernels that are said."""

import itertools

import numpy as np
import pytest
import scipy.stats
from scipy.integrate import quad

import everwide as ew
from everwide import InputError
from everwide._checks import layer_widths
from everwide.signal import ArchitectureError
from everwide.testing._draws import SAMPLED
from everwide.theory import finite_width

pytestmark = pytest.mark.once

RNG = np.random.default_rng
fluctuation = finite_width.kernel_fluctuation


def gaussian(rng, shape):
    return rng.standard_normal(shape)


def uniform(rng, shape):
    return rng.uniform(-(3**0.5), 3**0.5, shape)


def signs(rng, shape):
    return rng.choice([-1.0, 1.0], shape)


def forward(weights, x):
    """Signals into every layer, gates, and outputs of `draws` networks; `weights[l]` is (draws, fan out, fan in)."""
    signals, gates, h = [], [], np.broadcast_to(x, (len(weights[0]), *np.shape(x)))
    for depth, w in enumerate(weights):
        signals.append(h)
        z = np.einsum("doi,d...i->d...o", w, h) * np.sqrt(2 / w.shape[2])
        if depth < len(weights) - 1:
            gates.append(z > 0)
        h = np.maximum(z, 0)
    return signals, gates, z


def backward(weights, gates):
    """Gradients of the first output by the preactivations of every layer, from the last one down, and by the inputs."""
    first = np.eye(weights[-1].shape[1])[0]
    g = np.broadcast_to(first, (*(gates[0].shape[:-1] if gates else weights[0].shape[:1]), *first.shape))
    found = [g]
    for w, open_gates in zip(weights[::-1], [*gates[::-1], np.ones(())], strict=True):
        g = np.einsum("doi,d...o->d...i", w, g) * np.sqrt(2 / w.shape[2]) * open_gates
        found.append(g)
    return found


def networks(rng, widths, draws, law=gaussian):
    return [law(rng, (draws, out, into)) for into, out in itertools.pairwise(widths)]


def input_gradients(weights, x):
    return backward(weights, forward(weights, x)[1])[-1]


def tangent_kernels(weights, x):
    """(draws, n, n), by the weights before they are scaled: `sum_l g_l . g_l' 2/n h_l . h_l'`."""
    signals, gates, _ = forward(weights, x)
    gradients = backward(weights, gates)[-2::-1]  # by preactivations, from the first layer up
    terms = zip(signals, gradients, strict=True)
    return sum((h @ h.swapaxes(1, 2)) * (g @ g.swapaxes(1, 2)) * 2 / h.shape[2] for h, g in terms)


X = np.array([0.9, -0.4, 1.3, 0.2])


@pytest.mark.parametrize(("law", "kurtosis"), [(gaussian, 3.0), (uniform, 9 / 5), (signs, 1.0)])
def test_moments_of_gradients_of_networks(law, kurtosis):
    widths = (4, 6, 5, 7, 1)
    gradients = input_gradients(networks(RNG(1), widths, 60_000, law), X)[:, 0]
    expected = finite_width.gradient_law(widths, kurtosis=kurtosis)
    assert SAMPLED.excess(gradients**2, expected.second) < 1
    assert SAMPLED.excess(gradients**4, expected.fourth) < 1


@pytest.mark.parametrize("widths", [(2, 1), (2, 3, 1), (2, 2, 2, 1)])
def test_moments_over_all_networks_of_random_signs_by_their_paths(widths):
    """Derivatives as sums over open paths; sizes of weights differ by 1e-7, so that no preactivation vanishes."""
    rng, shapes = RNG(0), [(out, into) for into, out in itertools.pairwise(widths)]
    sizes = [1 + 1e-7 * rng.uniform(-1, 1, shape) for shape in shapes]
    patterns = np.array(list(itertools.product([-1.0, 1.0], repeat=sum(map(np.prod, shapes)))))
    parts = np.split(patterns, np.cumsum([np.prod(shape) for shape in shapes])[:-1], axis=1)
    weights = [part.reshape(-1, *shape) * size for part, shape, size in zip(parts, shapes, sizes, strict=True)]
    _, gates, outputs = forward(weights, X[:2])
    by_input = np.zeros((len(patterns), 2))
    for p, *path in itertools.product(*map(range, widths)):
        one = np.ones(len(patterns))
        for depth, (into, out) in enumerate(itertools.pairwise((p, *path))):
            one = one * weights[depth][:, out, into] * np.sqrt(2 / widths[depth])
            one = one * gates[depth][:, out] if depth < len(gates) else one
        by_input[:, p] += one
    np.testing.assert_allclose(by_input @ X[:2], outputs[:, 0], atol=1e-12)
    found = finite_width.gradient_law(widths, kurtosis=1.0)
    np.testing.assert_allclose((by_input**2).mean(0), found.second, rtol=1e-5)
    np.testing.assert_allclose((by_input**4).mean(0), found.fourth, rtol=1e-5)


def test_the_recursion_is_the_closed_form_for_gaussian_weights():
    widths = (7, 3, 20, 1, 9, 2)
    closed = 12 / 49 * np.prod([1 + 5 / n for n in widths[1:-1]])
    assert finite_width.gradient_law(widths).fourth == pytest.approx(closed, rel=1e-13)
    assert finite_width.gradient_law(widths).second == 2 / 7


@pytest.mark.parametrize("widths", [(3, 4, 2, 1), (2, 5, 1), (6, 1)])
def test_the_law_of_gradient_norms(widths):
    x = RNG(0).normal(size=widths[0])
    measured = np.linalg.norm(input_gradients(networks(RNG(2), widths, 20_000), x), axis=1)
    drawn = finite_width.gradient_law(widths).sample_norm(20_000, seed=3)
    assert scipy.stats.ks_2samp(measured, drawn).pvalue > 1e-4
    assert np.mean(drawn == 0) == pytest.approx(1 - finite_width.gradient_law(widths).alive, abs=0.02)
    inputs, excess = widths[0], np.prod([1 + 5 / n for n in widths[1:-1]])
    assert SAMPLED.excess(drawn**2, 2.0) < 1
    assert SAMPLED.excess(drawn**4, 4 * (1 + 2 / inputs) * excess) < 1


def test_the_log_normal_law():
    widths = (4, 8, 8, 5, 8, 1)
    last = forward(networks(RNG(4), widths, 30_000), X)[0][-1]
    gains = np.sum(last**2, 1) / (X @ X) * widths[0] / widths[-2]
    law, alive = finite_width.gradient_law(widths), gains > 0
    logs = np.log(gains[alive])
    assert SAMPLED.excess(alive.astype(float), law.alive) < 1
    assert SAMPLED.excess(logs, law.exact_log_mean) < 1
    assert SAMPLED.excess((logs - law.exact_log_mean) ** 2, law.exact_log_variance) < 1
    spread = 5 * (3 / 8 + 1 / 5)
    assert (law.log_mean, law.log_variance) == pytest.approx((-spread / 2, spread))


def test_the_exact_law_becomes_the_log_normal_one():
    errors = []
    for width in (100, 1000):
        law = finite_width.gradient_law((3, *[width] * 10, 1))
        errors.append((law.exact_log_mean / law.log_mean - 1, law.exact_log_variance / law.log_variance - 1))
    assert np.all(np.array(errors[0]) / np.array(errors[1]) > 9)  # O(1 / width)
    assert np.max(np.abs(errors[1])) < 5e-3


def kernels_at_outputs(act, widths, w_std, b_std, draws, seed):
    rng, k = RNG(seed), b_std**2 + w_std**2  # one layer's preactivations are Gaussian given the layer before
    for n in widths[1:-1]:
        k = b_std**2 + w_std**2 * np.mean(act(np.sqrt(k)[..., None] * rng.standard_normal((draws, n))) ** 2, 1)
    return k


def test_fluctuations_of_the_kernel_are_exact_for_two_slopes():
    widths = (4, 9, 6, 1)
    last = forward(networks(RNG(5), widths, 60_000), X)[0][-1]
    kernels = np.mean(last**2, 1) / np.mean(X**2)
    found = fluctuation(widths)
    assert found.exact
    assert found.relative_variance == pytest.approx((1 + 5 / 9) * (1 + 5 / 6) - 1, rel=1e-10)
    assert SAMPLED.excess((kernels - 1) ** 2, found.relative_variance) < 1
    leaky = fluctuation(widths, ew.LeakyRelu(0.3), w_std=1.7)
    k = kernels_at_outputs(lambda z: np.where(z > 0, z, 0.3 * z), widths, 1.7, 0.0, 60_000, 6)
    mean = 1.7**2 * (1.7**2 * 1.09 / 2) ** 2
    assert leaky.exact
    assert SAMPLED.excess((k / mean - 1) ** 2, leaky.relative_variance) < 1


def test_fluctuations_of_other_kernels_are_right_to_first_order():
    errors = []
    for width in (20, 80):
        widths = (4, width, width, 1)
        found = fluctuation(widths, ew.Tanh(), w_std=1.5, b_std=0.3)
        assert not found.exact
        k = kernels_at_outputs(np.tanh, widths, 1.5, 0.3, 40_000, 7)
        errors.append(abs(k.var() / k.mean() ** 2 / found.relative_variance - 1))
    assert errors[0] < 0.1
    assert errors[1] < 0.03  # of which 0.7 % are standard errors of 40 000 draws
    with_bias = fluctuation((4, 200, 1), ew.Relu(), b_std=0.5)
    assert not with_bias.exact


def test_fluctuations_of_activations_whose_kinks_are_anywhere():
    clipped = lambda z: np.clip(z, -1.3, 1.3)
    density = lambda z: 2 * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)  # of both signs
    mean = lambda fn: sum(quad(lambda z: fn(z) * density(z), *ends, epsabs=1e-13)[0] for ends in ((0, 1.3), (1.3, 12)))
    square = mean(lambda z: clipped(z) ** 2)
    found = fluctuation((3, 50, 1), clipped, w_std=1.0)
    expected = (mean(lambda z: clipped(z) ** 4) / square**2 - 1) / 50
    assert found.relative_variance == pytest.approx(expected, rel=1e-10)


def arc_cosine_kernel(x, hidden):
    kernel = 2 * x @ x.T / x.shape[1]
    tangent = kernel.copy()
    for _ in range(hidden):
        std = np.sqrt(np.diag(kernel))
        angle = np.arccos(np.clip(kernel / np.outer(std, std), -1, 1))
        np.fill_diagonal(angle, 0.0)
        kernel = np.outer(std, std) * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / np.pi
        tangent = kernel + tangent * (1 - angle / np.pi)
    return tangent


ROWS = np.array([[1.0, 0.3, -0.5, 0.2], [0.4, -1.0, 0.1, 0.7], [-0.6, 0.2, 1.1, 0.3]])


@pytest.mark.parametrize("hidden", [(), (6,), (8, 5), (10, 10, 10)])
def test_the_expected_tangent_kernel_is_that_of_the_formula_and_of_the_library(hidden):
    found = finite_width.expected_ntk((4, *hidden, 1), ROWS)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, arc_cosine_kernel(ROWS, len(hidden)), rtol=1e-10)
    np.testing.assert_allclose(np.diag(found), 2 * (len(hidden) + 1) * np.sum(ROWS**2, 1) / 4, rtol=1e-12)
    layers = [layer for _ in hidden for layer in (ew.Dense(w_std=2**0.5), ew.Relu())]
    np.testing.assert_allclose(found, ew.ntk(ew.Serial(*layers, ew.Dense(1, w_std=2**0.5)), ROWS), rtol=1e-13)


def test_mean_tangent_kernels_of_networks_with_one_hidden_layer():
    draws = tangent_kernels(networks(RNG(8), (4, 3, 1), 40_000), ROWS)
    assert SAMPLED.excess(draws, finite_width.expected_ntk((4, 3, 1), ROWS)) < 1  # the whole matrix, at width 3


@pytest.mark.parametrize("hidden", [(8, 5), (6, 4, 5)])
def test_mean_and_variance_of_the_diagonal_of_deeper_networks(hidden):
    widths = (4, *hidden, 1)
    draws = tangent_kernels(networks(RNG(9), widths, 30_000), ROWS)
    mean, spread = (
        finite_width.expected_ntk(widths, ROWS),
        fluctuation(widths, which="ntk").relative_variance,
    )
    diagonal = np.einsum("dii->di", draws) / np.diag(mean)
    assert SAMPLED.excess(diagonal, np.ones(3)) < 1
    assert SAMPLED.excess(diagonal**2, np.full(3, 1 + spread)) < 1
    product = np.outer(np.diag(mean), np.diag(mean))
    assert np.all((draws**2).mean(0) / product <= (1 + spread) * 1.1)  # entries off the diagonal: only a bound


def test_off_the_diagonal_deeper_networks_differ_by_the_inverse_of_their_width():
    errors = []
    for width, count in ((2, 60_000), (16, 20_000)):
        draws = tangent_kernels(networks(RNG(10), (4, width, width, 1), count), ROWS)
        gap = draws[:, 0, 2] - finite_width.expected_ntk((4, width, width, 1), ROWS)[0, 2]
        errors.append((abs(gap.mean()), gap.std() / count**0.5))
    assert errors[0][0] > 5 * errors[0][1]  # the limit is not the mean
    assert errors[1][0] < errors[0][0] / 4 + 3 * errors[1][1]


def test_fluctuations_of_the_tangent_kernel_at_single_layers_and_in_print():
    for n in (1, 6, 50):
        assert fluctuation((4, n, 1), which="ntk").relative_variance == pytest.approx(3 / n, rel=1e-12)
    assert fluctuation((4, 1), which="ntk") == (0.0, True, 1.0)
    # 4000 networks of width 20 gave 1.35 at depth 2 and 4.04 at depth 8, where exp(5 sum 1/n) is 1.65 and 7.39.
    assert 1 + fluctuation((4, 20, 20, 1), which="ntk").relative_variance == pytest.approx(1.35, abs=0.02)
    assert fluctuation((4, *[20] * 8, 1), which="ntk").growth == pytest.approx(7.389, abs=1e-3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: finite_width.gradient_law((5,)), "from the inputs to the outputs"),
        (lambda: finite_width.gradient_law((5, 0, 1)), "whole numbers above 0"),
        (lambda: layer_widths((5, 2.5, 1)), "whole numbers above 0"),
        (lambda: finite_width.gradient_law((5, 4, 1), kurtosis=0.5), "at least 1"),
        (lambda: finite_width.gradient_law((5, 4, 1), kurtosis=float("nan")), "at least 1"),
        (lambda: finite_width.gradient_law((5, 4, 1)).sample_norm(0), "n=0"),
        (lambda: fluctuation((5, 4, 1), w_std=-1.0), "above 0"),
        (lambda: fluctuation((5, 4, 1), lambda z: 0 * z), "no kernel"),
        (lambda: fluctuation((5, 4, 1), lambda z: 1 / (z * 0)), "finite"),
        (lambda: fluctuation((5, 4, 1), lambda z: z.sum()), "element by element"),
        (lambda: fluctuation((5, 4, 1), which="ntk", b_std=0.1), "no biases"),
        (lambda: fluctuation((5, 4, 1), ew.Tanh(), which="ntk"), "ReLU"),
        (lambda: fluctuation((5, 4, 1), which="both"), "which="),
        (lambda: finite_width.expected_ntk((5, 4, 1), np.eye(3)), r"\(n, 5\)"),
        (lambda: finite_width.expected_ntk((1, 4, 1), [[np.nan]]), "finite"),
    ],
)
def test_what_cannot_be_meant_is_refused(call, message):
    with pytest.raises((InputError, ArchitectureError), match=message):
        call()
