"""How many linear regions are expected: against closed forms, the kernel, quadrature and simulated networks."""

import itertools

import numpy as np
import pytest
import scipy.integrate

import everwide as ew
import everwide.theory.regions as rg

pytestmark = pytest.mark.once


def drawn(rng, widths, bias_variance=0.3):
    """He initialization: matrices (out, in) and biases."""
    return [
        (rng.normal(size=(n, m)) * np.sqrt(2 / m), np.sqrt(bias_variance) * rng.normal(size=n))
        for m, n in itertools.pairwise(widths)
    ]


def relu_stack(depth, width, w_std=2**0.5, b_std=0.3**0.5):
    return ew.Serial(*(ew.Dense(width, w_std=w_std, b_std=b_std), ew.Relu()) * depth, ew.Dense(1))


def test_one_layer_bends_by_a_cauchy_law():
    s, low, high = np.sqrt(0.3 / 2), -1.0, 2.0
    found = rg.expected_regions(relu_stack(1, 50), [low], [high])
    expected = 50 * (np.arctan(high / s) - np.arctan(low / s)) / np.pi
    assert found.count == pytest.approx(1 + expected, rel=1e-10)
    # in any dimension: the angle between the two ends, with the bias as one more coordinate
    p, q = np.array([1.0, -2.0, 0.5]), np.array([-1.0, 1.0, 0.7])
    a, b = (np.append(v * np.sqrt(2 / 3), np.sqrt(0.3)) for v in (p, q))
    angle = np.arccos(a @ b / np.sqrt((a @ a) * (b @ b)))
    assert rg.expected_regions(relu_stack(1, 50), p, q).breakpoints[0] == pytest.approx(50 * angle / np.pi, rel=1e-10)


def test_deep_rates_are_those_of_the_kernel_recursion():
    """With critical variances and one input, `K_l = l b^2 + 2 x^2` with derivatives `2 x` and 2."""
    rate = lambda x, b2: np.sqrt(2 * b2) / (b2 + 2 * x * x) / np.pi
    for b2 in (0.3, 1e-8):
        bends = lambda level: 60 * scipy.integrate.quad(rate, -1, 2, (level,), points=[0], limit=200)[0]
        expected = [bends(layers * b2) for layers in (1, 2, 3)]
        found = rg.expected_regions(relu_stack(3, 60, b_std=b2**0.5), [-1.0], [2.0])
        np.testing.assert_allclose(found.breakpoints, expected, rtol=1e-7)
    assert rg.expected_regions(relu_stack(3, 60), [-1.0], [2.0]).count == pytest.approx(138.15, abs=0.01)


def test_deep_rates_are_those_of_the_kernel():
    """Kac and Rice's rate from differences of the NNGP kernel, for a sum of two branches with means."""
    branch = lambda shift, f: ew.Serial(ew.Dense(9, b_std=shift), f)
    before = ew.Serial(
        ew.Sum(branch(0.5, ew.activations.Abs()), branch(0.1, ew.LeakyRelu(0.2))), ew.Dense(9, b_std=0.2)
    )
    p, q, h = np.array([0.1, 0.1]), np.array([4.0, -2.0]), 1e-4
    x, w = np.polynomial.legendre.leggauss(24)
    times = (x + 1) / 2
    points = p + np.stack([times - h, times, times + h], 1)[..., None] * (q - p)
    kernel = ew.nngp(before, points.reshape(-1, 2)).reshape(24, 3, 24, 3)
    k = kernel[np.arange(24), :, np.arange(24), :]
    var, cov = k[:, 1, 1], (k[:, 2, 1] - k[:, 0, 1]) / (2 * h)
    slope = (k[:, 2, 2] - 2 * k[:, 2, 0] + k[:, 0, 0]) / (4 * h * h)
    expected = 9 * np.sum(w / 2 * np.sqrt(slope / var - (cov / var) ** 2)) / np.pi
    found = rg.expected_regions(ew.Serial(before, ew.Relu(), ew.Dense(1)), p, q)
    assert found.breakpoints[-1] == pytest.approx(expected, rel=1e-3)


def test_deep_networks_bend_as_often_as_expected():
    """Sign changes of simulated units on a fine grid: the mean over 40 networks, within 3.5 standard errors."""
    rng = np.random.default_rng(8)
    x = np.linspace(-1, 2, 3001)[None]
    counts = []
    for _ in range(40):
        h, bends = x, 0
        for w, b in drawn(rng, [1, 60, 60, 60]):
            z = w @ h + b[:, None]
            bends += np.sum(np.diff(z > 0, axis=1))
            h = np.maximum(z, 0)
        counts.append(1 + bends)
    error = np.std(counts) / np.sqrt(len(counts))
    assert error < 2
    assert abs(np.mean(counts) - rg.expected_regions(relu_stack(3, 60), [-1.0], [2.0]).count) < 3.5 * error


def test_other_activations_sums_and_means_bend_as_often_as_expected():
    """Knots off zero, branches with means, shares of channels: within 3.5 standard errors of 60 networks."""
    rng, n = np.random.default_rng(9), 100
    net = ew.Serial(
        ew.Dense(n, w_std=1.4, b_std=0.3),
        ew.activations.HardTanh(),
        ew.Sum(ew.Serial(ew.Dense(n, w_std=1.2), ew.Relu()), ew.Serial(ew.Dense(n, b_std=0.5), ew.activations.Abs())),
        ew.Dense(n, w_std=1.1),
        ew.LeakyRelu(0.1),
        ew.Concat(ew.Dense(n), ew.layers.Scale(0.5)),
        ew.Dense(n, b_std=0.1),
        ew.Relu(),
        ew.Dense(1),
    )
    p, q = np.array([1.0, -2.0, 0.5]), np.array([-1.0, 1.0, 0.7])
    t = np.linspace(0, 1, 301)
    dense = lambda h, w, b=0.0: w * rng.normal(size=(n, len(h))) @ h / np.sqrt(len(h)) + b * rng.normal(size=(n, 1))
    crossed = lambda z, *knots: sum(np.sum(np.diff(z > k, axis=1)) for k in knots)
    counts = []
    for _ in range(60):
        z1 = dense(p[:, None] + np.outer(q - p, t), 1.4, 0.3)
        h = np.clip(z1, -1, 1)
        z0, z2 = dense(h, 1.2), dense(h, 1.0, 0.5)
        z3 = dense(np.maximum(z0, 0) + np.abs(z2), 1.1)
        h = np.where(z3 > 0, z3, 0.1 * z3)
        z4 = dense(np.concatenate([dense(h, 1.0), 0.5 * h]), 1.0, 0.1)
        counts.append([crossed(z1, -1, 1), *(crossed(z, 0) for z in (z0, z2, z3, z4))])
    error = np.std(counts, 0) / np.sqrt(len(counts))
    found = rg.expected_regions(net, p, q).breakpoints
    assert np.all(error < 0.03 * found)
    assert np.all(np.abs(np.mean(counts, 0) - found) < 3.5 * error)
