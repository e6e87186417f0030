"""Evidence of kernels, against scipy's Gaussians, refits and difference quotients."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from everwide.spectral import KernelError, evidence

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))
K = np.exp(-0.5 * np.sum((X[:, None] - X) ** 2, -1))
Y = RNG.normal(size=(12, 2))
NOISE = 0.1


def test_likelihood_is_that_of_gaussians_with_the_best_amplitude():
    def loss(log_amplitude):
        cov = np.exp(log_amplitude) * (K + NOISE * np.eye(12))
        return -sum(scipy.stats.multivariate_normal(np.zeros(12), cov).logpdf(y) for y in Y.T) / 24

    best = scipy.optimize.minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9}).fun
    np.testing.assert_allclose(evidence(K, Y, NOISE).value + 0.5 * np.log(2 * np.pi) + 0.5, best, rtol=1e-7)


def test_left_out_is_what_refits_leave():
    errors = []
    for i in range(12):
        rest = np.delete(np.arange(12), i)
        weights = np.linalg.solve(K[np.ix_(rest, rest)] + NOISE * np.eye(11), Y[rest])
        errors.append(np.mean((Y[i] - K[i, rest] @ weights) ** 2))
    np.testing.assert_allclose(np.exp(2 * evidence(K, Y, NOISE, by="left_out").value), np.mean(errors), rtol=1e-9)


@pytest.mark.parametrize("by", ["likelihood", "left_out"])
def test_slopes_are_limits_of_difference_quotients(by):
    way = RNG.normal(size=(12, 12))
    way, h = way + way.T, 1e-6
    up, down = (evidence(K + sign * h * way, Y, NOISE, by=by).value for sign in (1, -1))
    np.testing.assert_allclose(np.sum(evidence(K, Y, NOISE, by=by).slope * way), (up - down) / (2 * h), rtol=1e-5)


def test_bad_kernels_are_named():
    with pytest.raises(KernelError, match="not positive definite"):
        evidence(-K, Y, NOISE)
    with pytest.raises(ValueError, match=r"kernel \(12, 12\) and y \(3, 2\)"):
        evidence(K, Y[:3], NOISE)
    for kernel, y, said in ((K * np.nan, Y, "kernel holds nan"), (K, Y * np.inf, "y holds"), (K, Y[:0], "y is empty")):
        with pytest.raises(ValueError, match=said):
            evidence(kernel, y, NOISE)
    with pytest.raises(ValueError, match="noise"):
        evidence(K, Y, -1.0)
